#ifndef CAUSEWAY_SCHEDULER_SHARD_ASSIGNMENT_H_
#define CAUSEWAY_SCHEDULER_SHARD_ASSIGNMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace causeway::scheduler {

// The half-open range [begin, end) of a dataset's samples, in the order of its permutation.
struct SampleRange {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

struct WorkerSamples {
  std::string worker;
  int64_t samples = 0;  // >= 0
};

struct WorkerRanges {
  std::string worker;
  std::vector<SampleRange> ranges;  // Ascending, disjoint, none empty, none adjacent.

  friend bool operator==(const WorkerRanges&, const WorkerRanges&) = default;
};

// Which samples each worker trains on. The result has one entry per worker, in the order given; the ranges of all are
// disjoint, cover [0, D), D the sum of the counts, and depend on names and counts only, not on their order.
//
// Without a previous assignment the shards are consecutive by ascending worker name. With one, each worker keeps as many
// samples of its own as its count allows (the first of them), and what is left over, that of former workers and samples
// not assigned before included, goes to those that lack some, again by name. The previous assignment may be of another D.
//
// O((workers + ranges) * log(workers + ranges)).
// Errors: InvalidArgument (a name used twice, a negative count, a sum above int64, previous ranges that are negative,
// reversed or overlap).
absl::StatusOr<std::vector<WorkerRanges>> AssignShards(absl::Span<const WorkerSamples> workers,
                                                       absl::Span<const WorkerRanges> previous);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_SHARD_ASSIGNMENT_H_
