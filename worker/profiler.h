#ifndef CAUSEWAY_WORKER_PROFILER_H_
#define CAUSEWAY_WORKER_PROFILER_H_

#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "proto/job.pb.h"
#include "proto/membership.pb.h"
#include "proto/plan.pb.h"
#include "worker/model.h"

namespace causeway::worker {

struct ProfileOptions {
  v1::JobSpec spec;
  std::vector<int64_t> sample_shape;  // [channels, height, width]
  double slowdown = 1;                // Emulated; >= 1.
  Model* model = nullptr;  // Not owned. Its tensors are as before when Profile returns, unless loading them back fails.
  Clock* clock = nullptr;  // Not owned.
};

// Measures what a step takes at each of the task's batch sizes: the trainer's own step on made-up records, a few times
// to warm up, then the sizes in turn, so that a change of load meets all of them, for at least `task.seconds` and at
// least kMinRepeats times each; medians. One time is the mean of the steps that 100 ms hold, so that a device that gets
// its CPU time in slices (a quota) is measured with its pauses.
// A size for which memory does not suffice, and those above it, are left out, as are those below the model's smallest
// batch.
// Blocks. Returns the profile without the figures of the link.
// Errors: InvalidArgument (no size to measure, impossible options), ResourceExhausted (not even the smallest size
// fits), Cancelled (stop), Internal and others of the model.
absl::StatusOr<v1::DeviceProfile> Profile(const ProfileOptions& options, const v1::ProfileTask& task,
                                          std::stop_token stop);

inline constexpr int kMinRepeats = 3;

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_PROFILER_H_
