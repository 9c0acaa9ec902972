#include "server/contribution.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/merge.h"
#include "server/tensor_blocks.h"

namespace causeway::server {
namespace {

constexpr char kReasonPayload[] = "causeway/rejection";

absl::Status CheckSize(const dataplane::Layout& layout, const RandomAccessFile& part) {
  if (part.size_bytes() == layout.total_bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the model has ", part.size_bytes(), " bytes, its layout ", layout.total_bytes()));
}

// OK if all values are finite and within +-limit.
absl::Status CheckRange(const dataplane::TensorSpec& tensor, const float* values, int64_t count, double limit) {
  bool finite = true;
  bool in_range = true;
  for (int64_t k = 0; k < count; ++k) {
    const float magnitude = std::fabs(values[k]);
    finite &= magnitude <= std::numeric_limits<float>::max();
    in_range &= magnitude <= limit;
  }
  if (!finite)
    return RejectionError(kRejectNotFinite, absl::StrCat("tensor ", tensor.name, " has a value that is not finite"));
  if (!in_range) {
    return RejectionError(kRejectOutOfRange, absl::StrCat("tensor ", tensor.name, " has a value beyond +-", limit));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RejectionError(absl::string_view reason, absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kReasonPayload, absl::Cord(reason));
  return status;
}

std::string RejectionReason(const absl::Status& status) {
  absl::optional<absl::Cord> reason = status.GetPayload(kReasonPayload);
  return reason.has_value() ? std::string(*reason) : "";
}

absl::Status CheckContribution(const dataplane::Layout& layout, absl::Span<const uint8_t> committed,
                               const RandomAccessFile& part, double max_change, double* change_ratio) {
  RETURN_IF_ERROR(CheckSize(layout, part));
  if (static_cast<int64_t>(committed.size()) != layout.total_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the committed model has ", committed.size(), " bytes, its layout ", layout.total_bytes()));
  }
  double change_squares = 0;
  double committed_squares = 0;
  std::vector<float> buffer;
  for (int i = 0; i < static_cast<int>(layout.tensors().size()); ++i) {
    const dataplane::TensorSpec& tensor = layout.tensors()[i];
    if (tensor.dtype != dataplane::DataType::kFloat32) continue;
    const absl::Span<const uint8_t> old = committed.subspan(layout.byte_offset(i), tensor.size_bytes());
    const double limit = FixedPointFor(MaxAbs(old)).limit;
    RETURN_IF_ERROR(internal::ForEachBlock(part, layout.byte_offset(i), tensor.num_elements(), &buffer,
                                           [&](const float* values, int64_t first, int64_t count) -> absl::Status {
                                             RETURN_IF_ERROR(CheckRange(tensor, values, count, limit));
                                             if (tensor.kind != dataplane::TensorKind::kParameter)
                                               return absl::OkStatus();
                                             for (int64_t k = 0; k < count; ++k) {
                                               float before;  // The packed model is not aligned.
                                               std::memcpy(&before, old.data() + (first + k) * sizeof(before),
                                                           sizeof(before));
                                               const double change = static_cast<double>(values[k]) - before;
                                               change_squares += change * change;
                                               committed_squares += static_cast<double>(before) * before;
                                             }
                                             return absl::OkStatus();
                                           }));
  }
  const double change = std::sqrt(change_squares);
  const double size = std::max(1.0, std::sqrt(committed_squares));
  const double bound = max_change * size;
  if (change_ratio != nullptr) *change_ratio = change / size;
  if (change <= bound) return absl::OkStatus();
  return RejectionError(kRejectChangeTooLarge,
                        absl::StrCat("the parameters changed by ", change, " (L2), at most ", bound, " is allowed"));
}

absl::Status CheckInitialModel(const dataplane::Layout& layout, const RandomAccessFile& part) {
  RETURN_IF_ERROR(CheckSize(layout, part));
  std::vector<float> buffer;
  for (int i = 0; i < static_cast<int>(layout.tensors().size()); ++i) {
    const dataplane::TensorSpec& tensor = layout.tensors()[i];
    if (tensor.dtype != dataplane::DataType::kFloat32) continue;
    RETURN_IF_ERROR(internal::ForEachBlock(part, layout.byte_offset(i), tensor.num_elements(), &buffer,
                                           [&](const float* values, int64_t /*first*/, int64_t count) {
                                             return CheckRange(tensor, values, count,
                                                               std::numeric_limits<double>::infinity());
                                           }));
  }
  return absl::OkStatus();
}

}  // namespace causeway::server
