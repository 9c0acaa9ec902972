#include "scheduler/allocation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }
bool IsNotNegative(double value) { return std::isfinite(value) && value >= 0; }

absl::Status DeviceError(const DeviceProfile& device, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("device \"", device.name, "\": ", what));
}

absl::Status ValidateDevice(const AllocationProblem& problem, const DeviceProfile& device) {
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
  const int64_t steps = internal::StepsPerEpoch(problem.samples, device.batch_size);
  const double longest_s = static_cast<double>(problem.samples) * internal::SendSecondsPerSample(problem, device) +
                           problem.epochs * (static_cast<double>(steps) * device.batch_time_s +
                                             internal::CommSecondsPerEpoch(problem, device));
  // Half the range, so that the sum of two devices' times is finite too.
  if (!(longest_s < std::numeric_limits<double>::max() / 4)) {
    return DeviceError(device, "the time for all samples is too large for a double");
  }
  return absl::OkStatus();
}

// The fractional problem is solved for so much less than all samples: devices that only just hold them must not lack one
// by rounding, and a bound may be lower.
constexpr double kRelativeTolerance = 1e-12;

// The fractional relaxation. For a fixed epoch time tau, device i can take u_i = min(rate_i * (tau - offset_i), limit_i)
// samples, and the least sending time is where sum min(sigma / alpha_i, u_i) reaches all samples.
class FractionalProblem {
 public:
  explicit FractionalProblem(const AllocationProblem& problem)
      : samples_(static_cast<double>(problem.samples) * (1 - kRelativeTolerance)), epochs_(problem.epochs) {
    for (const DeviceProfile& device : problem.devices) {
      const int64_t limit = internal::SampleLimit(problem, device);
      if (limit == 0) continue;
      parts_.push_back({.alpha = internal::SendSecondsPerSample(problem, device),
                        .offset = internal::EpochOffsetSeconds(problem, device),
                        .rate = static_cast<double>(device.batch_size) / device.batch_time_s,
                        .limit = static_cast<double>(limit)});
    }
  }

  // Seconds, without kSeparable's constant.
  //
  // The objective as a function of tau is convex between two neighbouring offsets, where the participants are the same,
  // but not across one; so every piece is minimised that could hold less than the best so far.
  double Minimise() const {
    std::set<double> edges;
    double tau_end = 0;
    for (const Part& part : parts_) {
      edges.insert(part.offset);
      tau_end = std::max(tau_end, part.offset + part.limit / part.rate);
    }
    // Anything between the offsets of different pieces will do as a start.
    double best = MinimiseBetween(*edges.begin(), tau_end);
    for (auto edge = edges.begin(); edge != edges.end(); ++edge) {
      const double lo = *edge;
      const double hi = std::next(edge) == edges.end() ? tau_end : *std::next(edge);
      if (CanHoldAll(best - epochs_ * lo, hi)) best = std::min(best, MinimiseBetween(lo, hi));
    }
    return best;
  }

 private:
  struct Part {
    double alpha, offset, rate, limit;

    double SamplesWithin(double tau) const { return std::min(rate * std::max(0.0, tau - offset), limit); }
  };
  struct SendTime {
    double sigma;  // Infinite where the devices cannot take all samples within tau.
    double slope;  // d sigma / d tau, <= 0
  };

  bool CanHoldAll(double sigma, double tau) const {
    if (sigma < 0) return false;
    double sum = 0;
    for (const Part& part : parts_) {
      const double within = part.SamplesWithin(tau);
      sum += part.alpha * within <= sigma ? within : sigma / part.alpha;
    }
    return sum >= samples_;
  }

  SendTime LeastSendTime(double tau) const {
    struct Saturation {
      double sigma, within, inverse_alpha, rate;  // rate: by how much `within` grows with tau.
    };
    std::vector<Saturation> saturations;
    double taken = 0, taken_rate = 0;  // Of the saturated.
    for (const Part& part : parts_) {
      const double within = part.SamplesWithin(tau);
      const double rate = tau > part.offset && within < part.limit ? part.rate : 0;
      if (part.alpha == 0) {
        taken += within;
        taken_rate += rate;
      } else if (within > 0) {
        saturations.push_back({part.alpha * within, within, 1 / part.alpha, rate});
      }
    }
    if (taken >= samples_) return {0, 0};
    std::sort(saturations.begin(), saturations.end(),
              [](const Saturation& a, const Saturation& b) { return a.sigma < b.sigma; });
    // The sum of 1/alpha over those not saturated yet, added up from the end: subtracting would leave rounding errors.
    std::vector<double> open(saturations.size());
    double sum = 0;
    for (size_t i = saturations.size(); i-- > 0;) open[i] = sum += saturations[i].inverse_alpha;
    for (size_t i = 0; i < saturations.size(); ++i) {
      if (taken + saturations[i].sigma * open[i] >= samples_) {
        return {(samples_ - taken) / open[i], -taken_rate / open[i]};
      }
      taken += saturations[i].within;
      taken_rate += saturations[i].rate;
    }
    return {std::numeric_limits<double>::infinity(), 0};
  }

  double MinimiseBetween(double lo, double hi) const {
    double best = LeastSendTime(hi).sigma + epochs_ * hi;
    for (double mid = lo + (hi - lo) / 2; lo < mid && mid < hi; mid = lo + (hi - lo) / 2) {
      const SendTime send = LeastSendTime(mid);
      best = std::min(best, send.sigma + epochs_ * mid);
      if (std::isinf(send.sigma) || send.slope < -epochs_) {
        lo = mid;
      } else {
        hi = mid;
      }
    }
    return best;
  }

  const double samples_;
  const double epochs_;
  std::vector<Part> parts_;
};

}  // namespace

namespace internal {

double SendSecondsPerSample(const AllocationProblem& problem, const DeviceProfile& device) {
  return device.reads_data_locally ? 0 : problem.sample_bytes / device.bandwidth_bytes_per_s;
}

double CommSecondsPerEpoch(const AllocationProblem& problem, const DeviceProfile& device) {
  const double uplink = device.uplink_bytes_per_s.value_or(device.bandwidth_bytes_per_s);
  return static_cast<double>(problem.rounds_per_epoch) *
         (problem.model_bytes / device.bandwidth_bytes_per_s + problem.model_bytes / uplink);
}

double EpochOffsetSeconds(const AllocationProblem& problem, const DeviceProfile& device) {
  return problem.objective == AllocationObjective::kBarrier ? CommSecondsPerEpoch(problem, device) : 0;
}

int64_t SampleLimit(const AllocationProblem& problem, const DeviceProfile& device) {
  return std::min(problem.samples, device.capacity_samples.value_or(problem.samples));
}

int64_t StepsPerEpoch(int64_t samples, int64_t batch_size) {
  return samples / batch_size + (samples % batch_size != 0 ? 1 : 0);
}

}  // namespace internal

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
  int64_t room = 0;
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    const DeviceProfile& device = problem.devices[i];
    if (device.name.empty()) return absl::InvalidArgumentError(absl::StrCat("device ", i, ": name is empty"));
    if (!names.insert(device.name).second) return DeviceError(device, "name is used twice");
    if (absl::Status status = ValidateDevice(problem, device); !status.ok()) return status;
    room = std::min(problem.samples, room + internal::SampleLimit(problem, device));
  }
  if (room < problem.samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("capacity_samples: all devices together can store ", room, " of ", problem.samples, " samples"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> Evaluate(const AllocationProblem& problem, const Allocation& allocation) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  if (problem.objective == AllocationObjective::kPipelined || problem.egress_bytes_per_s || problem.lock_step_sites) {
    return absl::UnimplementedError("pipelined, egress_bytes_per_s, lock_step_sites");
  }
  if (allocation.samples.size() != problem.devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the allocation is for ", allocation.samples.size(), " devices, not ", problem.devices.size()));
  }
  Evaluation evaluation;
  int64_t sum = 0;
  double compute_s = 0, comm_s = 0;  // Of what sets epoch_s.
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
    DeviceEvaluation& part = evaluation.devices.emplace_back();
    part.samples = samples;
    part.steps_per_epoch = internal::StepsPerEpoch(samples, device.batch_size);
    part.send_s = static_cast<double>(samples) * internal::SendSecondsPerSample(problem, device);
    part.compute_s = static_cast<double>(part.steps_per_epoch) * device.batch_time_s;
    if (problem.objective == AllocationObjective::kSeparable || samples > 0) {
      part.comm_s = internal::CommSecondsPerEpoch(problem, device);
    }
    part.total_s = part.send_s + problem.epochs * (part.compute_s + part.comm_s);

    evaluation.send_s = std::max(evaluation.send_s, part.send_s);
    if (problem.objective == AllocationObjective::kSeparable) {
      compute_s = std::max(compute_s, part.compute_s);
      comm_s = std::max(comm_s, part.comm_s);
    } else if (part.compute_s + part.comm_s > compute_s + comm_s) {
      compute_s = part.compute_s;
      comm_s = part.comm_s;
    }
  }
  if (sum != problem.samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("the allocation sums to ", sum, ", not ", problem.samples, " samples"));
  }
  evaluation.epoch_s = compute_s + comm_s;
  evaluation.total_s = evaluation.send_s + problem.epochs * evaluation.epoch_s;
  const double largest_s = std::max({evaluation.send_s, problem.epochs * compute_s, problem.epochs * comm_s});
  evaluation.binding = largest_s == evaluation.send_s            ? Binding::kSend
                       : largest_s == problem.epochs * compute_s ? Binding::kCompute
                                                                 : Binding::kCommunication;
  return evaluation;
}

absl::StatusOr<double> LowerBound(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  double constant_s = 0;
  if (problem.objective == AllocationObjective::kSeparable) {
    for (const DeviceProfile& device : problem.devices) {
      constant_s = std::max(constant_s, problem.epochs * internal::CommSecondsPerEpoch(problem, device));
    }
  }
  return FractionalProblem(problem).Minimise() + constant_s;
}

}  // namespace causeway::scheduler
