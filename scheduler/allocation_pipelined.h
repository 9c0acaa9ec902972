// The solver of AllocationObjective::kPipelined, exact and as a fractional bound. Not for use outside this folder.
#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_PIPELINED_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_PIPELINED_H_

#include "scheduler/allocation_parties.h"

namespace causeway::scheduler::internal {

// The integer optimum, by bisection on the total: within a total each party can take a number of samples that is found
// by itself. Source: ours.
//
// O(64 * parties), and with an egress cap O(64 * parties * log(parties)) for each number of participants, or range of
// numbers, that comes into question, a few times that where some parties read their data locally.
// Requires a problem whose parties together can hold all samples.
ParticipantsSolution SolvePipelined(const PartyProblem& problem);

// The same with fractional samples and steps, in seconds.
double FractionalPipelinedSeconds(const PartyProblem& problem);

// The same where each party pays as one of `lo` participants and at most `hi` take part; infinite where those cannot hold
// all samples.
double FractionalPipelinedSeconds(const PartyProblem& problem, int64_t lo, int64_t hi);

}  // namespace causeway::scheduler::internal

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_PIPELINED_H_
