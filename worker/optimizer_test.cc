#include "worker/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/fake_model.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

v1::OptimizerSpec Sgd(double momentum, double weight_decay) {
  v1::OptimizerSpec spec;
  spec.set_name("sgd");
  spec.set_momentum(momentum);
  spec.set_weight_decay(weight_decay);
  return spec;
}

// What torch.optim.SGD(lr=0.1) of PyTorch 2.11 makes of [1, -2] and three gradients.
TEST(OptimizerTest, SgdEqualsPyTorch) {
  struct Sequence {
    double momentum, weight_decay;
    std::vector<std::vector<float>> expected;
  };
  const std::vector<Sequence> sequences = {
      {0, 0, {{0.949999988f, -1.89999998f}, {0.925000012f, -1.94999993f}, {1.02499998f, -1.94999993f}}},
      {0.9, 0, {{0.949999988f, -1.89999998f}, {0.879999995f, -1.86000001f}, {0.916999996f, -1.824f}}},
      {0.9, 0.01, {{0.949000001f, -1.898f}, {0.877151012f, -1.85430205f}, {0.911609769f, -1.81311953f}}},
      {0, 0.5, {{0.899999976f, -1.79999995f}, {0.829999983f, -1.75999999f}, {0.888499975f, -1.67199993f}}}};
  const std::vector<std::vector<float>> gradients = {{0.5f, -1}, {0.25f, 0.5f}, {-1, 0}};
  for (const Sequence& sequence : sequences) {
    SCOPED_TRACE(testing::Message() << "momentum " << sequence.momentum << " weight_decay " << sequence.weight_decay);
    auto optimizer = MakeOptimizer(Sgd(sequence.momentum, sequence.weight_decay), {2});
    ASSERT_THAT(optimizer, IsOk());
    std::vector<float> parameters = {1, -2};
    for (size_t i = 0; i < gradients.size(); ++i) {
      (*optimizer)->Step(0, absl::MakeSpan(parameters), gradients[i], 0.1);
      EXPECT_THAT(parameters,
                  ElementsAre(FloatNear(sequence.expected[i][0], 2e-7f), FloatNear(sequence.expected[i][1], 3e-7f)));
    }
  }
}

TEST(OptimizerTest, LayersHaveStateOfTheirOwn) {
  auto optimizer = MakeOptimizer(Sgd(0.5, 0), {1, 2});
  ASSERT_THAT(optimizer, IsOk());
  std::vector<float> a = {0}, b = {0, 0};
  (*optimizer)->Step(0, absl::MakeSpan(a), {1}, 1);
  (*optimizer)->Step(1, absl::MakeSpan(b), {2, 4}, 1);
  (*optimizer)->Step(1, absl::MakeSpan(b), {2, 4}, 1);
  EXPECT_THAT(a, ElementsAre(-1));
  EXPECT_THAT(b, ElementsAre(-5, -10));  // -2 - (0.5 * 2 + 2)
}

TEST(OptimizerTest, StateMovesToAnotherAndBack) {
  auto first = MakeOptimizer(Sgd(0.9, 0), {1, 2});
  auto second = MakeOptimizer(Sgd(0.9, 0), {1, 2});
  ASSERT_THAT(first, IsOk());
  std::vector<float> p = {0, 0};
  (*first)->Step(0, absl::MakeSpan(p).first(1), {3}, 1);
  (*first)->Step(1, absl::MakeSpan(p), {1, -1}, 1);
  ASSERT_EQ((*first)->state_bytes(), 12);
  std::vector<uint8_t> state(12);
  ASSERT_THAT((*first)->Save(absl::MakeSpan(state)), IsOk());
  ASSERT_THAT((*second)->Load(state), IsOk());
  std::vector<float> q = p;
  (*first)->Step(1, absl::MakeSpan(p), {0, 0}, 1);
  (*second)->Step(1, absl::MakeSpan(q), {0, 0}, 1);
  EXPECT_EQ(p, q);
  EXPECT_THAT((*second)->Load(absl::MakeSpan(state).first(8)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8 bytes; this model and optimizer have 12")));
  EXPECT_THAT((*second)->Save(absl::MakeSpan(state).first(8)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(OptimizerTest, ResetForgets) {
  auto optimizer = MakeOptimizer(Sgd(0.9, 0), {1});
  std::vector<float> p = {0};
  (*optimizer)->Step(0, absl::MakeSpan(p), {1}, 1);
  (*optimizer)->Reset();
  (*optimizer)->Step(0, absl::MakeSpan(p), {0}, 1);
  EXPECT_THAT(p, ElementsAre(-1));
}

TEST(OptimizerTest, WithoutMomentumThereIsNoState) {
  auto optimizer = MakeOptimizer(Sgd(0, 0.1), {5});
  ASSERT_THAT(optimizer, IsOk());
  EXPECT_EQ((*optimizer)->state_bytes(), 0);
  EXPECT_THAT((*optimizer)->Save({}), IsOk());
  EXPECT_THAT((*optimizer)->Load({}), IsOk());
}

TEST(OptimizerTest, LayerElementsAreTheParametersAlone) {
  FakeModel model({.sample_shape = {1, 2, 2}, .classes = 3});
  EXPECT_THAT(LayerElements(model), ElementsAre(4, 15));
}

TEST(OptimizerTest, RefusesWhatIsUnknownOrOutOfRange) {
  v1::OptimizerSpec spec = Sgd(0, 0);
  spec.set_name("lion");
  EXPECT_THAT(MakeOptimizer(spec, {1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"lion\"; allowed: sgd")));
  EXPECT_THAT(MakeOptimizer(Sgd(1, 0), {1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MakeOptimizer(Sgd(-0.1, 0), {1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MakeOptimizer(Sgd(0, -1), {1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MakeOptimizer(Sgd(0, std::numeric_limits<double>::infinity()), {1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::worker
