#include "worker/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

using ::testing::HasSubstr;

v1::OptimizerSpec Spec(const std::string& name) {
  v1::OptimizerSpec spec;
  spec.set_learning_rate(0.1);
  spec.mutable_schedule()->set_name(name);
  return spec;
}

TEST(LrScheduleTest, ConstantStaysAndIsTheDefault) {
  for (const char* name : {"constant", ""}) {
    auto schedule = LrSchedule::Create(Spec(name));
    ASSERT_THAT(schedule, IsOk());
    EXPECT_DOUBLE_EQ(schedule->At(0, 0), 0.1);
    EXPECT_DOUBLE_EQ(schedule->At(1e9, 1000), 0.1);
  }
}

TEST(LrScheduleTest, WarmUpIsLinearFromZero) {
  v1::OptimizerSpec spec = Spec("constant");
  spec.mutable_schedule()->set_warmup_samples(1000);
  auto schedule = LrSchedule::Create(spec);
  ASSERT_THAT(schedule, IsOk());
  EXPECT_DOUBLE_EQ(schedule->At(0, 0), 0);
  EXPECT_DOUBLE_EQ(schedule->At(250, 0), 0.025);
  EXPECT_DOUBLE_EQ(schedule->At(1000, 0), 0.1);
  EXPECT_DOUBLE_EQ(schedule->At(2000, 0), 0.1);
}

TEST(LrScheduleTest, StepMultipliesByGamma) {
  v1::OptimizerSpec spec = Spec("step");
  spec.mutable_schedule()->set_step_samples(100);
  spec.mutable_schedule()->set_gamma(0.5);
  auto schedule = LrSchedule::Create(spec);
  ASSERT_THAT(schedule, IsOk());
  EXPECT_DOUBLE_EQ(schedule->At(99, 0), 0.1);
  EXPECT_DOUBLE_EQ(schedule->At(100, 0), 0.05);
  EXPECT_DOUBLE_EQ(schedule->At(299, 0), 0.025);
}

TEST(LrScheduleTest, CosineEndsAtZeroWithTheJob) {
  v1::OptimizerSpec spec = Spec("cosine");
  spec.mutable_schedule()->set_warmup_samples(100);
  auto schedule = LrSchedule::Create(spec);
  ASSERT_THAT(schedule, IsOk());
  EXPECT_DOUBLE_EQ(schedule->At(50, 1100), 0.05);
  EXPECT_DOUBLE_EQ(schedule->At(100, 1100), 0.1);
  EXPECT_NEAR(schedule->At(350, 1100), 0.1 * 0.85355339, 1e-9);  // (1 + cos(pi / 4)) / 2
  EXPECT_NEAR(schedule->At(600, 1100), 0.05, 1e-12);
  EXPECT_NEAR(schedule->At(1100, 1100), 0, 1e-12);
  EXPECT_NEAR(schedule->At(5000, 1100), 0, 1e-12);
}

TEST(LrScheduleTest, CosineNeedsTheJobsLength) {
  v1::TrainTask task;
  auto schedule = LrSchedule::Create(Spec("cosine"));
  ASSERT_THAT(schedule, IsOk());
  EXPECT_THAT(schedule->CheckTask(task), StatusIs(absl::StatusCode::kInvalidArgument));
  task.set_job_samples(1);
  EXPECT_THAT(schedule->CheckTask(task), IsOk());
  EXPECT_THAT(LrSchedule::Create(Spec("constant"))->CheckTask({}), IsOk());
}

// Two workers with unlike numbers of steps are equally far along half way through their rounds.
TEST(LrScheduleTest, StepsAdvanceByGlobalSamples) {
  v1::OptimizerSpec spec = Spec("constant");
  spec.mutable_schedule()->set_warmup_samples(1000);
  auto schedule = LrSchedule::Create(spec);
  ASSERT_THAT(schedule, IsOk());
  v1::TrainTask few, many;
  few.set_first_step(4);
  few.set_last_step(8);
  many.set_first_step(300);
  many.set_last_step(600);
  for (v1::TrainTask* task : {&few, &many}) {
    task->set_committed_samples(200);
    task->set_round_samples(400);
  }
  EXPECT_DOUBLE_EQ(schedule->ForStep(few, 0), 0.02);
  EXPECT_DOUBLE_EQ(schedule->ForStep(few, 2), 0.04);
  EXPECT_DOUBLE_EQ(schedule->ForStep(many, 150), 0.04);
}

TEST(LrScheduleTest, RefusesWhatIsUnknownOrOutOfRange) {
  EXPECT_THAT(LrSchedule::Create(Spec("linear")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"linear\"")));
  EXPECT_THAT(LrSchedule::Create(Spec("step")), StatusIs(absl::StatusCode::kInvalidArgument));
  v1::OptimizerSpec spec = Spec("constant");
  spec.set_learning_rate(0);
  EXPECT_THAT(LrSchedule::Create(spec), StatusIs(absl::StatusCode::kInvalidArgument));
  spec.set_learning_rate(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(LrSchedule::Create(spec), StatusIs(absl::StatusCode::kInvalidArgument));
  spec = Spec("constant");
  spec.mutable_schedule()->set_warmup_samples(-1);
  EXPECT_THAT(LrSchedule::Create(spec), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::worker
