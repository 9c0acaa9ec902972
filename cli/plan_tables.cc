#include "cli/plan_tables.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/output.h"

namespace causeway::cli {
namespace {

using scheduler::AllocationObjective;
using scheduler::LayerTimes;
using scheduler::ToSeconds;

constexpr size_t kMaxNotHidden = 64;

// Layers in backward order: "9..6, 3".
std::string Ranges(const std::vector<int>& layers) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < layers.size();) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] - 1) ++last;
    parts.push_back(last == i ? absl::StrCat(layers[i]) : absl::StrCat(layers[i], "..", layers[last]));
    i = last + 1;
  }
  return absl::StrJoin(parts, ", ");
}

std::string FineNs(int64_t ns) { return FineSeconds(ToSeconds(ns)); }

// Which of the maxima that make up the objective the device sets.
std::string SetsText(const scheduler::AllocationPlan& plan, const scheduler::DeviceEvaluation& device) {
  const auto sets = [](double value_s, double maximum_s) { return value_s > 0 && value_s >= maximum_s * (1 - 1e-9); };
  std::vector<std::string> parts;
  const scheduler::Evaluation& all = plan.evaluation;
  if (plan.problem.objective == AllocationObjective::kPipelined) {
    if (sets(device.total_s, all.total_s)) parts.push_back("total");
    return absl::StrJoin(parts, ", ");
  }
  if (sets(device.send_s, all.send_s)) parts.push_back("send");
  if (plan.problem.objective == AllocationObjective::kBarrier) {
    if (device.samples > 0 && sets(device.compute_s + device.comm_s, all.epoch_s)) parts.push_back("epoch");
  } else {
    double compute_s = 0;
    double comm_s = 0;
    for (const scheduler::DeviceEvaluation& other : all.devices) {
      compute_s = std::max(compute_s, other.compute_s);
      comm_s = std::max(comm_s, other.comm_s);
    }
    if (sets(device.compute_s, compute_s)) parts.push_back("compute");
    if (sets(device.comm_s, comm_s)) parts.push_back("exchange");
  }
  return absl::StrJoin(parts, ", ");
}

std::string AllocationText(const scheduler::AllocationPlan& plan) {
  std::string text =
      absl::StrCat("allocation (", std::string(AllocationMethodName(plan.method)), ", ",
                   std::string(AllocationObjectiveName(plan.problem.objective)),
                   "): ", FineSeconds(plan.evaluation.total_s), " for ", plan.problem.samples, " samples and ",
                   plan.problem.epochs, " epochs\n  bound by    ", std::string(BindingName(plan.evaluation.binding)),
                   "\n  at least    ", FineSeconds(plan.lower_bound_s), " with fractions of samples and steps",
                   plan.allocation.gap_s > 0 ? absl::StrCat("; the search ended before it could exclude a plan ",
                                                            FineSeconds(plan.allocation.gap_s), " shorter")
                                             : "",
                   "\n  even split  ", FineSeconds(plan.even_split_total_s), "\n\n");
  Table table({"WORKER", "SITE", "SAMPLES", "BATCH", "STEPS/EPOCH", "DATA THERE AFTER", "COMPUTE/EPOCH",
               "EXCHANGE/EPOCH", "TOTAL", "SETS"});
  for (size_t i = 0; i < plan.problem.devices.size(); ++i) {
    const scheduler::DeviceProfile& device = plan.problem.devices[i];
    const scheduler::DeviceEvaluation& worker = plan.evaluation.devices[i];
    const bool idle = worker.samples == 0;
    table.AddRow({device.name, device.site, absl::StrCat(worker.samples), idle ? "" : absl::StrCat(device.batch_size),
                  idle ? "" : absl::StrCat(worker.steps_per_epoch), idle ? "" : FineSeconds(worker.send_s),
                  idle ? "" : FineSeconds(worker.compute_s), idle ? "" : FineSeconds(worker.comm_s),
                  idle ? "" : FineSeconds(worker.total_s), SetsText(plan, worker)});
  }
  return absl::StrCat(text, table.ToString());
}

std::string AllocationMethodsText(const PlanResult& plan) {
  Table table({"ALLOCATION BY", "TOTAL", "OF THE LOWER BOUND"});
  const double bound_s = plan.allocation->lower_bound_s;
  for (const AllocationCost& cost : plan.allocation_methods) {
    table.AddRow({std::string(AllocationMethodName(cost.method)), FineSeconds(cost.total_s),
                  bound_s > 0 ? absl::StrCat(HumanNumber(cost.total_s / bound_s, 4), "x") : ""});
  }
  return table.ToString();
}

// Which averages backward does not hide, in whole or in part.
std::string NotHiddenText(const LayersResult& result, const ScheduleOutcome& schedule) {
  Table table(
      {"NOT HIDDEN: LAYER", "NAME", "ITERATION", "BACKWARD ENDED", "AVERAGED FROM", "TO", "HIDDEN", "NOT HIDDEN"});
  const LayerTimes& times = result.times;
  size_t count = 0;
  for (size_t h = 0; h < schedule.timing.iterations.size(); ++h) {
    const std::vector<int> layers = SynchronizedLayers(schedule.found.schedule.iterations[h]);
    const std::vector<scheduler::CommSpan> spans = CommSpans(times, layers);
    for (size_t i = 0; i < layers.size(); ++i) {
      const int64_t split_ns = std::clamp(times.total_backward_ns(), spans[i].start_ns, spans[i].end_ns);
      if (split_ns == spans[i].end_ns || ++count > kMaxNotHidden) continue;
      table.AddRow({absl::StrCat(layers[i]),
                    absl::Utf8SafeCHexEscape(result.layers[static_cast<size_t>(layers[i]) - 1].name),
                    absl::StrCat(h + 1), FineNs(times.backward_end_ns(layers[i])), FineNs(spans[i].start_ns),
                    FineNs(spans[i].end_ns), FineNs(split_ns - spans[i].start_ns), FineNs(spans[i].end_ns - split_ns)});
    }
  }
  if (count == 0) return "everything is hidden under backward\n";
  return absl::StrCat(table.ToString(),
                      count > kMaxNotHidden ? absl::StrCat("and ", count - kMaxNotHidden, " more\n") : "",
                      "(times from the start of backward)\n");
}

std::string ScheduleText(const LayersResult& result, const ScheduleOutcome& schedule) {
  const LayerTimes& times = result.times;
  const int period = result.period;
  std::string text = absl::StrCat(
      "schedule (", std::string(SyncMethodName(result.method)), " by ",
      std::string(LayerSchedulerName(schedule.scheduler)), ", period ", period,
      "): ", FineSeconds(ToSeconds(schedule.timing.period_ns) / period), " an iteration in the mean\n  forward     ",
      FineNs(times.total_forward_ns()), ", backward ", FineNs(times.total_backward_ns()), "\n  not hidden  ",
      FineNs(schedule.timing.overflow_ns), " in a period; layer 1 alone costs ", FineNs(times.comm_ns(1)),
      " in any schedule\n  objective   ", FineNs(schedule.timing.objective_ns),
      schedule.found.optimal ? ", proven optimal for this scheduler"
                             : absl::StrCat(", at least ", FineNs(schedule.found.lower_bound_ns)),
      "; ", schedule.found.candidates, " schedules compared\n\n");
  Table table({"ITERATION", "LAYERS", "FILLED WITH", "TIME", "AVERAGING", "HIDDEN", "NOT HIDDEN"});
  for (size_t h = 0; h < schedule.timing.iterations.size(); ++h) {
    const scheduler::ScheduledIteration& iteration = schedule.found.schedule.iterations[h];
    const scheduler::IterationTiming& timing = schedule.timing.iterations[h];
    int64_t comm_ns = 0;
    for (int layer : SynchronizedLayers(iteration)) comm_ns += times.comm_ns(layer);
    table.AddRow({absl::StrCat(h + 1), Ranges(iteration.layers), Ranges(iteration.fill), FineNs(timing.time_ns),
                  FineNs(comm_ns), FineNs(comm_ns - timing.exposed_ns), FineNs(timing.exposed_ns)});
  }
  return absl::StrCat(text, table.ToString(), "\n", NotHiddenText(result, schedule));
}

std::string MethodsText(const LayersResult& result) {
  Table table({"METHOD", "ITERATION", "NOT HIDDEN", "OF THE FASTEST"});
  double fastest_s = result.methods.front().cost.iteration_s;
  for (const MethodCost& method : result.methods) fastest_s = std::min(fastest_s, method.cost.iteration_s);
  for (const MethodCost& method : result.methods) {
    table.AddRow({std::string(SyncMethodName(method.method)), FineSeconds(method.cost.iteration_s),
                  FineSeconds(method.cost.exposed_s),
                  fastest_s > 0 ? absl::StrCat(HumanNumber(method.cost.iteration_s / fastest_s, 3), "x") : ""});
  }
  return table.ToString();
}

void AddGroups(const scheduler::GroupLayout& layout, const scheduler::GroupCost& cost, Table* table) {
  table->AddRow({std::string(GroupMethodName(layout)), absl::StrCat(layout.sites),
                 absl::StrCat(layout.workers_per_site), absl::StrCat(layout.shards), absl::StrCat(layout.replicas()),
                 absl::StrCat(layout.period), HumanBytes(cost.intra_bytes), FineSeconds(cost.intra_s),
                 HumanBytes(cost.inter_bytes), FineSeconds(cost.inter_s), FineSeconds(cost.step_s),
                 absl::StrCat(HumanNumber(100 * cost.inter_share, 2), " %")});
}

Table GroupsTable(const char* title) {
  return Table({title, "SITES", "WORKERS EACH", "SHARDS", "REPLICAS", "PERIOD", "INSIDE/STEP", "TAKES",
                "BETWEEN/PERIOD", "TAKES", "STEP IN THE MEAN", "BYTES BETWEEN"});
}

// Bytes are those that one worker sends; seconds are of communication alone.
std::string GroupsText(const GroupsResult& groups) {
  Table table = GroupsTable("GROUPS");
  AddGroups(groups.layout, groups.cost, &table);
  std::string text = table.ToString();
  if (!groups.methods.empty()) {
    Table methods = GroupsTable("GROUPS BY");
    for (const scheduler::GroupChoice& method : groups.methods) AddGroups(method.layout, method.cost, &methods);
    absl::StrAppend(&text, "\n", methods.ToString());
  }
  if (!groups.choices.empty()) {
    Table choices = GroupsTable("WHAT FITS, BEST FIRST");
    for (const scheduler::GroupChoice& choice : groups.choices) AddGroups(choice.layout, choice.cost, &choices);
    absl::StrAppend(&text, "\n", choices.ToString());
  }
  return absl::StrCat(text, "(bytes that one worker sends, seconds of communication alone)\n");
}

}  // namespace

std::string FineSeconds(double seconds) {
  if (seconds == 0) return "0s";
  if (seconds < 0.9995e-3) return absl::StrFormat("%.3gus", seconds * 1e6);
  if (seconds < 0.9995) return absl::StrFormat("%.4gms", seconds * 1e3);
  if (seconds < 59.9995) return absl::StrFormat("%.3fs", seconds);
  return HumanSeconds(seconds);
}

std::string PlanText(const PlanResult& plan, int columns) {
  std::vector<std::string> parts;
  if (plan.allocation.has_value()) parts.push_back(AllocationText(*plan.allocation));
  if (!plan.allocation_methods.empty()) parts.push_back(AllocationMethodsText(plan));
  if (plan.layers.has_value()) {
    if (plan.layers->schedule.has_value()) parts.push_back(ScheduleText(*plan.layers, *plan.layers->schedule));
    parts.push_back(PeriodGantt(plan.layers->simulated, columns));
    parts.push_back(MethodsText(*plan.layers));
  }
  if (plan.groups.has_value()) parts.push_back(GroupsText(*plan.groups));
  return absl::StrJoin(parts, "\n");
}

}  // namespace causeway::cli
