#ifndef CAUSEWAY_WORKER_TRAINER_H_
#define CAUSEWAY_WORKER_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "proto/job.pb.h"
#include "proto/membership.pb.h"
#include "worker/lr_schedule.h"
#include "worker/model.h"
#include "worker/optimizer.h"
#include "worker/sample_decoder.h"
#include "worker/sample_order.h"
#include "worker/sample_source.h"
#include "worker/site_sync.h"
#include "worker/step_runner.h"

namespace causeway::worker {

// The training loop of one job on this worker, the same for every method. It trains the model in place: whoever calls
// it loads the committed model before and saves it after. The optimizer's state lives as long as the trainer.
//
// Not thread-safe: one thread, on which progress is told too. Every call blocks until it is done or `stop` is
// requested.
class Trainer {
 public:
  struct Progress {
    int64_t steps_done = 0;
    int64_t steps_planned = 0;
    int64_t samples_done = 0;
    double train_loss = 0;  // Mean over the samples done in this round.
  };
  struct Options {
    v1::JobSpec spec;
    std::string worker;  // This worker's name, for its order of samples.
    v1::DatasetInfo train;
    v1::DatasetInfo test;
    double slowdown = 1;                               // Emulated; >= 1.
    std::function<void(const Progress&)> on_progress;  // After every step; must not block. May be empty.

    // Not owned; all outlive this.
    Model* model = nullptr;
    SiteSync* site_sync = nullptr;
    SampleSource* train_source = nullptr;
    SampleSource* test_source = nullptr;
    Clock* clock = nullptr;
  };
  // What a round came to. `samples` is the weight of the contribution: the task's planned_samples, fewer if it was cut short.
  struct RoundResult {
    int64_t samples = 0;
    int64_t steps = 0;
    double loss_mean = 0;  // Of the training loss, over the samples, each before its step.
    double compute_s = 0;  // Steady time of the steps, loading and the emulated slow-down included.
  };
  struct EvaluationResult {
    int64_t correct = 0;
    int64_t total = 0;
    double loss_sum = 0;
    double compute_s = 0;
  };

  // Errors: InvalidArgument (a spec, dataset or slow-down that is impossible).
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(Options options);

  // Steps [first_step, last_step) of the task's epoch over its ranges. A round that is done again (a larger attempt)
  // takes the same samples; the optimizer's state goes on from where it is.
  // `cut_short`, asked after every step, ends the round there; may be empty.
  // Errors: InvalidArgument (the task does not fit its ranges: the message has both), Cancelled (stop), those of
  // SampleSource, Model and SiteSync.
  absl::StatusOr<RoundResult> TrainRound(const v1::TrainTask& task, std::stop_token stop,
                                         const std::function<bool()>& cut_short = nullptr);

  // Counts over these test samples, without learning. Errors: as TrainRound.
  absl::StatusOr<EvaluationResult> Evaluate(const SampleRanges& ranges, std::stop_token stop);

  // Its state is what a restarted worker restores.
  Optimizer* optimizer() { return optimizer_.get(); }

 private:
  Trainer(Options options, std::unique_ptr<Optimizer> optimizer, LrSchedule schedule, SampleDecoder train_decoder,
          SampleDecoder test_decoder);

  const Options options_;
  const std::unique_ptr<Optimizer> optimizer_;
  const LrSchedule schedule_;
  BatchLoader train_loader_;
  BatchLoader test_loader_;
  StepRunner runner_;
};

// Samples of one evaluation batch.
inline constexpr int64_t kEvaluationBatch = 128;

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_TRAINER_H_
