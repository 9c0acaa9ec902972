#ifndef CAUSEWAY_SCHEDULER_BATCH_CHOICE_H_
#define CAUSEWAY_SCHEDULER_BATCH_CHOICE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace causeway::scheduler {

// How long forward and backward of one batch took.
struct BatchMeasurement {
  int64_t batch_size = 0;   // >= 1
  double batch_time_s = 0;  // > 0
};

// The smallest measured batch, of at most `max_batch_size` samples, within 5 % of the best samples per second among
// those: a smaller batch makes a last, ragged step cheaper and steps more frequent, at hardly any cost in speed.
// The measurements come in any order. O(measurements^2).
// Errors: InvalidArgument (a value out of range, a batch size measured twice, none at or below `max_batch_size`).
absl::StatusOr<BatchMeasurement> ChooseBatch(absl::Span<const BatchMeasurement> measurements, int64_t max_batch_size);

// Seconds. The time of a batch size that was not measured, for a batch size that is given. Between two measurements it is
// linear in the size; beyond them it follows the line through the two nearest, but never falls with the size and never
// is less per sample, below the smallest, than there. One measurement alone is scaled in proportion.
// Errors: InvalidArgument (a value out of range, a batch size measured twice, no measurement).
absl::StatusOr<double> EstimateBatchTime(absl::Span<const BatchMeasurement> measurements, int64_t batch_size);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_BATCH_CHOICE_H_
