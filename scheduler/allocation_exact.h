#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_EXACT_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_EXACT_H_

#include "absl/status/statusor.h"
#include "scheduler/allocation.h"

namespace causeway::scheduler {

// The integer optimum of the problem's objective: branch and bound over the epoch time, under kPipelined bisection on the
// total. Optimal allocations are not unique; which one is returned depends on the problem alone. Source: ours (docs/planning.md);
// C-ADP solves a smooth surrogate instead (allocation_auglag.h).
//
// Where sites step together, a site is one device here: the optimum is that of amounts per site, each split among its
// members in proportion to their batches and sent, but for less than a sample a member, in their common time.
//
// O(nodes * devices). The nodes are few hundred to few thousand for measured profiles; where many epoch times cost
// almost the same they are bounded by a limit of work (seconds), and `gap_s` of the result says what is left unproven.
// With an egress cap under kBarrier and kPipelined, such a search for each number of participants, or range of numbers,
// that comes into question; typically few dozen.
// Errors: InvalidArgument (an invalid problem).
absl::StatusOr<Allocation> AllocateExact(const AllocationProblem& problem);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_EXACT_H_
