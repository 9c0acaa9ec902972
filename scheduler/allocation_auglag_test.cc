#include "scheduler/allocation_auglag.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/allocation_bound.h"
#include "scheduler/allocation_exact.h"
#include "scheduler/allocation_simple.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;

constexpr AllocationObjective kObjectives[] = {AllocationObjective::kSeparable, AllocationObjective::kBarrier,
                                               AllocationObjective::kPipelined};

double AuglagTotal(const AllocationProblem& problem) {
  const absl::StatusOr<Allocation> allocation = AllocateAuglag(problem);
  EXPECT_TRUE(allocation.ok()) << allocation.status();
  const absl::StatusOr<Evaluation> evaluation = Evaluate(problem, *allocation);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  return evaluation->total_s;
}

TEST(AllocateAuglagTest, ApproachesTheExactOptimumAsTheSamplesGrow) {
  for (AllocationObjective objective : kObjectives) {
    for (int64_t samples = 1000; samples <= 10'000'000; samples *= 10) {
      for (const AllocationProblem& problem :
           {MakeRigProblem(samples, objective), MakeLargeProblem(8, samples, AllocationObjective::kSeparable, 3)}) {
        const double exact = Evaluate(problem, *AllocateExact(problem))->total_s;
        const double auglag = AuglagTotal(problem);
        EXPECT_GE(auglag, exact * (1 - 1e-12));
        EXPECT_LE(auglag, exact * std::pow(8, 0.01) + RoundingSeconds(problem))
            << AllocationObjectiveName(objective) << " " << samples;
      }
    }
  }
}

TEST(AllocateAuglagTest, IsWithinTheFloorOfTheSurrogateOnManyDevices) {
  const AllocationProblem problem = MakeLargeProblem(100, 10'000'000, AllocationObjective::kSeparable, 5);
  EXPECT_LE(AuglagTotal(problem), *LowerBound(problem) * std::pow(100, 0.01) + RoundingSeconds(problem));
}

TEST(AllocateAuglagTest, IsFarBetterThanTheEvenSplit) {
  for (AllocationObjective objective : kObjectives) {
    const AllocationProblem problem = MakeRigProblem(100'000, objective);
    EXPECT_LT(AuglagTotal(problem), Evaluate(problem, *AllocateUniform(problem))->total_s / 50);
  }
}

TEST(AllocateAuglagTest, LeavesOutADeviceThatCostsMoreThanItBrings) {
  const std::vector<TestDevice> devices = {{1, 4, 2, 1}, {1, 4, 2, 30}};
  EXPECT_THAT(AllocateAuglag(MakeProblem(devices, 16, 2, AllocationObjective::kBarrier))->samples, ElementsAre(16, 0));
  EXPECT_GT(AllocateAuglag(MakeProblem(devices, 16, 2, AllocationObjective::kSeparable))->samples[1], 4);
}

TEST(AllocateAuglagTest, MovesDataToTheFasterLink) {
  for (AllocationObjective objective : kObjectives) {
    const Allocation allocation = *AllocateAuglag(MakeProblem({{1, 2, 1, 3}, {4, 2, 1, 3}}, 100, 1, objective));
    EXPECT_GT(allocation.samples[0], allocation.samples[1] + 20);
  }
}

TEST(AllocateAuglagTest, RespectsCapacities) {
  for (AllocationObjective objective : kObjectives) {
    AllocationProblem problem = MakeRigProblem(100'000, objective);
    problem.devices[0].capacity_samples = 100;
    problem.devices[1].capacity_samples = 0;
    const Allocation allocation = *AllocateAuglag(problem);
    EXPECT_TRUE(Evaluate(problem, allocation).ok());
    EXPECT_GE(allocation.samples[0], 95);
    // Nothing to choose.
    problem.samples = 0;
    for (DeviceProfile& device : problem.devices) {
      device.capacity_samples = 3;
      problem.samples += 3;
    }
    EXPECT_THAT(AllocateAuglag(problem)->samples, ElementsAre(3, 3, 3, 3, 3, 3, 3, 3));
  }
}

TEST(AllocateAuglagTest, EgressCapMovesDataToLocalReaders) {
  for (AllocationObjective objective : kObjectives) {
    AllocationProblem problem = MakeRigProblem(100'000, objective);
    problem.devices[3].reads_data_locally = true;
    const int64_t before = AllocateAuglag(problem)->samples[3];
    problem.egress_bytes_per_s = 3e5;
    EXPECT_GT(AllocateAuglag(problem)->samples[3], before * 3 / 2) << AllocationObjectiveName(objective);
    EXPECT_GE(AuglagTotal(problem), Evaluate(problem, *AllocateExact(problem))->total_s * (1 - 1e-12));
  }
}

TEST(AllocateAuglagTest, DoesNotDependOnTheUnits) {
  for (AllocationObjective objective : kObjectives) {
    AllocationProblem problem = MakeLargeProblem(12, 100'000, objective, 3);
    const double before = AuglagTotal(problem);
    for (DeviceProfile& device : problem.devices) {
      device.bandwidth_bytes_per_s /= 1024;
      *device.uplink_bytes_per_s /= 1024;
      device.batch_time_s *= 1024;
    }
    EXPECT_NEAR(AuglagTotal(problem), 1024 * before, 1e-3 * 1024 * before);
  }
}

TEST(AllocateAuglagTest, SumsUpAtATrillionSamples) {
  for (AllocationObjective objective : kObjectives) {
    const AllocationProblem problem = MakeLargeProblem(5, 1'000'000'000'000, objective, 2);
    const double total = AuglagTotal(problem);  // Evaluate refuses what does not sum to the samples.
    EXPECT_LE(total, *LowerBound(problem) * std::pow(5, 0.01));
  }
}

TEST(AllocateAuglagTest, OneSampleOneDeviceAndNoTimeToSend) {
  AllocationProblem problem = MakeProblem({{1, 4, 2, 1}}, 1, 2, AllocationObjective::kBarrier);
  EXPECT_THAT(AllocateAuglag(problem)->samples, ElementsAre(1));
  problem.sample_bytes = problem.model_bytes = 0;
  problem.samples = 1000;
  EXPECT_THAT(AllocateAuglag(problem)->samples, ElementsAre(1000));
}

TEST(AllocateAuglagTest, RefusesAnInvalidProblem) {
  EXPECT_EQ(AllocateAuglag({}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace causeway::scheduler
