#ifndef CAUSEWAY_WORKER_STEP_RUNNER_H_
#define CAUSEWAY_WORKER_STEP_RUNNER_H_

#include <cstdint>
#include <stop_token>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "worker/model.h"
#include "worker/optimizer.h"
#include "worker/sample_decoder.h"
#include "worker/site_sync.h"

namespace causeway::worker {

// One step, or one batch of an evaluation: load, compute, and on an emulated device wait as long as a slower one would
// take. The trainer and the profiler share it, so that what is measured is what is done. Not thread-safe.
class StepRunner {
 public:
  struct Options {  // Nothing is owned; all outlive this.
    Model* model = nullptr;
    Optimizer* optimizer = nullptr;
    SiteSync* site_sync = nullptr;
    Clock* clock = nullptr;
    double slowdown = 1;  // >= 1: how many times slower than it is the device appears.
  };
  struct Result {
    BatchResult batch;
    absl::Duration elapsed;  // Steady time, the emulated slow-down included.
  };
  explicit StepRunner(const Options& options) : options_(options) {}

  // Forward, backward and an optimizer step on these samples. Number `step` of the round is passed on to the SiteSync.
  // Errors: those of BatchLoader::Load, Model::TrainBatch, SiteSync; Cancelled (stopped while it waited).
  absl::StatusOr<Result> Train(BatchLoader* loader, absl::Span<const int64_t> samples, double learning_rate,
                               int64_t step, std::stop_token stop);
  // Forward only. Errors: as Train.
  absl::StatusOr<Result> Evaluate(BatchLoader* loader, absl::Span<const int64_t> samples, std::stop_token stop);

 private:
  absl::StatusOr<absl::Duration> AppearSlower(absl::Time start, const std::stop_token& stop);

  const Options options_;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_STEP_RUNNER_H_
