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

// What rounding to whole samples and whole steps may cost: a device gets less than one sample more than its share, and
// whole steps are less than one more than fractional ones.
double RoundingSeconds(const AllocationProblem& problem) {
  double send = 0, step = 0;
  for (const DeviceProfile& device : problem.devices) {
    send = std::max(send, problem.sample_bytes / device.bandwidth_bytes_per_s);
    step = std::max(step, device.batch_time_s * (1 + 1 / static_cast<double>(device.batch_size)));
  }
  return send + problem.epochs * step;
}

// Like the published rig: four GPUs and four CPUs of 6 to 12 s a batch of 4, behind links of 1 to 12 MB/s.
AllocationProblem Rig(int64_t samples, AllocationObjective objective) {
  AllocationProblem problem{.samples = samples,
                            .sample_bytes = 1e5,
                            .model_bytes = 5e5,
                            .epochs = 50,
                            .rounds_per_epoch = 1,
                            .objective = objective};
  for (int i = 0; i < 8; ++i) {
    const bool gpu = i < 4;
    problem.devices.push_back({.name = absl::StrCat("w", i),
                               .site = gpu ? "gpu" : "cpu",
                               .bandwidth_bytes_per_s = gpu ? 12e6 - 2e6 * i : 1e6 + 5e5 * (i - 4),
                               .batch_time_s = gpu ? 0.3 : 6 + 2.0 * (i - 4),
                               .batch_size = gpu ? 64 : 4,
                               .max_parallel = gpu ? 64 : 4});
  }
  return problem;
}

TEST(AllocateAuglagTest, ApproachesTheExactOptimumAsTheSamplesGrow) {
  for (AllocationObjective objective : kObjectives) {
    for (int64_t samples = 1000; samples <= 10'000'000; samples *= 10) {
      for (const AllocationProblem& problem :
           {Rig(samples, objective), MakeLargeProblem(8, samples, AllocationObjective::kSeparable, 3)}) {
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
    const AllocationProblem problem = Rig(100'000, objective);
    EXPECT_LT(AuglagTotal(problem), Evaluate(problem, *AllocateUniform(problem))->total_s / 50);
  }
}

TEST(AllocateAuglagTest, LeavesOutADeviceThatCostsMoreThanItBrings) {
  const std::vector<TestDevice> devices = {{1, 4, 2, 1}, {1, 4, 2, 30}};
  EXPECT_THAT(AllocateAuglag(MakeProblem(devices, 16, 2, AllocationObjective::kBarrier))->samples,
              ElementsAre(16, 0));
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
    AllocationProblem problem = Rig(100'000, objective);
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
    AllocationProblem problem = Rig(100'000, objective);
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
