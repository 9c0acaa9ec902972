#ifndef CAUSEWAY_WORKER_TORCH_MODELS_H_
#define CAUSEWAY_WORKER_TORCH_MODELS_H_

#include <memory>

#include "worker/model.h"

namespace causeway::worker {

struct TorchOptions {
  int threads = 1;            // Of one operation. Process-wide, as libtorch has it.
  bool deterministic = true;  // Refuse kernels whose result depends on timing: same seed and threads, same bytes.
};

// The built-in models, on libtorch and the CPU. tests/python/reference_models.py has the same modules in Python.
//
// `mlp`: two hidden layers (256, 128). `lenet`: a LeNet-like CNN for images of 28 x 28 and a little more or less.
// `resnet18`: torchvision's, its names and shapes; a grey image is taken as three equal channels.
//
// The factory is thread-safe; the models are not. libtorch's settings and its CPU generator are process-wide: one
// factory a process.
std::unique_ptr<ModelFactory> MakeTorchModelFactory(const TorchOptions& options);

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_TORCH_MODELS_H_
