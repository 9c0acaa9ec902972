#include "server/planner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/allocate.h"
#include "scheduler/allocation.h"
#include "scheduler/plan_proto.h"

namespace causeway::server {

std::vector<int64_t> BatchSizesToProfile(const v1::BatchSpec& batch) {
  std::set<int64_t> sizes;
  if (batch.per_worker() > 0) {
    sizes = {std::max<int64_t>(2, batch.per_worker() / 2), batch.per_worker(), batch.per_worker() * 2};
  } else {
    for (int64_t size = 8; size < batch.max(); size *= 2) sizes.insert(size);
    sizes.insert(batch.max());
    for (int64_t size = batch.max() / 2; sizes.size() < 3 && size >= 1; size /= 2) sizes.insert(size);
  }
  return {sizes.begin(), sizes.end()};
}

absl::StatusOr<PlanResult> MakePlan(const PlanInput& input) {
  if (input.candidates.empty()) return absl::FailedPreconditionError("no worker with a profile");
  std::vector<PlanInput::Candidate> candidates = input.candidates;
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.worker < b.worker; });

  std::map<std::string, const v1::WorkerPlan*> pinned;
  if (input.pinned.has_value()) {
    for (const v1::WorkerPlan& worker : input.pinned->workers()) pinned[worker.worker()] = &worker;
    for (const auto& pin : pinned) {
      const std::string& name = pin.first;  // clang 14 captures no structured binding.
      if (std::none_of(candidates.begin(), candidates.end(), [&](const auto& c) { return c.worker.value() == name; })) {
        return absl::InvalidArgumentError(absl::StrCat("the pinned plan names worker ", name, ", which is not there"));
      }
    }
  } else if (input.samples < static_cast<int64_t>(candidates.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the training set has ", input.samples, " samples for ",
                                                   candidates.size(),
                                                   " workers; each needs one at least (give the job fewer sites)"));
  }

  scheduler::AllocationProblem problem;
  problem.samples = input.samples;
  problem.sample_bytes = static_cast<double>(input.record_bytes);
  problem.model_bytes = static_cast<double>(input.model_bytes);
  problem.epochs = std::max(input.epochs_left, 1e-9);
  problem.rounds_per_epoch = input.spec->rounds().per_epoch();
  ASSIGN_OR_RETURN(problem.objective, scheduler::AllocationObjectiveFromName(input.spec->allocation().objective()));
  scheduler::Allocation given;
  for (const auto& candidate : candidates) {
    scheduler::BatchLimits batch{.per_worker = input.spec->batch().per_worker(), .max = input.spec->batch().max()};
    auto pin = pinned.find(candidate.worker.value());
    if (pin != pinned.end() && pin->second->batch_size() > 0) batch.per_worker = pin->second->batch_size();
    ASSIGN_OR_RETURN(
        scheduler::DeviceProfile device,
        scheduler::DeviceFromProto(candidate.worker.value(), candidate.site.value(), candidate.profile, batch));
    problem.devices.push_back(std::move(device));
    given.samples.push_back(pin == pinned.end() ? 0 : pin->second->samples());
  }
  ASSIGN_OR_RETURN(const auto method, scheduler::AllocationMethodFromName(input.spec->allocation().method()));
  ASSIGN_OR_RETURN(const scheduler::AllocationPlan plan,
                   input.pinned.has_value() ? scheduler::EvaluatePlan(method, problem, given)
                                            : scheduler::PlanAllocation(method, problem),
                   input.pinned.has_value() ? "the pinned plan" : "the plan");

  PlanResult result;
  result.plan = scheduler::PlanToProto(plan);
  result.plan.set_number(input.number);
  result.plan.set_reason(input.reason);
  result.plan.set_pinned(input.pinned.has_value());
  std::vector<scheduler::WorkerSamples> counts;
  int64_t most_steps = 0;
  for (const v1::WorkerPlan& worker : result.plan.workers()) {
    counts.push_back({.worker = worker.worker(), .samples = worker.samples()});
    most_steps = std::max(most_steps, worker.steps_per_epoch());
  }
  if (most_steps < problem.rounds_per_epoch) {
    return absl::InvalidArgumentError(absl::StrCat("rounds.every.per_epoch is ", problem.rounds_per_epoch,
                                                   ", but no worker has more than ", most_steps, " steps an epoch"));
  }
  ASSIGN_OR_RETURN(result.shards, scheduler::AssignShards(counts, input.previous));
  return result;
}

}  // namespace causeway::server
