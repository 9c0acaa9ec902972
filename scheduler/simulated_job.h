// What the simulator (simulator.h) is told: sites with their programs, workers, rounds, and what changes on the way.
#ifndef CAUSEWAY_SCHEDULER_SIMULATED_JOB_H_
#define CAUSEWAY_SCHEDULER_SIMULATED_JOB_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/allocation.h"
#include "scheduler/site_program.h"

namespace causeway::scheduler {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
// A rate that limits nothing.
inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct SimulatedSite {
  std::string name;       // Unique.
  SiteProgram program;    // At the speed of a worker with slowdown 1.
  bool lock_step = true;  // The workers' steps pair up; false: each trains alone, and the program has no collectives.
  // > 0; shared by all its workers' traffic with the coordinator.
  double downlink_bytes_per_s = kNoLimit;
  double uplink_bytes_per_s = kNoLimit;
  // >= 0. On the site's own link, in proportion to the fragment's part of the model: the averaging by reduce-scatter before a
  // push and the all-gather after a pull.
  double round_scatter_s = 0;
  double round_gather_s = 0;
};

struct SimulatedWorker {
  std::string name;                        // Unique.
  int site = 0;                            // An index into SimulatedJob::sites.
  double downlink_bytes_per_s = kNoLimit;  // > 0; coordinator to worker.
  double uplink_bytes_per_s = kNoLimit;    // > 0
  double slowdown = 1;                     // > 0, finite; its computing takes so many times what the program says.
  int64_t samples = 0;                     // 0..kMaxSamples; D_i.
  int64_t batch_size = 1;                  // >= 1
  bool reads_data_locally = false;         // Nothing is sent before training.
};

struct SimulatedRounds {
  int64_t rounds = 1;  // >= 1; of each fragment.
  // Either a fixed number of steps in each round (`steps` >= 1), in which everybody takes part; or, with steps = 0,
  // `per_epoch` >= 1 rounds in an epoch, an epoch of a participant being the most of ceil(samples / batch_size) over its
  // workers (StepsInRound; 0 sits the round out), and a participant without samples takes no part at all.
  int64_t steps = 0;
  int64_t per_epoch = 1;
  std::vector<double> fragment_bytes = {0};  // [fragments], at least one, each >= 0; they sum to the model's bytes.
  int64_t delay = 0;  // Steps between a fragment's sending and its merging; at most those of the round with the fewest.
  double quorum = 0.67;        // In (0, 1]: of the round's samples, absent workers' included.
  double deadline_s = kNever;  // > 0; after the round's opening.
  // >= 0; how much longer than the deadline those are waited for who then send, after the step that they are in, what they
  // have done of the round; for the quorum that counts as all. 0: nobody is asked.
  double late_grace_s = 0;
  double replan_after_s = kNever;  // >= 0; after the deadline.
  // When set, there are no pushes and pulls: all participants run one collective for the whole model in so many seconds (>= 0;
  // in proportion for a fragment), one after the other, each when it would be committed otherwise.
  std::optional<double> all_reduce_s;
};

// From `time_s` on, something is `factor` times as fast as it was at the beginning.
struct SimulatedChange {
  enum class What {
    kCompute,         // A worker.
    kDownlink,        // A worker's.
    kUplink,          // A worker's.
    kSiteCollective,  // A site's own link.
    kSiteDownlink,    // A site's shared link to the coordinator.
    kSiteUplink,
    kCoordinatorEgress,  // The index is ignored.
    kCoordinatorIngress,
  };
  What what = What::kCompute;
  int index = 0;      // Of the worker or site.
  double time_s = 0;  // >= 0
  double factor = 1;  // > 0, finite
};

struct SimulatedAbsence {
  int worker = 0;
  double stop_s = 0;         // >= 0
  double return_s = kNever;  // > stop_s. The absences of one worker do not overlap.
};

struct SimulatedJob {
  std::vector<SimulatedSite> sites;
  std::vector<SimulatedWorker> workers;  // Every site has at least one.
  double sample_bytes = 0;               // >= 0
  bool wait_for_all_data = true;         // No worker trains before all have their data.
  SimulatedRounds rounds;
  // > 0; the coordinator's own links, shared by all traffic out of it and into it.
  double egress_bytes_per_s = kNoLimit;
  double ingress_bytes_per_s = kNoLimit;
  std::vector<SimulatedChange> changes;
  std::vector<SimulatedAbsence> absences;
  double reform_s = 0;  // >= 0; until a site goes on after it lost or took in a worker.
  // In [0, 1). A worker's computing in one step, and each collective, takes 1 + jitter * x times as long; x in (-1, 1), of
  // triangular density, from the seed, the worker or site, and the step.
  double compute_jitter = 0;
  double collective_jitter = 0;
  uint64_t seed = 0;
};

// The workers, by number, of each participant that takes part: a lock-step site's, or one alone. In the order of the first.
std::vector<std::vector<int>> ParticipantsOf(const SimulatedJob& job);
// The steps of an epoch of these workers: the most of ceil(samples / batch_size).
int64_t EpochSteps(const SimulatedJob& job, const std::vector<int>& participant);

// Errors: InvalidArgument, naming worker or site and field.
absl::Status Validate(const SimulatedJob& job);

// The job that an allocation describes, without a model's layers: every program is one layer of which the backward takes one
// second, and a worker's slowdown is its batch_time_s. Workers step alone, or with lock_step_sites together with those of
// their site. The problem's rounds; `epochs` is rounded up to whole rounds. Training waits for all data but under kPipelined.
// Where programs of a model are put in place of these, slowdowns must be set anew.
// Errors: InvalidArgument (an invalid problem or allocation).
absl::StatusOr<SimulatedJob> JobOfAllocation(const AllocationProblem& problem, const Allocation& allocation);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_SIMULATED_JOB_H_
