#include "tests/fakes/fake_clock.h"

#include "base/log.h"

namespace causeway {

FakeClock::FakeClock(absl::Time wall_now) : wall_now_(wall_now), now_(absl::UnixEpoch() + absl::Hours(1)) {}

absl::Time FakeClock::WallNow() {
  MutexLock lock(&mu_);
  return wall_now_;
}

absl::Time FakeClock::Now() {
  MutexLock lock(&mu_);
  return now_;
}

bool FakeClock::AwaitUntil(Mutex* mu, CondVar* cv, absl::Time deadline) {
  auto add_waiters = [this](int change) {
    MutexLock lock(&mu_);
    waiters_ += change;
  };
  if (Now() >= deadline) return true;
  add_waiters(1);
  // Returns every millisecond, so that Advance needs to know neither `mu`, which its caller may hold, nor `cv`. It must return and not
  // wait again: a signal given just after the millisecond would be lost.
  cv->WaitFor(mu, absl::Milliseconds(1));
  add_waiters(-1);
  return Now() >= deadline;
}

void FakeClock::SleepFor(absl::Duration duration) {
  Mutex mu;
  CondVar never;
  absl::Time deadline = Now() + duration;
  MutexLock lock(&mu);
  while (!AwaitUntil(&mu, &never, deadline)) {
  }
}

void FakeClock::Advance(absl::Duration duration) {
  CAUSEWAY_CHECK(duration >= absl::ZeroDuration());
  MutexLock lock(&mu_);
  now_ += duration;
  wall_now_ += duration;
}

void FakeClock::JumpWall(absl::Duration duration) {
  MutexLock lock(&mu_);
  wall_now_ += duration;
}

bool FakeClock::AwaitWaiters(int count) {
  Clock* real = RealClock();
  const absl::Time deadline = real->Now() + absl::Seconds(10);
  while (real->Now() < deadline) {
    {
      MutexLock lock(&mu_);
      if (waiters_ >= count) return true;
    }
    real->SleepFor(absl::Milliseconds(1));
  }
  return false;
}

}  // namespace causeway
