#ifndef CAUSEWAY_CLI_PLAN_RESULT_H_
#define CAUSEWAY_CLI_PLAN_RESULT_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/output.h"
#include "cli/period.h"
#include "cli/plan_input.h"
#include "scheduler/allocate.h"
#include "scheduler/group_planner.h"
#include "scheduler/layer_schedule.h"
#include "scheduler/layer_schedulers.h"
#include "scheduler/sync_costs.h"

namespace causeway::cli {

// The layers that are averaged in each iteration, fill included, and when.
struct ScheduleOutcome {
  scheduler::LayerScheduler scheduler = scheduler::LayerScheduler::kExact;
  scheduler::ScheduleResult found;  // Its schedule filled.
  scheduler::ScheduleTiming timing;
};

struct MethodCost {
  scheduler::SyncMethod method = scheduler::SyncMethod::kSsgd;
  scheduler::SyncCost cost;
};

struct LayersResult {
  scheduler::LayerTimes times;
  std::vector<scheduler::LayerProfile> layers;
  scheduler::SyncMethod method = scheduler::SyncMethod::kDreamDdp;
  int period = 1;
  std::optional<ScheduleOutcome> schedule;  // Of the methods that average layer by layer: plsgd_enp and dreamddp.
  SimulatedPeriod simulated;                // Of the input's own method, with spans.
  std::vector<MethodCost> methods;          // The input's own method, or all to compare.
};

// The same problem by another method.
struct AllocationCost {
  scheduler::AllocationMethod method = scheduler::AllocationMethod::kExact;
  double total_s = 0;
};

struct GroupsResult {
  scheduler::GroupLayout layout;
  scheduler::GroupCost cost;
  // The four methods on the same workers, only to compare: one site of all, then the input's; each without replicas and
  // with the input's shards.
  std::vector<scheduler::GroupChoice> methods;
  // What the planner found, best first; only where the input says how much memory a worker has.
  std::vector<scheduler::GroupChoice> choices;
};

// What scheduler/ answers to a PlanInput, with a part for each part of it.
struct PlanResult {
  std::optional<scheduler::AllocationPlan> allocation;
  std::vector<AllocationCost> allocation_methods;  // Only to compare.
  std::optional<LayersResult> layers;
  std::optional<GroupsResult> groups;
};

// `compare`: by all methods. Errors: InvalidArgument (what the input asks is too much work, such as too many cuts for the
// scheduler brute), FailedPrecondition (no groups fit into the memory).
absl::StatusOr<PlanResult> MakePlanResult(const PlanInput& input, bool compare);

// The fields of schema causeway.plan/1.
Json PlanToJson(const PlanResult& plan);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_PLAN_RESULT_H_
