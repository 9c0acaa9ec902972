#ifndef CAUSEWAY_SCHEDULER_ROUNDS_H_
#define CAUSEWAY_SCHEDULER_ROUNDS_H_

#include <cstdint>

namespace causeway::scheduler {

// The steps of an epoch, of a worker with `steps` steps an epoch, before round `round` (0-based) of the epoch's `rounds`
// rounds: floor(round * steps / rounds). Round j consists of the steps from StepsBeforeRound(j) to StepsBeforeRound(j + 1):
// rounds differ by at most one step and sum to `steps`; a worker without any sits the round out. ALGORITHMS 1.5. O(1).
// Requires steps >= 0 and 0 <= round <= rounds, rounds >= 1; no product overflows.
int64_t StepsBeforeRound(int64_t steps, int64_t rounds, int64_t round);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ROUNDS_H_
