#include "scheduler/allocation_simple.h"

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/allocation_parties.h"

namespace causeway::scheduler {
namespace {

Allocation ApportionByWeight(const AllocationProblem& problem, absl::Span<const double> weights) {
  std::vector<int64_t> limits;
  for (const DeviceProfile& device : problem.devices) limits.push_back(internal::SampleLimit(problem, device));
  return {.samples = internal::Apportion(problem.samples, limits, weights)};
}

}  // namespace

absl::StatusOr<Allocation> AllocateUniform(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  return ApportionByWeight(problem, std::vector<double>(problem.devices.size(), 1.0));
}

absl::StatusOr<Allocation> AllocateProportional(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  std::vector<double> speeds;
  speeds.reserve(problem.devices.size());
  for (const DeviceProfile& device : problem.devices) {
    speeds.push_back(static_cast<double>(device.batch_size) / device.batch_time_s);
  }
  return ApportionByWeight(problem, speeds);
}

}  // namespace causeway::scheduler
