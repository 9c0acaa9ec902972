#include "scheduler/bubble_fill.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/layer_schedulers.h"
#include "scheduler/test_layers.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LayerSchedule Filled(const LayerTimes& times, const LayerSchedule& schedule, FillRule rule) {
  const absl::StatusOr<LayerSchedule> filled = FillBubbles(times, schedule, rule);
  EXPECT_TRUE(filled.ok()) << filled.status();
  return *filled;
}

TEST(BubbleFillTest, WorkedExamples) {
  const LayerTimes a = MakeTimes({2, 2, 2, 2, 2}, {1, 3, 2, 4, 2});
  EXPECT_THAT(FillOf(Filled(a, MakeSchedule({{5, 4, 3}, {2, 1}}), FillRule::kEnd)),
              ElementsAre(IsEmpty(), ElementsAre(5, 4)));
  // The prefix must start with 6, although 5 alone would fit.
  const LayerTimes b = MakeTimes({1, 2, 1, 2, 1, 3}, {1, 2, 4, 3, 2, 8});
  EXPECT_THAT(FillOf(Filled(b, MakeSchedule({{6}, {5, 4}, {3, 2, 1}}), FillRule::kEnd)),
              ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(BubbleFillTest, BeforeIsStricterThanEnd) {
  const LayerTimes times = MakeTimes({3, 1, 3, 4}, {1, 2, 3, 5});
  const LayerSchedule schedule = MakeSchedule({{4, 3}, {2, 1}});
  EXPECT_THAT(FillOf(Filled(times, schedule, FillRule::kEnd)), ElementsAre(IsEmpty(), ElementsAre(4)));
  EXPECT_THAT(FillOf(Filled(times, schedule, FillRule::kBefore)), ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(BubbleFillTest, AnIterationWithoutLayersIsFilled) {
  const LayerTimes times = MakeTimes({5, 1, 1, 5, 1, 1, 5}, {1, 1, 1, 1, 1, 1, 1});
  const LayerSchedule schedule = MakeSchedule({{7, 6, 5, 4, 3, 2, 1}, {}, {}});
  for (const FillRule rule : {FillRule::kEnd, FillRule::kBefore}) {
    EXPECT_THAT(FillOf(Filled(times, schedule, rule)),
                ElementsAre(IsEmpty(), ElementsAre(7, 6, 5, 4, 3, 2), ElementsAre(7, 6, 5, 4, 3, 2)));
  }
}

TEST(BubbleFillTest, NoneAndARepeatedFill) {
  const LayerTimes times = MakeTimes({2, 2, 2, 2, 2}, {1, 3, 2, 4, 2});
  const LayerSchedule schedule = MakeSchedule({{5, 4, 3}, {2, 1}});
  const LayerSchedule filled = Filled(times, schedule, FillRule::kEnd);
  EXPECT_EQ(Filled(times, filled, FillRule::kEnd), filled);
  EXPECT_EQ(Filled(times, filled, FillRule::kNone), schedule);
}

TEST(BubbleFillTest, RefusesWhatIsNoSchedule) {
  const LayerTimes times = MakeTimes({2, 2}, {1, 1});
  EXPECT_EQ(FillBubbles(times, MakeSchedule({{2}}), FillRule::kEnd).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Schedules of every scheduler: the rules are checked on the times alone.
TEST(BubbleFillTest, IsTheLongestPrefixThatTheRuleAllows) {
  std::mt19937 random(7);
  int filled_count = 0, delayed_count = 0, filled_empty_count = 0;
  for (int i = 0; i < 3000; ++i) {
    const int layers = 1 + random() % 8;
    const LayerTimes times = RandomTimes(layers, 4, 1 + random() % 9, random);
    const LayerScheduler scheduler =
        std::vector{LayerScheduler::kEqual, LayerScheduler::kExact, LayerScheduler::kFree}[random() % 3];
    const absl::StatusOr<ScheduleResult> result = ScheduleLayers(scheduler, times, 1 + random() % 5);
    ASSERT_TRUE(result.ok());
    const int64_t backward_ns = times.total_backward_ns();
    for (const FillRule rule : {FillRule::kEnd, FillRule::kBefore}) {
      const LayerSchedule filled = Filled(times, result->schedule, rule);
      ASSERT_TRUE(Validate(filled, layers).ok()) << Validate(filled, layers);
      EXPECT_EQ(LayersOf(filled), LayersOf(result->schedule));
      EXPECT_EQ(TimeSchedule(times, filled)->objective_ns, result->objective_ns) << "instance " << i;
      for (const ScheduledIteration& iteration : filled.iterations) {
        const auto allowed = [&](const std::vector<int>& fill) {
          const int64_t without_ns = std::max(backward_ns, CommEndNs(times, iteration.layers));
          const int64_t with_ns = std::max(backward_ns, CommEndNs(times, SynchronizedLayers({iteration.layers, fill})));
          if (with_ns > without_ns) return false;
          return rule == FillRule::kEnd || iteration.layers.empty() ||
                 CommEndNs(times, fill) <= times.backward_end_ns(iteration.layers.front());
        };
        EXPECT_TRUE(iteration.fill.empty() || allowed(iteration.fill)) << "instance " << i;
        std::vector<int> longer = iteration.fill;
        longer.push_back(layers - static_cast<int>(longer.size()));
        if (longer.back() > (iteration.layers.empty() ? 0 : iteration.layers.front())) {
          EXPECT_FALSE(allowed(longer)) << "instance " << i;
        }
        filled_count += iteration.fill.empty() ? 0 : 1;
        filled_empty_count += !iteration.fill.empty() && iteration.layers.empty() ? 1 : 0;
        if (!iteration.fill.empty() && !iteration.layers.empty()) {
          delayed_count += CommEndNs(times, iteration.fill) > times.backward_end_ns(iteration.layers.front()) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(filled_count, 1000);
  EXPECT_GT(filled_empty_count, 100);
  EXPECT_GT(delayed_count, 100);
}

TEST(FillRuleTest, NamesReadBack) {
  for (const FillRule rule : {FillRule::kNone, FillRule::kEnd, FillRule::kBefore}) {
    EXPECT_EQ(*FillRuleFromName(FillRuleName(rule)), rule);
  }
  EXPECT_EQ(FillRuleFromName("after").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace causeway::scheduler
