#ifndef CAUSEWAY_DATAPLANE_BANDWIDTH_H_
#define CAUSEWAY_DATAPLANE_BANDWIDTH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "dataplane/link.h"
#include "dataplane/transfer.h"

namespace causeway::dataplane {

inline constexpr absl::Duration kMaxProbeDuration = absl::Seconds(10);
inline constexpr int64_t kMaxProbeBytes = 256 << 20;

// What the line to the coordinator carries, bytes per second (> 0): between the first and the last frame, so that neither opening the
// stream nor one round trip counts. Sends for about `duration` or `max_bytes` (at least 2 frames of 64 KiB), whichever ends first. Blocks.
// Errors: InvalidArgument (above the limits), Cancelled, Unavailable, DeadlineExceeded (attempts used up), DataLoss, the peer's.
absl::StatusOr<double> MeasureDown(const TransferOptions& options, absl::Duration duration, int64_t max_bytes);
absl::StatusOr<double> MeasureUp(const TransferOptions& options, absl::Duration duration, int64_t max_bytes);

// The shortest of `repeats` round trips of an empty probe on open connections. Errors as above.
absl::StatusOr<absl::Duration> MeasureRoundTrip(const TransferOptions& options, int repeats = 5);

// Answers one probe; the request was the link's first frame. Errors: InvalidArgument (request above the limits), those of the link.
absl::Status ServeProbe(Link* link, const v1::ProbeRequest& request, const ServeOptions& options);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_BANDWIDTH_H_
