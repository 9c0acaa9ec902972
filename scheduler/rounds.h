#ifndef CAUSEWAY_SCHEDULER_ROUNDS_H_
#define CAUSEWAY_SCHEDULER_ROUNDS_H_

#include <cstdint>

namespace causeway::scheduler {

// The steps that a worker with `steps` steps an epoch does in round `round` (0-based) of an epoch's `rounds` rounds:
// floor((round + 1) * steps / rounds) - floor(round * steps / rounds). They differ by at most one between rounds and sum
// to `steps`; with 0 the worker sits the round out.
// Requires steps >= 0 and 0 <= round < rounds; no product overflows.
int64_t StepsInRound(int64_t steps, int64_t rounds, int64_t round);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ROUNDS_H_
