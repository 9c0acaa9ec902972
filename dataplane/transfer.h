#ifndef CAUSEWAY_DATAPLANE_TRANSFER_H_
#define CAUSEWAY_DATAPLANE_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "dataplane/link.h"

namespace causeway::dataplane {

// How the streams of this room cut their bytes, and how far a push runs ahead of its acknowledgements. The two ends need not agree.
struct StreamSizes {
  int64_t frame_bytes = 256 << 10;  // At most kMaxPayloadBytes.
  int64_t window_bytes =
      8 << 20;  // A push: bytes under way that have not been acknowledged as received; at least ack_bytes + a frame.
  int64_t ack_bytes = 1 << 20;    // A push's listening side acknowledges at least this often,
  int64_t sync_bytes = 16 << 20;  // and syncs its sink this often.
};

// Lets one thread stop the transfers that run on others. Thread-safe. Outlives the transfers it was given to.
class Cancellation {
 public:
  // The first reason wins. Breaks the links in use and ends waits between attempts.
  void Cancel(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_);  // OK, or Cancelled with the reason.

  // Blocks until `deadline` (steady time of `clock`) or Cancel. Returns status().
  absl::Status SleepUntil(Clock* clock, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // While alive, Cancel also cancels `link`. `cancellation` may be null.
  class LinkScope {
   public:
    LinkScope(Cancellation* cancellation, Link* link);
    ~LinkScope();
    LinkScope(const LinkScope&) = delete;
    LinkScope& operator=(const LinkScope&) = delete;

   private:
    Cancellation* const cancellation_;
    Link* const link_;
  };

 private:
  mutable Mutex mu_;
  CondVar cancelled_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::set<Link*> links_ ABSL_GUARDED_BY(mu_);
};

// How the dialing side of a transfer behaves.
struct TransferOptions {
  LinkDialer* dialer = nullptr;                         // Not owned.
  Clock* clock = nullptr;                               // Not owned.
  Cancellation* cancellation = nullptr;                 // Not owned; null: cannot be cancelled.
  absl::Duration progress_timeout = absl::Seconds(30);  // For one frame, either way.
  int max_attempts = 8;  // In a row without a byte of progress; after a break the transfer goes on where it stopped.
  Backoff::Options backoff;
  StreamSizes sizes;
};

// How the listening side of a transfer behaves.
struct ServeOptions {
  Clock* clock = nullptr;  // Not owned.
  absl::Duration progress_timeout = absl::Seconds(30);
  StreamSizes sizes;
};

namespace internal {

// Runs `attempt` over fresh links of `kind` until it succeeds, gives an error that IsRetryable denies, or the attempts are used up.
// `attempt` sets *progress when it has got further than any attempt before it.
absl::Status RunAttempts(const TransferOptions& options, LinkKind kind,
                         const std::function<absl::Status(Link* link, bool* progress)>& attempt);

// Writes a frame, dialing side. When the peer has ended the stream, its status is worth more than "broken": it is read and returned.
absl::Status WriteFrame(Link* link, const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline);

// The next frame, where the stream must not end yet. Errors: DataLoss (it does), those of Link::Read.
absl::StatusOr<v1::Frame> ReadFrame(Link* link, absl::Time deadline);

// A data frame of a part or chunk, with the digest of `payload`.
v1::Frame DataFrame(absl::string_view sha256, int64_t offset, int64_t total_bytes, absl::Span<const uint8_t> payload);

// Checks a received frame: a data frame at `offset`, digest right, within `total_bytes`, empty only at the end. Errors: DataLoss.
absl::Status CheckDataFrame(const v1::Frame& frame, int64_t offset, int64_t total_bytes);

}  // namespace internal
}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_TRANSFER_H_
