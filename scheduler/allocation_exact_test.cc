#include "scheduler/allocation_exact.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/allocation_bound.h"
#include "scheduler/allocation_parties.h"
#include "scheduler/allocation_simple.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

constexpr AllocationObjective kObjectives[] = {AllocationObjective::kSeparable, AllocationObjective::kBarrier,
                                               AllocationObjective::kPipelined};

double ExactTotal(const AllocationProblem& problem) {
  const absl::StatusOr<Allocation> allocation = AllocateExact(problem);
  EXPECT_TRUE(allocation.ok()) << allocation.status();
  EXPECT_EQ(allocation->gap_s, 0);
  // Evaluate refuses what does not sum to the samples or is above a capacity.
  const absl::StatusOr<Evaluation> evaluation = Evaluate(problem, *allocation);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  return evaluation->total_s;
}

// The objective written down once more, straight from its definition.
double DirectTotal(const AllocationProblem& problem, const std::vector<int64_t>& samples) {
  int64_t sent = 0, participants = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!problem.devices[i].reads_data_locally) sent += samples[i];
    participants += samples[i] > 0 || problem.objective == AllocationObjective::kSeparable;
  }
  const double egress = problem.egress_bytes_per_s.value_or(1e300);
  double send = 0, compute = 0, comm = 0, both = 0, all = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const DeviceProfile& d = problem.devices[i];
    double device_send = 0;
    if (!d.reads_data_locally && samples[i] > 0) {
      device_send =
          std::max(samples[i] * problem.sample_bytes / d.bandwidth_bytes_per_s, sent * problem.sample_bytes / egress);
    }
    const double device_compute = std::ceil(static_cast<double>(samples[i]) / d.batch_size) * d.batch_time_s;
    const double up = d.uplink_bytes_per_s ? *d.uplink_bytes_per_s : d.bandwidth_bytes_per_s;
    const double shared = participants * problem.model_bytes / egress;
    const double device_comm =
        problem.rounds_per_epoch *
        (std::max(problem.model_bytes / d.bandwidth_bytes_per_s, shared) + std::max(problem.model_bytes / up, shared));
    send = std::max(send, device_send);
    compute = std::max(compute, device_compute);
    comm = std::max(comm, device_comm);
    if (samples[i] == 0) continue;
    both = std::max(both, device_compute + device_comm);
    all = std::max(all, device_send + problem.epochs * (device_compute + device_comm));
  }
  switch (problem.objective) {
    case AllocationObjective::kSeparable: return send + problem.epochs * (compute + comm);
    case AllocationObjective::kBarrier: return send + problem.epochs * both;
    case AllocationObjective::kPipelined: return all;
  }
  return 0;
}

// Every composition of the samples.
double EnumeratedTotal(const AllocationProblem& problem, std::vector<int64_t>& samples, size_t device, int64_t left) {
  const int64_t capacity = problem.devices[device].capacity_samples.value_or(left);
  if (device + 1 == problem.devices.size()) {
    samples[device] = left;
    return left <= capacity ? DirectTotal(problem, samples) : std::numeric_limits<double>::infinity();
  }
  double best = std::numeric_limits<double>::infinity();
  for (samples[device] = 0; samples[device] <= std::min(left, capacity); ++samples[device]) {
    best = std::min(best, EnumeratedTotal(problem, samples, device + 1, left - samples[device]));
  }
  return best;
}

double EnumeratedTotal(const AllocationProblem& problem) {
  std::vector<int64_t> samples(problem.devices.size());
  return EnumeratedTotal(problem, samples, 0, problem.samples);
}

TEST(AllocateExactTest, GoldenVectors) {
  const std::vector<TestDevice> first = {{2, 4, 3, 5}, {1, 2, 4, 1}};
  const std::vector<TestDevice> second = {{1, 8, 2, 4}, {5, 2, 3, 2}, {2, 1, 7, 9}};
  EXPECT_NEAR(ExactTotal(MakeProblem(first, 20, 3, AllocationObjective::kSeparable)), 79, 1e-9);
  EXPECT_NEAR(ExactTotal(MakeProblem(first, 20, 3, AllocationObjective::kBarrier)), 75, 1e-9);
  EXPECT_NEAR(ExactTotal(MakeProblem(second, 40, 2, AllocationObjective::kSeparable)), 71, 1e-9);
  EXPECT_NEAR(ExactTotal(MakeProblem(second, 40, 2, AllocationObjective::kBarrier)), 62, 1e-9);
}

TEST(AllocateExactTest, BarrierDecidesWhoTakesPart) {
  const AllocationProblem problem = MakeProblem({{1, 4, 2, 1}, {1, 4, 2, 30}}, 16, 2, AllocationObjective::kBarrier);
  EXPECT_THAT(AllocateExact(problem)->samples, ::testing::ElementsAre(16, 0));
  EXPECT_NEAR(ExactTotal(problem), 34, 1e-9);
}

// Small integers, so that thresholds tie often; both kinds of numbers, since only non-integers round.
void ExpectEqualsFullEnumeration(AllocationObjective objective, uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  int idle = 0, capped = 0;
  for (int n = 0; n < 4000; ++n) {
    AllocationProblem problem{.samples = draw(1, 12),
                              .sample_bytes = static_cast<double>(draw(0, 4)),
                              .model_bytes = static_cast<double>(draw(0, 6)),
                              .epochs = draw(1, 6) / 2.0,
                              .rounds_per_epoch = draw(1, 3),
                              .objective = objective};
    const double unit = n % 3 == 0 ? 1 : n % 3 == 1 ? 0.1 : std::uniform_real_distribution<double>(.1, 1)(random);
    // From one that binds all to one that binds nobody.
    if (draw(0, 1) == 0) problem.egress_bytes_per_s = draw(1, 15) * unit;
    const int64_t devices = draw(1, 4);
    int64_t room = 0;
    for (int64_t i = 0; i < devices; ++i) {
      DeviceProfile device{.name = absl::StrCat("w", i),
                           .bandwidth_bytes_per_s = draw(1, 5) * unit,
                           .batch_time_s = draw(1, 6) * unit,
                           .batch_size = draw(1, 5),
                           .max_parallel = 5,
                           .reads_data_locally = draw(0, 5) == 0};
      if (draw(0, 2) == 0) device.uplink_bytes_per_s = draw(1, 5) * unit;
      if (draw(0, 2) == 0) device.capacity_samples = draw(0, 12);
      room += device.capacity_samples.value_or(problem.samples);
      problem.devices.push_back(device);
    }
    if (room < problem.samples) problem.devices[0].capacity_samples.reset();
    const double expected = EnumeratedTotal(problem);
    const absl::StatusOr<Allocation> allocation = AllocateExact(problem);
    ASSERT_TRUE(allocation.ok()) << allocation.status();
    const double total = Evaluate(problem, *allocation)->total_s;
    ASSERT_NEAR(total, expected, 1e-11 * expected) << "seed " << seed << " instance " << n;
    ASSERT_EQ(allocation->gap_s, 0) << "seed " << seed << " instance " << n;
    ASSERT_LE(*LowerBound(problem), total * (1 + 1e-12)) << "seed " << seed << " instance " << n;
    for (size_t i = 0; i < allocation->samples.size(); ++i) {
      idle += allocation->samples[i] == 0;
      capped += problem.devices[i].capacity_samples == allocation->samples[i];
    }
  }
  // The instances are as intended.
  EXPECT_GT(idle, 1000);
  EXPECT_GT(capped, 500);
}

TEST(AllocateExactTest, SeparableEqualsFullEnumeration) {
  ExpectEqualsFullEnumeration(AllocationObjective::kSeparable, 20240601);
}

TEST(AllocateExactTest, BarrierEqualsFullEnumeration) {
  ExpectEqualsFullEnumeration(AllocationObjective::kBarrier, 20240602);
}

TEST(AllocateExactTest, PipelinedEqualsFullEnumeration) {
  ExpectEqualsFullEnumeration(AllocationObjective::kPipelined, 20240603);
}

TEST(AllocateExactTest, SendThresholdOfRoundedTimesLosesNoSample) {
  // 0.1 * 3 and 0.3 * 1 differ in the last bit; every count from 1 must find its own breakpoint.
  for (int64_t samples = 1; samples <= 400; ++samples) {
    for (AllocationObjective objective : kObjectives) {
      const AllocationProblem problem = MakeProblem({{0.1, 1, 0.7, 0.3}}, samples, 1, objective);
      const std::vector<int64_t> expected = {samples};
      ASSERT_EQ(AllocateExact(problem)->samples, expected);
    }
  }
}

TEST(AllocateExactTest, StepsFarBelowTheResolutionOfTheOffset) {
  AllocationProblem problem =
      MakeProblem({{1e-9, 1, 1e-13, 1e4}, {1e-9, 1, 3e-13, 2e4}}, 1000, 1, AllocationObjective::kBarrier);
  EXPECT_NEAR(ExactTotal(problem), EnumeratedTotal(problem), 1e-7);
}

TEST(AllocateExactTest, SlowLinkMovesDataWhenComputeIsEqual) {
  for (AllocationObjective objective : kObjectives) {
    const Allocation allocation = *AllocateExact(MakeProblem({{1, 2, 1, 3}, {4, 2, 1, 3}}, 100, 1, objective));
    EXPECT_GT(allocation.samples[0], allocation.samples[1] + 20);
  }
}

TEST(AllocateExactTest, NeverAboveTheBaselinesNorBelowTheBound) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (AllocationObjective objective : kObjectives) {
      const AllocationProblem problem = MakeLargeProblem(1 + seed * 3, 20000, objective, seed);
      const double total = ExactTotal(problem);
      EXPECT_GE(total, *LowerBound(problem) * (1 - 1e-12));
      EXPECT_LE(total, Evaluate(problem, *AllocateUniform(problem))->total_s);
      EXPECT_LE(total, Evaluate(problem, *AllocateProportional(problem))->total_s);
    }
  }
}

// Without an egress cap and with one that binds.
std::vector<AllocationProblem> LargeProblems(int64_t devices, int64_t samples, uint32_t seed) {
  std::vector<AllocationProblem> problems;
  for (AllocationObjective objective : kObjectives) {
    problems.push_back(MakeLargeProblem(devices, samples, objective, seed));
    problems.push_back(problems.back());
    problems.back().egress_bytes_per_s = 2e7;
  }
  return problems;
}

TEST(AllocateExactTest, ScalingAllSecondsScalesTheObjective) {
  for (AllocationProblem problem : LargeProblems(12, 5000, 3)) {
    const double before = ExactTotal(problem);
    const std::vector<int64_t> samples = AllocateExact(problem)->samples;
    for (DeviceProfile& device : problem.devices) {
      device.bandwidth_bytes_per_s /= 4;
      *device.uplink_bytes_per_s /= 4;
      device.batch_time_s *= 4;
    }
    if (problem.egress_bytes_per_s) *problem.egress_bytes_per_s /= 4;
    EXPECT_DOUBLE_EQ(ExactTotal(problem), 4 * before);
    EXPECT_EQ(AllocateExact(problem)->samples, samples);
  }
}

TEST(AllocateExactTest, ScalingAllSamplesAndBatchesScalesTheObjective) {
  for (AllocationProblem problem : LargeProblems(12, 5000, 4)) {
    for (DeviceProfile& device : problem.devices) device.batch_size = device.max_parallel = 8;
    problem.sample_bytes = 0;  // Else finer multiples of a sample's time appear.
    const double before = ExactTotal(problem);
    problem.samples *= 8;
    for (DeviceProfile& device : problem.devices) device.batch_size = device.max_parallel = 64;
    EXPECT_DOUBLE_EQ(ExactTotal(problem), before);
  }
}

TEST(AllocateExactTest, BetterCircumstancesNeverCostMore) {
  for (uint32_t seed = 1; seed <= 15; ++seed) {
    for (const AllocationProblem& problem : LargeProblems(6, 3000, seed)) {
      const double total = ExactTotal(problem);
      const double most = total * (1 + 1e-12), least = total * (1 - 1e-12);

      AllocationProblem faster = problem;
      faster.devices[seed % 6].batch_time_s /= 2;
      EXPECT_LE(ExactTotal(faster), most);

      AllocationProblem wider = problem;
      for (DeviceProfile& device : wider.devices) {
        device.bandwidth_bytes_per_s *= 2;
        *device.uplink_bytes_per_s *= 2;
      }
      EXPECT_LE(ExactTotal(wider), most);
      if (problem.egress_bytes_per_s) *wider.egress_bytes_per_s *= 2;
      EXPECT_LT(ExactTotal(wider), total);

      // Under kSeparable all pay for one more on a shared link.
      AllocationProblem more = problem;
      more.devices.push_back(more.devices[0]);
      more.devices.back().name = "added";
      if (!problem.egress_bytes_per_s || problem.objective != AllocationObjective::kSeparable) {
        EXPECT_LE(ExactTotal(more), most);
      }

      AllocationProblem slower = problem;
      slower.devices[seed % 6].bandwidth_bytes_per_s /= 3;
      EXPECT_GE(ExactTotal(slower), least);

      AllocationProblem capped = problem;
      capped.devices[seed % 6].capacity_samples = 100;
      EXPECT_GE(ExactTotal(capped), least);

      AllocationProblem shared = problem;
      shared.egress_bytes_per_s = problem.egress_bytes_per_s.value_or(1e9) / 2;
      EXPECT_GE(ExactTotal(shared), least);

      AllocationProblem local = problem;
      local.devices[seed % 6].reads_data_locally = true;
      EXPECT_LE(ExactTotal(local), most);
    }
  }
}

TEST(AllocateExactTest, MovesDataAwayFromASlowedDevice) {
  AllocationProblem problem = MakeLargeProblem(4, 40000, AllocationObjective::kBarrier, 9);
  for (DeviceProfile& device : problem.devices) device.batch_time_s = 0.1 * device.batch_size / 64;
  const int64_t before = AllocateExact(problem)->samples[2];
  problem.devices[2].batch_time_s *= 3;
  EXPECT_LT(AllocateExact(problem)->samples[2], before / 2);
}

TEST(AllocateExactTest, DoesNotOverflowAtATrillionSamples) {
  for (AllocationProblem problem : LargeProblems(5, 1'000'000'000'000, 2)) {
    problem.devices[1].capacity_samples = 3'000'000'000;
    const double total = ExactTotal(problem);
    const double bound = *LowerBound(problem);
    EXPECT_GE(total, bound * (1 - 1e-12));
    EXPECT_LE(total, bound * (1 + 1e-6));  // Rounding to whole samples and steps is lost in so many.
  }
}

TEST(AllocateExactTest, FewerTakePartWhereTheCoordinatorsLinkIsNarrow) {
  for (AllocationObjective objective : {AllocationObjective::kBarrier, AllocationObjective::kPipelined}) {
    AllocationProblem problem =
        MakeProblem({{0.1, 4, 2, 1}, {0.1, 4, 2, 1}, {0.1, 4, 2, 1}, {0.1, 4, 2, 1}}, 16, 2, objective);
    EXPECT_NEAR(ExactTotal(problem), 0.4 + 2 * (2 + 1), 1e-9);
    problem.model_bytes = 10;
    for (DeviceProfile& device : problem.devices) device.uplink_bytes_per_s.reset();
    problem.egress_bytes_per_s = 10;
    // One: 1.6 + 2 * (8 + 2); two: 1.6 + 2 * (4 + 4); four: 1.6 + 2 * (2 + 8).
    EXPECT_NEAR(ExactTotal(problem), 1.6 + 2 * (4 + 4), 1e-9);
    const std::vector<int64_t> samples = AllocateExact(problem)->samples;
    EXPECT_EQ(std::count(samples.begin(), samples.end(), 0), 2);
  }
}

// Every amount for each site, split as the solver splits it.
TEST(AllocateExactTest, SitesInLockStepEqualFullEnumerationOfTheirAmounts) {
  std::mt19937 random(20240604);
  const auto draw = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  int feasible = 0;
  for (int n = 0; n < 600; ++n) {
    AllocationProblem problem{.samples = draw(4, 30),
                              .sample_bytes = static_cast<double>(draw(0, 3)),
                              .model_bytes = static_cast<double>(draw(0, 6)),
                              .epochs = draw(1, 6) / 2.0,
                              .rounds_per_epoch = draw(1, 3),
                              .objective = kObjectives[n % 3],
                              .lock_step_sites = true};
    if (draw(0, 1) == 0) problem.egress_bytes_per_s = draw(1, 15);
    double sample_s = 0;
    for (int i = 0; i < 5; ++i) {
      problem.devices.push_back({.name = absl::StrCat("w", i),
                                 .site = i < 2   ? "a"
                                         : i < 4 ? "b"
                                                 : "c",
                                 .bandwidth_bytes_per_s = static_cast<double>(draw(1, 5)),
                                 .batch_time_s = static_cast<double>(draw(1, 6)),
                                 .batch_size = draw(1, 5),
                                 .max_parallel = 5});
      if (draw(0, 3) == 0) problem.devices[i].capacity_samples = draw(0, 30);
      sample_s = std::max(sample_s, problem.sample_bytes / problem.devices[i].bandwidth_bytes_per_s);
    }
    const absl::StatusOr<Allocation> allocation = AllocateExact(problem);
    if (!allocation.ok()) continue;
    ++feasible;
    const double total = Evaluate(problem, *allocation)->total_s;
    const internal::PartyProblem parties = internal::MakeParties(problem);
    double best = std::numeric_limits<double>::infinity();
    for (int64_t a = 0; a <= parties.parties[0].limit; ++a) {
      for (int64_t b = 0; b <= std::min(parties.parties[1].limit, problem.samples - a); ++b) {
        const int64_t c = problem.samples - a - b;
        if (c > parties.parties[2].limit) continue;
        best = std::min(best, Evaluate(problem, {internal::SplitAmongMembers(problem, parties, {a, b, c})})->total_s);
      }
    }
    // A member's samples are whole and may avoid a last step of one: a few samples' sending more or less.
    ASSERT_NEAR(total, best, 3 * sample_s + 1e-9) << n;
    if (problem.sample_bytes == 0) {
      ASSERT_NEAR(total, best, 1e-9) << n;
    }
    ASSERT_LE(*LowerBound(problem), best * (1 + 1e-12)) << n;
  }
  EXPECT_GT(feasible, 400);
}

TEST(AllocateExactTest, MembersOfASiteInLockStepHaveEqualSteps) {
  for (AllocationProblem problem : LargeProblems(24, 100'000, 5)) {
    problem.lock_step_sites = true;  // Eight sites of three.
    const absl::StatusOr<Allocation> allocation = AllocateExact(problem);
    ASSERT_TRUE(allocation.ok()) << allocation.status();
    const Evaluation evaluation = *Evaluate(problem, *allocation);
    for (size_t i = 0; i < 24; ++i) {
      // D_k <= S * batch_k, and S no more than the site needs.
      EXPECT_LE(allocation->samples[i], evaluation.devices[i].steps_per_epoch * problem.devices[i].batch_size);
      EXPECT_EQ(evaluation.devices[i].steps_per_epoch, evaluation.devices[i % 8].steps_per_epoch);
      int64_t site_samples = 0, site_batch = 0;
      for (size_t k = i % 8; k < 24; k += 8) {
        site_samples += allocation->samples[k];
        site_batch += problem.devices[k].batch_size;
      }
      EXPECT_EQ(evaluation.devices[i].steps_per_epoch, (site_samples + site_batch - 1) / site_batch);
    }
    EXPECT_LE(*LowerBound(problem), evaluation.total_s);
  }
}

// Trading one sample's sending against one step costs nothing: every epoch time is as good as the next.
TEST(AllocateExactTest, SaysWhatIsUnprovenWhereAllEpochTimesCostTheSame) {
  AllocationProblem problem =
      MakeProblem({{2, 1, 1e-6, 1}, {1e-6, 1, 1, 1}}, 1'000'000'000, 2, AllocationObjective::kSeparable);
  const Allocation allocation = *AllocateExact(problem);
  const double total = Evaluate(problem, allocation)->total_s;
  EXPECT_GT(allocation.gap_s, 0);
  EXPECT_LE(allocation.gap_s, 1e-5 * total);
  EXPECT_LE(total - allocation.gap_s, *LowerBound(problem) * (1 + 1e-5));
}

// How long it takes is for a benchmark to say; a slow search would meet the timeout of the whole binary.
TEST(AllocateExactTest, ThousandDevicesTenMillionSamples) {
  for (AllocationObjective objective : kObjectives) {
    const AllocationProblem problem = MakeLargeProblem(1000, 10'000'000, objective, 1);
    const double total = ExactTotal(problem);
    const double bound = *LowerBound(problem);
    EXPECT_GE(total, bound * (1 - 1e-12));
    EXPECT_LE(total, bound * 1.05);
  }
}

TEST(AllocateExactTest, RefusesAnInvalidProblem) {
  EXPECT_EQ(AllocateExact({}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace causeway::scheduler
