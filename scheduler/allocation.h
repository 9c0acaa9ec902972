// Data allocation (C-ADP): the problem, and what an allocation costs. The solvers are in allocation_exact.h,
// allocation_auglag.h and allocation_simple.h, a bound that no allocation can beat in allocation_bound.h, the entry to all
// of them is allocate.h.
//
// Per device i with D_i samples:
//   send(i)    = D_i * sample_bytes / bandwidth            once; 0 where the device reads its data locally
//   compute(i) = ceil(D_i / batch_size) * batch_time       every epoch
//   comm(i)    = rounds_per_epoch * (model_bytes / bandwidth + model_bytes / uplink)    every epoch
//
// A cap on the coordinator's own link (egress_bytes_per_s) is shared by all its transfers, so that none of those that run
// together ends before egress has carried them all:
//   send(i)    is at least (samples sent to all devices) * sample_bytes / egress, where the device is sent any
//   each model_bytes / rate in comm(i) is at least participants * model_bytes / egress
// Participants are the devices with samples, under kSeparable all devices.
//
// Where the devices of a site step in lock step, they take part together or not at all; K members exchange one model with
// the coordinator, each 1/K of it. Of all members alike:
//   compute    = (most steps of a member) * (longest batch_time of a member)
//   comm       = as above, of 1/K of the model over the member's link for which it takes longest; a site is one participant
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
  // > 0; the coordinator's own link, each way. None: it never binds.
  std::optional<double> egress_bytes_per_s;
  // The devices of one site step together; site_batches.h chooses batch sizes for them.
  bool lock_step_sites = false;
};

// Counts up to here are exact in a double, and so is what is derived from them.
inline constexpr int64_t kMaxSamples = int64_t{1} << 50;

// Errors: InvalidArgument, naming the device and the field: a value outside the range given above or in model.h, a
// name that is empty or used twice, capacities that together cannot hold `samples`, times too large for a double; with
// lock_step_sites a site's name that is empty, and members of a site of which some read their data locally.
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
  int64_t steps_per_epoch = 0;  // In lock step those of the site.
  double send_s = 0;            // Once.
  double compute_s = 0;         // Per epoch.
  double comm_s = 0;            // Per epoch. 0 for a device that takes no part; under kSeparable all take part.
  double total_s = 0;           // send_s + epochs * (compute_s + comm_s)
};

struct Evaluation {
  double total_s = 0;  // The objective: send_s + epochs * epoch_s.
  double send_s = 0;   // The longest; under kPipelined that of the device with the longest total.
  double epoch_s = 0;  // As the objective says; under kPipelined that of the same device.
  // The largest part of total_s: sending, or the compute or the communication (over all epochs) of the device, or under
  // kSeparable of the devices, that set epoch_s.
  Binding binding = Binding::kSend;
  std::vector<DeviceEvaluation> devices;  // [devices]
};

// O(devices), O(devices * log(devices)) with lock_step_sites.
// Errors: InvalidArgument (an invalid problem; counts that are negative, above a capacity, of the wrong number, or that
// do not sum to the problem's samples).
absl::StatusOr<Evaluation> Evaluate(const AllocationProblem& problem, const Allocation& allocation);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_H_
