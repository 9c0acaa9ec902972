#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/status_matchers.h"
#include "worker/model.h"
#ifdef CAUSEWAY_TORCH
#include "worker/torch_models.h"
#endif

namespace causeway::worker {
namespace {

std::unique_ptr<ModelFactory> FactoryOf(const std::string& builtin) {
#ifdef CAUSEWAY_TORCH
  if (builtin != "fake") return MakeTorchModelFactory({.threads = 1});
#endif
  return std::make_unique<FakeModelFactory>();
}

// What every Model must do, whatever is behind it.
class ModelContractTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kElements = 28 * 28;
  static constexpr int32_t kClasses = 4;

  ModelContractTest() : factory_(FactoryOf(GetParam())), model_(Make(1)) {
    Random random(11);
    inputs_.resize(kSize * kElements);
    for (float& input : inputs_) input = static_cast<float>(2 * random.Uniform() - 1);
    for (int64_t i = 0; i < kSize; ++i) labels_.push_back(static_cast<int64_t>(random.Below(kClasses)));
  }

  std::unique_ptr<Model> Make(uint64_t seed) {
    auto model =
        factory_->Create({.builtin = GetParam(), .classes = kClasses, .sample_shape = {1, 28, 28}, .seed = seed});
    EXPECT_THAT(model, IsOk());
    return *std::move(model);
  }
  Batch Samples(int64_t begin, int64_t size) const {
    return {.size = size,
            .inputs = absl::MakeConstSpan(inputs_).subspan(begin * kElements, size * kElements),
            .labels = absl::MakeConstSpan(labels_).subspan(begin, size)};
  }
  Batch All() const { return Samples(0, kSize); }
  static std::vector<uint8_t> Bytes(const Model& model) {
    std::vector<uint8_t> bytes(model.layout().total_bytes());
    EXPECT_THAT(model.Save(absl::MakeSpan(bytes)), IsOk());
    return bytes;
  }
  static std::vector<std::vector<float>> Gradients(const Model& model) {
    std::vector<std::vector<float>> gradients;
    for (const LayerView& layer : model.layers())
      gradients.emplace_back(layer.gradients.begin(), layer.gradients.end());
    return gradients;
  }
  static void Step(Model* model, float rate) {
    for (const LayerView& layer : model->layers()) {
      for (size_t i = 0; i < layer.parameters.size(); ++i) layer.parameters[i] -= rate * layer.gradients[i];
    }
  }

  static constexpr int64_t kSize = 8;
  const std::unique_ptr<ModelFactory> factory_;
  const std::unique_ptr<Model> model_;
  std::vector<float> inputs_;
  std::vector<int64_t> labels_;
};

TEST_P(ModelContractTest, LayersAreTheLayoutsLayers) {
  const dataplane::Layout& layout = model_->layout();
  ASSERT_EQ(static_cast<int>(model_->layers().size()), layout.num_layers());
  std::vector<std::vector<int64_t>> elements(layout.num_layers(), std::vector<int64_t>(3));
  int previous_layer = 1;
  auto previous_kind = dataplane::TensorKind::kParameter;
  for (const dataplane::TensorSpec& tensor : layout.tensors()) {
    // Within a layer: parameters, float buffers, integer buffers.
    if (tensor.layer == previous_layer) {
      EXPECT_GE(tensor.kind, previous_kind) << tensor.name;
    }
    previous_layer = tensor.layer;
    previous_kind = tensor.kind;
    elements[tensor.layer - 1][static_cast<int>(tensor.kind)] += tensor.num_elements();
    EXPECT_EQ(tensor.name.rfind(model_->layers()[tensor.layer - 1].name + ".", 0), 0u) << tensor.name;
  }
  for (int l = 0; l < layout.num_layers(); ++l) {
    const LayerView& view = model_->layers()[l];
    EXPECT_EQ(static_cast<int64_t>(view.parameters.size()), elements[l][0]) << view.name;
    EXPECT_EQ(static_cast<int64_t>(view.float_buffers.size()), elements[l][1]) << view.name;
    EXPECT_EQ(view.gradients.size(), view.parameters.size()) << view.name;
    if (!view.float_buffers.empty()) {
      EXPECT_EQ(view.float_buffers.data(), view.parameters.data() + view.parameters.size()) << view.name;
    }
  }
}

TEST_P(ModelContractTest, SaveIsTheLayersInLayoutOrder) {
  ASSERT_THAT(model_->TrainBatch(All(), nullptr), IsOk());  // So that buffers differ from each other.
  const std::vector<uint8_t> bytes = Bytes(*model_);
  const dataplane::Layout& layout = model_->layout();
  std::vector<int64_t> done(layout.num_layers());
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const dataplane::TensorSpec& tensor = layout.tensors()[i];
    if (tensor.kind == dataplane::TensorKind::kIntegerBuffer) {
      int64_t count;
      ASSERT_EQ(tensor.size_bytes(), 8);
      std::memcpy(&count, bytes.data() + layout.byte_offset(static_cast<int>(i)), 8);
      EXPECT_EQ(count, 1) << tensor.name;
      continue;
    }
    const float* memory = model_->layers()[tensor.layer - 1].parameters.data() + done[tensor.layer - 1];
    EXPECT_EQ(std::memcmp(memory, bytes.data() + layout.byte_offset(static_cast<int>(i)), tensor.size_bytes()), 0)
        << tensor.name;
    done[tensor.layer - 1] += tensor.num_elements();
  }
}

TEST_P(ModelContractTest, LoadUndoesTraining) {
  const std::vector<uint8_t> before = Bytes(*model_);
  const auto loss = model_->EvaluateBatch(All());
  ASSERT_THAT(model_->TrainBatch(All(), nullptr), IsOk());
  Step(model_.get(), 0.1f);
  EXPECT_NE(Bytes(*model_), before);
  ASSERT_THAT(model_->Load(before), IsOk());
  EXPECT_EQ(Bytes(*model_), before);
  ASSERT_THAT(loss, IsOk());
  EXPECT_EQ(model_->EvaluateBatch(All())->loss_sum, loss->loss_sum);
}

TEST_P(ModelContractTest, LoadMakesAnotherModelTheSame) {
  auto other = Make(2);
  EXPECT_NE(Bytes(*other), Bytes(*model_));
  ASSERT_THAT(other->Load(Bytes(*model_)), IsOk());
  auto a = model_->TrainBatch(All(), nullptr);
  auto b = other->TrainBatch(All(), nullptr);
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_EQ(a->loss_sum, b->loss_sum);
  EXPECT_EQ(Gradients(*model_), Gradients(*other));
}

TEST_P(ModelContractTest, LoadAndSaveCheckTheSize) {
  std::vector<uint8_t> bytes(model_->layout().total_bytes() - 1);
  const std::vector<uint8_t> before = Bytes(*model_);
  EXPECT_THAT(model_->Load(bytes), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(model_->Save(absl::MakeSpan(bytes)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Bytes(*model_), before);
}

TEST_P(ModelContractTest, SpansStayInPlace) {
  const std::vector<LayerView> before(model_->layers().begin(), model_->layers().end());
  ASSERT_THAT(model_->TrainBatch(All(), nullptr), IsOk());
  ASSERT_THAT(model_->TrainBatch(Samples(0, 4), nullptr), IsOk());
  ASSERT_THAT(model_->EvaluateBatch(All()), IsOk());
  ASSERT_THAT(model_->Load(Bytes(*model_)), IsOk());
  for (size_t l = 0; l < before.size(); ++l) {
    EXPECT_EQ(model_->layers()[l].parameters.data(), before[l].parameters.data());
    EXPECT_EQ(model_->layers()[l].gradients.data(), before[l].gradients.data());
    EXPECT_EQ(model_->layers()[l].float_buffers.data(), before[l].float_buffers.data());
  }
}

TEST_P(ModelContractTest, GradientsReplaceTheFormerOnes) {
  const std::vector<uint8_t> before = Bytes(*model_);
  ASSERT_THAT(model_->TrainBatch(Samples(0, 4), nullptr), IsOk());
  const auto gradients = Gradients(*model_);
  ASSERT_THAT(model_->TrainBatch(Samples(4, 4), nullptr), IsOk());
  EXPECT_NE(Gradients(*model_), gradients);
  ASSERT_THAT(model_->Load(before), IsOk());
  ASSERT_THAT(model_->TrainBatch(Samples(0, 4), nullptr), IsOk());
  EXPECT_EQ(Gradients(*model_), gradients);
}

// The loss falls along a layer's gradient as fast as the gradient says; of many layers, some ten are tried.
TEST_P(ModelContractTest, GradientsAreThoseOfTheMeanLoss) {
  ASSERT_THAT(model_->TrainBatch(All(), nullptr), IsOk());
  const auto gradients = Gradients(*model_);
  const std::vector<uint8_t> before = Bytes(*model_);
  for (size_t l = 0; l < gradients.size(); l += 1 + gradients.size() / 10) {
    const LayerView& layer = model_->layers()[l];
    double square = 0;
    for (float g : gradients[l]) square += double{g} * g;
    ASSERT_GT(square, 0) << layer.name;
    const float epsilon = static_cast<float>(2e-3 / std::sqrt(square));  // A step of length 0.002.
    const auto loss_at = [&](float distance) {
      EXPECT_THAT(model_->Load(before), IsOk());
      for (size_t i = 0; i < gradients[l].size(); ++i) layer.parameters[i] += distance * gradients[l][i];
      auto result = model_->TrainBatch(All(), nullptr);
      EXPECT_THAT(result, IsOk());
      return result->loss_sum / static_cast<double>(result->samples);
    };
    const double slope = (loss_at(epsilon) - loss_at(-epsilon)) / (2 * epsilon);
    EXPECT_NEAR(slope / square, 1, 0.1) << layer.name;
  }
}

TEST_P(ModelContractTest, TellsEachLayerOnceBackwardsWithItsGradientsComplete) {
  std::vector<int> heard;
  std::vector<std::vector<float>> at_the_time(model_->layers().size());
  ASSERT_THAT(model_->TrainBatch(All(),
                                 [&](int layer) {
                                   heard.push_back(layer);
                                   const auto& gradients = model_->layers()[layer - 1].gradients;
                                   at_the_time[layer - 1].assign(gradients.begin(), gradients.end());
                                 }),
              IsOk());
  std::vector<int> expected(model_->layers().size());
  std::iota(expected.rbegin(), expected.rend(), 1);
  EXPECT_EQ(heard, expected);
  EXPECT_EQ(at_the_time, Gradients(*model_));
}

TEST_P(ModelContractTest, TrainingReducesTheLoss) {
  const auto before = model_->EvaluateBatch(All());
  ASSERT_THAT(before, IsOk());
  for (int i = 0; i < 30; ++i) {
    ASSERT_THAT(model_->TrainBatch(All(), nullptr), IsOk());
    Step(model_.get(), 0.1f);
  }
  auto last = model_->TrainBatch(All(), nullptr);
  ASSERT_THAT(last, IsOk());
  EXPECT_LT(last->loss_sum, 0.7 * before->loss_sum);
  EXPECT_GE(last->correct, 6);
}

TEST_P(ModelContractTest, EvaluationCountsSamplesAloneAndLearnsNothing) {
  ASSERT_THAT(model_->TrainBatch(All(), nullptr), IsOk());
  const std::vector<uint8_t> before = Bytes(*model_);
  auto all = model_->EvaluateBatch(All());
  ASSERT_THAT(all, IsOk());
  BatchResult sum;
  for (int64_t i = 0; i < kSize; ++i) {
    auto one = model_->EvaluateBatch(Samples(i, 1));
    ASSERT_THAT(one, IsOk());
    sum.samples += one->samples;
    sum.correct += one->correct;
    sum.loss_sum += one->loss_sum;
  }
  EXPECT_EQ(all->samples, kSize);
  EXPECT_EQ(all->samples, sum.samples);
  EXPECT_EQ(all->correct, sum.correct);
  EXPECT_NEAR(all->loss_sum, sum.loss_sum, 1e-3 * sum.loss_sum);
  EXPECT_EQ(Bytes(*model_), before);
}

TEST_P(ModelContractTest, SameSeedSameBytes) {
  std::vector<std::vector<uint8_t>> results;
  for (uint64_t seed : {7, 7, 8}) {
    auto model = Make(seed);
    for (int i = 0; i < 3; ++i) {
      ASSERT_THAT(model->TrainBatch(All(), nullptr), IsOk());
      Step(model.get(), 0.01f);
    }
    results.push_back(Bytes(*model));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
}

TEST_P(ModelContractTest, RefusesABatchThatDoesNotFitTheModel) {
  const std::vector<uint8_t> before = Bytes(*model_);
  Batch batch = All();
  batch.size = kSize - 1;
  EXPECT_THAT(model_->TrainBatch(batch, nullptr), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(model_->EvaluateBatch(batch), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(model_->TrainBatch({}, nullptr), StatusIs(absl::StatusCode::kInvalidArgument));
  for (int64_t label : {int64_t{-1}, int64_t{kClasses}}) {
    labels_[2] = label;
    EXPECT_THAT(model_->TrainBatch(All(), nullptr), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(model_->EvaluateBatch(All()), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  labels_[2] = 0;
  if (model_->min_train_batch() > 1) {
    EXPECT_THAT(model_->TrainBatch(Samples(0, model_->min_train_batch() - 1), nullptr),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_EQ(Bytes(*model_), before);
  EXPECT_THAT(model_->TrainBatch(Samples(0, model_->min_train_batch()), nullptr), IsOk());
}

TEST_P(ModelContractTest, TheFactoryRefusesUnknownModels) {
  EXPECT_THAT(factory_->Create({.builtin = "nonesuch", .sample_shape = {1, 28, 28}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

std::string Name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Fake, ModelContractTest, ::testing::Values("fake"), Name);
#ifdef CAUSEWAY_TORCH
INSTANTIATE_TEST_SUITE_P(Torch, ModelContractTest, ::testing::Values("mlp", "lenet", "resnet18"), Name);
#endif

}  // namespace
}  // namespace causeway::worker
