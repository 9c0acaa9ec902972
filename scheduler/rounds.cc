#include "scheduler/rounds.h"

#include <cassert>

namespace causeway::scheduler {

int64_t StepsBeforeRound(int64_t steps, int64_t rounds, int64_t round) {
  assert(steps >= 0 && round >= 0 && rounds >= 1 && round <= rounds);
  return static_cast<int64_t>(static_cast<__int128>(round) * steps / rounds);
}

}  // namespace causeway::scheduler
