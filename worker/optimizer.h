#ifndef CAUSEWAY_WORKER_OPTIMIZER_H_
#define CAUSEWAY_WORKER_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model.h"

namespace causeway::worker {

// Turns gradients into steps, layer by layer, with PyTorch's semantics. It works on spans, whole layers or shards of
// them alike, and owns the state. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step of the span number `layer` (0-based): `parameters` and `gradients` are [n] f32, n as given at creation.
  virtual void Step(int layer, absl::Span<float> parameters, absl::Span<const float> gradients,
                    double learning_rate) = 0;

  // The state as bytes: f32, little-endian, layer after layer without padding. 0 bytes for an optimizer without state.
  virtual int64_t state_bytes() const = 0;
  // Errors: InvalidArgument (size).
  virtual absl::Status Save(absl::Span<uint8_t> bytes) const = 0;
  virtual absl::Status Load(absl::Span<const uint8_t> bytes) = 0;
  // As if new.
  virtual void Reset() = 0;
};

// `sgd` with momentum and weight decay, as torch.optim.SGD: g += weight_decay * p; v = momentum * v + g (v = g at
// first); p -= lr * v. `layer_elements` are the sizes of the spans that it will step.
// Errors: InvalidArgument (unknown name, a number out of range).
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const v1::OptimizerSpec& spec,
                                                         std::vector<int64_t> layer_elements);

// The sizes of a model's layers, for MakeOptimizer.
std::vector<int64_t> LayerElements(const Model& model);

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_OPTIMIZER_H_
