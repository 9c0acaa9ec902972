#include "tests/fakes/fake_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace causeway::worker {

using dataplane::DataType;
using dataplane::TensorKind;

FakeModel::FakeModel(const Options& options) : options_(options), inputs_(1) {
  for (int64_t dimension : options_.sample_shape) inputs_ *= dimension;
  const int64_t classes = options_.classes;
  auto layout = dataplane::Layout::Create({
      {"shift.bias", DataType::kFloat32, {inputs_}, TensorKind::kParameter, 1},
      {"shift.running_mean", DataType::kFloat32, {inputs_}, TensorKind::kFloatBuffer, 1},
      {"shift.num_batches_tracked", DataType::kInt64, {}, TensorKind::kIntegerBuffer, 1},
      {"linear.weight", DataType::kFloat32, {classes, inputs_}, TensorKind::kParameter, 2},
      {"linear.bias", DataType::kFloat32, {classes}, TensorKind::kParameter, 2},
  });
  CAUSEWAY_CHECK(layout.ok());
  layout_ = *std::move(layout);

  shift_.resize(2 * inputs_);
  shift_gradients_.resize(inputs_);
  linear_.resize(classes * inputs_ + classes);
  linear_gradients_.resize(linear_.size());
  Random random(options_.seed);
  for (float& value : linear_) value = static_cast<float>(0.2 * random.Uniform() - 0.1);
  views_ = {{.name = "shift",
             .parameters = absl::MakeSpan(shift_).first(inputs_),
             .float_buffers = absl::MakeSpan(shift_).subspan(inputs_),
             .gradients = absl::MakeSpan(shift_gradients_)},
            {.name = "linear",
             .parameters = absl::MakeSpan(linear_),
             .float_buffers = {},
             .gradients = absl::MakeSpan(linear_gradients_)}};
}

absl::StatusOr<BatchResult> FakeModel::TrainBatch(const Batch& batch, const GradientListener& on_gradient) {
  if (batch.size < options_.min_train_batch) return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.size));
  RETURN_IF_ERROR(CheckBatch(batch));
  ++train_batches_;
  if (options_.on_batch) options_.on_batch(batch.size);
  const int64_t classes = options_.classes;
  std::vector<float> deltas;  // [size, classes]: the probabilities, then the loss's gradient by the outputs.
  const BatchResult result = Forward(batch, &deltas);
  for (int64_t n = 0; n < batch.size; ++n) {
    deltas[n * classes + batch.labels[n]] -= 1;
    for (int64_t c = 0; c < classes; ++c) deltas[n * classes + c] /= static_cast<float>(batch.size);
  }

  std::fill(linear_gradients_.begin(), linear_gradients_.end(), 0.0f);
  for (int64_t n = 0; n < batch.size; ++n) {
    for (int64_t c = 0; c < classes; ++c) {
      const float delta = deltas[n * classes + c];
      for (int64_t i = 0; i < inputs_; ++i)
        linear_gradients_[c * inputs_ + i] += delta * (batch.inputs[n * inputs_ + i] + shift_[i]);
      linear_gradients_[classes * inputs_ + c] += delta;
    }
  }
  if (on_gradient) on_gradient(2);

  std::fill(shift_gradients_.begin(), shift_gradients_.end(), 0.0f);
  for (int64_t n = 0; n < batch.size; ++n) {
    for (int64_t c = 0; c < classes; ++c) {
      for (int64_t i = 0; i < inputs_; ++i) shift_gradients_[i] += deltas[n * classes + c] * linear_[c * inputs_ + i];
    }
  }
  if (on_gradient) on_gradient(1);

  for (int64_t i = 0; i < inputs_; ++i) {
    float mean = 0;
    for (int64_t n = 0; n < batch.size; ++n) mean += batch.inputs[n * inputs_ + i] / static_cast<float>(batch.size);
    shift_[inputs_ + i] = 0.9f * shift_[inputs_ + i] + 0.1f * mean;
  }
  ++num_batches_;
  return result;
}

absl::StatusOr<BatchResult> FakeModel::EvaluateBatch(const Batch& batch) {
  RETURN_IF_ERROR(CheckBatch(batch));
  ++evaluate_batches_;
  if (options_.on_batch) options_.on_batch(batch.size);
  std::vector<float> probabilities;
  return Forward(batch, &probabilities);
}

absl::Status FakeModel::CheckBatch(const Batch& batch) const {
  if (batch.size < 1 || static_cast<int64_t>(batch.labels.size()) != batch.size ||
      static_cast<int64_t>(batch.inputs.size()) != batch.size * inputs_) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.size, " with ", batch.inputs.size(),
                                                   " inputs and ", batch.labels.size(), " labels"));
  }
  for (int64_t label : batch.labels) {
    if (label < 0 || label >= options_.classes) return absl::InvalidArgumentError(absl::StrCat("label ", label));
  }
  if (batch.size > options_.max_batch) return absl::ResourceExhaustedError(absl::StrCat("a batch of ", batch.size));
  return absl::OkStatus();
}

BatchResult FakeModel::Forward(const Batch& batch, std::vector<float>* probabilities) const {
  const int64_t classes = options_.classes;
  probabilities->assign(batch.size * classes, 0.0f);
  BatchResult result{.samples = batch.size};
  for (int64_t n = 0; n < batch.size; ++n) {
    float* outputs = probabilities->data() + n * classes;
    for (int64_t c = 0; c < classes; ++c) {
      outputs[c] = linear_[classes * inputs_ + c];
      for (int64_t i = 0; i < inputs_; ++i)
        outputs[c] += linear_[c * inputs_ + i] * (batch.inputs[n * inputs_ + i] + shift_[i]);
    }
    float* const best = std::max_element(outputs, outputs + classes);
    if (best - outputs == batch.labels[n]) ++result.correct;
    const float largest = *best;
    float sum = 0;
    for (int64_t c = 0; c < classes; ++c) {
      outputs[c] = std::exp(outputs[c] - largest);
      sum += outputs[c];
    }
    for (int64_t c = 0; c < classes; ++c) outputs[c] /= sum;
    result.loss_sum -= std::log(std::max(outputs[batch.labels[n]], 1e-30f));
  }
  return result;
}

absl::Status FakeModel::Load(absl::Span<const uint8_t> bytes) {
  if (static_cast<int64_t>(bytes.size()) != layout_.total_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("a model of ", bytes.size(), " bytes"));
  }
  const size_t shift_bytes = shift_.size() * sizeof(float);
  std::memcpy(shift_.data(), bytes.data(), shift_bytes);
  std::memcpy(&num_batches_, bytes.data() + shift_bytes, sizeof(num_batches_));
  std::memcpy(linear_.data(), bytes.data() + shift_bytes + sizeof(num_batches_), linear_.size() * sizeof(float));
  return absl::OkStatus();
}

absl::Status FakeModel::Save(absl::Span<uint8_t> bytes) const {
  if (static_cast<int64_t>(bytes.size()) != layout_.total_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("a model of ", bytes.size(), " bytes"));
  }
  const size_t shift_bytes = shift_.size() * sizeof(float);
  std::memcpy(bytes.data(), shift_.data(), shift_bytes);
  std::memcpy(bytes.data() + shift_bytes, &num_batches_, sizeof(num_batches_));
  std::memcpy(bytes.data() + shift_bytes + sizeof(num_batches_), linear_.data(), linear_.size() * sizeof(float));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> FakeModelFactory::Create(const ModelOptions& options) {
  if (options.builtin != "fake")
    return absl::InvalidArgumentError(absl::StrCat("unknown model \"", options.builtin, "\""));
  if (options.sample_shape.size() != 3 || options.classes < 2) return absl::InvalidArgumentError("impossible shape");
  FakeModel::Options made = defaults_;
  made.sample_shape = options.sample_shape;
  made.classes = options.classes;
  made.seed = options.seed;
  return std::make_unique<FakeModel>(made);
}

}  // namespace causeway::worker
