// Problems for the tests of this folder and its benchmarks, in the terms of the published instances.
#ifndef CAUSEWAY_SCHEDULER_TEST_PROBLEMS_H_
#define CAUSEWAY_SCHEDULER_TEST_PROBLEMS_H_

#include <algorithm>
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

// Like the published rig: four GPUs and four CPUs of 6 to 12 s a batch of 4; links of 1 to 12 MB/s, 50 epochs.
inline AllocationProblem MakeRigProblem(int64_t samples, AllocationObjective objective) {
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

// What rounding shares to whole samples and whole steps may cost: a device gets less than one sample more than its share,
// and whole steps are less than one more than fractional ones.
inline double RoundingSeconds(const AllocationProblem& problem) {
  double send_s = 0, step_s = 0;
  for (const DeviceProfile& device : problem.devices) {
    send_s = std::max(send_s, problem.sample_bytes / device.bandwidth_bytes_per_s);
    step_s = std::max(step_s, device.batch_time_s * (1 + 1 / static_cast<double>(device.batch_size)));
  }
  return send_s + problem.epochs * step_s;
}

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_TEST_PROBLEMS_H_
