#ifndef CAUSEWAY_SERVER_MERGE_H_
#define CAUSEWAY_SERVER_MERGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "dataplane/layout.h"

namespace causeway::server {

// The fixed-point form of one float tensor in the sums of a round: a value v is added as round(weight * v * 2^scale).
// Fixed before the round by the committed tensor alone, so that the order of arrival cannot matter.
struct FixedPoint {
  double limit = 0;  // Values beyond +-limit make a contribution invalid: the larger of 2^10 and 2^8 * max_abs.
  int scale = 0;     // The largest with limit * 2^scale <= 2^62.
};
// `max_abs`: of the committed tensor; finite, >= 0.
FixedPoint FixedPointFor(double max_abs);

// The largest absolute value of n packed floats (any alignment); infinity if one is not finite.
double MaxAbs(absl::Span<const uint8_t> packed_floats);

// The weighted mean of a round's contributions, to the bit independent of the order in which they are added (ALGORITHMS
// 4.2).
//
// Parameters and float buffers are averaged with the samples as weights; integer buffers are those of the contributor
// with the lowest rank. Holds 8 bytes per element. Not thread-safe. Call order: Create Add* Finish; after an error of
// Add the sum is void and every later call returns that error: make a new one and add again.
class RoundSum {
 public:
  // `committed`: the packed model that the round started from, only read during the call. `planned_samples` > 0: the
  // most that all contributions together may have.
  // Errors: InvalidArgument (sizes do not fit, a committed value is not finite, planned_samples).
  static absl::StatusOr<RoundSum> Create(const dataplane::Layout& layout, absl::Span<const uint8_t> committed,
                                         int64_t planned_samples);

  RoundSum(RoundSum&&) = default;
  RoundSum& operator=(RoundSum&&) = default;

  // Adds a verified packed contribution, read in blocks. One of 0 samples counts for nothing, its integer buffers
  // included.
  // Errors: InvalidArgument (size, negative samples, more than planned together, a rank that was added before, a value
  // that is not finite or out of range; the caller has checked all of it: contribution.h), and those of reading.
  absl::Status Add(const RandomAccessFile& part, int64_t samples, int64_t rank);

  // The mean, packed. Errors: FailedPrecondition (the samples are 0 in total).
  absl::StatusOr<std::vector<uint8_t>> Finish();

  int64_t samples() const { return samples_; }

 private:
  RoundSum() = default;
  absl::Status AddChecked(const RandomAccessFile& part, int64_t samples, int64_t rank);

  dataplane::Layout layout_;
  std::vector<FixedPoint> formats_;  // Of every tensor; unused for integers.
  std::vector<int64_t> sums_;        // Of every element: the fixed-point sum, or the integer itself.
  int64_t planned_samples_ = 0;
  int64_t samples_ = 0;
  std::vector<int64_t> ranks_;  // Of those with samples, ascending.
  absl::Status status_;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_MERGE_H_
