#ifndef CAUSEWAY_WORKER_AGENT_STATE_H_
#define CAUSEWAY_WORKER_AGENT_STATE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/backoff.h"
#include "proto/membership.pb.h"

namespace causeway::worker {

// Compute tasks come first to last in this order: a round's model is evaluated before it is trained.
enum class TaskKind {
  kPrepare,
  kProfile,
  kEvaluate,
  kTrain,
  // Data tasks.
  kShard,      // Fetch the assigned shard and report it.
  kTestData,   // Have what the evaluation needs in the cache (it often is there already).
  kTrainData,  // The same for training.
};
const char* TaskName(TaskKind kind);  // "prepare", ...

// Compute and data tasks run beside each other, one of each at a time.
enum class Lane { kCompute, kData };
inline constexpr int kNumLanes = 2;
Lane LaneOf(TaskKind kind);

// Something that an assignment wants done.
struct Task {
  TaskKind kind = TaskKind::kPrepare;
  std::string id;  // Equal ids are the same work.
  std::shared_ptr<const v1::Assignment> assignment;
};

// How a task ended that was not cancelled.
struct TaskResult {
  absl::Status status;
  bool try_again = false;     // Later, while it is wanted; otherwise an error is final for this task.
  bool data_damaged = false;  // What was taken to be in the cache is not: the data tasks go over it again.
};

// What the agent of a worker does next: connect, beat, start tasks, give up. It compares the newest assignment with what is done and says
// what to start; what is no longer wanted the caller finds with Wants.
//
// Pure state, no I/O: takes `now` (steady). Not thread-safe. After each event call Decide, carry out what it says and answer with the
// matching event; call it again when `wake_at` has come. A lost connection changes nothing of what is wanted.
class AgentState {
 public:
  struct Options {
    Backoff::Options reconnect;
    Backoff::Options retry_task;
  };
  struct Actions {
    bool close_stream = false;            // Silent for longer than the lease, or superseded.
    bool do_register = false;             // Answer: OnRegistered.
    bool open_stream = false;             // Answer: OnStreamOpened.
    bool send_heartbeat = false;          // With assignment_sequence().
    bool drop_job = false;                // Nothing of the job before is wanted any more, nor its memory.
    std::vector<Task> start;              // At most one per lane; answer: OnTaskEnded.
    std::optional<absl::Status> give_up;  // The coordinator will not have this worker; the reason.
    bool set_aside = false;               // Besides drop_job: the coordinator has been away for orphan_timeout.
    bool drained = false;                 // What was done is delivered; nothing is left to do.
    absl::Time wake_at = absl::InfiniteFuture();
  };

  explicit AgentState(const Options& options);

  Actions Decide(absl::Time now);

  void OnRegistered(absl::Time now, const absl::StatusOr<v1::RegisterResponse>& response);
  void OnStreamOpened(absl::Time now, const absl::Status& status);
  void OnStreamClosed(absl::Time now, const absl::Status& status);
  void OnHeartbeatResponse(absl::Time now, const v1::HeartbeatResponse& response);

  // Exactly once for each task of Actions::start. A cancelled one is neither done nor failed.
  void OnTaskEnded(absl::Time now, const Task& task, const TaskResult& result);

  // From now on nothing is begun; training that runs is to end after its step and be delivered. The assignment may say so too.
  void Drain() {
    draining_ = true;
    next_heartbeat_ = absl::InfinitePast();  // Tell at once, so that no further round is opened with this worker.
  }
  bool draining() const { return draining_; }
  // Whether `task`, a round's training, is to end after the step that runs and deliver what it has.
  bool DeliversNow(const Task& task) const;

  // Whether `task`, running or reporting its result, still serves the newest assignment.
  bool Wants(const Task& task) const;

  bool connected() const { return connection_ == Connection::kOpen; }
  absl::Time last_heard() const { return last_heard_; }
  const std::shared_ptr<const v1::Assignment>& assignment() const { return assignment_; }  // Never null.
  int64_t assignment_sequence() const { return acknowledged_; }
  int64_t site_generation() const { return site_generation_; }
  absl::Duration heartbeat_interval() const { return heartbeat_interval_; }

 private:
  enum class Connection { kDown, kRegistering, kRegistered, kOpening, kOpen };
  struct Retry {
    Backoff backoff;
    absl::Time at;
  };

  void Disconnect(absl::Time now, const absl::Status& why);
  void TakeAssignment(const v1::Assignment& assignment);
  void DropAssignment(std::shared_ptr<const v1::Assignment> next);
  std::vector<Task> WantedTasks() const;
  bool MayStart(const Task& task) const;

  const Options options_;

  Connection connection_ = Connection::kDown;
  bool close_stream_ = false;
  Backoff reconnect_backoff_;
  absl::Time reconnect_at_ = absl::InfinitePast();
  std::optional<absl::Status> give_up_;
  absl::Time last_heard_ = absl::InfinitePast();
  absl::Time next_heartbeat_ = absl::InfiniteFuture();
  absl::Duration heartbeat_interval_ = absl::Seconds(1);
  absl::Duration lease_ = absl::Seconds(10);
  int64_t site_generation_ = 0;
  int64_t coordinator_incarnation_ = 0;

  std::shared_ptr<const v1::Assignment> assignment_;
  int64_t acknowledged_ = 0;  // Sequence taken up in this registration.
  bool draining_ = false;
  bool drop_job_ = false;
  struct Running {
    Task task;
    // Begun under an earlier incarnation of the coordinator, which may be the one that answers it: its end proves nothing.
    bool outlived_coordinator = false;
  };
  std::array<std::optional<Running>, kNumLanes> running_;
  std::set<std::string> done_;    // Ids of the present job's tasks.
  std::set<std::string> failed_;  // For good.
  std::map<std::string, Retry> retries_;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_AGENT_STATE_H_
