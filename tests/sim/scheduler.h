#ifndef CAUSEWAY_TESTS_SIM_SCHEDULER_H_
#define CAUSEWAY_TESTS_SIM_SCHEDULER_H_

#include <ucontext.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"

namespace causeway::sim {

class Scheduler;
class Process;
class WaitQueue;

// A thread of the simulated program: a stack of its own, switched to and from by the scheduler alone.
class Fiber {
 public:
  Fiber(Scheduler* scheduler, Process* process, std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

 private:
  friend class Process;
  friend class Scheduler;
  friend class WaitQueue;
  static void Main(unsigned high, unsigned low);

  Scheduler* const scheduler_;
  Process* const process_;
  std::function<void()> body_;
  void* stack_ = nullptr;
  ucontext_t context_;
  bool done_ = false;
  int64_t wake_ = 0;            // The number of the wake-up that counts; earlier ones are void.
  void* fake_stack_ = nullptr;  // AddressSanitizer's.
};

// One life of a simulated program, from its start until it is killed or has ended.
//
// Killed, it does nothing more that anybody could notice: its clock is past every deadline, so that every wait of its fibers ends at
// once, and disk and network refuse it. Its fibers then run to their ends, and its objects can be destroyed; it itself lives as long as
// the scheduler has events.
class Process : public Clock {
 public:
  Process(Scheduler* scheduler, std::string name) : scheduler_(scheduler), name_(std::move(name)) {}
  ~Process() override;

  const std::string& name() const { return name_; }
  bool dead() const { return dead_; }
  void Kill() { dead_ = true; }
  // Its fibers stand still until then; what is due meanwhile happens afterwards.
  void Pause(absl::Time until) { paused_until_ = until; }
  // After Kill, not on a fiber of this process: runs its fibers to their ends.
  void Reap();

  void Spawn(std::function<void()> body);
  std::unique_ptr<Executor> MakeExecutor(const std::string& name, absl::Duration jitter);

  absl::Time WallNow() override;
  absl::Time Now() override;
  // Looks again whenever something has happened in this process.
  bool AwaitUntil(Mutex* mu, CondVar* cv, absl::Time deadline) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void SleepFor(absl::Duration duration) override;

 private:
  friend class Scheduler;
  friend class WaitQueue;
  Scheduler* const scheduler_;
  const std::string name_;
  bool dead_ = false;
  int64_t dead_looks_ = 0;
  bool at_the_end_ = false;  // The next look at the clock sees the end of time.
  absl::Time paused_until_ = absl::InfinitePast();
  bool stirred_ = false;  // Something has run since its waiters looked last.
  std::list<std::unique_ptr<Fiber>> fibers_;
  struct Waiter {  // In AwaitUntil.
    Fiber* fiber;
    const void* condition;
    absl::Time deadline;
  };
  std::vector<Waiter> waiters_;
};

// Fibers of one process that wait for something. The order of waking is that of waiting.
class WaitQueue {
 public:
  explicit WaitQueue(Scheduler* scheduler) : scheduler_(scheduler) {}
  // Parks the running fiber until WakeAll, `deadline`, or its process's death. May return early.
  void Wait(absl::Time deadline);
  void WakeAll();

 private:
  Scheduler* const scheduler_;
  std::vector<std::pair<Process*, int64_t>> waiting_;
};

// Runs a whole fleet on one thread in simulated time: events in order of their time, each followed by whatever it has set going. Equal
// seeds give equal runs.
class Scheduler {
 public:
  explicit Scheduler(uint64_t seed);
  ~Scheduler();

  absl::Time now() const { return now_; }
  absl::Time wall_now() const { return now_ + wall_offset_; }
  Random& random() { return random_; }
  bool OneIn(uint64_t n) { return n > 0 && random_.Below(n) == 0; }
  absl::Duration Jitter(absl::Duration max) { return max * random_.Uniform(); }

  // Runs `event` at `when`, outside of any fiber.
  void At(absl::Time when, std::function<void()> event);
  void After(absl::Duration delay, std::function<void()> event) { At(now_ + delay, std::move(event)); }

  // Runs the next event; false: there is none.
  bool Step();
  int64_t steps() const { return steps_; }

  // ---- For fibers
  Process* current_process() const { return current_ == nullptr ? nullptr : current_->process_; }
  // Parks the running fiber until it is woken or `deadline` has come. Returns at once in a dead process.
  void Park(absl::Time deadline);

 private:
  friend class Fiber;
  friend class Process;
  friend class WaitQueue;
  struct Event {
    absl::Time when;
    int64_t order;
    std::function<void()> run;
  };
  static bool Later(const Event& a, const Event& b) { return a.when != b.when ? a.when > b.when : a.order > b.order; }

  void Resume(Fiber* fiber);
  void SwitchToMain();
  int64_t NewWake(Fiber* fiber) { return fiber->wake_ = ++last_wake_; }
  void ParkFor(absl::Time deadline);
  void Wake(Process* process, int64_t wake, absl::Time when);
  void LetWaitersLook();
  void* NewStack();

  Random random_;
  absl::Time now_;
  const absl::Duration wall_offset_;
  std::vector<Event> events_;  // A heap.
  int64_t next_order_ = 0;
  int64_t steps_ = 0;
  int64_t last_wake_ = 0;
  ucontext_t main_;
  Fiber* current_ = nullptr;
  std::vector<Process*> stirred_;
  std::vector<void*> stacks_;  // Free ones.
  void* main_fake_stack_ = nullptr;
  const void* main_stack_bottom_ = nullptr;
  size_t main_stack_size_ = 0;
};

}  // namespace causeway::sim

#endif  // CAUSEWAY_TESTS_SIM_SCHEDULER_H_
