#ifndef CAUSEWAY_WORKER_AGENT_H_
#define CAUSEWAY_WORKER_AGENT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file.h"
#include "base/mutex.h"
#include "dataplane/transfer.h"
#include "worker/agent_state.h"
#include "worker/bulk_dialer.h"
#include "worker/chunk_cache.h"
#include "worker/coordinator_client.h"
#include "worker/job_runner.h"
#include "worker/local_state.h"
#include "worker/metrics.h"
#include "worker/model.h"
#include "worker/progress_board.h"

namespace causeway::worker {

// How long a push whose task is no longer assigned is waited for: the contribution that completes a round takes the task away from its
// own sender, whose answer is then on its way. The next round's work starts when the answer is here or this has passed.
inline constexpr absl::Duration kAnswerGrace = absl::Seconds(2);

// The threads around AgentState and JobRunner: one for control, one that computes, one that fetches, one that measures the link, one for reports
// beside them.
//
// Thread-safe. Call order: Create, Start, Stop (idempotent; called by the destructor).
class Agent {
 public:
  struct Options {
    std::string worker;                // This worker's name, from its certificate.
    v1::RegisterRequest registration;  // Complete, incarnation included.
    double slowdown = 1;
    std::string dir;                      // Whose free space is told.
    dataplane::TransferOptions transfer;  // Without cancellation; its links come from `bulk`, directly or not.
    AgentState::Options state;
    absl::Duration answer_grace = kAnswerGrace;
    Backoff::Options report_backoff;
    // An operator asks for a new certificate; told again with each heartbeat until there is one. On the control thread; must not block.
    std::function<void()> renew_certificate;
    // The coordinator refuses this worker for good, with its reason; once, on the control thread. Nothing runs afterwards.
    std::function<void(const absl::Status&)> on_give_up;
    // Makes a serial executor, its thread named so. Empty: SerialExecutor.
    std::function<std::unique_ptr<Executor>(const std::string& name)> make_executor;
    // What was done is delivered, or there was nothing; once, on the control thread. Nothing is begun afterwards.
    std::function<void()> on_drained;

    // Not owned; all outlive this.
    CoordinatorClient* client = nullptr;
    BulkDialer* bulk = nullptr;  // Is told where the coordinator serves bulk.
    ModelFactory* factory = nullptr;
    ChunkCache* cache = nullptr;
    LocalState* local_state = nullptr;
    FileSystem* fs = nullptr;
    WorkerMetrics* metrics = nullptr;
    ProgressBoard* board = nullptr;
    Clock* clock = nullptr;
  };
  // Errors: InvalidArgument (a missing part).
  static absl::StatusOr<std::unique_ptr<Agent>> Create(Options options);
  ~Agent();

  void Start();
  // Begins nothing any more; the training that runs ends after its step and is delivered, then on_drained is called. The coordinator may
  // ask for the same. Idempotent.
  void Drain();
  // Cancels the tasks (a step that runs is finished), says goodbye to the coordinator if it is connected, joins all threads.
  void Stop();

 private:
  explicit Agent(Options options);
  std::unique_ptr<Executor> MakeExecutor(const std::string& name) const;

  // On the control thread.
  void Pump();
  void Register();
  void OpenStream();
  void SendHeartbeat();
  void OnResponse(int64_t stream, const v1::HeartbeatResponse& response);
  void OnClosed(int64_t stream, const absl::Status& status);
  void StartTask(const Task& task);
  void OnTaskEnded(const Task& task, const std::shared_ptr<TaskContext>& context, const TaskResult& result);
  void SayGoodbye();
  void SetConnected(bool connected);

  // Cancels what is no longer assigned, pushes after a grace. Returns when to call it again.
  absl::Time CancelUnwanted() ABSL_LOCKS_EXCLUDED(mu_);
  void CancelAll(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;

  // The control thread's.
  AgentState state_;
  Executor::TimerId timer_ = 0;
  std::unique_ptr<CoordinatorClient::HeartbeatStream> stream_;
  int64_t stream_number_ = 0;  // Events of former streams are dropped.
  int64_t heartbeat_sequence_ = 0;
  absl::Time heartbeat_sent_wall_;
  std::shared_ptr<JobRunner> runner_;
  std::map<TaskKind, int> failures_in_a_row_;
  bool given_up_ = false;
  bool drained_ = false;

  std::atomic<int64_t> site_generation_{0};

  Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // Tasks that run and reports that have not been answered; expired ones are swept.
  struct Live {
    Task task;
    std::weak_ptr<TaskContext> context;
    absl::Time cancel_at = absl::InfiniteFuture();  // A push that is not wanted any more.
  };
  std::vector<Live> live_ ABSL_GUARDED_BY(mu_);

  // Last, so that their threads end first.
  const std::unique_ptr<Executor> prober_;
  const std::unique_ptr<Executor> reporter_;
  const std::array<std::unique_ptr<Executor>, kNumLanes> lanes_;
  const std::unique_ptr<Executor> control_;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_AGENT_H_
