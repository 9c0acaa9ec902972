#include "base/executor.h"

#include <pthread.h>

namespace causeway {

SerialExecutor::SerialExecutor(std::string name, Clock* clock) : name_(std::move(name)), clock_(clock) {}

SerialExecutor::~SerialExecutor() { Stop(); }

void SerialExecutor::Start() {
  MutexLock lock(&mu_);
  if (stopping_ || thread_.joinable()) return;
  thread_ = std::thread([this] { Run(); });
}

void SerialExecutor::Add(Task task) {
  MutexLock lock(&mu_);
  if (stopping_) return;
  ready_.push_back(std::move(task));
  wake_.Signal();
}

Executor::TimerId SerialExecutor::AddAt(absl::Time when, Task task) {
  MutexLock lock(&mu_);
  TimerId id = next_timer_++;
  if (stopping_) return id;
  timers_.emplace(when, std::make_pair(id, std::move(task)));
  wake_.Signal();
  return id;
}

void SerialExecutor::Cancel(TimerId id) {
  Task cancelled;  // Destroyed after the lock is released: what it captured may call us.
  MutexLock lock(&mu_);
  for (auto it = timers_.begin(); it != timers_.end(); ++it) {
    if (it->second.first != id) continue;
    cancelled = std::move(it->second.second);
    timers_.erase(it);
    return;
  }
}

void SerialExecutor::Stop() {
  std::thread thread;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.SignalAll();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();

  std::deque<Task> ready;
  std::multimap<absl::Time, std::pair<TimerId, Task>> timers;
  MutexLock lock(&mu_);
  ready.swap(ready_);
  timers.swap(timers_);
}

void SerialExecutor::Run() {
  SetThreadName(name_);
  while (true) {
    Task task;
    {
      MutexLock lock(&mu_);
      while (!task) {
        if (stopping_) return;
        if (!timers_.empty() && timers_.begin()->first <= clock_->Now()) {
          task = std::move(timers_.begin()->second.second);
          timers_.erase(timers_.begin());
        } else if (!ready_.empty()) {
          task = std::move(ready_.front());
          ready_.pop_front();
        } else if (timers_.empty()) {
          wake_.Wait(&mu_);
        } else {
          clock_->AwaitUntil(&mu_, &wake_, timers_.begin()->first);
        }
      }
    }
    std::move(task)();
  }
}

void SetThreadName(const std::string& name) { pthread_setname_np(pthread_self(), name.substr(0, 15).c_str()); }

}  // namespace causeway
