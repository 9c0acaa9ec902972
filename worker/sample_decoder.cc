#include "worker/sample_decoder.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace causeway::worker {
namespace {

constexpr int64_t kMaxSampleElements = int64_t{1} << 30;

absl::Status CheckPerChannel(absl::string_view what, const std::vector<double>& values, int64_t channels) {
  if (values.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(values.size()) != channels) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", values.size(), " values for samples of ", channels, " channels"));
  }
  for (double value : values) {
    if (!std::isfinite(value)) return absl::InvalidArgumentError(absl::StrCat(what, " is not finite"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SampleDecoder> SampleDecoder::Create(const Options& options) {
  if (options.sample_shape.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples have ", options.sample_shape.size(), " dimensions, not channels, height and width"));
  }
  int64_t elements = 1;
  for (int64_t dimension : options.sample_shape) {
    if (dimension <= 0 || dimension > kMaxSampleElements / elements) {
      return absl::InvalidArgumentError(absl::StrCat("impossible sample dimension ", dimension));
    }
    elements *= dimension;
  }
  if (options.label_bytes < 1 || options.label_bytes > 8) {
    return absl::InvalidArgumentError(absl::StrCat("labels of ", options.label_bytes, " bytes; 1 to 8 are possible"));
  }
  if (options.classes < 1) return absl::InvalidArgumentError(absl::StrCat(options.classes, " classes"));
  const int64_t channels = options.sample_shape[0];
  RETURN_IF_ERROR(CheckPerChannel("mean", options.mean, channels));
  RETURN_IF_ERROR(CheckPerChannel("std", options.std, channels));

  SampleDecoder decoder;
  decoder.sample_elements_ = elements;
  decoder.pixels_per_channel_ = elements / channels;
  decoder.label_bytes_ = options.label_bytes;
  decoder.classes_ = options.classes;
  decoder.values_.reserve(channels * 256);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const double mean = options.mean.empty() ? 0 : options.mean[channel];
    const double std = options.std.empty() ? 1 : options.std[channel];
    if (std <= 0) return absl::InvalidArgumentError(absl::StrCat("std ", std, " is not positive"));
    for (int byte = 0; byte < 256; ++byte) decoder.values_.push_back(static_cast<float>((byte / 255.0 - mean) / std));
  }
  return decoder;
}

absl::Status SampleDecoder::Decode(absl::Span<const uint8_t> record, absl::Span<float> input, int64_t* label) const {
  if (static_cast<int64_t>(record.size()) != record_bytes() || static_cast<int64_t>(input.size()) != sample_elements_) {
    return absl::InvalidArgumentError(absl::StrCat("a record of ", record.size(), " bytes for ", input.size(),
                                                   " inputs; expected ", record_bytes(), " and ", sample_elements_));
  }
  const float* values = values_.data();
  for (int64_t begin = 0; begin < sample_elements_; begin += pixels_per_channel_, values += 256) {
    for (int64_t i = begin; i < begin + pixels_per_channel_; ++i) input[i] = values[record[i]];
  }
  uint64_t number = 0;
  for (int32_t i = label_bytes_ - 1; i >= 0; --i) number = number << 8 | record[sample_elements_ + i];
  if (number >= static_cast<uint64_t>(classes_)) {
    return absl::DataLossError(absl::StrCat("label ", number, " in a dataset of ", classes_, " classes"));
  }
  *label = static_cast<int64_t>(number);
  return absl::OkStatus();
}

absl::StatusOr<Batch> BatchLoader::Load(absl::Span<const int64_t> samples) {
  const int64_t elements = decoder_.sample_elements();
  record_.resize(decoder_.record_bytes());
  inputs_.resize(samples.size() * elements);
  labels_.resize(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    RETURN_IF_ERROR(source_->ReadRecord(samples[i], absl::MakeSpan(record_)), absl::StrCat("sample ", samples[i]));
    RETURN_IF_ERROR(decoder_.Decode(record_, absl::MakeSpan(inputs_).subspan(i * elements, elements), &labels_[i]),
                    absl::StrCat("sample ", samples[i]));
  }
  return Batch{.size = static_cast<int64_t>(samples.size()), .inputs = inputs_, .labels = labels_};
}

}  // namespace causeway::worker
