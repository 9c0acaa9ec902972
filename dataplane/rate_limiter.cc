#include "dataplane/rate_limiter.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace causeway::dataplane {

absl::StatusOr<std::unique_ptr<RateLimiter>> RateLimiter::Create(const Options& options) {
  if (!(options.rate_bytes_per_s > 0)) return absl::InvalidArgumentError("a rate limit must be positive");
  if (options.burst_bytes <= 0) return absl::InvalidArgumentError("a rate limit's burst must be positive");
  if (options.clock == nullptr) return absl::InvalidArgumentError("a rate limit needs a clock");
  return absl::WrapUnique(new RateLimiter(options));
}

RateLimiter::RateLimiter(const Options& options)
    : options_(options), available_bytes_(static_cast<double>(options.burst_bytes)), refilled_(options.clock->Now()) {}

absl::Status RateLimiter::Acquire(int64_t size_bytes, int priority, absl::Time deadline) {
  if (size_bytes < 0 || size_bytes > options_.burst_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(size_bytes, " bytes at once; the limit's burst is ", options_.burst_bytes));
  }
  MutexLock lock(&mu_);
  RefillLocked(options_.clock->Now());
  const auto place = queue_.emplace(priority, arrivals_++).first;
  absl::Status status;
  while (true) {
    if (stopped_) {
      status = absl::CancelledError("the rate limiter was stopped");
      break;
    }
    const absl::Time now = options_.clock->Now();
    RefillLocked(now);
    const bool first = place == queue_.begin();
    const double missing_bytes = static_cast<double>(size_bytes) - available_bytes_;
    if (first && missing_bytes <= 0) {
      available_bytes_ -= static_cast<double>(size_bytes);
      break;
    }
    if (now >= deadline) {
      status = absl::DeadlineExceededError("waited in vain for the rate limiter");
      break;
    }
    absl::Time wake = deadline;
    // A microsecond more than computed, so that rounding does not wake us just too early.
    if (first)
      wake = std::min(wake, now + absl::Seconds(missing_bytes / options_.rate_bytes_per_s) + absl::Microseconds(1));
    options_.clock->AwaitUntil(&mu_, &changed_, wake);
  }
  queue_.erase(place);
  changed_.SignalAll();
  return status;
}

void RateLimiter::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  changed_.SignalAll();
}

void RateLimiter::RefillLocked(absl::Time now) {
  const double passed = absl::ToDoubleSeconds(now - refilled_) * options_.rate_bytes_per_s;
  const double refilled = available_bytes_ + passed;
  const double burst = static_cast<double>(options_.burst_bytes);
  // Idleness fills one burst at most. What a waiter oversleeps on a busy machine is not lost, or the rate would not be reached; but only
  // for those who go on at once: after a pause of a burst's time it would pass as a speed that the line does not have.
  const double most = passed >= burst ? burst : std::max(burst, available_bytes_);
  available_bytes_ = queue_.empty() ? std::min(refilled, most) : refilled;
  refilled_ = now;
}

}  // namespace causeway::dataplane
