#include "scheduler/allocation_bound.h"

#include <algorithm>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "scheduler/allocation_exact.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

AllocationProblem First(AllocationObjective objective) {
  return MakeProblem({{2, 4, 3, 5}, {1, 2, 4, 1}}, 20, 3, objective);
}
AllocationProblem Second(AllocationObjective objective) {
  return MakeProblem({{1, 8, 2, 4}, {5, 2, 3, 2}, {2, 1, 7, 9}}, 40, 2, objective);
}

TEST(LowerBoundTest, GoldenVectors) {
  EXPECT_NEAR(*LowerBound(First(AllocationObjective::kSeparable)), 76.818, 5e-4);
  EXPECT_NEAR(*LowerBound(First(AllocationObjective::kBarrier)), 70.636, 5e-4);
  EXPECT_NEAR(*LowerBound(Second(AllocationObjective::kSeparable)), 67.901, 5e-4);
}

TEST(LowerBoundTest, LeavesOutADeviceThatCostsMoreThanItBrings) {
  const AllocationProblem problem = MakeProblem({{1, 4, 2, 1}, {1, 4, 2, 30}}, 16, 2, AllocationObjective::kBarrier);
  EXPECT_NEAR(*LowerBound(problem), 16 + 2 * (8 + 1), 1e-9);
}

// Two devices: the fractional objective is a function of one number, which a fine grid can minimise.
TEST(LowerBoundTest, AgreesWithAGridOnRandomPairs) {
  std::mt19937 random(7);
  const auto draw = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  constexpr AllocationObjective kObjectives[] = {AllocationObjective::kSeparable, AllocationObjective::kBarrier,
                                                 AllocationObjective::kPipelined};
  for (int n = 0; n < 300; ++n) {
    AllocationProblem problem =
        MakeProblem({{draw(.1, 5), 4, draw(.1, 9), draw(1, 40)}, {draw(.1, 5), 2, draw(.1, 9), draw(1, 40)}}, 20,
                    draw(.5, 5), kObjectives[n % 3]);
    if (n % 4 == 0) problem.devices[0].capacity_samples = 12;
    if (n % 5 == 0) problem.devices[1].reads_data_locally = true;
    // Under kBarrier the bound may be lower then.
    if (n % 7 == 0 && problem.objective != AllocationObjective::kBarrier) problem.egress_bytes_per_s = draw(.1, 2);
    const double egress = problem.egress_bytes_per_s.value_or(1e300);
    double best = std::numeric_limits<double>::infinity();
    constexpr int kGrid = 10000;
    for (int g = 0; g <= kGrid; ++g) {
      const double x[2] = {20.0 * g / kGrid, 20.0 - 20.0 * g / kGrid};
      if (x[0] > problem.devices[0].capacity_samples.value_or(20)) break;
      const double sent = x[0] + (problem.devices[1].reads_data_locally ? 0 : x[1]);
      const int participants = problem.objective == AllocationObjective::kSeparable ? 2 : (x[0] > 0) + (x[1] > 0);
      const double shared = participants * problem.model_bytes / egress;
      double send = 0, compute = 0, comm = 0, both = 0, all = 0;
      for (int i = 0; i < 2; ++i) {
        const DeviceProfile& d = problem.devices[i];
        const double device_send =
            d.reads_data_locally || x[i] == 0 ? 0 : std::max(x[i] / d.bandwidth_bytes_per_s, sent / egress);
        const double device_compute = x[i] / static_cast<double>(d.batch_size) * d.batch_time_s;
        const double device_comm = std::max(shared, problem.model_bytes / d.bandwidth_bytes_per_s) +
                                   std::max(shared, problem.model_bytes / *d.uplink_bytes_per_s);
        send = std::max(send, device_send);
        compute = std::max(compute, device_compute);
        comm = std::max(comm, device_comm);
        if (x[i] == 0) continue;
        both = std::max(both, device_compute + device_comm);
        all = std::max(all, device_send + problem.epochs * (device_compute + device_comm));
      }
      switch (problem.objective) {
        case AllocationObjective::kSeparable: best = std::min(best, send + problem.epochs * (compute + comm)); break;
        case AllocationObjective::kBarrier: best = std::min(best, send + problem.epochs * both); break;
        case AllocationObjective::kPipelined: best = std::min(best, all); break;
      }
    }
    const double bound = *LowerBound(problem);
    EXPECT_LE(bound, best * (1 + 1e-12)) << n;
    EXPECT_GE(bound, best * (1 - 2e-3)) << n;
  }
}

TEST(LowerBoundTest, GoldenVectorsOfTheCoupledForm) {
  // Of the form in which all devices pay; here a device may sit out, so it cannot be above.
  EXPECT_LE(*LowerBound(Second(AllocationObjective::kBarrier)), 57.422 + 5e-4);
  EXPECT_GE(*LowerBound(Second(AllocationObjective::kBarrier)), 50);
}

// With an egress cap: close, where the number of participants is most of the problem.
TEST(LowerBoundTest, IsCloseToTheOptimumUnderAnEgressCap) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    for (AllocationObjective objective :
         {AllocationObjective::kSeparable, AllocationObjective::kBarrier, AllocationObjective::kPipelined}) {
      for (double egress : {1e6, 1e8, 1e10}) {
        AllocationProblem problem = MakeLargeProblem(20, 1'000'000, objective, seed);
        problem.egress_bytes_per_s = egress;
        const double total = Evaluate(problem, *AllocateExact(problem))->total_s;
        EXPECT_LE(*LowerBound(problem), total * (1 + 1e-12));
        EXPECT_GE(*LowerBound(problem), total * (objective == AllocationObjective::kBarrier ? 0.9 : 0.999))
            << AllocationObjectiveName(objective) << " " << egress << " seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace causeway::scheduler
