// Data allocation (C-ADP): the problem, what an allocation costs, and a bound that no allocation can beat.
// The solvers are in allocation_exact.h and allocation_simple.h, the entry to all of them is allocate.h.
//
// Per device i with D_i samples:
//   send(i)    = D_i * sample_bytes / bandwidth            once; 0 where the device reads its data locally
//   compute(i) = ceil(D_i / batch_size) * batch_time       every epoch
//   comm(i)    = rounds_per_epoch * (model_bytes / bandwidth + model_bytes / uplink)    every epoch
// All functions are pure and thread-safe.
#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/model.h"

namespace causeway::scheduler {

enum class AllocationObjective {
  // max send + epochs * (max compute + max comm), the maxima over all devices: the published objective.
  kSeparable,
  // max send + epochs * max over devices with D_i > 0 of (compute + comm): a device without samples takes no part.
  kBarrier,
  // max over devices with D_i > 0 of (send + epochs * (compute + comm)): a device starts when its own data is there.
  kPipelined,
};

// "separable", "barrier", "pipelined".
absl::string_view AllocationObjectiveName(AllocationObjective objective);
// Errors: InvalidArgument (another name).
absl::StatusOr<AllocationObjective> AllocationObjectiveFromName(absl::string_view name);

struct AllocationProblem {
  std::vector<DeviceProfile> devices;
  int64_t samples = 0;           // 1..kMaxSamples, to be divided among the devices.
  double sample_bytes = 0;       // >= 0; the mean where records differ in size.
  double model_bytes = 0;        // >= 0; sent each way once a round.
  double epochs = 1;             // > 0; a fraction where a job does not end with an epoch.
  int64_t rounds_per_epoch = 1;  // >= 1
  AllocationObjective objective = AllocationObjective::kBarrier;
  // > 0; the coordinator's own link, which all its transfers share, each way. None: it never binds.
  std::optional<double> egress_bytes_per_s;
  // Devices of one site step together (site_batches.h says how their batch sizes are chosen).
  bool lock_step_sites = false;
};

// Counts up to here are exact in a double, and so is what is derived from them.
inline constexpr int64_t kMaxSamples = int64_t{1} << 50;

// Errors: InvalidArgument, naming the device and the field: a value outside the range given above or in model.h, a
// name that is empty or used twice, capacities that together cannot hold `samples`, times too large for a double.
absl::Status Validate(const AllocationProblem& problem);

struct Allocation {
  std::vector<int64_t> samples;  // [devices], in the problem's order; they sum to the problem's samples.
  // The exact solver's objective is at most this far above the optimum: 0 when optimality is proven (to 1e-12,
  // relative), more only when the search met its limit of work. Always 0 from the other methods, which prove nothing.
  double gap_s = 0;
};

enum class Binding { kSend, kCompute, kCommunication };

// "send", "compute", "communication".
absl::string_view BindingName(Binding binding);

struct DeviceEvaluation {
  int64_t samples = 0;
  int64_t steps_per_epoch = 0;
  double send_s = 0;     // Once.
  double compute_s = 0;  // Per epoch.
  double comm_s = 0;     // Per epoch. 0 without samples under kBarrier; paid by every device under kSeparable.
  double total_s = 0;    // send_s + epochs * (compute_s + comm_s)
};

struct Evaluation {
  double total_s = 0;  // The objective: send_s + epochs * epoch_s.
  double send_s = 0;
  double epoch_s = 0;
  // The largest part of total_s: sending, or the compute or the communication (over all epochs) of the device, or under
  // kSeparable of the devices, that set epoch_s.
  Binding binding = Binding::kSend;
  std::vector<DeviceEvaluation> devices;  // [devices]
};

// O(devices).
// Errors: InvalidArgument (an invalid problem; counts that are negative, above a capacity, of the wrong number, or that
// do not sum to the problem's samples).
absl::StatusOr<Evaluation> Evaluate(const AllocationProblem& problem, const Allocation& allocation);

// Seconds. The optimum with fractional samples and fractional steps: no allocation's total_s is below it, but for
// rounding (1e-12, relative). O(p * devices * log(devices)), p the distinct communication times near the optimum.
// Errors: InvalidArgument (an invalid problem).
absl::StatusOr<double> LowerBound(const AllocationProblem& problem);

namespace internal {

// The coefficients that evaluator, bound and solvers share, so that they agree to the last bit.
double SendSecondsPerSample(const AllocationProblem& problem, const DeviceProfile& device);
double CommSecondsPerEpoch(const AllocationProblem& problem, const DeviceProfile& device);
// What a device with samples pays in an epoch before its first step: comm under kBarrier, else 0.
double EpochOffsetSeconds(const AllocationProblem& problem, const DeviceProfile& device);
// The most samples that the device may get: its capacity, at most all.
int64_t SampleLimit(const AllocationProblem& problem, const DeviceProfile& device);
// ceil(samples / batch_size)
int64_t StepsPerEpoch(int64_t samples, int64_t batch_size);

}  // namespace internal
}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_H_
