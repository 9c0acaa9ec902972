#include "scheduler/allocation_simple.h"

#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;

AllocationProblem Three(int64_t samples) {
  // Speeds 4, 1 and 1 samples/s; very unlike links, which neither method looks at.
  return MakeProblem({{1, 8, 2, 4}, {50, 2, 2, 200}, {2, 1, 1, 9}}, samples, 2, AllocationObjective::kBarrier);
}

TEST(AllocateUniformTest, GivesTheRestToTheFirst) {
  EXPECT_THAT(AllocateUniform(Three(12))->samples, ElementsAre(4, 4, 4));
  EXPECT_THAT(AllocateUniform(Three(11))->samples, ElementsAre(4, 4, 3));
  EXPECT_THAT(AllocateUniform(Three(2))->samples, ElementsAre(1, 1, 0));
}

TEST(AllocateUniformTest, SharesWhatAFullDeviceCannotTake) {
  AllocationProblem problem = Three(12);
  problem.devices[0].capacity_samples = 1;
  EXPECT_THAT(AllocateUniform(problem)->samples, ElementsAre(1, 6, 5));
  // 5 is enough for an even share of 12, but not once the first device is full.
  problem.devices[1].capacity_samples = 5;
  EXPECT_THAT(AllocateUniform(problem)->samples, ElementsAre(1, 5, 6));
  problem.devices[0].capacity_samples = 0;
  problem.devices[2].capacity_samples = 7;
  EXPECT_THAT(AllocateUniform(problem)->samples, ElementsAre(0, 5, 7));
}

TEST(AllocateProportionalTest, FollowsSpeedAlone) {
  EXPECT_THAT(AllocateProportional(Three(12))->samples, ElementsAre(8, 2, 2));
}

TEST(AllocateProportionalTest, RoundsByLargestRemainder) {
  EXPECT_THAT(AllocateProportional(Three(13))->samples, ElementsAre(9, 2, 2));   // 8.67, 2.17, 2.17
  EXPECT_THAT(AllocateProportional(Three(15))->samples, ElementsAre(10, 3, 2));  // 10, 2.5, 2.5
}

TEST(AllocateProportionalTest, SharesWhatAFullDeviceCannotTake) {
  AllocationProblem problem = Three(12);
  problem.devices[0].capacity_samples = 4;
  EXPECT_THAT(AllocateProportional(problem)->samples, ElementsAre(4, 4, 4));
  problem.devices[0].capacity_samples.reset();
  problem.devices[1].capacity_samples = 0;
  EXPECT_THAT(AllocateProportional(problem)->samples, ElementsAre(10, 0, 2));  // 9.6, 2.4
}

TEST(AllocateSimpleTest, AlwaysSumsToTheSamplesUnderTheCapacities) {
  std::mt19937 random(11);
  for (int n = 0; n < 3000; ++n) {
    AllocationProblem problem = MakeLargeProblem(1 + n % 13, 1, AllocationObjective::kBarrier, 1000 + n);
    problem.samples = n % 100 == 0 ? 1'000'000'000'000 : std::uniform_int_distribution<int64_t>(1, 300)(random);
    int64_t room = 0;
    for (DeviceProfile& device : problem.devices) {
      if (n % 2 == 0) device.capacity_samples = std::uniform_int_distribution<int64_t>(0, problem.samples)(random);
      room += device.capacity_samples.value_or(problem.samples);
    }
    if (room < problem.samples) problem.samples = std::max<int64_t>(1, room);
    if (room == 0) problem.devices[0].capacity_samples = 1;
    for (const absl::StatusOr<Allocation>& allocation : {AllocateUniform(problem), AllocateProportional(problem)}) {
      ASSERT_TRUE(allocation.ok()) << allocation.status();
      // Evaluate refuses a wrong sum and a count above a capacity.
      ASSERT_TRUE(Evaluate(problem, *allocation).ok()) << n << ": " << Evaluate(problem, *allocation).status();
    }
  }
}

TEST(AllocateSimpleTest, RefuseAnInvalidProblem) {
  EXPECT_EQ(AllocateUniform({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AllocateProportional({}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace causeway::scheduler
