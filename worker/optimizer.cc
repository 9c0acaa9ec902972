#include "worker/optimizer.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace causeway::worker {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(double momentum, double weight_decay, std::vector<int64_t> layer_elements)
      : momentum_(static_cast<float>(momentum)),
        weight_decay_(static_cast<float>(weight_decay)),
        elements_(std::move(layer_elements)) {
    if (momentum == 0) return;
    int64_t total = 0;
    for (int64_t n : elements_) {
      offsets_.push_back(total);
      total += n;
    }
    // PyTorch's velocity starts as the first gradient, which is what zeros lead to.
    velocity_.resize(total);
  }

  void Step(int layer, absl::Span<float> parameters, absl::Span<const float> gradients, double learning_rate) override {
    const int64_t n = elements_[layer];
    CAUSEWAY_CHECK(static_cast<int64_t>(parameters.size()) == n && static_cast<int64_t>(gradients.size()) == n);
    float* __restrict p = parameters.data();
    const float* __restrict g = gradients.data();
    const float rate = static_cast<float>(learning_rate);
    if (velocity_.empty()) {
      for (int64_t i = 0; i < n; ++i) p[i] -= rate * (g[i] + weight_decay_ * p[i]);
      return;
    }
    float* __restrict v = velocity_.data() + offsets_[layer];
    for (int64_t i = 0; i < n; ++i) {
      v[i] = momentum_ * v[i] + (g[i] + weight_decay_ * p[i]);
      p[i] -= rate * v[i];
    }
  }

  int64_t state_bytes() const override { return static_cast<int64_t>(velocity_.size() * sizeof(float)); }

  absl::Status Save(absl::Span<uint8_t> bytes) const override {
    if (absl::Status status = CheckSize(bytes.size()); !status.ok()) return status;
    if (!bytes.empty()) std::memcpy(bytes.data(), velocity_.data(), bytes.size());
    return absl::OkStatus();
  }

  absl::Status Load(absl::Span<const uint8_t> bytes) override {
    if (absl::Status status = CheckSize(bytes.size()); !status.ok()) return status;
    if (!bytes.empty()) std::memcpy(velocity_.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  void Reset() override { velocity_.assign(velocity_.size(), 0); }

 private:
  absl::Status CheckSize(size_t size) const {
    if (static_cast<int64_t>(size) == state_bytes()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer state of ", size, " bytes; this model and optimizer have ", state_bytes()));
  }

  const float momentum_;
  const float weight_decay_;
  const std::vector<int64_t> elements_;
  std::vector<int64_t> offsets_;  // Of each layer in velocity_.
  std::vector<float> velocity_;   // Empty without momentum.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const v1::OptimizerSpec& spec,
                                                         std::vector<int64_t> layer_elements) {
  if (spec.name() != "sgd") {
    return absl::InvalidArgumentError(absl::StrCat("unknown optimizer \"", spec.name(), "\"; allowed: sgd"));
  }
  if (!(spec.momentum() >= 0 && spec.momentum() < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("momentum ", spec.momentum(), " is not in [0, 1)"));
  }
  if (!(spec.weight_decay() >= 0) || !std::isfinite(spec.weight_decay())) {
    return absl::InvalidArgumentError(absl::StrCat("weight_decay ", spec.weight_decay(), " is negative or not finite"));
  }
  return std::make_unique<Sgd>(spec.momentum(), spec.weight_decay(), std::move(layer_elements));
}

std::vector<int64_t> LayerElements(const Model& model) {
  std::vector<int64_t> elements;
  for (const LayerView& layer : model.layers()) elements.push_back(static_cast<int64_t>(layer.parameters.size()));
  return elements;
}

}  // namespace causeway::worker
