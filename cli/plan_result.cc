#include "cli/plan_result.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "scheduler/bubble_fill.h"

namespace causeway::cli {
namespace {

using scheduler::AllocationMethod;
using scheduler::FillRule;
using scheduler::LayerScheduler;
using scheduler::SyncMethod;
using scheduler::ToSeconds;

constexpr size_t kMaxChoices = 10;
constexpr AllocationMethod kAllocationMethods[] = {AllocationMethod::kExact, AllocationMethod::kAuglag,
                                                   AllocationMethod::kUniform, AllocationMethod::kProportional};
constexpr SyncMethod kSyncMethods[] = {SyncMethod::kSsgd, SyncMethod::kWfbp, SyncMethod::kFlsgd, SyncMethod::kPlsgdEnp,
                                       SyncMethod::kDreamDdp};

std::string Text(absl::string_view text) { return std::string(text); }

absl::StatusOr<ScheduleOutcome> FindSchedule(const PlanInput::SchedulePart& input, const scheduler::LayerTimes& times) {
  const bool equal = input.method == SyncMethod::kPlsgdEnp;
  ScheduleOutcome outcome;
  outcome.scheduler = equal ? LayerScheduler::kEqual : input.options.scheduler;
  ASSIGN_OR_RETURN(outcome.found, scheduler::ScheduleLayers(outcome.scheduler, times, input.options.period));
  ASSIGN_OR_RETURN(outcome.found.schedule,
                   scheduler::FillBubbles(times, outcome.found.schedule, equal ? FillRule::kNone : input.fill));
  ASSIGN_OR_RETURN(outcome.timing, scheduler::TimeSchedule(times, outcome.found.schedule));
  return outcome;
}

absl::StatusOr<LayersResult> PlanLayers(const PlanInput::SchedulePart& input, bool compare) {
  ASSIGN_OR_RETURN(scheduler::LayerTimes times, scheduler::LayerTimes::Create(input.layers));
  LayersResult result = {
      .times = std::move(times), .layers = input.layers, .method = input.method, .period = input.options.period};
  if (input.method == SyncMethod::kPlsgdEnp || input.method == SyncMethod::kDreamDdp) {
    ASSIGN_OR_RETURN(result.schedule, FindSchedule(input, result.times));
  }
  ASSIGN_OR_RETURN(result.simulated, SimulatePeriod(input, input.method, /*with_spans=*/true));
  for (SyncMethod method : kSyncMethods) {
    if (!compare && method != input.method) continue;
    MethodCost& entry = result.methods.emplace_back();
    entry.method = method;
    ASSIGN_OR_RETURN(entry.cost, scheduler::CostOf(method, result.times, input.options));
  }
  return result;
}

absl::StatusOr<GroupsResult> PlanGroupsOf(const PlanInput::GroupsPart& input, bool compare) {
  GroupsResult result = {.layout = input.layout};
  ASSIGN_OR_RETURN(result.cost, scheduler::CostOfGroups(input.layout, input.model, input.network, input.exchange));
  if (compare) {
    const int64_t workers = input.layout.workers();
    std::vector<scheduler::GroupLayout> layouts;
    for (int64_t sites : {int64_t{1}, input.layout.sites}) {
      const int64_t per_site = workers / sites;
      for (int64_t shards : {per_site, input.layout.shards}) {
        const scheduler::GroupLayout layout = {.sites = sites,
                                               .workers_per_site = per_site,
                                               .shards = shards,
                                               .period = sites == 1 ? 1 : input.layout.period};
        if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end()) layouts.push_back(layout);
      }
    }
    for (const scheduler::GroupLayout& layout : layouts) {
      scheduler::GroupChoice& choice = result.methods.emplace_back();
      choice.layout = layout;
      ASSIGN_OR_RETURN(choice.cost, scheduler::CostOfGroups(layout, input.model, input.network, input.exchange));
    }
  }
  if (input.device_memory_bytes.has_value()) {
    ASSIGN_OR_RETURN(result.choices, scheduler::PlanGroups({.workers = input.layout.workers(),
                                                            .model = input.model,
                                                            .network = input.network,
                                                            .device_memory_bytes = *input.device_memory_bytes,
                                                            .max_period = input.max_period,
                                                            .compute_s = input.compute_s,
                                                            .exchange = input.exchange}));
    if (result.choices.size() > kMaxChoices) result.choices.resize(kMaxChoices);
  }
  return result;
}

Json GroupsToJson(const scheduler::GroupLayout& layout, const scheduler::GroupCost& cost) {
  return {{"method", Text(GroupMethodName(layout))},
          {"sites", layout.sites},
          {"workers_per_site", layout.workers_per_site},
          {"replicas", layout.replicas()},
          {"shards", layout.shards},
          {"period", layout.period},
          {"intra_bytes", cost.intra_bytes},
          {"intra_s", cost.intra_s},
          {"inter_bytes", cost.inter_bytes},
          {"inter_s", cost.inter_s},
          {"step_bytes", cost.step_bytes},
          {"step_s", cost.step_s},
          {"inter_share", cost.inter_share}};
}

Json AllocationToJson(const scheduler::AllocationPlan& plan) {
  Json workers = Json::array();
  for (size_t i = 0; i < plan.problem.devices.size(); ++i) {
    const scheduler::DeviceProfile& device = plan.problem.devices[i];
    const scheduler::DeviceEvaluation& worker = plan.evaluation.devices[i];
    workers.push_back({{"name", device.name},
                       {"samples", worker.samples},
                       {"batch_size", device.batch_size},
                       {"steps_per_epoch", worker.steps_per_epoch},
                       {"send_s", worker.send_s},
                       {"compute_s", worker.compute_s},
                       {"comm_s", worker.comm_s},
                       {"total_s", worker.total_s}});
  }
  return {{"method", Text(AllocationMethodName(plan.method))},
          {"objective", Text(AllocationObjectiveName(plan.problem.objective))},
          {"total_s", plan.evaluation.total_s},
          {"lower_bound_s", plan.lower_bound_s},
          {"gap_s", plan.allocation.gap_s},
          {"binding", Text(BindingName(plan.evaluation.binding))},
          {"workers", std::move(workers)}};
}

Json ScheduleToJson(const LayersResult& result, const ScheduleOutcome& schedule) {
  Json iterations = Json::array();
  for (size_t h = 0; h < schedule.timing.iterations.size(); ++h) {
    const scheduler::ScheduledIteration& iteration = schedule.found.schedule.iterations[h];
    const scheduler::IterationTiming& timing = schedule.timing.iterations[h];
    iterations.push_back({{"layers", iteration.layers},
                          {"fill", iteration.fill},
                          {"time_s", ToSeconds(timing.time_ns)},
                          {"comm_end_s", ToSeconds(timing.comm_end_ns)},
                          {"exposed_s", ToSeconds(timing.exposed_ns)}});
  }
  return {{"site", nullptr},
          {"method", Text(SyncMethodName(result.method))},
          {"scheduler", Text(LayerSchedulerName(schedule.scheduler))},
          {"period", result.period},
          {"objective_s", ToSeconds(schedule.timing.objective_ns)},
          {"overflow_s", ToSeconds(schedule.timing.overflow_ns)},
          {"optimal", schedule.found.optimal},
          {"lower_bound_s", ToSeconds(schedule.found.lower_bound_ns)},
          {"candidates", schedule.found.candidates},
          {"iterations", std::move(iterations)}};
}

}  // namespace

absl::StatusOr<PlanResult> MakePlanResult(const PlanInput& input, bool compare) {
  PlanResult result;
  if (input.allocation.has_value()) {
    ASSIGN_OR_RETURN(result.allocation, scheduler::PlanAllocation(input.allocation->method, input.allocation->problem));
    for (AllocationMethod method : kAllocationMethods) {
      if (!compare) break;
      ASSIGN_OR_RETURN(const scheduler::AllocationPlan plan,
                       scheduler::PlanAllocation(method, input.allocation->problem));
      result.allocation_methods.push_back({.method = method, .total_s = plan.evaluation.total_s});
    }
  }
  if (input.schedule.has_value()) {
    ASSIGN_OR_RETURN(result.layers, PlanLayers(*input.schedule, compare));
  }
  if (input.groups.has_value()) {
    ASSIGN_OR_RETURN(result.groups, PlanGroupsOf(*input.groups, compare));
  }
  return result;
}

Json PlanToJson(const PlanResult& plan) {
  Json json = Json::object();
  if (plan.allocation.has_value()) json["allocation"] = AllocationToJson(*plan.allocation);
  if (!plan.allocation_methods.empty()) {
    Json methods = Json::array();
    for (const AllocationCost& cost : plan.allocation_methods) {
      methods.push_back({{"method", Text(AllocationMethodName(cost.method))}, {"total_s", cost.total_s}});
    }
    json["allocation_methods"] = std::move(methods);
  }
  if (plan.layers.has_value()) {
    if (plan.layers->schedule.has_value()) json["schedule"] = ScheduleToJson(*plan.layers, *plan.layers->schedule);
    Json methods = Json::array();
    for (const MethodCost& method : plan.layers->methods) {
      methods.push_back({{"method", Text(SyncMethodName(method.method))},
                         {"iteration_s", method.cost.iteration_s},
                         {"exposed_s", method.cost.exposed_s}});
    }
    json["methods"] = std::move(methods);
  }
  if (plan.groups.has_value()) {
    json["groups"] = GroupsToJson(plan.groups->layout, plan.groups->cost);
    if (!plan.groups->choices.empty()) {
      Json& choices = json["groups"]["choices"] = Json::array();
      for (const scheduler::GroupChoice& choice : plan.groups->choices) {
        choices.push_back(GroupsToJson(choice.layout, choice.cost));
        choices.back()["memory_bytes"] = choice.memory_bytes;
      }
    }
    if (!plan.groups->methods.empty()) {
      Json& methods = json["group_methods"] = Json::array();
      for (const scheduler::GroupChoice& method : plan.groups->methods) {
        methods.push_back(GroupsToJson(method.layout, method.cost));
      }
    }
  }
  return json;
}

}  // namespace causeway::cli
