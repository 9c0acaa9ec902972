// A whole job, simulated on given profiles: the sending of the data, the steps of every site layer by layer, and the rounds
// between the sites. Deterministic: the same job gives the same result, to the bit.
//
// Inside a site a step is a recursion over its program's layers (site_program.h); between sites an event queue runs transfers,
// rounds, and what changes. Nothing uses the closed formulas of allocation.h, sync_costs.h and group_planner.h, so that each
// checks the other.
//
// The course of a job
// 1. Every worker receives its samples. Training starts when all have theirs, or each worker's when it has its own.
// 2. It pulls the model and trains. A round is about one fragment of the model; the fragments take turns within the steps of a
//    round: fragment f of F is sent after step floor((f + 1) * S / F) of the S steps.
// 3. The coordinator commits a fragment's round when all participants that are there are in, or at the deadline, if the quorum
//    holds; everybody pulls the fragment, and needs it before its step (send + delay), counted in its own steps. With one
//    fragment and delay 0 that is the blocking round. The job ends with the last commit; what it made is not pulled.
//
// Workers of a lock-step site stand for one participant, and push and pull an equal part of a fragment each; where a site is not
// in lock step each worker is a participant of its own.
//
// Transfers. A worker's downlink and uplink carry one transfer at a time, first come, first served. A site's shared link and the
// coordinator's links are divided among the transfers in proportion to their sizes, as far as those can use it (weighted
// max-min), so that transfers that begin together and are limited alike end together.
//
// Lost workers. A worker that stops takes the unfinished step of its site with it. The others go on after `reform_s`, repeating
// it, and send again what they were sending. It no longer counts for rounds. When it returns, a worker alone pulls the model and
// begins the open round anew; others of its site take it in when their next round begins. Late participants hear between two
// steps that their round was committed: they leave out the steps that are missing and pull. A blocking round that has no quorum
// `replan_after_s` past its deadline is dropped and repeated by those who are there; a round of one fragment among several, or
// with a delay, is dropped and everybody keeps what it has.
#ifndef CAUSEWAY_SCHEDULER_SIMULATOR_H_
#define CAUSEWAY_SCHEDULER_SIMULATOR_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/allocation.h"
#include "scheduler/site_program.h"

namespace causeway::scheduler {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
// A rate that limits nothing.
inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct SimulatedSite {
  std::string name;      // Unique.
  SiteProgram program;   // At the speed of a worker with slowdown 1.
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
  std::string name;  // Unique.
  int site = 0;      // An index into SimulatedJob::sites.
  double downlink_bytes_per_s = kNoLimit;  // > 0; coordinator to worker.
  double uplink_bytes_per_s = kNoLimit;    // > 0
  double slowdown = 1;                     // > 0; its computing takes so many times what the program says.
  int64_t samples = 0;                     // >= 0; D_i. A participant without samples takes no part.
  int64_t batch_size = 1;                  // >= 1
  bool reads_data_locally = false;         // Nothing is sent before training.
};

struct SimulatedRounds {
  int64_t rounds = 1;  // >= 1; of each fragment.
  // Either a fixed number of steps in each round (`steps` >= 1), or, with steps = 0, `per_epoch` >= 1 rounds in an epoch, an
  // epoch of a participant being the most of ceil(samples / batch_size) over its workers (StepsInRound; 0 sits out).
  int64_t steps = 0;
  int64_t per_epoch = 1;
  std::vector<double> fragment_bytes = {0};  // [fragments], at least one, each >= 0; they sum to the model's bytes.
  int64_t delay = 0;  // Steps between a fragment's sending and its merging; 0..least number of steps in a round.
  double quorum = 1;  // In (0, 1]: of the round's samples, absent workers' included.
  double deadline_s = kNever;      // > 0; after the round's opening.
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
  double stop_s = 0;  // >= 0
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

// Errors: InvalidArgument, naming worker or site and field.
absl::Status Validate(const SimulatedJob& job);

// The job that an allocation describes, without a model's layers: each worker alone, each step one `batch_time_s`, a round as
// the problem says; `epochs` is rounded up to whole rounds. The program of a site may be replaced by a model's.
// Errors: InvalidArgument (an invalid problem or allocation).
absl::StatusOr<SimulatedJob> JobOfAllocation(const AllocationProblem& problem, const Allocation& allocation);

enum class SpanKind {
  kSend,        // The worker receives its samples.
  kForward,     // Of `layer`; waiting for a collective in the midst of it (fsdp) not included.
  kBackward,
  kCollective,  // Of `layer` on the site's link.
  kPush,        // Of `fragment`; likewise kPull. Before the first round `fragment` is -1: the whole model.
  kPull,
  kWait,        // Of the worker for others: for a collective, a commit, a transfer.
};

// "send", "forward", "backward", "collective", "push", "pull", "wait".
absl::string_view SpanKindName(SpanKind kind);

// What runs at the same time on one worker: computing and waiting, its site's link, its link to the coordinator out and in. A
// timeline shows each as a row of its own, so that spans of one row never overlap.
enum class SpanLane { kCompute, kCollective, kPush, kPull };
// "compute", "collective", "push", "pull".
absl::string_view SpanLaneName(SpanLane lane);
SpanLane LaneOf(SpanKind kind);

// One event of the timeline: a complete event ("ph": "X") of a Chrome or Perfetto trace, pid the site, tid worker and lane.
struct Span {
  SpanKind kind = SpanKind::kForward;
  int worker = 0;      // An index into SimulatedJob::workers.
  int layer = 0;       // 1..L; 0: none.
  int fragment = -1;   // -1: none.
  int64_t step = -1;   // The participant's, counted from 0 over the job; -1: none.
  int64_t round = -1;  // -1: none.
  double bytes = 0;
  double start_s = 0;
  double duration_s = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

struct SimulationOptions {
  // Spans that begin in [spans_from_s, spans_until_s) are recorded, up to max_spans; with 0 none, which is several times as
  // fast. Those of the first `span_workers` workers only.
  int64_t max_spans = 0;
  double spans_from_s = 0;
  double spans_until_s = kNever;
  int span_workers = std::numeric_limits<int>::max();
  // More events than this end the simulation: a job that drops its rounds for ever.
  int64_t max_events = int64_t{1} << 32;
};

struct WorkerTotals {
  int64_t steps = 0;    // Finished ones, repeated ones included.
  double send_s = 0;    // From the beginning until its data was there.
  double compute_s = 0;
  double exposed_s = 0;  // Waiting for its site: for its slower workers and for collectives that computing did not hide.
  double pull_s = 0;     // Its transfers' time, whether it waited for them or not.
  double push_s = 0;
  double wait_s = 0;    // Waiting for a round's commit, pushes and pulls in its way included.
  double absent_s = 0;  // Until the job's end.
  double received_bytes = 0;  // Samples included.
  double sent_bytes = 0;
};

struct SiteTotals {
  int64_t steps = 0;         // Finished ones of its participants, repeated ones included.
  double training_s = 0;     // In those steps: the sum of the times between step ends, without what lies between steps.
  double iteration_s = 0;    // training_s / steps; 0 without steps.
  double collective_s = 0;   // Its own link was busy.
  double collective_bytes = 0;
};

struct SimulatedRound {
  int fragment = 0;
  int64_t round = 0;
  double opened_s = 0;
  double closed_s = 0;       // Committed or dropped.
  bool committed = true;
  int contributors = 0;
  double planned_samples = 0;
  double samples = 0;        // The contributors'.
};

struct SimulationResult {
  bool completed = false;  // False: everybody stopped for good, or max_events.
  double total_s = 0;      // Until the last commit, or as far as it came.
  double training_start_s = 0;  // The first worker's.
  std::vector<WorkerTotals> workers;   // [workers]
  std::vector<SiteTotals> sites;       // [sites]
  std::vector<SimulatedRound> rounds;  // In the order of closing.
  std::vector<Span> spans;             // By worker, lane and start; within a lane they do not overlap.
  int64_t spans_left_out = 0;          // Beyond max_spans.
  int64_t events = 0;
};

// O(steps * layers * workers + transfers * log(transfers)), times the transfers at one moment where a shared link is limited.
// Errors: InvalidArgument (an invalid job or option).
absl::StatusOr<SimulationResult> Simulate(const SimulatedJob& job, const SimulationOptions& options = {});

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_SIMULATOR_H_
