#ifndef CAUSEWAY_BASE_MUTEX_H_
#define CAUSEWAY_BASE_MUTEX_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace causeway {

// Mutex and condition variable of the standard library, annotated for clang's -Wthread-safety. Not Abseil's: its timed waits go by the wall
// clock, so that a step back lengthens those that are under way; and Debian's is not instrumented for the thread sanitizer.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;  // Not owned; outlives this.
};

// Waits may return early; test the condition in a loop.
class CondVar {
 public:
  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }

  // Returns true when `timeout` (real, steady time) has passed.
  bool WaitFor(Mutex* mu, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    // Bounded, since chrono overflows on an infinite duration; callers loop.
    const auto wait = absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(1)));
#ifdef CAUSEWAY_WAIT_BY_WALL_CLOCK  // The only timed wait that the thread sanitizer of g++ 12 intercepts.
    const bool timed_out = cv_.wait_until(lock, std::chrono::system_clock::now() + wait) == std::cv_status::timeout;
#else
    const bool timed_out = cv_.wait_for(lock, wait) == std::cv_status::timeout;
#endif
    lock.release();
    return timed_out;
  }

  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace causeway

#endif  // CAUSEWAY_BASE_MUTEX_H_
