#include "cli/job_commands.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/backoff.h"
#include "base/status_macros.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "jobspec/job_spec.h"

namespace causeway::cli {
namespace {

absl::StatusOr<std::string> ChooseJob(Session& session, OperatorClient* client) {
  ASSIGN_OR_RETURN(v1::ListJobsResponse jobs, client->ListJobs({}, session.timeout()));
  const v1::JobSummary* best = nullptr;
  auto rank = [](const v1::JobSummary& job) {
    int activity = HasEnded(job.state()) ? 0 : job.state() == v1::JOB_STATE_SUBMITTED ? 1 : 2;
    return std::make_pair(activity, job.submitted_ms());
  };
  for (const v1::JobSummary& job : jobs.jobs()) {
    if (best == nullptr || rank(job) > rank(*best)) best = &job;
  }
  if (best == nullptr) return absl::NotFoundError("there is no job: `causeway job submit job.yaml` starts one");
  return best->job();
}

std::string RoundsText(const v1::JobSummary& job) {
  return absl::StrCat(job.round(), job.rounds_planned() > 0 ? absl::StrCat("/", job.rounds_planned()) : "");
}

std::string EndText(const v1::EndSpec& end) {
  std::vector<std::string> parts;
  if (end.epochs() > 0) parts.push_back(absl::StrCat(end.epochs(), " epochs"));
  if (end.rounds() > 0) parts.push_back(absl::StrCat(end.rounds(), " rounds"));
  if (end.samples() > 0) parts.push_back(absl::StrCat(end.samples(), " samples"));
  if (end.target_value() > 0) {
    parts.push_back(absl::StrCat(end.target_metric() == v1::METRIC_LOSS ? "loss " : "accuracy ", end.target_value()));
  }
  std::string text;
  for (const std::string& part : parts) absl::StrAppend(&text, text.empty() ? "" : " or ", part);
  return text;
}

// Per epoch, as predictions are.
std::string Measured(double total_s, const v1::WorkerInJob& worker, const v1::Plan& plan) {
  if (worker.rounds() == 0) return "";
  return HumanSeconds(total_s / static_cast<double>(worker.rounds()) *
                      static_cast<double>(std::max<int64_t>(plan.rounds_per_epoch(), 1)));
}

// What the plan was made from: medians that the workers measured under the load that training has.
std::string ProfilesText(const v1::GetJobResponse& status) {
  Table table({"MEASURED ON", "SECONDS PER BATCH OF", "DOWN", "UP", "ROUND TRIP", "EVALUATION"});
  bool any = false;
  for (const v1::WorkerInJob& worker : status.workers()) {
    if (!worker.has_profile()) continue;
    any = true;
    const v1::DeviceProfile& profile = worker.profile();
    std::string times;
    for (const auto& time : profile.batch_times()) {
      absl::StrAppend(&times, times.empty() ? "" : ", ", time.batch_size(), ": ", HumanNumber(time.batch_time_s(), 4));
    }
    table.AddRow({worker.worker(), times, HumanRate(profile.down_bytes_per_s()), HumanRate(profile.up_bytes_per_s()),
                  absl::StrCat(HumanNumber(profile.round_trip_s() * 1000, 1), " ms"),
                  absl::StrCat(HumanNumber(profile.eval_samples_per_s(), 0), " samples/s")});
  }
  return any ? absl::StrCat("\n", table.ToString()) : "";
}

std::string ShowText(const v1::GetJobResponse& status) {
  const v1::JobSummary& job = status.summary();
  std::string text = absl::StrCat(job.job(), "  ", StateName(job.state()),
                                  job.reason().empty() ? "" : absl::StrCat(" (", job.reason(), ")"), "\n");
  absl::StrAppend(&text, "  model       ", job.model(), ", ", status.spec().model().classes(), " classes\n");
  absl::StrAppend(&text, "  end         ", EndText(status.spec().end()), "\n");
  absl::StrAppend(&text, "  submitted   ", HumanTime(job.submitted_ms()),
                  job.ended_ms() != 0 ? absl::StrCat(", ended ", HumanTime(job.ended_ms())) : "", " (UTC)\n");
  absl::StrAppend(&text, "  progress    round ", RoundsText(job), ", epoch ", HumanNumber(job.epochs_done(), 2), ", ",
                  HumanSeconds(status.train_seconds()), " of training\n");
  if (job.has_evaluation()) {
    absl::StrAppend(&text, "  evaluation  version ", job.evaluation().version(), ": accuracy ",
                    HumanNumber(job.evaluation().accuracy(), 4), ", loss ", HumanNumber(job.evaluation().loss(), 4),
                    " on ", job.evaluation().total(), " samples\n");
  }
  if (status.waiting_for_size() > 0) {
    absl::StrAppend(&text, "  waits for   ", absl::StrJoin(status.waiting_for(), ", "), "\n");
  }
  if (!status.job_dir().empty()) absl::StrAppend(&text, "  files       ", status.job_dir(), " (on the coordinator)\n");
  for (const auto& [reason, count] :
       std::map<std::string, int64_t>(status.rejected().begin(), status.rejected().end())) {
    absl::StrAppend(&text, "  rejected    ", count, " contributions: ", reason, "\n");
  }
  const v1::Plan& plan = status.plan();
  if (status.has_plan()) {
    absl::StrAppend(&text, "\nplan ", plan.number(),
                    plan.pinned() ? " (pinned)" : absl::StrCat(" (", plan.method(), ", ", plan.objective(), ")"),
                    plan.reason().empty() ? "" : absl::StrCat(": ", plan.reason()), "\n  predicted ",
                    HumanSeconds(plan.predicted_total_s()), " for ", HumanNumber(plan.epochs(), 2),
                    " epochs, bound by ", plan.binding(), "; by the same measured figures the even split ",
                    HumanSeconds(plan.even_split_total_s()), "\n");
  }
  if (status.workers_size() > 0) {
    // Seconds per epoch, planned and measured.
    Table table({"WORKER", "SITE", "STATE", "SAMPLES", "BATCH", "COMPUTE PLANNED", "MEASURED", "EXCHANGE PLANNED",
                 "MEASURED", "EMULATED"});
    for (const v1::WorkerInJob& worker : status.workers()) {
      bool part = worker.takes_part();
      table.AddRow(
          {worker.worker(), worker.site(),
           !worker.excluded().empty()   ? "left out"
           : !worker.live()             ? "lost"
           : status.has_plan() && !part ? "takes no part"
                                        : PhaseName(worker.progress().phase()),
           part ? absl::StrCat(worker.plan().samples()) : "", part ? absl::StrCat(worker.plan().batch_size()) : "",
           part ? HumanSeconds(worker.plan().compute_s()) : "", Measured(worker.compute_s(), worker, plan),
           part ? HumanSeconds(worker.plan().comm_s()) : "", Measured(worker.pull_s() + worker.push_s(), worker, plan),
           worker.has_emulation() ? absl::StrCat("yes: ", HumanEmulation(worker.emulation())) : "no"});
    }
    absl::StrAppend(&text, "\n", table.ToString());
    for (const v1::WorkerInJob& worker : status.workers()) {
      if (!worker.excluded().empty())
        absl::StrAppend(&text, "left out: ", worker.worker(), ": ", worker.excluded(), "\n");
    }
    absl::StrAppend(&text, ProfilesText(status));
  }
  if (status.rounds_size() > 0) {
    constexpr int kShownRounds = 10;
    Table table({"ROUND", "VERSION", "SAMPLES", "CONTRIBUTIONS", "SECONDS", "TRAIN LOSS", "ACCURACY BEFORE"});
    for (int i = std::max(0, status.rounds_size() - kShownRounds); i < status.rounds_size(); ++i) {
      const v1::RoundRecord& round = status.rounds(i);
      table.AddRow({absl::StrCat(round.round()), absl::StrCat(round.version()), absl::StrCat(round.samples()),
                    absl::StrCat(round.contributions(), "/", round.planned_contributions()),
                    HumanNumber(round.seconds(), 2), HumanNumber(round.train_loss(), 4),
                    round.has_evaluation() ? HumanNumber(round.evaluation().accuracy(), 4) : ""});
    }
    absl::StrAppend(&text, "\n",
                    status.rounds_size() > kShownRounds ? absl::StrCat("the last ", kShownRounds, " rounds\n") : "",
                    table.ToString());
  }
  return text;
}

}  // namespace

absl::Status JobSubmit(Session& session, const SubmitOptions& options) {
  v1::SubmitJobRequest request;
  request.set_file_name(ShownName(options.file));
  request.set_request_id(options.request_id);
  ASSIGN_OR_RETURN(*request.mutable_yaml(), session.ReadInput(options.file));
  // The coordinator checks again; what is wrong with the file is said without it.
  RETURN_IF_ERROR(jobspec::ParseJobYaml(request.yaml(), request.file_name()).status());
  if (!options.plan_file.empty()) {
    ASSIGN_OR_RETURN(std::string plan, session.ReadInput(options.plan_file));
    ASSIGN_OR_RETURN(*request.mutable_pinned_plan(), jobspec::ParsePinnedPlan(plan, ShownName(options.plan_file)));
  }
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  ASSIGN_OR_RETURN(v1::SubmitJobResponse response, client->SubmitJob(request, session.timeout()));
  if (options.watch) {
    session.Note(
        absl::StrCat(response.job(), response.existed() ? " was submitted before with this request id" : " submitted"));
    return JobWatch(session, response.job());
  }
  session.Print(
      "causeway.job-submitted/1", ToJson(response),
      absl::StrCat(response.job(), response.existed() ? " was submitted before with this request id" : " submitted",
                   "; `causeway job watch ", response.job(), "` follows it\n"));
  return absl::OkStatus();
}

absl::Status JobList(Session& session) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  ASSIGN_OR_RETURN(v1::ListJobsResponse response, client->ListJobs({}, session.timeout()));
  Table table({"JOB", "STATE", "MODEL", "ROUND", "EPOCHS", "ACCURACY", "SUBMITTED (UTC)", "REASON"});
  for (const v1::JobSummary& job : response.jobs()) {
    table.AddRow({job.job(), StateName(job.state()), job.model(), RoundsText(job), HumanNumber(job.epochs_done(), 2),
                  job.has_evaluation() ? HumanNumber(job.evaluation().accuracy(), 4) : "",
                  HumanTime(job.submitted_ms()), job.reason()});
  }
  session.Print("causeway.jobs/1", ToJson(response), table.ToString());
  return absl::OkStatus();
}

absl::Status JobShow(Session& session, const std::string& job) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::GetJobRequest request;
  request.set_job(job);
  ASSIGN_OR_RETURN(v1::GetJobResponse response, client->GetJob(request, session.timeout()));
  session.Print("causeway.job/1", ToJson(response), ShowText(response));
  return absl::OkStatus();
}

absl::Status JobWatch(Session& session, std::string job) {
  const Environment& env = session.env();
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  absl::Time deadline = env.clock->Now() + session.timeout(absl::InfiniteDuration());
  if (job.empty()) {
    ASSIGN_OR_RETURN(job, ChooseJob(session, client));
  }
  std::unique_ptr<WatchView> view = session.json()        ? MakeJsonView(env.out, env.err)
                                    : env.out_is_terminal ? MakeTerminalView(env.out, env.columns)
                                                          : MakePlainView(env.out, env.err);
  v1::GetJobRequest request;
  request.set_job(job);
  std::optional<v1::JobSummary> last;
  Backoff backoff({.initial = absl::Milliseconds(200), .max = absl::Seconds(3)});
  bool noted = false;
  while (true) {
    absl::Status status =
        client->WatchJob(request, deadline - env.clock->Now(), [&](const v1::GetJobResponse& response) {
          view->Show(response);
          last = response.summary();
          backoff.Reset();
          noted = false;
        });
    if (last.has_value() && HasEnded(last->state())) break;
    if (env.clock->Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(job, last.has_value() ? absl::StrCat(" is still ", StateName(last->state())) : " was not seen",
                       " after ", absl::FormatDuration(session.timeout())));
    }
    // An end of the stream while the job goes on: the coordinator was stopped in order.
    bool retry = status.ok() || IsRetryable(status);
    if (!retry || !last.has_value())
      return status.ok() ? absl::UnavailableError("the coordinator is stopping") : status;
    if (!noted)
      view->Note(absl::StrCat("lost the coordinator (", status.ok() ? "it stopped" : std::string(status.message()),
                              "); trying again"));
    noted = true;
    env.clock->SleepFor(std::min(backoff.Next(), deadline - env.clock->Now()));
  }
  if (last->state() == v1::JOB_STATE_FINISHED) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat(job, " ", StateName(last->state()), last->reason().empty() ? "" : ": ", last->reason()));
}

absl::Status JobAbort(Session& session, const std::string& job, const std::string& reason) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::AbortJobRequest request;
  request.set_job(job);
  request.set_reason(reason);
  RETURN_IF_ERROR(client->AbortJob(request, session.timeout()).status());
  session.Print("causeway.job-aborted/1", {{"job", job}}, absl::StrCat(job, " aborted\n"));
  return absl::OkStatus();
}

absl::Status JobPause(Session& session, const std::string& job) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::PauseJobRequest request;
  request.set_job(job);
  RETURN_IF_ERROR(client->PauseJob(request, session.timeout()).status());
  session.Print(
      "causeway.job-paused/1", {{"job", job}},
      absl::StrCat(job, " pauses once what its workers have done is committed; go on with: causeway job resume ", job,
                   "\n"));
  return absl::OkStatus();
}

absl::Status JobResume(Session& session, const std::string& job) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::ResumeJobRequest request;
  request.set_job(job);
  RETURN_IF_ERROR(client->ResumeJob(request, session.timeout()).status());
  session.Print("causeway.job-resumed/1", {{"job", job}}, absl::StrCat(job, " goes on\n"));
  return absl::OkStatus();
}

absl::Status JobValidate(Session& session, const std::string& file) {
  ASSIGN_OR_RETURN(std::string text, session.ReadInput(file));
  ASSIGN_OR_RETURN(v1::JobSpec spec, jobspec::ParseJobYaml(text, ShownName(file)));
  session.Print("causeway.job-spec/1", {{"file", ShownName(file)}, {"spec", ToJson(spec)}},
                absl::StrCat(ShownName(file), ": job ", spec.name(), " is valid\n"));
  return absl::OkStatus();
}

}  // namespace causeway::cli
