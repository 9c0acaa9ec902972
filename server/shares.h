#ifndef CAUSEWAY_SERVER_SHARES_H_
#define CAUSEWAY_SERVER_SHARES_H_

#include <cstdint>
#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/shard_assignment.h"

// How a plan's shares are cut further: an epoch's steps into rounds, the test set into parts. Pure.
namespace causeway::server {

using Ranges = std::vector<scheduler::SampleRange>;

int64_t Count(const Ranges& ranges);  // Samples.

// Steps [first, last) of sub-round `round % rounds_per_epoch`, and how many samples they are (ALGORITHMS 1.5).
struct Steps {
  int64_t first = 0;
  int64_t last = 0;
  int64_t samples = 0;
};
Steps StepsOf(const v1::WorkerPlan& worker, int64_t round, int64_t rounds_per_epoch);

// `all` in disjoint parts, one for each of `speeds` (>= 0) and in proportion to them; alike if all are 0.
std::vector<Ranges> Split(const Ranges& all, const std::vector<double>& speeds);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_SHARES_H_
