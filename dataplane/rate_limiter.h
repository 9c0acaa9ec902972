#ifndef CAUSEWAY_DATAPLANE_RATE_LIMITER_H_
#define CAUSEWAY_DATAPLANE_RATE_LIMITER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace causeway::dataplane {

// A token bucket: limits how fast bytes pass.
//
// Thread-safe. Call order: Create (Acquire)* Stop. Stop wakes every waiter; a destructor must not run before they have returned.
class RateLimiter {
 public:
  struct Options {
    double rate_bytes_per_s = 0;    // > 0
    int64_t burst_bytes = 1 << 20;  // > 0; what may pass at once after idleness
    Clock* clock = nullptr;         // Not owned; outlives this.
  };
  // Errors: InvalidArgument (a rate or burst that is not positive, no clock).
  static absl::StatusOr<std::unique_ptr<RateLimiter>> Create(const Options& options);

  // Blocks until `size_bytes` may pass; priority 0 goes first, equals in order of arrival.
  // Errors: InvalidArgument (size_bytes negative or > burst_bytes), DeadlineExceeded (nothing was taken), Cancelled (Stop was called).
  absl::Status Acquire(int64_t size_bytes, int priority, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  int64_t burst_bytes() const { return options_.burst_bytes; }

 private:
  explicit RateLimiter(const Options& options);
  void RefillLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Mutex mu_;
  CondVar changed_;
  double available_bytes_ ABSL_GUARDED_BY(mu_);
  absl::Time refilled_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<int, int64_t>> queue_ ABSL_GUARDED_BY(mu_);  // (priority, arrival) of the waiters
  int64_t arrivals_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_RATE_LIMITER_H_
