#include "scheduler/plan_proto.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/batch_choice.h"

namespace causeway::scheduler {
namespace {

absl::Status WorkerError(const std::string& worker, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("worker \"", worker, "\": ", status.message()));
}

std::string Owned(absl::string_view text) { return std::string(text.data(), text.size()); }

}  // namespace

absl::StatusOr<DeviceProfile> DeviceFromProto(const std::string& worker, const std::string& site,
                                              const v1::DeviceProfile& profile, const BatchLimits& batch) {
  DeviceProfile device{.name = worker,
                       .site = site,
                       .bandwidth_bytes_per_s = profile.down_bytes_per_s(),
                       .uplink_bytes_per_s = profile.up_bytes_per_s(),
                       .max_parallel = profile.max_parallel()};
  std::vector<BatchMeasurement> measurements;
  for (const v1::DeviceProfile::BatchTime& time : profile.batch_times()) {
    measurements.push_back({.batch_size = time.batch_size(), .batch_time_s = time.batch_time_s()});
  }
  if (batch.per_worker == 0) {
    const absl::StatusOr<BatchMeasurement> chosen = ChooseBatch(measurements, std::min(batch.max, device.max_parallel));
    if (!chosen.ok()) return WorkerError(worker, chosen.status());
    device.batch_size = chosen->batch_size;
    device.batch_time_s = chosen->batch_time_s;
    return device;
  }
  if (batch.per_worker > device.max_parallel) {
    return WorkerError(worker, absl::InvalidArgumentError(absl::StrCat(
                                   "batch size ", batch.per_worker, " is above max_parallel ", device.max_parallel)));
  }
  const absl::StatusOr<double> time_s = EstimateBatchTime(measurements, batch.per_worker);
  if (!time_s.ok()) return WorkerError(worker, time_s.status());
  device.batch_size = batch.per_worker;
  device.batch_time_s = *time_s;
  return device;
}

v1::Plan PlanToProto(const AllocationPlan& plan) {
  v1::Plan proto;
  proto.set_method(Owned(AllocationMethodName(plan.method)));
  proto.set_objective(Owned(AllocationObjectiveName(plan.problem.objective)));
  proto.set_samples(plan.problem.samples);
  proto.set_sample_bytes(std::llround(plan.problem.sample_bytes));
  proto.set_model_bytes(std::llround(plan.problem.model_bytes));
  proto.set_rounds_per_epoch(plan.problem.rounds_per_epoch);
  proto.set_epochs(plan.problem.epochs);
  proto.set_predicted_total_s(plan.evaluation.total_s);
  proto.set_lower_bound_s(plan.lower_bound_s);
  proto.set_binding(Owned(BindingName(plan.evaluation.binding)));
  proto.set_even_split_total_s(plan.even_split_total_s);
  if (plan.problem.objective == AllocationObjective::kPipelined) {
    AllocationProblem as_run = plan.problem;
    as_run.objective = AllocationObjective::kBarrier;
    const absl::StatusOr<Evaluation> evaluation = Evaluate(as_run, plan.allocation);
    if (evaluation.ok()) proto.set_barrier_total_s(evaluation->total_s);
  }
  std::vector<size_t> by_name(plan.problem.devices.size());
  std::iota(by_name.begin(), by_name.end(), size_t{0});
  std::sort(by_name.begin(), by_name.end(),
            [&](size_t a, size_t b) { return plan.problem.devices[a].name < plan.problem.devices[b].name; });
  for (size_t i : by_name) {
    const DeviceProfile& device = plan.problem.devices[i];
    const DeviceEvaluation& evaluation = plan.evaluation.devices[i];
    v1::WorkerPlan& worker = *proto.add_workers();
    worker.set_worker(device.name);
    worker.set_site(device.site);
    worker.set_samples(evaluation.samples);
    worker.set_batch_size(device.batch_size);
    worker.set_batch_time_s(device.batch_time_s);
    worker.set_down_bytes_per_s(device.bandwidth_bytes_per_s);
    worker.set_up_bytes_per_s(device.uplink_bytes_per_s.value_or(device.bandwidth_bytes_per_s));
    worker.set_steps_per_epoch(evaluation.steps_per_epoch);
    worker.set_send_s(evaluation.send_s);
    worker.set_compute_s(evaluation.compute_s);
    worker.set_comm_s(evaluation.comm_s);
    worker.set_total_s(evaluation.total_s);
  }
  return proto;
}

absl::StatusOr<AllocationPlan> PlanFromProto(const v1::Plan& plan) {
  const absl::StatusOr<AllocationMethod> method = AllocationMethodFromName(plan.method());
  if (!method.ok()) return method.status();
  const absl::StatusOr<AllocationObjective> objective = AllocationObjectiveFromName(plan.objective());
  if (!objective.ok()) return objective.status();
  AllocationProblem problem{.samples = plan.samples(),
                            .sample_bytes = static_cast<double>(plan.sample_bytes()),
                            .model_bytes = static_cast<double>(plan.model_bytes()),
                            .epochs = plan.epochs(),
                            .rounds_per_epoch = plan.rounds_per_epoch(),
                            .objective = *objective};
  Allocation allocation;
  for (const v1::WorkerPlan& worker : plan.workers()) {
    problem.devices.push_back({.name = worker.worker(),
                               .site = worker.site(),
                               .bandwidth_bytes_per_s = worker.down_bytes_per_s(),
                               .uplink_bytes_per_s = worker.up_bytes_per_s(),
                               .batch_time_s = worker.batch_time_s(),
                               .batch_size = worker.batch_size(),
                               .max_parallel = worker.batch_size()});
    allocation.samples.push_back(worker.samples());
  }
  return EvaluatePlan(*method, problem, allocation);
}

}  // namespace causeway::scheduler
