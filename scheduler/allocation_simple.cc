#include "scheduler/allocation_simple.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/allocation_parties.h"

namespace causeway::scheduler {
namespace {

// Divides the problem's samples in proportion to the weights (each above 0).
Allocation Apportion(const AllocationProblem& problem, absl::Span<const double> weights) {
  Allocation allocation;
  allocation.samples.resize(problem.devices.size());
  std::vector<size_t> open(problem.devices.size());
  std::iota(open.begin(), open.end(), size_t{0});
  int64_t left = problem.samples;

  const auto weight_of_open = [&] {
    return std::accumulate(open.begin(), open.end(), 0.0, [&](double sum, size_t i) { return sum + weights[i]; });
  };
  double weight = 0;
  // Filling one device raises the share of the others, which may fill further ones.
  for (bool filled = true; filled;) {
    filled = false;
    weight = weight_of_open();
    const int64_t to_share = left;
    std::erase_if(open, [&](size_t i) {
      const int64_t limit = internal::SampleLimit(problem, problem.devices[i]);
      if (static_cast<double>(to_share) * (weights[i] / weight) < static_cast<double>(limit)) return false;
      allocation.samples[i] = std::min(limit, left);
      left -= allocation.samples[i];
      filled = true;
      return true;
    });
  }
  const int64_t to_share = left;
  std::vector<double> shares(problem.devices.size());
  for (size_t i : open) {
    shares[i] = static_cast<double>(to_share) * (weights[i] / weight);
    allocation.samples[i] = std::min(left, static_cast<int64_t>(std::floor(shares[i])));
    left -= allocation.samples[i];
  }
  std::stable_sort(open.begin(), open.end(), [&](size_t a, size_t b) {
    return shares[a] - std::floor(shares[a]) > shares[b] - std::floor(shares[b]);
  });
  // An open device's share is below its limit, so it has room for one more. One turn is enough but for rounding.
  while (left > 0) {
    for (size_t i : open) {
      if (left == 0) break;
      if (allocation.samples[i] == internal::SampleLimit(problem, problem.devices[i])) continue;
      ++allocation.samples[i];
      --left;
    }
  }
  return allocation;
}

}  // namespace

absl::StatusOr<Allocation> AllocateUniform(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  return Apportion(problem, std::vector<double>(problem.devices.size(), 1.0));
}

absl::StatusOr<Allocation> AllocateProportional(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  std::vector<double> speeds;
  speeds.reserve(problem.devices.size());
  for (const DeviceProfile& device : problem.devices) {
    speeds.push_back(static_cast<double>(device.batch_size) / device.batch_time_s);
  }
  return Apportion(problem, speeds);
}

}  // namespace causeway::scheduler
