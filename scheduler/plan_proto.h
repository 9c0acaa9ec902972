// Between the types of this folder and proto/plan.proto.
#ifndef CAUSEWAY_SCHEDULER_PLAN_PROTO_H_
#define CAUSEWAY_SCHEDULER_PLAN_PROTO_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "scheduler/allocate.h"
#include "scheduler/model.h"

namespace causeway::scheduler {

struct BatchLimits {
  int64_t per_worker = 0;  // The batch size; 0 chooses one (batch_choice.h).
  int64_t max = 0;         // >= 1; the largest to choose.
};

// The device that a worker's measured profile describes, with its batch size and that batch's time: the chosen batch's as
// measured, a given one's estimated from its neighbours where it was not measured itself.
// Errors: InvalidArgument, naming the worker (a batch size given above the profile's max_parallel, none to choose from, a
// measurement out of range or twice). What else may be wrong in a profile, Validate finds.
absl::StatusOr<DeviceProfile> DeviceFromProto(const std::string& worker, const std::string& site,
                                              const v1::DeviceProfile& profile, const BatchLimits& batch);

// Everything but number, pinned and reason, which are the caller's. Workers are ascending by name. The sample's bytes
// are rounded to whole ones.
v1::Plan PlanToProto(const AllocationPlan& plan);

// The plan's allocation as given, its predictions computed anew from its problem. A v1::Plan does not say what a device
// could have held: max_parallel is the batch size, and there is no capacity. Workers stay in their order.
// Errors: InvalidArgument (an unknown method or objective, an invalid problem, counts that do not sum to the samples).
absl::StatusOr<AllocationPlan> PlanFromProto(const v1::Plan& plan);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_PLAN_PROTO_H_
