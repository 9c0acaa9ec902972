#ifndef CAUSEWAY_DATAPLANE_EMULATED_LINK_H_
#define CAUSEWAY_DATAPLANE_EMULATED_LINK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "dataplane/link.h"
#include "dataplane/rate_limiter.h"

namespace causeway::dataplane {

// Makes all links of a dialer together as slow as a real line of the given rates (a worker's `emulate:` section). Every frame counts with
// its header. Thread-safe.
class EmulatedLinkDialer : public LinkDialer {
 public:
  struct Options {
    LinkDialer* dialer = nullptr;  // Not owned; outlives this, as this outlives its links.
    Clock* clock = nullptr;        // Not owned; outlives this.
    double up_bytes_per_s = 0;     // 0: no limit
    double down_bytes_per_s = 0;   // 0: no limit
  };
  // Errors: InvalidArgument (a negative rate; no dialer or clock).
  static absl::StatusOr<std::unique_ptr<EmulatedLinkDialer>> Create(const Options& options);

  absl::StatusOr<std::unique_ptr<Link>> Dial(LinkKind kind, absl::Time deadline) override;

 private:
  explicit EmulatedLinkDialer(const Options& options) : options_(options) {}

  const Options options_;
  std::unique_ptr<RateLimiter> up_;    // Null: no limit.
  std::unique_ptr<RateLimiter> down_;  // Null: no limit.
};

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_EMULATED_LINK_H_
