#ifndef CAUSEWAY_WORKER_JOB_RUNNER_H_
#define CAUSEWAY_WORKER_JOB_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "dataplane/transfer.h"
#include "proto/membership.pb.h"
#include "worker/agent_state.h"
#include "worker/chunk_cache.h"
#include "worker/coordinator_client.h"
#include "worker/dataset.h"
#include "worker/local_state.h"
#include "worker/metrics.h"
#include "worker/model.h"
#include "worker/progress_board.h"
#include "worker/round_exchange.h"
#include "worker/shard_fetcher.h"
#include "worker/site_sync.h"
#include "worker/trainer.h"

namespace causeway::worker {

// Stops one task from outside, steps and transfers alike. Thread-safe.
struct TaskContext {
  std::stop_source stop;
  dataplane::Cancellation cancellation;
  // Set by the task while it pushes: it is about to learn what has become of its work, and cancelling it then loses the answer.
  std::atomic<bool> awaits_answer{false};
  // Training is to end after the step that runs, and to be delivered as far as it has come.
  std::atomic<bool> deliver_now{false};
  void Cancel(absl::string_view reason) {
    cancellation.Cancel(reason);
    stop.request_stop();
  }
};

// Makes one of a worker's reports, again and again while it fails for reasons that pass. Blocks. OK: the coordinator has answered, if
// only to say no (which is logged, with the report's fence). Errors: Cancelled (`context`).
absl::Status ReportUntilAnswered(Clock* clock, const Backoff::Options& backoff, TaskContext* context,
                                 absl::string_view what, const v1::Fence& fence,
                                 const std::function<absl::Status(absl::Time deadline)>& call);

// Does the tasks of one job: builds its model, measures, fetches, evaluates, trains, and reports. What a task has come to is remembered,
// so that the same task asked for again (by a coordinator that was restarted) is answered without doing it twice.
//
// Two threads: Run is called by one thread for compute tasks and by one for data tasks.
class JobRunner {
 public:
  struct Options {
    std::string job;
    v1::JobSpec spec;
    std::string worker;  // This worker's name.
    int64_t incarnation = 0;
    double slowdown = 1;                       // Emulated; >= 1.
    std::function<int64_t()> site_generation;  // The newest. Thread-safe.
    dataplane::TransferOptions transfer;       // Without cancellation.
    Backoff::Options report_backoff;

    // Not owned; all outlive this.
    Executor* reporter = nullptr;  // Makes reports beside the tasks, so that training need not wait for them.
    Executor* prober = nullptr;    // Measures the link while the device computes.
    CoordinatorClient* client = nullptr;
    ModelFactory* factory = nullptr;
    ChunkCache* cache = nullptr;
    LocalState* state = nullptr;
    WorkerMetrics* metrics = nullptr;
    ProgressBoard* board = nullptr;
    Clock* clock = nullptr;
  };
  explicit JobRunner(Options options);

  const std::string& job() const { return options_.job; }

  // Does `task`, reports included. Blocks until it is done or `context` is cancelled.
  TaskResult Run(const Task& task, const std::shared_ptr<TaskContext>& context);

 private:
  // An error, and where it came from: what it means for the next try depends on that.
  enum class Source { kLocal, kTransfer };
  struct Failure {
    absl::Status status;
    Source source = Source::kLocal;
    bool ok() const { return status.ok(); }
  };

  Failure Prepare(const Task& task, TaskContext* context);
  Failure Profile(const Task& task, const std::shared_ptr<TaskContext>& context);
  Failure Evaluate(const Task& task, const std::shared_ptr<TaskContext>& context);
  Failure Train(const Task& task, TaskContext* context);
  Failure FetchData(const Task& task, TaskContext* context);

  // The steps of a round: afterwards the exchange keeps the contribution.
  Failure TrainRound(const Task& task, TaskContext* context);
  Failure LoadVersion(int64_t version, TaskContext* context);
  absl::Status RestoreOptimizer(const v1::TrainTask& task, bool* fresh);
  absl::Status EnsureModel();
  absl::Status EnsureTrainer();
  absl::StatusOr<v1::DeviceProfile> MeasureLink(double seconds, TaskContext* context);
  void OnStep(const Trainer::Progress& progress);
  absl::Status Report(TaskContext* context, absl::string_view what, const v1::Fence& fence,
                      const std::function<absl::Status(absl::Time)>& call);
  v1::Fence Fence(const Task& task) const;
  void LearnDatasets(const v1::Assignment& assignment);
  v1::ShardTask Datasets() const;
  static Failure PushFailure(absl::Status status);
  TaskResult Judge(const Task& task, const Failure& failure);

  const Options options_;
  const JobId job_id_;

  // ---- The computing thread's.
  std::unique_ptr<Model> model_;
  std::unique_ptr<SiteSync> site_sync_;
  std::unique_ptr<CachedSamples> train_source_;
  std::unique_ptr<CachedSamples> test_source_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<int64_t> optimizer_round_;  // After which round the optimizer's state in memory is; empty: none's.
  RoundExchange exchange_;
  std::string profiled_task_;
  v1::DeviceProfile profile_;
  std::string evaluated_task_;
  v1::ReportEvaluationRequest evaluation_;
  double evaluate_s_ = 0;  // Of evaluation_.
  double previous_push_s_ = 0;
  Trainer::Progress last_progress_;
  absl::Time last_step_;

  // ---- The data thread's.
  ShardFetcher fetcher_;
  struct Held {
    ShardFetcher::Held train;
    ShardFetcher::Held test;
  };
  std::map<TaskKind, Held> held_;

  mutable Mutex mu_;
  v1::ShardTask datasets_ ABSL_GUARDED_BY(mu_);  // train and test alone, as far as they are known.
  std::optional<DatasetIndex> train_index_ ABSL_GUARDED_BY(mu_);
  std::optional<DatasetIndex> test_index_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> damaged_ ABSL_GUARDED_BY(mu_);  // How often, by task.
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_JOB_RUNNER_H_
