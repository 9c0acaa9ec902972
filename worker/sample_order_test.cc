#include "worker/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

using ::testing::ElementsAre;

SampleRanges Ranges(std::vector<std::pair<int64_t, int64_t>> pairs) {
  SampleRanges ranges;
  for (const auto& [begin, end] : pairs) {
    v1::SampleRange* range = ranges.Add();
    range->set_begin(begin);
    range->set_end(end);
  }
  return ranges;
}

TEST(SampleOrderTest, CountsAndListsRanges) {
  const SampleRanges ranges = Ranges({{10, 12}, {5, 5}, {0, 1}});
  EXPECT_THAT(CountSamples(ranges), IsOkAndHolds(3));
  EXPECT_THAT(ListSamples(ranges), ElementsAre(10, 11, 0));
  EXPECT_THAT(CountSamples(Ranges({{2, 1}})), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CountSamples(Ranges({{-1, 1}})), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SampleOrderTest, OrderIsAPermutationOfTheShard) {
  const SampleRanges ranges = Ranges({{100, 150}, {7, 9}});
  std::vector<int64_t> order = EpochOrder(ranges, 1, "job", "a1", 0);
  EXPECT_NE(order, ListSamples(ranges));
  std::vector<int64_t> all = ListSamples(ranges);
  std::sort(order.begin(), order.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(order, all);
}

TEST(SampleOrderTest, OrderDependsOnSeedJobWorkerAndEpochAlone) {
  const SampleRanges ranges = Ranges({{0, 50}});
  const std::vector<int64_t> order = EpochOrder(ranges, 1, "job", "a1", 3);
  EXPECT_EQ(EpochOrder(ranges, 1, "job", "a1", 3), order);
  EXPECT_NE(EpochOrder(ranges, 2, "job", "a1", 3), order);
  EXPECT_NE(EpochOrder(ranges, 1, "job2", "a1", 3), order);
  EXPECT_NE(EpochOrder(ranges, 1, "job", "a2", 3), order);
  EXPECT_NE(EpochOrder(ranges, 1, "job", "a1", 4), order);
}

// Frozen: another order would make a restarted or upgraded worker see some samples twice and others never.
TEST(SampleOrderTest, OrderIsFrozen) {
  EXPECT_THAT(EpochOrder(Ranges({{0, 8}}), 1, "fashion", "lab-1", 0), ElementsAre(1, 0, 5, 4, 3, 7, 2, 6));
}

TEST(StepBatchesTest, LastBatchOfTheEpochTakesWhatIsLeft) {
  EXPECT_THAT(StepBatches(0, 3, 4, 10, 1),
              IsOkAndHolds(ElementsAre(BatchRange{0, 4, 4}, BatchRange{4, 8, 4}, BatchRange{8, 10, 2})));
  EXPECT_THAT(StepBatches(1, 2, 4, 10, 1), IsOkAndHolds(ElementsAre(BatchRange{4, 8, 4})));
  EXPECT_THAT(StepBatches(1, 1, 4, 10, 1), IsOkAndHolds(ElementsAre()));
  EXPECT_THAT(StepBatches(2, 3, 4, 9, 1), IsOkAndHolds(ElementsAre(BatchRange{8, 9, 1})));
}

TEST(StepBatchesTest, NoBatchOfOneUnderBatchNormalization) {
  // 9 = 4 + 4 + 1: the last five are cut again.
  EXPECT_THAT(StepBatches(0, 3, 4, 9, 2),
              IsOkAndHolds(ElementsAre(BatchRange{0, 4, 4}, BatchRange{4, 7, 3}, BatchRange{7, 9, 2})));
  // 5 = 2 + 2 + 1: three cannot be two batches.
  EXPECT_THAT(StepBatches(0, 3, 2, 5, 2), IsOkAndHolds(ElementsAre(BatchRange{0, 2, 2}, BatchRange{2, 5, 3})));
  // A round that is one sample takes a neighbour along, which does not count.
  EXPECT_THAT(StepBatches(2, 3, 4, 9, 2), IsOkAndHolds(ElementsAre(BatchRange{7, 9, 1})));
}

TEST(StepBatchesTest, RefusesWhatDoesNotFitTheEpoch) {
  EXPECT_THAT(StepBatches(0, 4, 4, 10, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(StepBatches(2, 1, 4, 10, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(StepBatches(-1, 1, 4, 10, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(StepBatches(0, 1, 0, 10, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(StepBatches(0, 1, 1, 10, 2), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(StepBatches(0, 1, 4, 1, 2), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(StepBatchesTest, EveryRoundCoversItsOwnSamples) {
  Random random(42);
  for (int i = 0; i < 2000; ++i) {
    const int64_t min_batch = 1 + static_cast<int64_t>(random.Below(3));
    const int64_t samples = min_batch + static_cast<int64_t>(random.Below(40));
    const int64_t batch_size = min_batch + static_cast<int64_t>(random.Below(10));
    const int64_t steps = (samples + batch_size - 1) / batch_size;
    const int64_t first = static_cast<int64_t>(random.Below(steps));
    const int64_t last = first + 1 + static_cast<int64_t>(random.Below(steps - first));
    SCOPED_TRACE(testing::Message() << first << " " << last << " " << batch_size << " " << samples << " " << min_batch);
    const auto batches = StepBatches(first, last, batch_size, samples, min_batch);
    ASSERT_THAT(batches, IsOk());
    ASSERT_FALSE(batches->empty());
    int64_t position = first * batch_size;
    for (const BatchRange& batch : *batches) {
      const int64_t size = batch.end - batch.begin;
      EXPECT_GE(size, min_batch);
      EXPECT_LT(size, batch_size + min_batch);
      if (batches->size() > 1) {
        EXPECT_EQ(batch.begin, position);
      }
      EXPECT_GE(batch.begin, 0);
      EXPECT_EQ(batch.end, position + batch.counted);
      position = batch.end;
    }
    EXPECT_EQ(position, std::min(last * batch_size, samples));
  }
}

}  // namespace
}  // namespace causeway::worker
