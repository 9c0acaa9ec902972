#ifndef CAUSEWAY_BASE_EXECUTOR_H_
#define CAUSEWAY_BASE_EXECUTOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace causeway {

// Runs closures in the order they were added, one at a time.
class Executor {
 public:
  using Task = absl::AnyInvocable<void() &&>;
  using TimerId = int64_t;
  virtual ~Executor() = default;

  // What was added before Start waits for it.
  virtual void Start() = 0;
  // Finishes the running task and drops the rest. Idempotent; not from a task of this executor.
  virtual void Stop() = 0;

  // Adds a task; it runs later, never inside this call. After Stop it is dropped (destroyed without running).
  virtual void Add(Task task) = 0;

  // Runs `task` at steady time `when` or soon after, in order of `when`. Returns an id for Cancel; ids are never reused.
  virtual TimerId AddAt(absl::Time when, Task task) = 0;

  // The task will not start after this returns, unless it is running already.
  virtual void Cancel(TimerId id) = 0;
};

// A serial executor with one named thread of its own.
//
// Thread-safe. Call order: constructor, Start, (Add | AddAt | Cancel)*, Stop; what is added before Start waits for it. Due timers go
// before what Add queued. Stop finishes the running task, drops the rest and joins;
// it is idempotent, must not be called from the executor's own thread, and is called by the destructor.
class SerialExecutor : public Executor {
 public:
  // `name` (at most 15 characters are shown by the system) names the thread. `clock` is not owned and outlives this.
  SerialExecutor(std::string name, Clock* clock);
  ~SerialExecutor() override;

  void Start() override ABSL_LOCKS_EXCLUDED(mu_);
  void Add(Task task) override ABSL_LOCKS_EXCLUDED(mu_);
  TimerId AddAt(absl::Time when, Task task) override ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(TimerId id) override ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const std::string name_;
  Clock* const clock_;
  Mutex mu_;
  CondVar wake_;
  std::thread thread_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Task> ready_ ABSL_GUARDED_BY(mu_);
  std::multimap<absl::Time, std::pair<TimerId, Task>> timers_ ABSL_GUARDED_BY(mu_);
  TimerId next_timer_ ABSL_GUARDED_BY(mu_) = 1;
};

// Names the calling thread for debuggers and `top -H` (15 characters are kept).
void SetThreadName(const std::string& name);

}  // namespace causeway

#endif  // CAUSEWAY_BASE_EXECUTOR_H_
