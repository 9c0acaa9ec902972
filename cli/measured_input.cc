#include "cli/measured_input.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "jobspec/job_spec.h"
#include "scheduler/plan_proto.h"

namespace causeway::cli {
namespace {

// Whether a batch costs the same in both jobs, and a model and a sample have the same size.
bool SameWork(const v1::JobSpec& a, const v1::JobSpec& b) {
  return a.model().SerializeAsString() == b.model().SerializeAsString() &&
         a.data().train().SerializeAsString() == b.data().train().SerializeAsString();
}

absl::StatusOr<std::map<std::string, v1::WorkerStatus>> LiveWorkers(const v1::JobSpec& spec, OperatorClient* client,
                                                                    absl::Duration timeout) {
  ASSIGN_OR_RETURN(const v1::ListWorkersResponse response, client->ListWorkers({}, timeout));
  std::map<std::string, v1::WorkerStatus> workers;
  for (const v1::WorkerStatus& worker : response.workers()) {
    const bool wanted = spec.sites().empty() ||
                        std::find(spec.sites().begin(), spec.sites().end(), worker.site()) != spec.sites().end();
    if (wanted && worker.live() && !worker.removed()) workers[worker.worker()] = worker;
  }
  return workers;
}

}  // namespace

absl::StatusOr<MeasuredInput> MeasuredPlanInput(const v1::JobSpec& spec, OperatorClient* client,
                                                absl::Duration timeout) {
  ASSIGN_OR_RETURN(auto missing, LiveWorkers(spec, client, timeout));
  ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client->ListJobs({}, timeout));
  MeasuredInput result;
  result.input.allocation = PlanInput::AllocationPart();
  PlanInput::AllocationPart& part = *result.input.allocation;
  scheduler::AllocationProblem& problem = part.problem;
  std::vector<std::string> sources;
  for (auto job = jobs.jobs().rbegin(); job != jobs.jobs().rend() && !missing.empty(); ++job) {  // The newest first.
    if (job->model() != spec.model().builtin()) continue;
    v1::GetJobRequest request;
    request.set_job(job->job());
    ASSIGN_OR_RETURN(const v1::GetJobResponse status, client->GetJob(request, timeout));
    if (!SameWork(status.spec(), spec) || status.plan().samples() < 1) continue;
    if (problem.samples == 0) {
      problem.samples = status.plan().samples();
      problem.sample_bytes = static_cast<double>(status.plan().sample_bytes());
      problem.model_bytes = static_cast<double>(status.plan().model_bytes());
    }
    bool used = false;
    for (const v1::WorkerInJob& worker : status.workers()) {
      const auto wanted = missing.find(worker.worker());
      if (wanted == missing.end() || !worker.has_profile()) continue;
      ASSIGN_OR_RETURN(
          scheduler::DeviceProfile device,
          scheduler::DeviceFromProto(worker.worker(), wanted->second.site(), worker.profile(),
                                     {.per_worker = spec.batch().per_worker(), .max = spec.batch().max()}));
      problem.devices.push_back(std::move(device));
      missing.erase(wanted);
      used = true;
    }
    if (used) sources.push_back(job->job());
  }
  if (problem.devices.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no live worker", spec.sites().empty() ? "" : " of the job's sites", " has measured ", spec.model().builtin(),
        " on this training set yet; workers measure when a job with both runs, and a cluster that is "
        "described in a file needs no measuring (causeway plan FILE)"));
  }
  std::sort(problem.devices.begin(), problem.devices.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const double samples = static_cast<double>(jobspec::SamplesToTrain(spec, problem.samples));
  problem.epochs = samples > 0 ? samples / static_cast<double>(problem.samples) : 1;
  problem.rounds_per_epoch = spec.rounds().per_epoch();
  ASSIGN_OR_RETURN(part.method, scheduler::AllocationMethodFromName(spec.allocation().method()));
  ASSIGN_OR_RETURN(problem.objective, scheduler::AllocationObjectiveFromName(spec.allocation().objective()));
  RETURN_IF_ERROR(scheduler::Validate(problem), "the measured profiles");
  result.remarks.push_back(absl::StrCat("profiles were measured for ", absl::StrJoin(sources, ", ")));
  for (const auto& [worker, status] : missing) {
    result.remarks.push_back(absl::StrCat("left out: ", worker, " has not measured this model yet"));
  }
  if (samples == 0) result.remarks.push_back("the job has no length, only a target: planned for one epoch");
  result.remarks.push_back("no layer schedules: workers of this version measure batches, not layers");
  return result;
}

}  // namespace causeway::cli
