#include "worker/step_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

using ::testing::ElementsAre;

// Sleeping takes no real time, and can stop the run.
class SleepingClock : public FakeClock {
 public:
  void SleepFor(absl::Duration duration) override {
    slept += duration;
    Advance(duration);
    if (stop_after < slept) stop.request_stop();
  }
  absl::Duration slept;
  absl::Duration stop_after = absl::InfiniteDuration();
  std::stop_source stop;
};

class PixelSource : public SampleSource {
 public:
  absl::Status ReadRecord(int64_t sample, absl::Span<uint8_t> out) override {
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(40 * sample);
    out.back() = static_cast<uint8_t>(sample % 3);
    return absl::OkStatus();
  }
};

class RecordingSync : public SiteSync {
 public:
  void OnGradient(int layer) override { events.push_back("gradient " + std::to_string(layer)); }
  absl::Status OnBackwardEnd() override {
    before_step = {model->layers()[1].parameters.begin(), model->layers()[1].parameters.end()};
    events.push_back("backward end");
    return backward_end;
  }
  absl::Status OnStepEnd(int64_t step) override {
    events.push_back("step " + std::to_string(step));
    return absl::OkStatus();
  }
  absl::Status OnRoundEnd() override { return absl::OkStatus(); }

  Model* model = nullptr;
  absl::Status backward_end;
  std::vector<float> before_step;
  std::vector<std::string> events;
};

class StepRunnerTest : public ::testing::Test {
 protected:
  StepRunnerTest()
      : model_({.on_batch = [this](int64_t) { clock_.Advance(absl::Milliseconds(100)); }}),
        loader_(&source_, *SampleDecoder::Create({.sample_shape = {1, 2, 2}, .label_bytes = 1, .classes = 3})) {
    v1::OptimizerSpec spec;
    spec.set_name("sgd");
    optimizer_ = *MakeOptimizer(spec, LayerElements(model_));
    sync_.model = &model_;
  }
  StepRunner Runner(double slowdown) {
    return StepRunner(
        {.model = &model_, .optimizer = optimizer_.get(), .site_sync = &sync_, .clock = &clock_, .slowdown = slowdown});
  }
  std::vector<float> Parameters() const {
    return {model_.layers()[1].parameters.begin(), model_.layers()[1].parameters.end()};
  }

  SleepingClock clock_;
  FakeModel model_;
  PixelSource source_;
  BatchLoader loader_;
  std::unique_ptr<Optimizer> optimizer_;
  RecordingSync sync_;
};

TEST_F(StepRunnerTest, TellsThePolicyEachEventInOrderAndStepsAfterBackward) {
  const std::vector<float> before = Parameters();
  auto result = Runner(1).Train(&loader_, {0, 1, 2}, 0.1, 7, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(sync_.events, ElementsAre("gradient 2", "gradient 1", "backward end", "step 7"));
  EXPECT_EQ(sync_.before_step, before);
  EXPECT_NE(Parameters(), before);
  EXPECT_EQ(result->batch.samples, 3);
}

TEST_F(StepRunnerTest, StepsEveryLayerAgainstItsGradient) {
  ASSERT_THAT(Runner(1).Train(&loader_, {0, 1, 2}, 0.0, 0, {}), IsOk());
  std::vector<std::vector<float>> expected;
  for (const LayerView& layer : model_.layers()) {
    expected.emplace_back();
    for (size_t i = 0; i < layer.parameters.size(); ++i) {
      expected.back().push_back(layer.parameters[i] - 0.5f * layer.gradients[i]);
    }
  }
  ASSERT_THAT(Runner(1).Train(&loader_, {0, 1, 2}, 0.5, 1, {}), IsOk());
  for (size_t l = 0; l < expected.size(); ++l) {
    EXPECT_THAT(model_.layers()[l].parameters, testing::Pointwise(testing::FloatEq(), expected[l]));
  }
}

TEST_F(StepRunnerTest, ARealDeviceDoesNotSleep) {
  auto result = Runner(1).Train(&loader_, {0, 1}, 0.1, 0, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->elapsed, absl::Milliseconds(100));
  EXPECT_EQ(clock_.slept, absl::ZeroDuration());
}

TEST_F(StepRunnerTest, AnEmulatedDeviceTakesItsTime) {
  auto result = Runner(3.5).Train(&loader_, {0, 1}, 0.1, 0, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->elapsed, absl::Milliseconds(350));
  EXPECT_EQ(clock_.slept, absl::Milliseconds(250));
  result = Runner(2).Evaluate(&loader_, {0, 1}, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->elapsed, absl::Milliseconds(200));
}

TEST_F(StepRunnerTest, StopIsHeardInTheMiddleOfALongSleep) {
  clock_.stop_after = absl::Seconds(1);
  EXPECT_THAT(Runner(100).Train(&loader_, {0, 1}, 0.1, 0, clock_.stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(clock_.slept, absl::Seconds(2));
}

TEST_F(StepRunnerTest, AnErrorOfThePolicyPreventsTheStep) {
  const std::vector<float> before = Parameters();
  sync_.backward_end = absl::UnavailableError("peer gone");
  EXPECT_THAT(Runner(1).Train(&loader_, {0, 1}, 0.1, 0, {}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Parameters(), before);
}

TEST_F(StepRunnerTest, EvaluationLearnsNothing) {
  std::vector<uint8_t> before(model_.layout().total_bytes()), after(before.size());
  ASSERT_THAT(model_.Save(absl::MakeSpan(before)), IsOk());
  auto result = Runner(1).Evaluate(&loader_, {0, 1, 2, 3}, {});
  ASSERT_THAT(result, IsOk());
  ASSERT_THAT(model_.Save(absl::MakeSpan(after)), IsOk());
  EXPECT_EQ(after, before);
  EXPECT_EQ(result->batch.samples, 4);
  EXPECT_THAT(sync_.events, ElementsAre());
}

}  // namespace
}  // namespace causeway::worker
