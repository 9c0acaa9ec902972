#include "cli/plan_commands.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/measured_input.h"
#include "cli/plan_input.h"
#include "cli/plan_result.h"
#include "cli/plan_tables.h"
#include "cli/simulation.h"
#include "jobspec/job_spec.h"

namespace causeway::cli {
namespace {

constexpr int64_t kMaxTimelineSpans = 1000000;

absl::StatusOr<MeasuredInput> ReadPlanInput(Session& session, const PlanOptions& options) {
  if (options.file.empty() == options.job_file.empty()) {
    return absl::InvalidArgumentError("give either FILE or --job job.yaml");
  }
  MeasuredInput result;
  if (!options.file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, session.ReadInput(options.file, kMaxPlanInputBytes));
    ASSIGN_OR_RETURN(result.input, ParsePlanInput(text, ShownName(options.file)));
    return result;
  }
  ASSIGN_OR_RETURN(const std::string text, session.ReadInput(options.job_file));
  ASSIGN_OR_RETURN(const v1::JobSpec spec, jobspec::ParseJobYaml(text, ShownName(options.job_file)));
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  return MeasuredPlanInput(spec, client, session.timeout());
}

}  // namespace

absl::Status Plan(Session& session, const PlanOptions& options) {
  ASSIGN_OR_RETURN(const MeasuredInput read, ReadPlanInput(session, options));
  ASSIGN_OR_RETURN(const PlanResult plan, MakePlanResult(read.input, options.compare));
  session.Print("causeway.plan/1", PlanToJson(plan), PlanText(plan, session.env().columns));
  for (const std::string& remark : read.remarks) session.Note(remark);
  return absl::OkStatus();
}

absl::Status Simulate(Session& session, const PlanOptions& options) {
  ASSIGN_OR_RETURN(const MeasuredInput read, ReadPlanInput(session, options));
  if (!options.timeline.empty() && !read.input.allocation.has_value()) {
    return absl::InvalidArgumentError("--timeline is of a job: the file has no samples and workers");
  }
  ASSIGN_OR_RETURN(const SimulationOutcome outcome,
                   SimulateInput(read.input, {.compare = options.compare,
                                              .max_spans = options.timeline.empty() ? 0 : kMaxTimelineSpans}));
  if (!options.timeline.empty()) {
    const SimulatedRun& run = outcome.runs.front();
    RETURN_IF_ERROR(session.env().files->WriteFileAtomically(options.timeline, TraceJson(run).dump()));
    if (run.result.spans_left_out > 0) {
      session.Note(absl::StrCat(options.timeline, " has the first ", kMaxTimelineSpans, " spans; ",
                                run.result.spans_left_out, " are left out"));
    }
  }
  session.Print("causeway.simulation/1", SimulationToJson(outcome), SimulationText(outcome, session.env().columns));
  for (const std::string& remark : read.remarks) session.Note(remark);
  return absl::OkStatus();
}

}  // namespace causeway::cli
