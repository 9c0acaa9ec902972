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
// begins the open round anew; others of its site take it in when their next round begins. Late participants are asked at
// the deadline for what they have done, if there is a grace for it. Who is later still hears between two steps that its round was
// committed, leaves out the steps that are missing, and pulls. A round that has no quorum `replan_after_s` past its deadline is
// dropped, and the next is planned for those who are there. A blocking round they repeat,
// from the model as it was; where there are several fragments, or a delay, everybody goes on with what it has.
#ifndef CAUSEWAY_SCHEDULER_SIMULATOR_H_
#define CAUSEWAY_SCHEDULER_SIMULATOR_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulated_job.h"
#include "scheduler/timeline.h"

namespace causeway::scheduler {

struct SimulationOptions {
  // Spans that begin in [spans_from_s, spans_until_s) are recorded, up to max_spans; with 0 none, which is several times as
  // fast. Those of the first `span_workers` workers only.
  int64_t max_spans = 0;
  double spans_from_s = 0;
  double spans_until_s = kNever;
  int span_workers = std::numeric_limits<int>::max();
  // More events than this end the simulation: a job that drops its rounds for ever.
  int64_t max_events = int64_t{1} << 28;
};

struct WorkerTotals {
  int64_t steps = 0;  // Finished ones, repeated ones included.
  double send_s = 0;  // From the beginning until its data was there.
  double compute_s = 0;
  double exposed_s =
      0;              // Waiting for its site: for its slower workers and for collectives that computing did not hide.
  double pull_s = 0;  // Its transfers' time, whether it waited for them or not.
  double push_s = 0;
  double wait_s = 0;          // Waiting for a round's commit, pushes and pulls in its way included.
  double absent_s = 0;        // Until the job's end.
  double received_bytes = 0;  // Samples included.
  double sent_bytes = 0;
};

struct SiteTotals {
  int64_t steps = 0;        // Finished ones of its participants, repeated ones included.
  double training_s = 0;    // In those steps: the sum of the times between step ends, without what lies between steps.
  double iteration_s = 0;   // training_s / steps; 0 without steps.
  double collective_s = 0;  // Its own link was busy.
  double collective_bytes = 0;
};

struct SimulatedRound {
  int fragment = 0;
  int64_t round = 0;
  double opened_s = 0;
  double closed_s = 0;  // Committed or dropped.
  bool committed = true;
  int contributors = 0;
  double planned_samples = 0;
  double samples = 0;  // The contributors'.
};

struct SimulationResult {
  // False: everybody stopped for good, a round waits for ever, ten rounds in a row were dropped, or max_events.
  bool completed = false;
  double total_s = 0;                  // Until the last commit, or as far as it came.
  double training_start_s = 0;         // The first worker's.
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
