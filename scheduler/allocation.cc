#include "scheduler/allocation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/allocation_parties.h"

namespace causeway::scheduler {
namespace {

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }
bool IsNotNegative(double value) { return std::isfinite(value) && value >= 0; }

absl::Status DeviceError(const DeviceProfile& device, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("device \"", device.name, "\": ", what));
}

absl::Status ValidateDevice(const DeviceProfile& device) {
  if (!IsPositive(device.bandwidth_bytes_per_s)) {
    return DeviceError(device,
                       absl::StrCat("bandwidth_bytes_per_s is ", device.bandwidth_bytes_per_s, ", not above 0"));
  }
  if (device.uplink_bytes_per_s && !IsPositive(*device.uplink_bytes_per_s)) {
    return DeviceError(device, absl::StrCat("uplink_bytes_per_s is ", *device.uplink_bytes_per_s, ", not above 0"));
  }
  if (!IsPositive(device.batch_time_s)) {
    return DeviceError(device, absl::StrCat("batch_time_s is ", device.batch_time_s, ", not above 0"));
  }
  if (device.batch_size < 1 || device.batch_size > kMaxSamples) {
    return DeviceError(device, absl::StrCat("batch_size is ", device.batch_size, ", not in 1..", kMaxSamples));
  }
  if (device.batch_size > device.max_parallel) {
    return DeviceError(device,
                       absl::StrCat("batch_size ", device.batch_size, " is above max_parallel ", device.max_parallel));
  }
  if (device.capacity_samples && *device.capacity_samples < 0) {
    return DeviceError(device, absl::StrCat("capacity_samples is ", *device.capacity_samples, ", below 0"));
  }
  return absl::OkStatus();
}

absl::Status ValidateParties(const AllocationProblem& problem, const internal::PartyProblem& parties) {
  const auto count = static_cast<int64_t>(parties.parties.size());
  int64_t room = 0;
  for (const internal::Party& party : parties.parties) {
    const DeviceProfile& device = problem.devices[party.members[0]];
    for (size_t i : party.members) {
      if (problem.devices[i].reads_data_locally != party.local) {
        return absl::InvalidArgumentError(
            absl::StrCat("reads_data_locally: site \"", device.site, "\" is in lock step, and only some members do"));
      }
    }
    const int64_t steps = internal::StepsPerEpoch(problem.samples, party.batch_size);
    const double longest_s =
        parties.SendSeconds(party, problem.samples, problem.samples) +
        problem.epochs * (static_cast<double>(steps) * party.step_s + parties.CommSeconds(party, count));
    // Half the range, so that the sum of two devices' times is finite too.
    if (!(longest_s < std::numeric_limits<double>::max() / 4)) {
      return DeviceError(device, "the time for all samples is too large for a double");
    }
    room = std::min(problem.samples, room + party.limit);
  }
  if (room < problem.samples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "capacity_samples: all devices together can store ", room, " of ", problem.samples, " samples",
        problem.lock_step_sites ? " (in lock step a member may be full one step before its site's last)" : ""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view AllocationObjectiveName(AllocationObjective objective) {
  switch (objective) {
    case AllocationObjective::kSeparable: return "separable";
    case AllocationObjective::kBarrier: return "barrier";
    case AllocationObjective::kPipelined: return "pipelined";
  }
  return "";
}

absl::StatusOr<AllocationObjective> AllocationObjectiveFromName(absl::string_view name) {
  for (AllocationObjective objective :
       {AllocationObjective::kSeparable, AllocationObjective::kBarrier, AllocationObjective::kPipelined}) {
    if (name == AllocationObjectiveName(objective)) return objective;
  }
  return absl::InvalidArgumentError(absl::StrCat("objective \"", name, "\" is none of separable, barrier, pipelined"));
}

absl::string_view BindingName(Binding binding) {
  switch (binding) {
    case Binding::kSend: return "send";
    case Binding::kCompute: return "compute";
    case Binding::kCommunication: return "communication";
  }
  return "";
}

absl::Status Validate(const AllocationProblem& problem) {
  if (problem.devices.empty()) return absl::InvalidArgumentError("devices: there are none");
  if (problem.samples < 1 || problem.samples > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat("samples is ", problem.samples, ", not in 1..", kMaxSamples));
  }
  if (!IsNotNegative(problem.sample_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("sample_bytes is ", problem.sample_bytes, ", not 0 or above"));
  }
  if (!IsNotNegative(problem.model_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("model_bytes is ", problem.model_bytes, ", not 0 or above"));
  }
  if (!IsPositive(problem.epochs)) {
    return absl::InvalidArgumentError(absl::StrCat("epochs is ", problem.epochs, ", not above 0"));
  }
  if (problem.rounds_per_epoch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("rounds_per_epoch is ", problem.rounds_per_epoch, ", below 1"));
  }
  if (problem.egress_bytes_per_s && !IsPositive(*problem.egress_bytes_per_s)) {
    return absl::InvalidArgumentError(
        absl::StrCat("egress_bytes_per_s is ", *problem.egress_bytes_per_s, ", not above 0"));
  }
  std::set<absl::string_view> names;
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    const DeviceProfile& device = problem.devices[i];
    if (device.name.empty()) return absl::InvalidArgumentError(absl::StrCat("device ", i, ": name is empty"));
    if (!names.insert(device.name).second) return DeviceError(device, "name is used twice");
    if (absl::Status status = ValidateDevice(device); !status.ok()) return status;
    if (problem.lock_step_sites && device.site.empty()) return DeviceError(device, "site is empty");
  }
  return ValidateParties(problem, internal::MakeParties(problem));
}

absl::StatusOr<Evaluation> Evaluate(const AllocationProblem& problem, const Allocation& allocation) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  if (allocation.samples.size() != problem.devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the allocation is for ", allocation.samples.size(), " devices, not ", problem.devices.size()));
  }
  int64_t sum = 0, sent = 0;
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    const DeviceProfile& device = problem.devices[i];
    const int64_t samples = allocation.samples[i];
    const int64_t limit = internal::SampleLimit(problem, device);
    if (samples < 0 || samples > limit) {
      return DeviceError(device, absl::StrCat("allocated ", samples, " samples, not 0..", limit));
    }
    if (samples > problem.samples - sum) {
      return absl::InvalidArgumentError(absl::StrCat("the allocation sums to more than ", problem.samples, " samples"));
    }
    sum += samples;
    if (!device.reads_data_locally) sent += samples;
  }
  if (sum != problem.samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("the allocation sums to ", sum, ", not ", problem.samples, " samples"));
  }

  const internal::PartyProblem parties = internal::MakeParties(problem);
  const bool separable = problem.objective == AllocationObjective::kSeparable;
  const auto takes_part = [&](const internal::Party& party) {
    return std::any_of(party.members.begin(), party.members.end(), [&](size_t i) { return allocation.samples[i] > 0; });
  };
  const auto participants = separable ? static_cast<int64_t>(parties.parties.size())
                                      : std::count_if(parties.parties.begin(), parties.parties.end(), takes_part);

  Evaluation evaluation;
  evaluation.devices.resize(problem.devices.size());
  double compute_s = 0, comm_s = 0;  // Of what sets epoch_s.
  double longest_s = 0;              // The objective's maximum under kPipelined.
  for (const internal::Party& party : parties.parties) {
    int64_t steps = 0;
    for (size_t i : party.members) {
      steps = std::max(steps, internal::StepsPerEpoch(allocation.samples[i], problem.devices[i].batch_size));
    }
    for (size_t i : party.members) {
      DeviceEvaluation& part = evaluation.devices[i];
      part.samples = allocation.samples[i];
      part.steps_per_epoch = steps;
      if (part.samples > 0 && !party.local) {
        part.send_s =
            std::max(static_cast<double>(part.samples) * internal::SendSecondsPerSample(problem, problem.devices[i]),
                     static_cast<double>(sent) * parties.egress_send_s);
      }
      part.compute_s = static_cast<double>(steps) * party.step_s;
      if (separable || steps > 0) part.comm_s = parties.CommSeconds(party, participants);
      part.total_s = part.send_s + problem.epochs * (part.compute_s + part.comm_s);

      if (problem.objective == AllocationObjective::kPipelined) {
        if (part.total_s <= longest_s) continue;
        longest_s = part.total_s;
        evaluation.send_s = part.send_s;
        compute_s = part.compute_s;
        comm_s = part.comm_s;
        continue;
      }
      evaluation.send_s = std::max(evaluation.send_s, part.send_s);
      if (separable) {
        compute_s = std::max(compute_s, part.compute_s);
        comm_s = std::max(comm_s, part.comm_s);
      } else if (part.compute_s + part.comm_s > compute_s + comm_s) {
        compute_s = part.compute_s;
        comm_s = part.comm_s;
      }
    }
  }
  evaluation.epoch_s = compute_s + comm_s;
  evaluation.total_s = evaluation.send_s + problem.epochs * evaluation.epoch_s;
  const double largest_s = std::max({evaluation.send_s, problem.epochs * compute_s, problem.epochs * comm_s});
  evaluation.binding = largest_s == evaluation.send_s            ? Binding::kSend
                       : largest_s == problem.epochs * compute_s ? Binding::kCompute
                                                                 : Binding::kCommunication;
  return evaluation;
}

}  // namespace causeway::scheduler
