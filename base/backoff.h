#ifndef CAUSEWAY_BASE_BACKOFF_H_
#define CAUSEWAY_BASE_BACKOFF_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/random.h"

namespace causeway {

// Delays between retries: exponential with full jitter, from a seeded generator. Not thread-safe.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(100);
    absl::Duration max = absl::Seconds(5);
    double factor = 2;
    uint64_t seed = 1;
  };
  explicit Backoff(const Options& options);
  // The next delay, in (0, min(max, initial * factor^n)], never below a quarter of that bound.
  absl::Duration Next();
  void Reset();

 private:
  const Options options_;
  Random random_;
  int attempts_ = 0;
};

// The one predicate that decides retries (docs/protocol.md): Unavailable and DeadlineExceeded are worth another try; everything else
// is an answer.
bool IsRetryable(const absl::Status& status);

}  // namespace causeway

#endif  // CAUSEWAY_BASE_BACKOFF_H_
