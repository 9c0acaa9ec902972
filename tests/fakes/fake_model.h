#ifndef CAUSEWAY_TESTS_FAKES_FAKE_MODEL_H_
#define CAUSEWAY_TESTS_FAKES_FAKE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/model.h"

namespace causeway::worker {

// A linear softmax model in plain C++ that keeps Model's whole contract: layer 1, "shift", adds a vector to the sample
// and keeps a running mean (float buffer) and a count of batches (integer buffer) that nothing depends on; layer 2,
// "linear", makes the classes.
//
// Not thread-safe, as any Model.
class FakeModel : public Model {
 public:
  struct Options {
    std::vector<int64_t> sample_shape = {1, 2, 2};
    int32_t classes = 3;
    uint64_t seed = 1;
    int64_t min_train_batch = 1;
    int64_t max_batch = int64_t{1} << 40;  // More is ResourceExhausted.
    // Called at the start of every batch, in training and evaluation: to advance a fake clock, say.
    std::function<void(int64_t batch_size)> on_batch;
  };
  explicit FakeModel(const Options& options);

  const dataplane::Layout& layout() const override { return layout_; }
  absl::Span<const LayerView> layers() const override { return views_; }
  int64_t min_train_batch() const override { return options_.min_train_batch; }
  absl::StatusOr<BatchResult> TrainBatch(const Batch& batch, const GradientListener& on_gradient) override;
  absl::StatusOr<BatchResult> EvaluateBatch(const Batch& batch) override;
  absl::Status Load(absl::Span<const uint8_t> bytes) override;
  absl::Status Save(absl::Span<uint8_t> bytes) const override;

  // Calls so far.
  int64_t train_batches() const { return train_batches_; }
  int64_t evaluate_batches() const { return evaluate_batches_; }

 private:
  absl::Status CheckBatch(const Batch& batch) const;
  BatchResult Forward(const Batch& batch, std::vector<float>* probabilities) const;

  const Options options_;
  int64_t inputs_ = 0;
  dataplane::Layout layout_;
  std::vector<float> shift_;            // [inputs] shift, [inputs] running mean
  std::vector<float> shift_gradients_;  // [inputs]
  int64_t num_batches_ = 0;
  std::vector<float> linear_;            // [classes, inputs] weight, [classes] bias
  std::vector<float> linear_gradients_;  // As linear_.
  std::vector<LayerView> views_;
  int64_t train_batches_ = 0;
  int64_t evaluate_batches_ = 0;
};

// Makes FakeModels out of ModelOptions, whose `builtin` must be "fake"; the rest is as in `defaults`.
class FakeModelFactory : public ModelFactory {
 public:
  explicit FakeModelFactory(FakeModel::Options defaults = {}) : defaults_(std::move(defaults)) {}
  absl::StatusOr<std::unique_ptr<Model>> Create(const ModelOptions& options) override;
  std::string device_kind() const override { return "cpu"; }
  std::string device_name() const override { return "fake"; }
  std::string library_version() const override { return "0"; }

 private:
  const FakeModel::Options defaults_;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_TESTS_FAKES_FAKE_MODEL_H_
