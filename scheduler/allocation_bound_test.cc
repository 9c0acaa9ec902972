#include "scheduler/allocation_bound.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
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
  for (int n = 0; n < 300; ++n) {
    AllocationProblem problem =
        MakeProblem({{draw(.1, 5), 4, draw(.1, 9), draw(1, 40)}, {draw(.1, 5), 2, draw(.1, 9), draw(1, 40)}}, 20,
                    draw(.5, 5), n % 2 == 0 ? AllocationObjective::kBarrier : AllocationObjective::kSeparable);
    if (n % 3 == 0) problem.devices[0].capacity_samples = 12;
    if (n % 5 == 0) problem.devices[1].reads_data_locally = true;
    const bool barrier = problem.objective == AllocationObjective::kBarrier;
    double best = std::numeric_limits<double>::infinity();
    constexpr int kGrid = 20000;
    for (int g = 0; g <= kGrid; ++g) {
      const double x[2] = {20.0 * g / kGrid, 20.0 - 20.0 * g / kGrid};
      if (x[0] > problem.devices[0].capacity_samples.value_or(20)) break;
      double send = 0, compute = 0, comm = 0, both = 0;
      for (int i = 0; i < 2; ++i) {
        const DeviceProfile& d = problem.devices[i];
        const double device_compute = x[i] / static_cast<double>(d.batch_size) * d.batch_time_s;
        const double device_comm =
            problem.model_bytes / d.bandwidth_bytes_per_s + problem.model_bytes / *d.uplink_bytes_per_s;
        if (!d.reads_data_locally) send = std::max(send, x[i] / d.bandwidth_bytes_per_s);
        compute = std::max(compute, device_compute);
        comm = std::max(comm, device_comm);
        if (x[i] > 0) both = std::max(both, device_compute + device_comm);
      }
      best = std::min(best, send + problem.epochs * (barrier ? both : compute + comm));
    }
    const double bound = *LowerBound(problem);
    EXPECT_LE(bound, best * (1 + 1e-12)) << n;
    EXPECT_GE(bound, best * (1 - 1e-3)) << n;
  }
}

}  // namespace
}  // namespace causeway::scheduler
