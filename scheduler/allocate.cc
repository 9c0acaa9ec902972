#include "scheduler/allocate.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/allocation_auglag.h"
#include "scheduler/allocation_exact.h"
#include "scheduler/allocation_simple.h"

namespace causeway::scheduler {

absl::string_view AllocationMethodName(AllocationMethod method) {
  switch (method) {
    case AllocationMethod::kExact: return "exact";
    case AllocationMethod::kAuglag: return "auglag";
    case AllocationMethod::kUniform: return "uniform";
    case AllocationMethod::kProportional: return "proportional";
  }
  return "";
}

absl::StatusOr<AllocationMethod> AllocationMethodFromName(absl::string_view name) {
  for (AllocationMethod method : {AllocationMethod::kExact, AllocationMethod::kAuglag, AllocationMethod::kUniform,
                                  AllocationMethod::kProportional}) {
    if (name == AllocationMethodName(method)) return method;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("method \"", name, "\" is none of exact, auglag, uniform, proportional"));
}

absl::StatusOr<Allocation> Allocate(AllocationMethod method, const AllocationProblem& problem) {
  switch (method) {
    case AllocationMethod::kExact: return AllocateExact(problem);
    case AllocationMethod::kAuglag: return AllocateAuglag(problem);
    case AllocationMethod::kUniform: return AllocateUniform(problem);
    case AllocationMethod::kProportional: return AllocateProportional(problem);
  }
  return absl::InvalidArgumentError("method: not an allocation method");
}

absl::StatusOr<AllocationPlan> PlanAllocation(AllocationMethod method, const AllocationProblem& problem) {
  absl::StatusOr<Allocation> allocation = Allocate(method, problem);
  if (!allocation.ok()) return allocation.status();
  return EvaluatePlan(method, problem, *allocation);
}

absl::StatusOr<AllocationPlan> EvaluatePlan(AllocationMethod method, const AllocationProblem& problem,
                                            const Allocation& allocation) {
  absl::StatusOr<Evaluation> evaluation = Evaluate(problem, allocation);
  if (!evaluation.ok()) return evaluation.status();
  absl::StatusOr<double> lower_bound_s = LowerBound(problem);
  if (!lower_bound_s.ok()) return lower_bound_s.status();
  absl::StatusOr<Allocation> even_split = AllocateUniform(problem);
  if (!even_split.ok()) return even_split.status();
  absl::StatusOr<Evaluation> even_split_evaluation = Evaluate(problem, *even_split);
  if (!even_split_evaluation.ok()) return even_split_evaluation.status();
  return AllocationPlan{.method = method,
                        .problem = problem,
                        .allocation = allocation,
                        .evaluation = *std::move(evaluation),
                        .lower_bound_s = *lower_bound_s,
                        .even_split_total_s = even_split_evaluation->total_s};
}

}  // namespace causeway::scheduler
