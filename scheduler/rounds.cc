#include "scheduler/rounds.h"

#include <cassert>

namespace causeway::scheduler {

int64_t StepsInRound(int64_t steps, int64_t rounds, int64_t round) {
  assert(steps >= 0 && round >= 0 && round < rounds);
  const auto done_before = [&](int64_t r) { return static_cast<int64_t>(static_cast<__int128>(r) * steps / rounds); };
  return done_before(round + 1) - done_before(round);
}

}  // namespace causeway::scheduler
