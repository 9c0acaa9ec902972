#include "worker/sample_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/random.h"

namespace causeway::worker {

absl::StatusOr<int64_t> CountSamples(const SampleRanges& ranges) {
  int64_t count = 0;
  for (const v1::SampleRange& range : ranges) {
    if (range.begin() < 0 || range.end() < range.begin()) {
      return absl::InvalidArgumentError(
          absl::StrCat("impossible range of samples [", range.begin(), ", ", range.end(), ")"));
    }
    count += range.end() - range.begin();
  }
  return count;
}

std::vector<int64_t> ListSamples(const SampleRanges& ranges) {
  std::vector<int64_t> samples;
  for (const v1::SampleRange& range : ranges) {
    for (int64_t i = range.begin(); i < range.end(); ++i) samples.push_back(i);
  }
  return samples;
}

std::vector<int64_t> EpochOrder(const SampleRanges& ranges, uint64_t job_seed, absl::string_view job,
                                absl::string_view worker, int64_t epoch) {
  std::vector<int64_t> order = ListSamples(ranges);
  Random random(MixSeed(job_seed, {job, worker}, static_cast<uint64_t>(epoch)));
  random.Shuffle(absl::MakeSpan(order));
  return order;
}

absl::StatusOr<std::vector<BatchRange>> StepBatches(int64_t first_step, int64_t last_step, int64_t batch_size,
                                                    int64_t samples, int64_t min_batch) {
  if (batch_size < min_batch || samples < min_batch) {
    return absl::InvalidArgumentError(absl::StrCat("batches of ", batch_size, " over ", samples,
                                                   " samples; the model needs at least ", min_batch, " in a batch"));
  }
  const int64_t steps = samples / batch_size + (samples % batch_size != 0);
  if (first_step < 0 || last_step < first_step || last_step > steps) {
    return absl::InvalidArgumentError(absl::StrCat("steps [", first_step, ", ", last_step, ") of an epoch of ", steps,
                                                   " (", samples, " samples in batches of ", batch_size, ")"));
  }
  std::vector<BatchRange> batches;
  for (int64_t step = first_step; step < last_step; ++step) {
    const int64_t begin = step * batch_size;
    const int64_t end = std::min(begin + batch_size, samples);
    batches.push_back({begin, end, end - begin});
  }
  if (batches.empty() || batches.back().counted >= min_batch) return batches;

  const BatchRange small = batches.back();
  if (batches.size() == 1) {
    batches.back().begin = small.end - min_batch;
    return batches;
  }
  batches.pop_back();
  const int64_t begin = batches.back().begin;
  const int64_t total = small.end - begin;
  if (total < 2 * min_batch) {
    batches.back() = {begin, small.end, total};
    return batches;
  }
  const int64_t middle = begin + (total + 1) / 2;
  batches.back() = {begin, middle, middle - begin};
  batches.push_back({middle, small.end, small.end - middle});
  return batches;
}

}  // namespace causeway::worker
