#include "cli/simulation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cli/plan_tables.h"
#include "scheduler/site_program.h"

namespace causeway::cli {
namespace {

using scheduler::AllocationMethod;
using scheduler::SimulatedChange;
using scheduler::Span;
using scheduler::SyncMethod;

// Layers of steps of workers. Some minutes.
constexpr double kMaxWork = 1e10;
constexpr int kShownRounds = 20;

constexpr AllocationMethod kAllocationMethods[] = {AllocationMethod::kExact, AllocationMethod::kAuglag,
                                                   AllocationMethod::kUniform, AllocationMethod::kProportional};
constexpr SyncMethod kSyncMethods[] = {SyncMethod::kSsgd, SyncMethod::kWfbp, SyncMethod::kFlsgd, SyncMethod::kPlsgdEnp,
                                       SyncMethod::kDreamDdp};

std::string Text(absl::string_view text) { return std::string(text); }

template <typename Named>
int IndexOf(const std::vector<Named>& all, const std::string& name) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool IsOfSite(SimulatedChange::What what) {
  return what == SimulatedChange::What::kSiteCollective || what == SimulatedChange::What::kSiteDownlink ||
         what == SimulatedChange::What::kSiteUplink;
}

void Disturb(const PlanInput::SimulationPart& simulation, scheduler::SimulatedJob* job) {
  scheduler::SimulatedRounds& rounds = job->rounds;
  rounds.quorum = simulation.quorum;
  rounds.deadline_s = simulation.deadline_s;
  rounds.late_grace_s = simulation.late_grace_s;
  rounds.replan_after_s = simulation.replan_after_s;
  rounds.delay = simulation.delay;
  double model_bytes = 0;
  for (double bytes : rounds.fragment_bytes) model_bytes += bytes;
  rounds.fragment_bytes.assign(static_cast<size_t>(simulation.fragments), model_bytes / simulation.fragments);
  job->reform_s = simulation.reform_s;
  job->compute_jitter = simulation.compute_jitter;
  job->collective_jitter = simulation.collective_jitter;
  job->seed = simulation.seed;
  for (const PlanInput::SimulationPart::Change& change : simulation.changes) {
    const int index = change.name.empty()     ? 0
                      : IsOfSite(change.what) ? IndexOf(job->sites, change.name)
                                              : IndexOf(job->workers, change.name);
    job->changes.push_back({.what = change.what, .index = index, .time_s = change.time_s, .factor = change.factor});
  }
  for (const PlanInput::SimulationPart::Absence& absence : simulation.absences) {
    job->absences.push_back(
        {.worker = IndexOf(job->workers, absence.worker), .stop_s = absence.stop_s, .return_s = absence.return_s});
  }
}

// Puts the model's layers in place of steps that are one piece; a step computes as long as before.
absl::Status SetProgram(const PlanInput::SchedulePart& input, scheduler::SimulatedJob* job) {
  ASSIGN_OR_RETURN(const scheduler::LayerTimes times, scheduler::LayerTimes::Create(input.layers));
  const double compute_s = scheduler::ToSeconds(times.total_forward_ns() + times.total_backward_ns());
  if (!(compute_s > 0)) {
    return absl::InvalidArgumentError(
        "layers: forward and backward take no time, so batch_time_s cannot be divided among them");
  }
  ASSIGN_OR_RETURN(const scheduler::SiteProgram program,
                   scheduler::ProgramOf(input.method, times, input.options, input.fill));
  for (scheduler::SimulatedSite& site : job->sites) site.program = program;
  for (scheduler::SimulatedWorker& worker : job->workers) worker.slowdown /= compute_s;
  return absl::OkStatus();
}

absl::Status CheckWork(const scheduler::SimulatedJob& job) {
  double work = 0;
  for (const std::vector<int>& participant : scheduler::ParticipantsOf(job)) {
    const int layers =
        job.sites[static_cast<size_t>(job.workers[static_cast<size_t>(participant.front())].site)].program.layers();
    work +=
        static_cast<double>(scheduler::EpochSteps(job, participant)) * static_cast<double>(participant.size()) * layers;
  }
  work *= static_cast<double>(job.rounds.rounds) / static_cast<double>(std::max<int64_t>(1, job.rounds.per_epoch));
  if (work <= kMaxWork) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the job has ", work, " steps (times layers and workers); allowed: ",
                                                 kMaxWork, ", with fewer epochs or larger batches"));
}

absl::StatusOr<SimulatedRun> SimulateJob(const PlanInput& input, AllocationMethod method, int64_t max_spans) {
  const scheduler::AllocationProblem& problem = input.allocation->problem;
  ASSIGN_OR_RETURN(const scheduler::AllocationPlan plan, scheduler::PlanAllocation(method, problem));
  SimulatedRun run = {.method = method, .planned_s = plan.evaluation.total_s};
  ASSIGN_OR_RETURN(run.job, scheduler::JobOfAllocation(problem, plan.allocation));
  if (problem.lock_step_sites && input.schedule.has_value()) RETURN_IF_ERROR(SetProgram(*input.schedule, &run.job));
  Disturb(input.simulation, &run.job);
  RETURN_IF_ERROR(CheckWork(run.job));
  ASSIGN_OR_RETURN(run.result, scheduler::Simulate(run.job, {.max_spans = max_spans}));
  return run;
}

Json RunToJson(const SimulatedRun& run) {
  Json workers = Json::array();
  for (size_t i = 0; i < run.job.workers.size(); ++i) {
    const scheduler::SimulatedWorker& worker = run.job.workers[i];
    const scheduler::WorkerTotals& totals = run.result.workers[i];
    workers.push_back({{"name", worker.name},
                       {"samples", worker.samples},
                       {"batch_size", worker.batch_size},
                       {"steps", totals.steps},
                       {"send_s", totals.send_s},
                       {"compute_s", totals.compute_s},
                       {"exposed_s", totals.exposed_s},
                       {"pull_s", totals.pull_s},
                       {"push_s", totals.push_s},
                       {"wait_s", totals.wait_s},
                       {"absent_s", totals.absent_s},
                       {"received_bytes", totals.received_bytes},
                       {"sent_bytes", totals.sent_bytes}});
  }
  Json rounds = Json::array();
  for (const scheduler::SimulatedRound& round : run.result.rounds) {
    rounds.push_back({{"round", round.round},
                      {"fragment", round.fragment},
                      {"opened_s", round.opened_s},
                      {"closed_s", round.closed_s},
                      {"committed", round.committed},
                      {"contributors", round.contributors},
                      {"samples", round.samples},
                      {"planned_samples", round.planned_samples}});
  }
  return {{"method", Text(AllocationMethodName(run.method))},
          {"completed", run.result.completed},
          {"total_s", run.result.total_s},
          {"planned_s", run.planned_s},
          {"training_start_s", run.result.training_start_s},
          {"workers", std::move(workers)},
          {"rounds", std::move(rounds)}};
}

std::string RunText(const SimulatedRun& run) {
  std::string text =
      absl::StrCat("job (", Text(AllocationMethodName(run.method)), "): ", FineSeconds(run.result.total_s),
                   run.result.completed ? "" : ", and not completed", "; planned ", FineSeconds(run.planned_s),
                   ", training from ", FineSeconds(run.result.training_start_s), " on\n\n");
  Table table({"WORKER", "SAMPLES", "BATCH", "STEPS", "DATA THERE AFTER", "COMPUTE", "SITE WAIT", "PULL", "PUSH",
               "ROUND WAIT", "ABSENT"});
  for (size_t i = 0; i < run.job.workers.size(); ++i) {
    const scheduler::SimulatedWorker& worker = run.job.workers[i];
    const scheduler::WorkerTotals& totals = run.result.workers[i];
    table.AddRow({worker.name, absl::StrCat(worker.samples), absl::StrCat(worker.batch_size),
                  absl::StrCat(totals.steps), FineSeconds(totals.send_s), FineSeconds(totals.compute_s),
                  FineSeconds(totals.exposed_s), FineSeconds(totals.pull_s), FineSeconds(totals.push_s),
                  FineSeconds(totals.wait_s), FineSeconds(totals.absent_s)});
  }
  absl::StrAppend(&text, table.ToString(), "\n");
  Table rounds({"ROUND", "FRAGMENT", "OPENED", "CLOSED", "CONTRIBUTORS", "OF ITS SAMPLES", "COMMITTED"});
  const auto& all = run.result.rounds;
  for (size_t i = all.size() > kShownRounds ? all.size() - kShownRounds : 0; i < all.size(); ++i) {
    const scheduler::SimulatedRound& round = all[i];
    rounds.AddRow({absl::StrCat(round.round), absl::StrCat(round.fragment), FineSeconds(round.opened_s),
                   FineSeconds(round.closed_s), absl::StrCat(round.contributors),
                   round.planned_samples > 0
                       ? absl::StrCat(HumanNumber(100 * round.samples / round.planned_samples, 1), " %")
                       : "",
                   round.committed ? "yes" : "no"});
  }
  absl::StrAppend(
      &text, all.size() > kShownRounds ? absl::StrCat("the last ", kShownRounds, " of ", all.size(), " rounds\n") : "",
      rounds.ToString());
  return text;
}

}  // namespace

absl::StatusOr<SimulationOutcome> SimulateInput(const PlanInput& input, const SimulateOptions& options) {
  if (!input.allocation.has_value() && !input.schedule.has_value()) {
    return absl::InvalidArgumentError("found nothing to simulate; allowed: samples and workers, layers, or both");
  }
  SimulationOutcome outcome;
  if (input.allocation.has_value()) {
    ASSIGN_OR_RETURN(outcome.runs.emplace_back(), SimulateJob(input, input.allocation->method, options.max_spans));
    for (AllocationMethod method : kAllocationMethods) {
      if (!options.compare || method == input.allocation->method) continue;
      ASSIGN_OR_RETURN(outcome.runs.emplace_back(), SimulateJob(input, method, /*max_spans=*/0));
    }
  }
  if (input.schedule.has_value()) {
    ASSIGN_OR_RETURN(outcome.periods.emplace_back(), SimulatePeriod(*input.schedule, input.schedule->method, true));
    for (SyncMethod method : kSyncMethods) {
      if (!options.compare || method == input.schedule->method) continue;
      ASSIGN_OR_RETURN(outcome.periods.emplace_back(), SimulatePeriod(*input.schedule, method, false));
    }
  }
  return outcome;
}

Json SimulationToJson(const SimulationOutcome& outcome) {
  Json json = Json::object();
  if (!outcome.runs.empty()) {
    json["job"] = RunToJson(outcome.runs.front());
    Json& methods = json["allocation_methods"] = Json::array();
    for (const SimulatedRun& run : outcome.runs) {
      methods.push_back({{"method", Text(AllocationMethodName(run.method))},
                         {"completed", run.result.completed},
                         {"total_s", run.result.total_s},
                         {"planned_s", run.planned_s}});
    }
  }
  if (!outcome.periods.empty()) {
    Json& methods = json["methods"] = Json::array();
    for (const SimulatedPeriod& period : outcome.periods) {
      methods.push_back({{"method", Text(SyncMethodName(period.method))},
                         {"iteration_s", period.iteration_s},
                         {"planned_s", period.planned.iteration_s}});
    }
  }
  return json;
}

std::string SimulationText(const SimulationOutcome& outcome, int columns) {
  std::vector<std::string> parts;
  if (!outcome.runs.empty()) parts.push_back(RunText(outcome.runs.front()));
  if (outcome.runs.size() > 1) {
    Table table({"ALLOCATION BY", "SIMULATED", "PLANNED"});
    for (const SimulatedRun& run : outcome.runs) {
      table.AddRow(
          {Text(AllocationMethodName(run.method)), FineSeconds(run.result.total_s), FineSeconds(run.planned_s)});
    }
    parts.push_back(table.ToString());
  }
  if (!outcome.periods.empty()) {
    Table table({"METHOD", "ITERATION", "PLANNED"});
    for (const SimulatedPeriod& period : outcome.periods) {
      table.AddRow({Text(SyncMethodName(period.method)), FineSeconds(period.iteration_s),
                    FineSeconds(period.planned.iteration_s)});
    }
    parts.push_back(table.ToString());
    parts.push_back(PeriodGantt(outcome.periods.front(), columns));
  }
  return absl::StrJoin(parts, "\n");
}

Json TraceJson(const SimulatedRun& run) {
  constexpr int kLanes = 4;
  Json events = Json::array();
  for (size_t i = 0; i < run.job.sites.size(); ++i) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", i}, {"args", {{"name", run.job.sites[i].name}}}});
  }
  for (size_t i = 0; i < run.job.workers.size(); ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", run.job.workers[i].site},
                        {"tid", static_cast<int>(i) * kLanes + lane},
                        {"args",
                         {{"name", absl::StrCat(run.job.workers[i].name, " ",
                                                Text(SpanLaneName(static_cast<scheduler::SpanLane>(lane))))}}}});
    }
  }
  for (const Span& span : run.result.spans) {
    Json args = Json::object();
    if (span.step >= 0) args["step"] = span.step;
    if (span.round >= 0) args["round"] = span.round;
    if (span.fragment >= 0) args["fragment"] = span.fragment;
    if (span.bytes > 0) args["bytes"] = span.bytes;
    std::string name = Text(SpanKindName(span.kind));
    if (span.layer > 0) absl::StrAppend(&name, " ", span.layer);
    events.push_back({{"ph", "X"},
                      {"name", name},
                      {"cat", Text(SpanKindName(span.kind))},
                      {"pid", run.job.workers[static_cast<size_t>(span.worker)].site},
                      {"tid", span.worker * kLanes + static_cast<int>(LaneOf(span.kind))},
                      {"ts", span.start_s * 1e6},
                      {"dur", span.duration_s * 1e6},
                      {"args", std::move(args)}});
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace causeway::cli
