// Problems for the tests of this folder, in the terms of the published instances.
#ifndef CAUSEWAY_SCHEDULER_TEST_PROBLEMS_H_
#define CAUSEWAY_SCHEDULER_TEST_PROBLEMS_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/allocation.h"

namespace causeway::scheduler {

// send_s: seconds to send one sample; comm_s: seconds of communication in an epoch of one round.
struct TestDevice {
  double send_s;
  int64_t batch_size;
  double batch_time_s;
  double comm_s;
};

// Bytes are chosen so that the seconds come out as given: one byte a sample, and a model small enough that most of comm_s
// is the uplink's.
inline AllocationProblem MakeProblem(const std::vector<TestDevice>& devices, int64_t samples, double epochs,
                                     AllocationObjective objective) {
  AllocationProblem problem{.samples = samples,
                            .sample_bytes = 1,
                            .model_bytes = 0.0625,
                            .epochs = epochs,
                            .rounds_per_epoch = 1,
                            .objective = objective};
  for (const TestDevice& device : devices) {
    const double up_s = device.comm_s - problem.model_bytes * device.send_s;
    problem.devices.push_back({.name = absl::StrCat("w", problem.devices.size()),
                               .site = "a",
                               .bandwidth_bytes_per_s = 1 / device.send_s,
                               .uplink_bytes_per_s = problem.model_bytes / up_s,
                               .batch_time_s = device.batch_time_s,
                               .batch_size = device.batch_size,
                               .max_parallel = device.batch_size});
  }
  return problem;
}

// Devices as different as a data centre's and a desktop's, links from 1 MB/s to 1 GB/s.
inline AllocationProblem MakeLargeProblem(int64_t devices, int64_t samples, AllocationObjective objective,
                                          uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  AllocationProblem problem{.samples = samples,
                            .sample_bytes = 3000,
                            .model_bytes = 4e6,
                            .epochs = 20,
                            .rounds_per_epoch = 2,
                            .objective = objective};
  for (int64_t i = 0; i < devices; ++i) {
    const int64_t batch_size = std::uniform_int_distribution<int64_t>(1, 64)(random);
    problem.devices.push_back({.name = absl::StrCat("w", i),
                               .site = absl::StrCat("s", i % 8),
                               .bandwidth_bytes_per_s = std::pow(10, uniform(6, 9)),
                               .uplink_bytes_per_s = std::pow(10, uniform(6, 9)),
                               .batch_time_s = static_cast<double>(batch_size) * std::pow(10, uniform(-4, -2)),
                               .batch_size = batch_size,
                               .max_parallel = 64});
  }
  return problem;
}

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_TEST_PROBLEMS_H_
