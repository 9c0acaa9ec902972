#include "base/clock.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"

namespace causeway {
namespace {

class SystemClock : public Clock {
 public:
  absl::Time WallNow() override { return absl::Now(); }

  absl::Time Now() override {
    return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }

  bool AwaitUntil(Mutex* mu, CondVar* cv, absl::Time deadline) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (absl::Duration left = deadline - Now(); left > absl::ZeroDuration()) cv->WaitFor(mu, left);
    return Now() >= deadline;
  }

  void SleepFor(absl::Duration duration) override { absl::SleepFor(duration); }
};

}  // namespace

Clock* RealClock() {
  static SystemClock* const clock = new SystemClock;
  return clock;
}

}  // namespace causeway
