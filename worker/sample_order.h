#ifndef CAUSEWAY_WORKER_SAMPLE_ORDER_H_
#define CAUSEWAY_WORKER_SAMPLE_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/common.pb.h"

namespace causeway::worker {

using SampleRanges = google::protobuf::RepeatedPtrField<v1::SampleRange>;

// How many samples the ranges hold. Errors: InvalidArgument (a range that is negative or falls).
absl::StatusOr<int64_t> CountSamples(const SampleRanges& ranges);

// The numbers of the ranges' samples, in order.
std::vector<int64_t> ListSamples(const SampleRanges& ranges);

// The order in which `worker` goes through its shard in `epoch` of `job`: a permutation of `ranges` that depends on
// these arguments alone, the same on every machine.
std::vector<int64_t> EpochOrder(const SampleRanges& ranges, uint64_t job_seed, absl::string_view job,
                                absl::string_view worker, int64_t epoch);

// A batch: positions [begin, end) of the epoch's order. `counted` of them are its weight; it is end - begin but for the
// one case below.
struct BatchRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t counted = 0;

  friend bool operator==(const BatchRange&, const BatchRange&) = default;
};

// The batches of steps [first_step, last_step) in an epoch over `samples` samples: those steps cover exactly the
// positions [min(first_step * batch_size, samples), min(last_step * batch_size, samples)), and the counts sum to that,
// whatever follows. Every step takes batch_size samples and the epoch's last one what is left. No batch is smaller than
// `min_batch` (2 for a model with batch normalization): a smaller last one and the batch before it are cut again into
// two even ones, or become one if that is too few for two; with no batch before it in these steps, it takes samples in
// front of it along, which count nothing.
// Errors: InvalidArgument (steps that fall or lie outside the epoch, batch_size < min_batch, samples < min_batch).
absl::StatusOr<std::vector<BatchRange>> StepBatches(int64_t first_step, int64_t last_step, int64_t batch_size,
                                                    int64_t samples, int64_t min_batch);

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_SAMPLE_ORDER_H_
