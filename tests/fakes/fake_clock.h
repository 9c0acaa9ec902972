#ifndef CAUSEWAY_TESTS_FAKES_FAKE_CLOCK_H_
#define CAUSEWAY_TESTS_FAKES_FAKE_CLOCK_H_

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace causeway {

// A clock that stands still until Advance is called. Thread-safe.
//
// Threads in AwaitUntil and SleepFor wake when Advance passes their deadline. A test that must not run ahead of the thread it tests
// calls AwaitWaiters first: the thread then waits for a time to come, and has done all it wanted to do before.
class FakeClock : public Clock {
 public:
  // Wall and steady time differ, so that code which mixes them up fails.
  explicit FakeClock(absl::Time wall_now = absl::FromUnixSeconds(1'800'000'000));

  absl::Time WallNow() override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time Now() override ABSL_LOCKS_EXCLUDED(mu_);
  bool AwaitUntil(Mutex* mu, CondVar* cv, absl::Time deadline) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu)
      ABSL_LOCKS_EXCLUDED(mu_);
  void SleepFor(absl::Duration duration) override ABSL_LOCKS_EXCLUDED(mu_);

  // Moves both times; duration >= 0.
  void Advance(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mu_);
  // Moves the wall time alone, in either direction.
  void JumpWall(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until at least `count` threads wait for a time to come. Returns false when 10 s of real time were not enough.
  [[nodiscard]] bool AwaitWaiters(int count) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  absl::Time wall_now_ ABSL_GUARDED_BY(mu_);
  absl::Time now_ ABSL_GUARDED_BY(mu_);
  int waiters_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FAKES_FAKE_CLOCK_H_
