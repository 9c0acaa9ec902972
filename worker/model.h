#ifndef CAUSEWAY_WORKER_MODEL_H_
#define CAUSEWAY_WORKER_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dataplane/layout.h"

namespace causeway::worker {

// One layer, the unit of synchronization inside a site: one contiguous f32 buffer of parameters and one of gradients,
// of which the layer's parameter tensors are views in layout order. Spans stay valid and in place for the model's life.
struct LayerView {
  std::string name;
  absl::Span<float> parameters;     // [n] f32
  absl::Span<float> float_buffers;  // [m] f32, right behind the parameters in memory: both are one span for an average
  absl::Span<float> gradients;      // [n] f32; complete after TrainBatch
};

// A batch of decoded samples.
struct Batch {
  int64_t size = 0;
  absl::Span<const float> inputs;    // [size, sample_shape...] f32, normalized, contiguous
  absl::Span<const int64_t> labels;  // [size]
};

struct BatchResult {
  double loss_sum = 0;  // Cross entropy, summed over the samples.
  int64_t correct = 0;
  int64_t samples = 0;
};

// A model on this worker's device. Not thread-safe: one thread at a time.
class Model {
 public:
  // Hears, during TrainBatch, that the gradients of layer l (1..L) are complete: on the backward thread, L first.
  using GradientListener = std::function<void(int layer)>;

  virtual ~Model() = default;

  virtual const dataplane::Layout& layout() const = 0;
  virtual absl::Span<const LayerView> layers() const = 0;

  // The smallest batch that TrainBatch takes: 1, or 2 where batch normalization makes a single sample meaningless.
  virtual int64_t min_train_batch() const = 0;

  // Forward and backward of one batch in training mode: gradients of the mean loss replace the former ones. No step.
  // Errors: ResourceExhausted (out of memory), InvalidArgument (shapes, labels out of range), Internal.
  virtual absl::StatusOr<BatchResult> TrainBatch(const Batch& batch, const GradientListener& on_gradient) = 0;

  // Forward only, in evaluation mode. Errors as TrainBatch.
  virtual absl::StatusOr<BatchResult> EvaluateBatch(const Batch& batch) = 0;

  // Copies all tensors from / to packed bytes in layout order (layout().total_bytes()). Errors: InvalidArgument (size).
  virtual absl::Status Load(absl::Span<const uint8_t> bytes) = 0;
  virtual absl::Status Save(absl::Span<uint8_t> bytes) const = 0;
};

struct ModelOptions {
  std::string builtin;  // mlp, lenet, resnet18
  int32_t classes = 10;
  std::vector<int64_t> sample_shape;  // [channels, height, width]
  uint64_t seed = 1;                  // Of the initial values, on the CPU generator.
};

// Makes built-in models. The one behind `causeway-worker` is in torch_models; tests use tests/fakes/fake_model.h.
class ModelFactory {
 public:
  virtual ~ModelFactory() = default;
  // Errors: InvalidArgument (unknown model, impossible shape), ResourceExhausted.
  virtual absl::StatusOr<std::unique_ptr<Model>> Create(const ModelOptions& options) = 0;
  virtual std::string device_kind() const = 0;  // "cpu", "cuda"
  virtual std::string device_name() const = 0;
  virtual std::string library_version() const = 0;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_MODEL_H_
