#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_BOUND_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_BOUND_H_

#include "absl/status/statusor.h"
#include "scheduler/allocation.h"

namespace causeway::scheduler {

// Seconds. No allocation's total_s is below it, but for rounding (1e-12, relative): the optimum with fractional samples
// and fractional steps. Under kBarrier with an egress cap, where how many take part is part of the problem, it may be
// lower than that; in lock step a site's samples may be spread over its members' links in any way. Source: ours, C-ADP's
// objective without its ceilings.
//
// O(p * devices * log(devices)) and no more than some hundred times that, p the distinct communication times near the
// optimum, or with an egress cap the numbers of participants near it.
// Errors: InvalidArgument (an invalid problem).
absl::StatusOr<double> LowerBound(const AllocationProblem& problem);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_BOUND_H_
