#include "tests/sim/scheduler.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/log.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define CAUSEWAY_SIM_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace causeway::sim {
namespace {

#ifdef CAUSEWAY_SIM_ASAN
constexpr size_t kStackBytes = 1 << 20;
#else
constexpr size_t kStackBytes = 256 << 10;
#endif

}  // namespace

// ---- Fiber

Fiber::Fiber(Scheduler* scheduler, Process* process, std::function<void()> body)
    : scheduler_(scheduler), process_(process), body_(std::move(body)), stack_(scheduler->NewStack()) {
  CAUSEWAY_CHECK(getcontext(&context_) == 0);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  const uint64_t self = reinterpret_cast<uint64_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::Main), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

Fiber::~Fiber() {
#ifdef CAUSEWAY_SIM_ASAN
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
  scheduler_->stacks_.push_back(stack_);
}

void Fiber::Main(unsigned high, unsigned low) {
  Fiber* const self = reinterpret_cast<Fiber*>(uint64_t{high} << 32 | low);
  Scheduler* const scheduler = self->scheduler_;
#ifdef CAUSEWAY_SIM_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &scheduler->main_stack_bottom_, &scheduler->main_stack_size_);
#endif
  self->body_();
  self->body_ = nullptr;
  self->done_ = true;
  scheduler->SwitchToMain();
}

// ---- Process

Process::~Process() { CAUSEWAY_CHECK(fibers_.empty()); }

void Process::Reap() {
  CAUSEWAY_CHECK(dead_ && scheduler_->current_ == nullptr);
  waiters_.clear();
  while (!fibers_.empty()) {
    scheduler_->Resume(fibers_.front().get());  // To its end: nothing parks in a dead process.
  }
  std::erase(scheduler_->stirred_, this);
}

void Process::Spawn(std::function<void()> body) {
  fibers_.push_back(std::make_unique<Fiber>(scheduler_, this, std::move(body)));
  Fiber* const fiber = fibers_.back().get();
  scheduler_->Wake(this, scheduler_->NewWake(fiber), scheduler_->now_ + scheduler_->Jitter(absl::Microseconds(50)));
}

absl::Time Process::WallNow() { return scheduler_->wall_now(); }

absl::Time Process::Now() {
  if (!dead_) return scheduler_->now();
  // Every deadline has passed. Finite as long as it can be, since differences of times are multiplied.
  if (std::exchange(at_the_end_, false)) return absl::InfiniteFuture();
  return scheduler_->now() + absl::Hours(1000) * ++dead_looks_;
}

bool Process::AwaitUntil(Mutex* mu, CondVar* cv, absl::Time deadline) {
  if (dead_) at_the_end_ = deadline == absl::InfiniteFuture();
  if (dead_ || Now() >= deadline) return true;
  CAUSEWAY_CHECK(scheduler_->current_process() == this);
  mu->Unlock();
  waiters_.push_back({scheduler_->current_, cv, deadline});
  scheduler_->Park(deadline);
  mu->Lock();
  if (dead_) at_the_end_ = deadline == absl::InfiniteFuture();
  return dead_ || Now() >= deadline;
}

void Process::SleepFor(absl::Duration duration) {
  const absl::Time until = scheduler_->now() + duration;
  while (!dead_ && scheduler_->now() < until) scheduler_->Park(until);
}

// ---- WaitQueue

void WaitQueue::Wait(absl::Time deadline) {
  Fiber* const fiber = scheduler_->current_;
  CAUSEWAY_CHECK(fiber != nullptr);
  if (fiber->process_->dead_) return;
  waiting_.emplace_back(fiber->process_, scheduler_->NewWake(fiber));
  scheduler_->ParkFor(deadline);
}

void WaitQueue::WakeAll() {
  for (const auto& [process, wake] : waiting_) scheduler_->Wake(process, wake, scheduler_->now_);
  waiting_.clear();
}

// ---- Scheduler

Scheduler::Scheduler(uint64_t seed)
    : random_(seed), now_(absl::UnixEpoch() + absl::Hours(1)), wall_offset_(absl::Hours(500'000)) {}

Scheduler::~Scheduler() {
  for (void* stack : stacks_) munmap(stack, kStackBytes);
}

void* Scheduler::NewStack() {
  if (stacks_.empty()) {
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CAUSEWAY_CHECK(stack != MAP_FAILED);
    return stack;
  }
  void* stack = stacks_.back();
  stacks_.pop_back();
  return stack;
}

void Scheduler::At(absl::Time when, std::function<void()> event) {
  if (when == absl::InfiniteFuture()) return;
  events_.push_back({std::max(when, now_), next_order_++, std::move(event)});
  std::push_heap(events_.begin(), events_.end(), Later);
}

bool Scheduler::Step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end(), Later);
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.when;
  ++steps_;
  event.run();
  LetWaitersLook();
  return true;
}

// A condition variable cannot say whom it wakes here, so all of a process's waiters look whether what they wait for has come.
void Scheduler::LetWaitersLook() {
  for (int round = 0; !stirred_.empty(); ++round) {
    CAUSEWAY_CHECK(round < 1000);
    Process* const process = stirred_.front();
    stirred_.erase(stirred_.begin());
    process->stirred_ = false;
    std::vector<Process::Waiter> waiters;
    waiters.swap(process->waiters_);
    for (const Process::Waiter& waiter : waiters) {
      const bool stirred_before = process->stirred_;
      Resume(waiter.fiber);
      if (stirred_before || process->waiters_.empty()) continue;
      const Process::Waiter& last = process->waiters_.back();
      if (last.fiber == waiter.fiber && last.condition == waiter.condition && last.deadline == waiter.deadline) {
        process->stirred_ = false;  // It has only looked.
        stirred_.pop_back();
      }
    }
  }
}

void Scheduler::Park(absl::Time deadline) {
  CAUSEWAY_CHECK(current_ != nullptr);
  if (current_->process_->dead_) return;
  NewWake(current_);
  ParkFor(deadline);
}

void Scheduler::ParkFor(absl::Time deadline) {
  Wake(current_->process_, current_->wake_, deadline);
  SwitchToMain();
}

void Scheduler::Wake(Process* process, int64_t wake, absl::Time when) {
  At(when, [this, process, wake] {
    if (process->paused_until_ > now_ && !process->dead_) return Wake(process, wake, process->paused_until_);
    for (const auto& fiber : process->fibers_) {
      if (fiber->wake_ != wake) continue;
      std::erase_if(process->waiters_, [&](const Process::Waiter& waiter) { return waiter.fiber == fiber.get(); });
      Resume(fiber.get());
      return;
    }
  });
}

void Scheduler::Resume(Fiber* fiber) {
  CAUSEWAY_CHECK(current_ == nullptr);
  Process* const process = fiber->process_;
  fiber->wake_ = 0;
  current_ = fiber;
#ifdef CAUSEWAY_SIM_ASAN
  __sanitizer_start_switch_fiber(&main_fake_stack_, fiber->stack_, kStackBytes);
#endif
  CAUSEWAY_CHECK(swapcontext(&main_, &fiber->context_) == 0);
#ifdef CAUSEWAY_SIM_ASAN
  __sanitizer_finish_switch_fiber(main_fake_stack_, nullptr, nullptr);
#endif
  current_ = nullptr;
  if (!process->stirred_) {
    process->stirred_ = true;
    stirred_.push_back(process);
  }
  if (fiber->done_) {
    std::erase_if(process->fibers_, [&](const auto& known) { return known.get() == fiber; });
  }
}

void Scheduler::SwitchToMain() {
  Fiber* const fiber = current_;
#ifdef CAUSEWAY_SIM_ASAN
  __sanitizer_start_switch_fiber(fiber->done_ ? nullptr : &fiber->fake_stack_, main_stack_bottom_, main_stack_size_);
#endif
  CAUSEWAY_CHECK(swapcontext(&fiber->context_, &main_) == 0);
#ifdef CAUSEWAY_SIM_ASAN
  __sanitizer_finish_switch_fiber(fiber->fake_stack_, &main_stack_bottom_, &main_stack_size_);
#endif
}

// ---- Executor

namespace {

// A serial executor of a process. Every task is an event of its own, a little later than it was added, so that the tasks of several
// executors mix in ever other ways.
class SimExecutor : public Executor {
 public:
  SimExecutor(Scheduler* scheduler, Process* process, absl::Duration jitter)
      : scheduler_(scheduler), process_(process), jitter_(jitter), wake_(scheduler) {}
  ~SimExecutor() override { SimExecutor::Stop(); }

  void Start() override {
    if (std::exchange(started_, true)) return;
    process_->Spawn([this] { Run(); });
    running_ = true;
  }

  void Stop() override {
    stopping_ = true;
    wake_.WakeAll();
    while (running_ && !process_->dead()) scheduler_->Park(scheduler_->now() + absl::Milliseconds(1));
    if (running_) return;  // Killed meanwhile.
    // What the tasks own may come back here when it goes.
    std::deque<Task> dropped = std::exchange(ready_, {});
    auto timers = std::exchange(timers_, {});
  }

  void Add(Task task) override {
    if (stopping_ || process_->dead()) return;
    ready_.push_back(std::move(task));
    wake_.WakeAll();
  }

  TimerId AddAt(absl::Time when, Task task) override {
    const TimerId id = next_timer_++;
    if (stopping_ || process_->dead()) return id;
    timers_.emplace(when, std::pair(id, std::move(task)));
    wake_.WakeAll();
    return id;
  }

  void Cancel(TimerId id) override {
    for (auto it = timers_.begin(); it != timers_.end(); ++it) {
      if (it->second.first != id) continue;
      Task dropped = std::move(it->second.second);
      timers_.erase(it);
      return;
    }
  }

 private:
  bool Over() const { return stopping_ || process_->dead(); }

  void Run() {
    while (!Over()) {
      const absl::Time now = scheduler_->now();
      Task task;
      if (!timers_.empty() && timers_.begin()->first <= now) {
        task = std::move(timers_.begin()->second.second);
        timers_.erase(timers_.begin());
      } else if (!ready_.empty()) {
        task = std::move(ready_.front());
        ready_.pop_front();
      } else {
        wake_.Wait(timers_.empty() ? absl::InfiniteFuture() : timers_.begin()->first);
        continue;
      }
      process_->SleepFor(scheduler_->Jitter(jitter_));
      if (Over()) break;
      std::move(task)();
    }
    running_ = false;
  }

  Scheduler* const scheduler_;
  Process* const process_;
  const absl::Duration jitter_;
  WaitQueue wake_;
  bool started_ = false;
  bool running_ = false;
  bool stopping_ = false;
  std::deque<Task> ready_;
  std::multimap<absl::Time, std::pair<TimerId, Task>> timers_;
  TimerId next_timer_ = 1;
};

}  // namespace

std::unique_ptr<Executor> Process::MakeExecutor(const std::string&, absl::Duration jitter) {
  return std::make_unique<SimExecutor>(scheduler_, this, jitter);
}

}  // namespace causeway::sim
