#ifndef CAUSEWAY_WORKER_SAMPLE_DECODER_H_
#define CAUSEWAY_WORKER_SAMPLE_DECODER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/model.h"
#include "worker/sample_source.h"

namespace causeway::worker {

// Turns records into what a model takes. A record is the sample's pixels (uint8, [channels, height, width]) and behind
// them its label (little-endian). Immutable, so thread-safe.
class SampleDecoder {
 public:
  struct Options {
    std::vector<int64_t> sample_shape;  // [channels, height, width], each > 0
    int32_t label_bytes = 1;            // 1 to 8
    std::vector<double> mean;           // Per channel, on pixels scaled to [0, 1]; empty: 0.
    std::vector<double> std;            // Per channel, > 0; empty: 1.
    int32_t classes = 10;
  };
  // Errors: InvalidArgument (a shape, size or number out of range).
  static absl::StatusOr<SampleDecoder> Create(const Options& options);

  int64_t record_bytes() const { return sample_elements_ + label_bytes_; }
  int64_t sample_elements() const { return sample_elements_; }
  int32_t classes() const { return classes_; }

  // Writes (pixel / 255 - mean) / std to `input` [sample_elements] and the label to `label`.
  // Errors: InvalidArgument (a span has another size), DataLoss (the label is none of the classes).
  absl::Status Decode(absl::Span<const uint8_t> record, absl::Span<float> input, int64_t* label) const;

 private:
  SampleDecoder() = default;

  int64_t sample_elements_ = 0;
  int64_t pixels_per_channel_ = 0;
  int32_t label_bytes_ = 0;
  int32_t classes_ = 0;
  std::vector<float> values_;  // [channels, 256]: what a byte becomes.
};

// Reads and decodes batches into buffers that it keeps. Not thread-safe.
class BatchLoader {
 public:
  // `source` is not owned and outlives this.
  BatchLoader(SampleSource* source, SampleDecoder decoder) : source_(source), decoder_(std::move(decoder)) {}

  // The batch of these samples, in this order; it points into this loader and is valid until the next call.
  // Errors: those of SampleSource::ReadRecord and SampleDecoder::Decode, with the sample's number.
  absl::StatusOr<Batch> Load(absl::Span<const int64_t> samples);

 private:
  SampleSource* const source_;
  const SampleDecoder decoder_;
  std::vector<uint8_t> record_;
  std::vector<float> inputs_;
  std::vector<int64_t> labels_;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_SAMPLE_DECODER_H_
