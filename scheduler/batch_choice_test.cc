#include "scheduler/batch_choice.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

using ::testing::HasSubstr;

// Samples per second: 100, 160, 190, 200, 199.
const std::vector<BatchMeasurement> kMeasured = {
    {8, 8 / 100.0}, {16, 16 / 160.0}, {32, 32 / 190.0}, {64, 64 / 200.0}, {128, 128 / 199.0}};

TEST(ChooseBatchTest, TakesTheSmallestWithinFivePercentOfTheBest) {
  EXPECT_EQ(ChooseBatch(kMeasured, 128)->batch_size, 32);  // 190 = 95 % of 200.
  EXPECT_DOUBLE_EQ(ChooseBatch(kMeasured, 128)->batch_time_s, 32 / 190.0);
  EXPECT_EQ(ChooseBatch(std::vector<BatchMeasurement>{{32, 32 / 189.0}, {64, 64 / 200.0}}, 128)->batch_size, 64);
}

TEST(ChooseBatchTest, ComparesOnlyThoseUnderTheMaximum) {
  EXPECT_EQ(ChooseBatch(kMeasured, 16)->batch_size, 16);
  EXPECT_EQ(ChooseBatch(kMeasured, 15)->batch_size, 8);
  EXPECT_THAT(std::string(ChooseBatch(kMeasured, 7).status().message()), HasSubstr("at most 7"));
}

TEST(ChooseBatchTest, TakesMeasurementsInAnyOrder) {
  EXPECT_EQ(ChooseBatch(std::vector<BatchMeasurement>{kMeasured[3], kMeasured[0], kMeasured[2]}, 100)->batch_size, 32);
}

TEST(EstimateBatchTimeTest, IsWhatWasMeasured) {
  for (const BatchMeasurement& m : kMeasured)
    EXPECT_DOUBLE_EQ(*EstimateBatchTime(kMeasured, m.batch_size), m.batch_time_s);
}

TEST(EstimateBatchTimeTest, IsLinearBetweenAndBeyondMeasurements) {
  const std::vector<BatchMeasurement> measured = {{30, 7.0}, {10, 3.0}, {20, 4.0}};
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(measured, 12), 3.2);
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(measured, 29), 6.7);
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(measured, 5), 2.5);
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(measured, 40), 10);
}

TEST(EstimateBatchTimeTest, StaysSensibleBeyondNoisyMeasurements) {
  // Extended, the line would go below 0.
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(std::vector<BatchMeasurement>{{10, 1.0}, {20, 10.0}}, 1), 0.1);
  // A larger batch does not take less.
  const std::vector<BatchMeasurement> falling = {{10, 3.0}, {20, 2.0}};
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(falling, 40), 2);
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(falling, 5), 3);
}

TEST(EstimateBatchTimeTest, ScalesASingleMeasurement) {
  const std::vector<BatchMeasurement> one = {{10, 2.0}};
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(one, 5), 1);
  EXPECT_DOUBLE_EQ(*EstimateBatchTime(one, 30), 6);
}

TEST(BatchChoiceTest, RefusesBadMeasurements) {
  for (const std::vector<BatchMeasurement>& bad : std::vector<std::vector<BatchMeasurement>>{
           {}, {{0, 1.0}}, {{8, 0.0}}, {{8, std::nan("")}}, {{8, 1.0}, {8, 1.1}}}) {
    EXPECT_EQ(ChooseBatch(bad, 64).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(EstimateBatchTime(bad, 64).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(EstimateBatchTime(kMeasured, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace causeway::scheduler
