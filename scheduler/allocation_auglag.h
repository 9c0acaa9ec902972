#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_AUGLAG_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_AUGLAG_H_

#include "absl/status/statusor.h"
#include "scheduler/allocation.h"

namespace causeway::scheduler {

// The published solver (C-ADP, Algorithm 1), for comparison with the exact one: the objective with p-norms (p = 100) in
// place of maxima and ratios in place of whole steps is convex, and is minimised by gradient descent on its augmented
// Lagrangian with logarithmic barriers, then rounded by largest remainder. As published it does not converge; here
// variables are scaled to the shares found so far, steps are as long as the last two gradients say and shortened until
// the Lagrangian falls, and p rises from 2 to 100.
//
// As the samples grow, the gap to the exact optimum falls to at most the surrogate's own floor, devices^(1/100) - 1. The
// published problem lets no device sit out; under kBarrier and kPipelined, where one may, participants are those whose
// communication and single step take least, their number found by hill climbing over strides of half, a quarter, ... of
// all: no more than a heuristic.
//
// O(12000 * devices) at most, typically a quarter; where devices may sit out 2 * log2(devices) times that. The result
// depends on the problem alone, as far as the platform's pow and log do.
// Errors: InvalidArgument (an invalid problem).
absl::StatusOr<Allocation> AllocateAuglag(const AllocationProblem& problem);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_AUGLAG_H_
