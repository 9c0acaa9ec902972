#include "scheduler/batch_choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

constexpr double kShareOfBestSpeed = 0.95;

double Speed(const BatchMeasurement& m) { return static_cast<double>(m.batch_size) / m.batch_time_s; }

// Checked, by ascending batch size.
absl::StatusOr<std::vector<BatchMeasurement>> Sorted(absl::Span<const BatchMeasurement> measurements) {
  std::vector<BatchMeasurement> sorted(measurements.begin(), measurements.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const BatchMeasurement& a, const BatchMeasurement& b) { return a.batch_size < b.batch_size; });
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i].batch_size < 1) {
      return absl::InvalidArgumentError(absl::StrCat("batch_size is ", sorted[i].batch_size, ", below 1"));
    }
    if (!std::isfinite(sorted[i].batch_time_s) || sorted[i].batch_time_s <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("batch_time_s of batch_size ", sorted[i].batch_size, " is ",
                                                     sorted[i].batch_time_s, ", not above 0"));
    }
    if (i > 0 && sorted[i].batch_size == sorted[i - 1].batch_size) {
      return absl::InvalidArgumentError(absl::StrCat("batch_size ", sorted[i].batch_size, " is measured twice"));
    }
  }
  return sorted;
}

}  // namespace

absl::StatusOr<BatchMeasurement> ChooseBatch(absl::Span<const BatchMeasurement> measurements, int64_t max_batch_size) {
  absl::StatusOr<std::vector<BatchMeasurement>> sorted = Sorted(measurements);
  if (!sorted.ok()) return sorted.status();
  std::erase_if(*sorted, [&](const BatchMeasurement& m) { return m.batch_size > max_batch_size; });
  double best = 0;
  for (const BatchMeasurement& m : *sorted) best = std::max(best, Speed(m));
  for (const BatchMeasurement& m : *sorted) {
    if (Speed(m) >= kShareOfBestSpeed * best) return m;
  }
  return absl::InvalidArgumentError(absl::StrCat("no batch of at most ", max_batch_size, " samples was measured"));
}

absl::StatusOr<double> EstimateBatchTime(absl::Span<const BatchMeasurement> measurements, int64_t batch_size) {
  absl::StatusOr<std::vector<BatchMeasurement>> sorted = Sorted(measurements);
  if (!sorted.ok()) return sorted.status();
  if (sorted->empty()) return absl::InvalidArgumentError("no batch was measured");
  if (batch_size < 1) return absl::InvalidArgumentError(absl::StrCat("batch_size is ", batch_size, ", below 1"));

  const BatchMeasurement& smallest = sorted->front();
  const BatchMeasurement& largest = sorted->back();
  const double in_proportion_s =
      smallest.batch_time_s * static_cast<double>(batch_size) / static_cast<double>(smallest.batch_size);
  if (sorted->size() == 1) return in_proportion_s;

  // The pair around the batch size, or the one nearest to it.
  size_t right = 1;
  while (right + 1 < sorted->size() && (*sorted)[right].batch_size < batch_size) ++right;
  const BatchMeasurement& a = (*sorted)[right - 1];
  const BatchMeasurement& b = (*sorted)[right];
  const double slope = (b.batch_time_s - a.batch_time_s) / static_cast<double>(b.batch_size - a.batch_size);
  if (batch_size > largest.batch_size) {
    return b.batch_time_s + std::max(slope, 0.0) * static_cast<double>(batch_size - b.batch_size);
  }
  if (batch_size < smallest.batch_size) {
    return std::max(in_proportion_s,
                    a.batch_time_s - std::max(slope, 0.0) * static_cast<double>(a.batch_size - batch_size));
  }
  if (batch_size == b.batch_size) return b.batch_time_s;
  return a.batch_time_s + slope * static_cast<double>(batch_size - a.batch_size);
}

}  // namespace causeway::scheduler
