#ifndef CAUSEWAY_SERVER_CONTRIBUTION_H_
#define CAUSEWAY_SERVER_CONTRIBUTION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "dataplane/layout.h"

namespace causeway::server {

// Why the values of a contribution are refused: part of the bounded set of docs/protocol.md, also a metric's label.
inline constexpr char kRejectNotFinite[] = "not_finite";
inline constexpr char kRejectOutOfRange[] = "out_of_range";  // Beyond FixedPoint::limit of its tensor.
inline constexpr char kRejectChangeTooLarge[] = "change_too_large";

// A refusal: InvalidArgument that carries one of the reasons beside its message, and the reason of such a status (empty
// if it has none).
absl::Status RejectionError(absl::string_view reason, absl::string_view message);
std::string RejectionReason(const absl::Status& status);

// Checks the values of a packed contribution against the committed model that it started from, in one pass, in blocks:
// floats finite and in range, and over the parameters |contribution - committed| <= max_change * max(1, |committed|) in
// the L2 norm. Buffers are not part of the norms.
// `change_ratio`, if not null, is set to the left side over max(1, |committed|).
// Errors: InvalidArgument with a reason (the first that is found, naming the tensor); InvalidArgument without one (the
// sizes do not fit), and those of reading.
absl::Status CheckContribution(const dataplane::Layout& layout, absl::Span<const uint8_t> committed,
                               const RandomAccessFile& part, double max_change, double* change_ratio = nullptr);

// The same for an initial model, which has nothing to be compared with: floats finite.
absl::Status CheckInitialModel(const dataplane::Layout& layout, const RandomAccessFile& part);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_CONTRIBUTION_H_
