#include "cli/period.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/gantt.h"
#include "cli/plan_tables.h"
#include "scheduler/site_program.h"

namespace causeway::cli {
namespace {

using scheduler::Span;
using scheduler::SpanKind;
using scheduler::SyncMethod;

constexpr int kMaxShownIterations = 32;
constexpr int64_t kMaxPeriodSpans = 1 << 19;

}  // namespace

absl::StatusOr<SimulatedPeriod> SimulatePeriod(const PlanInput::SchedulePart& input, SyncMethod method,
                                               bool with_spans) {
  ASSIGN_OR_RETURN(const scheduler::LayerTimes times, scheduler::LayerTimes::Create(input.layers));
  SimulatedPeriod period = {.method = method};
  ASSIGN_OR_RETURN(period.planned, scheduler::CostOf(method, times, input.options));
  scheduler::SimulatedJob job;
  scheduler::SimulatedSite& site = job.sites.emplace_back();
  site.name = "site";
  ASSIGN_OR_RETURN(site.program, scheduler::ProgramOf(method, times, input.options, input.fill));
  job.workers.push_back({.name = "worker", .samples = 1});
  job.rounds.steps = static_cast<int64_t>(site.program.iterations.size());
  ASSIGN_OR_RETURN(const scheduler::SimulationResult result,
                   scheduler::Simulate(job, {.max_spans = with_spans ? kMaxPeriodSpans : 0}));
  period.iterations = static_cast<int>(site.program.iterations.size());
  period.iteration_s = result.sites[0].iteration_s;
  period.spans = result.spans;
  return period;
}

std::string PeriodGantt(const SimulatedPeriod& period, int columns) {
  struct Iteration {
    double begin_s = std::numeric_limits<double>::infinity();
    double backward_end_s = 0;
    std::vector<Span> compute;
    std::vector<Span> link;
  };
  std::map<int64_t, Iteration> iterations;
  for (const Span& span : period.spans) {
    if (span.step < 0 || span.step >= kMaxShownIterations) continue;
    if (span.kind == SpanKind::kWait) continue;
    Iteration& iteration = iterations[span.step];
    if (span.kind == SpanKind::kCollective) {
      iteration.link.push_back(span);
      continue;
    }
    if (span.kind != SpanKind::kForward && span.kind != SpanKind::kBackward) continue;
    iteration.compute.push_back(span);
    iteration.begin_s = std::min(iteration.begin_s, span.start_s);
    iteration.backward_end_s = std::max(iteration.backward_end_s, span.start_s + span.duration_s);
  }
  std::vector<GanttRow> rows;
  double end_s = 0;
  for (auto& [step, iteration] : iterations) {
    if (iteration.compute.empty()) iteration.begin_s = 0;
    GanttRow compute = {.name = absl::StrCat(step + 1, " compute")};
    GanttRow link = {.name = absl::StrCat(std::string(absl::StrCat(step + 1).size(), ' '), " link")};
    for (const Span& span : iteration.compute) {
      const double begin_s = span.start_s - iteration.begin_s;
      const bool forward = span.kind == SpanKind::kForward;
      compute.bars.push_back({.begin_s = begin_s,
                              .end_s = begin_s + span.duration_s,
                              .label = absl::StrCat(span.layer),
                              .fill = forward ? '>' : '-'});
      end_s = std::max(end_s, begin_s + span.duration_s);
    }
    for (const Span& span : iteration.link) {
      const double begin_s = span.start_s - iteration.begin_s;
      const double ended_s = begin_s + span.duration_s;
      const double split_s = std::clamp(iteration.backward_end_s - iteration.begin_s, begin_s, ended_s);
      link.bars.push_back({.begin_s = begin_s, .end_s = split_s, .label = absl::StrCat(span.layer), .fill = '='});
      link.bars.push_back({.begin_s = split_s,
                           .end_s = ended_s,
                           .label = split_s == begin_s ? absl::StrCat(span.layer) : "",
                           .fill = '#'});
      end_s = std::max(end_s, ended_s);
    }
    rows.push_back(std::move(compute));
    rows.push_back(std::move(link));
  }
  const int left_out = period.iterations - kMaxShownIterations;
  return absl::StrCat("one period, the width is ", FineSeconds(end_s),
                      "   > forward  - backward  = exchanged under backward  # not hidden\n",
                      RenderGantt(rows, end_s, columns),
                      left_out > 0 ? absl::StrCat("and ", left_out, " iterations more\n") : "");
}

}  // namespace causeway::cli
