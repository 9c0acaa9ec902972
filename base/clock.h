#ifndef CAUSEWAY_BASE_CLOCK_H_
#define CAUSEWAY_BASE_CLOCK_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace causeway {

// Time as the program sees it: wall time for what is shown and stored, steady time for every duration and deadline.
//
// Thread-safe. The real clock is made by RealClock(); tests use tests/fakes/fake_clock.h.
class Clock {
 public:
  virtual ~Clock() = default;

  // Wall time. It may jump: never subtract two of these.
  virtual absl::Time WallNow() = 0;

  // Monotonic time since an arbitrary origin (represented as absl::Time so that deadlines add and compare naturally).
  virtual absl::Time Now() = 0;

  // Blocks until `deadline` (steady) has come or `cv` is signalled, `mu` released meanwhile. Returns true when the deadline
  // has passed. May return early; test the condition in a loop.
  virtual bool AwaitUntil(Mutex* mu, CondVar* cv, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) = 0;

  // Blocks the caller for `duration`.
  virtual void SleepFor(absl::Duration duration) = 0;
};

// The process's clock (CLOCK_REALTIME, CLOCK_MONOTONIC). Not owned by the caller; lives for ever.
Clock* RealClock();

}  // namespace causeway

#endif  // CAUSEWAY_BASE_CLOCK_H_
