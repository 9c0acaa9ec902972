// The solver of AllocationObjective::kPipelined, exact and as a fractional bound. Not for use outside this folder.
#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_PIPELINED_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_PIPELINED_H_

#include "scheduler/allocation_parties.h"

namespace causeway::scheduler::internal {

// The integer optimum, by bisection on the total: within a total each party can take a number of samples that is found
// by itself. The samples in `samples` cost no more than bound_s; gap_s is 0.
//
// O(64 * parties), O(64 * parties * log(parties)) per number of participants that comes into question with an egress cap.
// Where max_participants binds and some parties read their data locally, another factor of those.
// Requires a problem whose parties together can hold all samples.
ParticipantsSolution SolvePipelined(const PartyProblem& problem);

// The same with fractional samples and steps, in seconds.
double FractionalPipelinedSeconds(const PartyProblem& problem);

}  // namespace causeway::scheduler::internal

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_PIPELINED_H_
