#ifndef CAUSEWAY_BASE_MUTEX_H_
#define CAUSEWAY_BASE_MUTEX_H_

// Annotated mutex and condition variable: over absl in ordinary builds, over std under the thread sanitizer, because
// Debian's Abseil is not instrumented and would report false races there.

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

#ifdef CAUSEWAY_MUTEX_STD
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#else
#include "absl/synchronization/mutex.h"
#endif

namespace causeway {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

#ifdef CAUSEWAY_MUTEX_STD
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }
#else
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.Lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }
#endif

 private:
  friend class CondVar;
#ifdef CAUSEWAY_MUTEX_STD
  std::mutex mu_;
#else
  absl::Mutex mu_;
#endif
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
#ifdef CAUSEWAY_MUTEX_STD
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
#else
    cv_.Wait(&mu->mu_);
#endif
  }

  // Returns true when `timeout` (real time) has passed.
  bool WaitFor(Mutex* mu, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
#ifdef CAUSEWAY_MUTEX_STD
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    // Bounded, since chrono overflows on an infinite duration; callers loop.
    auto wait = absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(1)));
    // system_clock: the only one whose timed wait the thread sanitizer of g++ 12 intercepts.
    bool timed_out = cv_.wait_until(lock, std::chrono::system_clock::now() + wait) == std::cv_status::timeout;
    lock.release();
    return timed_out;
#else
    return cv_.WaitWithTimeout(&mu->mu_, timeout);
#endif
  }

#ifdef CAUSEWAY_MUTEX_STD
  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }
#else
  void Signal() { cv_.Signal(); }
  void SignalAll() { cv_.SignalAll(); }
#endif

 private:
#ifdef CAUSEWAY_MUTEX_STD
  std::condition_variable cv_;
#else
  absl::CondVar cv_;
#endif
};

}  // namespace causeway

#endif  // CAUSEWAY_BASE_MUTEX_H_
