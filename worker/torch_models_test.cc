#include "worker/torch_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/fakes/status_matchers.h"

// What every Model must do is in tests/contract/model_contract_test.cc; here is what these models are.
namespace causeway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TorchModelsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Model> Make(const std::string& builtin, std::vector<int64_t> shape = {1, 28, 28}, uint64_t seed = 1) {
    auto model = factory_->Create({.builtin = builtin, .classes = 10, .sample_shape = std::move(shape), .seed = seed});
    EXPECT_THAT(model, IsOk());
    return *std::move(model);
  }
  static std::vector<std::string> Names(const Model& model) {
    std::vector<std::string> names;
    for (const auto& tensor : model.layout().tensors()) names.push_back(tensor.name);
    return names;
  }
  static const dataplane::TensorSpec& Tensor(const Model& model, const std::string& name) {
    const auto& tensors = model.layout().tensors();
    return *std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name == name; });
  }
  static int64_t Parameters(const Model& model) {
    int64_t count = 0;
    for (const LayerView& layer : model.layers()) count += static_cast<int64_t>(layer.parameters.size());
    return count;
  }

  const std::unique_ptr<ModelFactory> factory_ = MakeTorchModelFactory({.threads = 1});
};

TEST_F(TorchModelsTest, Mlp) {
  auto model = Make("mlp");
  EXPECT_THAT(Names(*model), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"));
  EXPECT_EQ(Parameters(*model), 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
  EXPECT_EQ(model->min_train_batch(), 1);
}

TEST_F(TorchModelsTest, LeNet) {
  auto model = Make("lenet");
  EXPECT_THAT(Names(*model), ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
                                         "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_THAT(Tensor(*model, "conv2.weight").shape, ElementsAre(32, 16, 3, 3));
  EXPECT_EQ(model->layout().num_layers(), 4);
  EXPECT_EQ(model->min_train_batch(), 1);
  EXPECT_THAT(Tensor(*Make("lenet", {3, 32, 30}), "fc1.weight").shape, ElementsAre(128, 32 * 8 * 7));
}

// torchvision.models.resnet18(num_classes=10).state_dict(): 62 parameters, 40 statistics, 20 counts.
TEST_F(TorchModelsTest, ResNet18IsTorchvisions) {
  auto model = Make("resnet18");
  const std::vector<std::string> names = Names(*model);
  ASSERT_EQ(names.size(), 122u);
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.begin() + 7),
              ElementsAre("conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var",
                          "bn1.num_batches_tracked", "layer1.0.conv1.weight"));
  EXPECT_EQ(names.back(), "fc.bias");
  for (const char* name :
       {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.num_batches_tracked", "layer4.1.bn2.running_var"}) {
    EXPECT_THAT(names, testing::Contains(name));
  }
  EXPECT_THAT(names, testing::Not(testing::Contains("layer1.0.downsample.0.weight")));
  EXPECT_EQ(Parameters(*model), 11'181'642);
  EXPECT_EQ(model->layout().num_layers(), 41);
  EXPECT_EQ(model->min_train_batch(), 2);
  EXPECT_THAT(Tensor(*model, "conv1.weight").shape, ElementsAre(64, 3, 7, 7));
  const dataplane::TensorSpec& count = Tensor(*model, "bn1.num_batches_tracked");
  EXPECT_THAT(count.shape, ElementsAre());
  EXPECT_EQ(count.kind, dataplane::TensorKind::kIntegerBuffer);
  EXPECT_EQ(Tensor(*model, "bn1.running_var").kind, dataplane::TensorKind::kFloatBuffer);
  EXPECT_EQ(Tensor(*model, "bn1.bias").kind, dataplane::TensorKind::kParameter);
}

TEST_F(TorchModelsTest, ResNet18TakesGreyAsThreeEqualChannels) {
  auto grey = Make("resnet18", {1, 28, 28});
  auto color = Make("resnet18", {3, 28, 28});
  Random random(3);
  std::vector<float> one(2 * 784), three;
  for (float& value : one) value = static_cast<float>(random.Uniform());
  for (int n = 0; n < 2; ++n) {
    for (int channel = 0; channel < 3; ++channel)
      three.insert(three.end(), one.begin() + n * 784, one.begin() + (n + 1) * 784);
  }
  const std::vector<int64_t> labels = {1, 2};
  auto a = grey->EvaluateBatch({.size = 2, .inputs = one, .labels = labels});
  auto b = color->EvaluateBatch({.size = 2, .inputs = three, .labels = labels});
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_FLOAT_EQ(a->loss_sum, b->loss_sum);
}

TEST_F(TorchModelsTest, RefusesUnknownModelsAndImpossibleShapes) {
  const auto create = [this](const std::string& builtin, std::vector<int64_t> shape, int32_t classes) {
    return factory_->Create({.builtin = builtin, .classes = classes, .sample_shape = std::move(shape)}).status();
  };
  EXPECT_THAT(create("vgg", {1, 28, 28}, 10),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"vgg\"; allowed: mlp")));
  EXPECT_THAT(create("mlp", {28, 28}, 10), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(create("mlp", {1, 28, 0}, 10), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(create("mlp", {1, 28, 28}, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(create("lenet", {1, 3, 28}, 10), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(create("resnet18", {2, 28, 28}, 10), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(TorchModelsTest, MemoryThatIsNotThereIsAStatus) {
  EXPECT_THAT(factory_->Create({.builtin = "mlp", .classes = 10, .sample_shape = {1, 1 << 20, 1 << 20}}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(TorchModelsTest, TellsWhatItRunsOn) {
  EXPECT_EQ(factory_->device_kind(), "cpu");
  EXPECT_FALSE(factory_->device_name().empty());
  EXPECT_THAT(factory_->library_version(), testing::StartsWith("2."));
}

}  // namespace
}  // namespace causeway::worker
