#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_SIMPLE_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_SIMPLE_H_

#include "absl/status/statusor.h"
#include "scheduler/allocation.h"

namespace causeway::scheduler {

// The baselines, which look at no link. Both respect capacities: what a full device cannot take, the others share in the
// same proportions. Fractions are rounded by largest remainder, the earlier device first on ties.
// O(devices^2), and O(devices * log(devices)) where few capacities bind.
// Errors: InvalidArgument (an invalid problem).

// The same number of samples for every device.
absl::StatusOr<Allocation> AllocateUniform(const AllocationProblem& problem);

// In proportion to speed alone: batch_size / batch_time_s.
absl::StatusOr<Allocation> AllocateProportional(const AllocationProblem& problem);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_SIMPLE_H_
