#include "server/merge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/tensor_blocks.h"

namespace causeway::server {
FixedPoint FixedPointFor(double max_abs) {
  FixedPoint format;
  format.limit = std::max(0x1p10, 0x1p8 * max_abs);
  int exponent;
  const double fraction = std::frexp(format.limit, &exponent);  // limit = fraction * 2^exponent, fraction in [0.5, 1)
  format.scale = 62 - (fraction == 0.5 ? exponent - 1 : exponent);
  return format;
}

double MaxAbs(absl::Span<const uint8_t> packed_floats) {
  float max_abs = 0;
  bool finite = true;
  for (size_t i = 0; i + sizeof(float) <= packed_floats.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, packed_floats.data() + i, sizeof(value));
    const float magnitude = std::fabs(value);
    finite &= magnitude <= std::numeric_limits<float>::max();
    max_abs = std::max(max_abs, magnitude);
  }
  return finite ? max_abs : std::numeric_limits<double>::infinity();
}

absl::StatusOr<RoundSum> RoundSum::Create(const dataplane::Layout& layout, absl::Span<const uint8_t> committed,
                                          int64_t planned_samples) {
  if (static_cast<int64_t>(committed.size()) != layout.total_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the committed model has ", committed.size(), " bytes, its layout ", layout.total_bytes()));
  }
  if (planned_samples <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("a round of ", planned_samples, " planned samples"));
  }
  RoundSum sum;
  sum.layout_ = layout;
  sum.planned_samples_ = planned_samples;
  sum.sums_.assign(layout.total_elements(), 0);
  sum.formats_.resize(layout.tensors().size());
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const dataplane::TensorSpec& tensor = layout.tensors()[i];
    if (tensor.dtype != dataplane::DataType::kFloat32) continue;
    const double max_abs = MaxAbs(committed.subspan(layout.byte_offset(i), tensor.size_bytes()));
    if (!std::isfinite(max_abs)) {
      return absl::InvalidArgumentError(absl::StrCat("the committed tensor ", tensor.name, " is not finite"));
    }
    sum.formats_[i] = FixedPointFor(max_abs);
  }
  return sum;
}

absl::Status RoundSum::Add(const RandomAccessFile& part, int64_t samples, int64_t rank) {
  RETURN_IF_ERROR(status_);
  status_ = AddChecked(part, samples, rank);
  return status_;
}

absl::Status RoundSum::AddChecked(const RandomAccessFile& part, int64_t samples, int64_t rank) {
  if (part.size_bytes() != layout_.total_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a contribution of ", part.size_bytes(), " bytes, the model has ", layout_.total_bytes()));
  }
  if (samples < 0 || samples > planned_samples_ - samples_) {
    return absl::InvalidArgumentError(absl::StrCat("a contribution of ", samples, " samples; ", samples_, " of ",
                                                   planned_samples_, " planned ones are in"));
  }
  const auto place = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  if (place != ranks_.end() && *place == rank) {
    return absl::InvalidArgumentError(absl::StrCat("contributor ", rank, " is in already"));
  }
  if (samples == 0) return absl::OkStatus();
  const bool lowest_rank = place == ranks_.begin();
  ranks_.insert(place, rank);
  samples_ += samples;

  const double weight = static_cast<double>(samples) / static_cast<double>(planned_samples_);
  std::vector<float> floats;
  std::vector<int64_t> integers;
  for (size_t i = 0; i < layout_.tensors().size(); ++i) {
    const dataplane::TensorSpec& tensor = layout_.tensors()[i];
    int64_t* const sums = sums_.data() + layout_.element_offset(i);
    if (tensor.dtype == dataplane::DataType::kInt64) {
      if (!lowest_rank) continue;
      RETURN_IF_ERROR(internal::ForEachBlock(part, layout_.byte_offset(i), tensor.num_elements(), &integers,
                                             [&](const int64_t* values, int64_t begin, int64_t count) {
                                               std::copy(values, values + count, sums + begin);
                                               return absl::OkStatus();
                                             }));
      continue;
    }
    const double limit = formats_[i].limit;
    const double factor = std::ldexp(1.0, formats_[i].scale);
    RETURN_IF_ERROR(internal::ForEachBlock(
        part, layout_.byte_offset(i), tensor.num_elements(), &floats,
        [&](const float* values, int64_t begin, int64_t count) -> absl::Status {
          bool in_range = true;
          for (int64_t k = 0; k < count; ++k) {
            // Also false for NaN. Such a value adds nothing: converting it would be undefined.
            const bool good = std::fabs(values[k]) <= limit;
            in_range &= good;
            sums[begin + k] += std::llrint(weight * (good ? values[k] : 0.0) * factor);
          }
          if (in_range) return absl::OkStatus();
          return absl::InvalidArgumentError(absl::StrCat("a value of ", tensor.name, " is beyond ", limit));
        }));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint8_t>> RoundSum::Finish() {
  RETURN_IF_ERROR(status_);
  if (samples_ == 0) return absl::FailedPreconditionError("the contributions have no samples in total");
  const double weight = static_cast<double>(samples_) / static_cast<double>(planned_samples_);
  std::vector<uint8_t> packed(layout_.total_bytes());
  for (size_t i = 0; i < layout_.tensors().size(); ++i) {
    const dataplane::TensorSpec& tensor = layout_.tensors()[i];
    const int64_t* const sums = sums_.data() + layout_.element_offset(i);
    uint8_t* out = packed.data() + layout_.byte_offset(i);
    if (tensor.dtype == dataplane::DataType::kInt64) {
      if (tensor.num_elements() > 0) std::memcpy(out, sums, tensor.size_bytes());
      continue;
    }
    const double unit = std::ldexp(1.0, -formats_[i].scale);
    for (int64_t k = 0; k < tensor.num_elements(); ++k, out += sizeof(float)) {
      const float value = static_cast<float>(static_cast<double>(sums[k]) * unit / weight);
      std::memcpy(out, &value, sizeof(value));
    }
  }
  return packed;
}

}  // namespace causeway::server
