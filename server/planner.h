#ifndef CAUSEWAY_SERVER_PLANNER_H_
#define CAUSEWAY_SERVER_PLANNER_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "scheduler/shard_assignment.h"

namespace causeway::server {

// What a plan is made from. Pure; no I/O.
struct PlanInput {
  const v1::JobSpec* spec = nullptr;  // Not owned.
  int64_t samples = 0;
  int64_t record_bytes = 0;
  int64_t model_bytes = 0;
  double epochs_left = 1;
  struct Candidate {
    WorkerId worker;
    SiteId site;
    v1::DeviceProfile profile;
  };
  std::vector<Candidate> candidates;
  std::vector<scheduler::WorkerRanges> previous;  // Shards of the plan before; empty at first.
  std::optional<v1::Plan> pinned;                 // Worker, samples and batch_size of each worker.
  int64_t number = 1;
  std::string reason;
};

struct PlanResult {
  v1::Plan plan;
  std::vector<scheduler::WorkerRanges> shards;
};

// The batch of each worker from its measured times, the samples of each by the job's method and objective, their
// prediction, what an even split would cost by the same figures, and which samples each gets.
// Errors: InvalidArgument (fewer samples than workers; a pinned plan that names an unknown worker, or whose samples do
// not sum to the dataset's), FailedPrecondition (no candidates; a profile without times).
absl::StatusOr<PlanResult> MakePlan(const PlanInput& input);

// The batch sizes a worker is asked to measure: at least three, the job's own among them when it is fixed.
std::vector<int64_t> BatchSizesToProfile(const v1::BatchSpec& batch);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_PLANNER_H_
