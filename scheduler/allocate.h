#ifndef CAUSEWAY_SCHEDULER_ALLOCATE_H_
#define CAUSEWAY_SCHEDULER_ALLOCATE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/allocation.h"
#include "scheduler/allocation_bound.h"

namespace causeway::scheduler {

enum class AllocationMethod { kExact, kAuglag, kUniform, kProportional };

// "exact", "auglag", "uniform", "proportional".
absl::string_view AllocationMethodName(AllocationMethod method);
// Errors: InvalidArgument (another name).
absl::StatusOr<AllocationMethod> AllocationMethodFromName(absl::string_view name);

// Divides the problem's samples among its devices; what it costs is Evaluate's to say. The time is the method's: its header.
// Errors: InvalidArgument (an invalid problem).
absl::StatusOr<Allocation> Allocate(AllocationMethod method, const AllocationProblem& problem);

// An allocation with all that is said about it.
struct AllocationPlan {
  AllocationMethod method = AllocationMethod::kExact;
  AllocationProblem problem;
  Allocation allocation;
  Evaluation evaluation;
  double lower_bound_s = 0;
  double even_split_total_s = 0;  // The uniform allocation of the same problem, by the same evaluator.
};

// Allocates and evaluates, with the fractional bound: the method's time and that of LowerBound.
// Errors: InvalidArgument (an invalid problem).
absl::StatusOr<AllocationPlan> PlanAllocation(AllocationMethod method, const AllocationProblem& problem);

// The same for an allocation that is given, such as that of a pinned plan. The time of LowerBound.
// Errors: InvalidArgument (an invalid problem, an allocation that does not fit it).
absl::StatusOr<AllocationPlan> EvaluatePlan(AllocationMethod method, const AllocationProblem& problem,
                                            const Allocation& allocation);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ALLOCATE_H_
