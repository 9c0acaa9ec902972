#include "scheduler/layer_schedule.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/test_layers.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ExpectRefused(const std::vector<LayerProfile>& profiles, const std::string& what) {
  const absl::StatusOr<LayerTimes> times = LayerTimes::Create(profiles);
  EXPECT_EQ(times.status().code(), absl::StatusCode::kInvalidArgument) << what;
  EXPECT_THAT(times.status().message(), HasSubstr(what));
}

TEST(LayerTimesTest, RoundsToTheNearestNanosecondHalvesUpward) {
  const LayerTimes times = MakeTimes({{.name = "a", .t_fp_s = 1.4e-9, .t_bp_s = 2.5e-9, .t_comm_s = 0},
                                      {.name = "b", .t_fp_s = 0, .t_bp_s = 1.6e-9, .t_comm_s = 3}});
  EXPECT_EQ(times.layers(), 2);
  EXPECT_EQ(times.forward_ns(1), 1);
  EXPECT_EQ(times.backward_ns(1), 3);
  EXPECT_EQ(times.backward_ns(2), 2);
  EXPECT_EQ(times.comm_ns(2), 3 * kSecond);
  EXPECT_EQ(times.backward_end_ns(2), 2);
  EXPECT_EQ(times.backward_end_ns(1), 5);
  EXPECT_EQ(times.total_forward_ns(), 1);
  EXPECT_EQ(times.total_backward_ns(), 5);
  EXPECT_EQ(times.total_comm_ns(), 3 * kSecond);
  EXPECT_EQ(ToSeconds(2'500'000'001), 2.500000001);
}

TEST(LayerTimesTest, RefusalsNameLayerAndField) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  std::vector<LayerProfile> profiles = MakeProfiles({1, 1}, {1, 1});
  const auto with = [&](const LayerProfile& second) { return std::vector<LayerProfile>{profiles[0], second}; };
  ExpectRefused({}, "layers");
  ExpectRefused(with({.name = "x", .t_fp_s = -1}), "layer 2 \"x\": t_fp_s is -1");
  ExpectRefused(with({.name = "x", .t_bp_s = nan}), "layer 2 \"x\": t_bp_s is nan");
  ExpectRefused(with({.name = "x", .t_comm_s = infinity}), "layer 2 \"x\": t_comm_s is inf");
  ExpectRefused(with({.name = "x", .t_comm_s = 1.1 * kMaxModelSeconds}), "sum to");
  ExpectRefused(with({.name = "layer1"}), "layer 2 \"layer1\": name is used twice");
  ExpectRefused(with({.name = ""}), "layer 2 \"\": name is empty");
  ExpectRefused(std::vector<LayerProfile>(1'000'000), "there are 1000000, above 4096");
}

TEST(LayerTimesTest, NoSumOverflowsAtTheLimits) {
  std::vector<LayerProfile> profiles;
  for (int i = 0; i < kMaxLayers; ++i) {
    profiles.push_back({.name = absl::StrCat(i), .t_fp_s = 0, .t_bp_s = 0, .t_comm_s = kMaxModelSeconds / kMaxLayers});
  }
  profiles.back().t_bp_s = 0;
  const LayerTimes times = MakeTimes(profiles);
  LayerSchedule schedule;
  schedule.iterations.resize(kMaxPeriod);
  // All layers in one iteration, and as fill in all others.
  for (int layer = kMaxLayers; layer >= 1; --layer) schedule.iterations[0].layers.push_back(layer);
  for (int h = 1; h < kMaxPeriod; ++h) schedule.iterations[h].fill = schedule.iterations[0].layers;
  const absl::StatusOr<ScheduleTiming> timing = TimeSchedule(times, schedule);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_EQ(timing->objective_ns / kMaxPeriod, times.total_comm_ns());
  EXPECT_EQ(timing->objective_ns % kMaxPeriod, 0);
}

TEST(CommEndTest, StallsCount) {
  // Layer 2 ends at 2 and layer 1's backward only at 6: the sum of both averages would be 2, or 3 from layer 2's start.
  const LayerTimes times = MakeTimes({5, 1}, {1, 1});
  EXPECT_EQ(CommEndNs(times, {2, 1}), 7 * kSecond);
  EXPECT_EQ(CommEndNs(times, {2}), 2 * kSecond);
  EXPECT_EQ(CommEndNs(times, {1}), 7 * kSecond);
  EXPECT_EQ(CommEndNs(times, {}), 0);
}

TEST(CommEndTest, EqualsTheClosedForm) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const LayerTimes times = RandomTimes(8, 5, 9, random);
    std::vector<int> layers;
    for (int layer = 8; layer >= 1; --layer) {
      if (random() % 2 != 0) layers.push_back(layer);
    }
    int64_t expected = 0;
    for (const int from : layers) {
      int64_t end = times.backward_end_ns(from);
      for (const int layer : layers) end += layer <= from ? times.comm_ns(layer) : 0;
      expected = std::max(expected, end);
    }
    EXPECT_EQ(CommEndNs(times, layers), expected) << "instance " << i;
  }
}

TEST(TimeScheduleTest, WorkedExampleA) {
  std::vector<LayerProfile> profiles = MakeProfiles({2, 2, 2, 2, 2}, {1, 3, 2, 4, 2});
  profiles[0].t_fp_s = 0.5;
  profiles[3].t_fp_s = 0.25;
  const LayerTimes times = MakeTimes(profiles);
  LayerSchedule schedule = MakeSchedule({{5, 4, 3}, {2, 1}});
  const absl::StatusOr<ScheduleTiming> timing = TimeSchedule(times, schedule);
  ASSERT_TRUE(timing.ok());
  EXPECT_EQ(timing->objective_ns, 22 * kSecond);
  EXPECT_EQ(timing->overflow_ns, 2 * kSecond);
  EXPECT_EQ(timing->period_ns, 22 * kSecond + 2 * 750'000'000);
  EXPECT_EQ(timing->iterations[0].comm_end_ns, 10 * kSecond);
  EXPECT_EQ(timing->iterations[0].exposed_ns, 0);
  EXPECT_EQ(timing->iterations[0].time_ns, 10'750'000'000);
  EXPECT_EQ(timing->iterations[1].comm_end_ns, 12 * kSecond);
  EXPECT_EQ(timing->iterations[1].exposed_ns, 2 * kSecond);
  EXPECT_EQ(timing->iterations[1].time_ns, 12'750'000'000);

  // Fill is timed with the rest: {5, 4} is free, {5, 4, 3} is not.
  schedule.iterations[1].fill = {5, 4};
  EXPECT_EQ(TimeSchedule(times, schedule)->objective_ns, 22 * kSecond);
  schedule.iterations[1].fill = {5, 4, 3};
  EXPECT_EQ(TimeSchedule(times, schedule)->iterations[1].comm_end_ns, 14 * kSecond);
}

TEST(TimeScheduleTest, AnIterationWithoutLayersTakesForwardAndBackward) {
  const LayerTimes times = MakeTimes({2, 3}, {1, 1});
  const absl::StatusOr<ScheduleTiming> timing = TimeSchedule(times, MakeSchedule({{2, 1}, {}}));
  ASSERT_TRUE(timing.ok());
  EXPECT_EQ(timing->iterations[1].comm_end_ns, 0);
  EXPECT_EQ(timing->iterations[1].time_ns, 5 * kSecond);
}

TEST(ValidateScheduleTest, RefusalsSayWhatIsWrong) {
  const auto expect_refused = [](const LayerSchedule& schedule, const std::string& what) {
    const absl::Status status = Validate(schedule, 4);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(status.message(), HasSubstr(what));
  };
  EXPECT_TRUE(Validate(MakeSchedule({{}, {4, 2}, {3, 1}}), 4).ok());
  expect_refused({}, "0 iterations");
  expect_refused(MakeSchedule(std::vector<std::vector<int>>(kMaxPeriod + 1)), "4097 iterations");
  expect_refused(MakeSchedule({{5, 4, 3, 2, 1}}), "iteration 0: there is no layer 5");
  expect_refused(MakeSchedule({{4}, {3, 2, 1, 0}}), "iteration 1: there is no layer 0");
  expect_refused(MakeSchedule({{3, 4, 2, 1}}), "iteration 0: layer 4 is not in backward order");
  expect_refused(MakeSchedule({{4, 4, 3, 2, 1}}), "iteration 0: layer 4 is not in backward order");
  expect_refused(MakeSchedule({{4, 3}, {3, 2, 1}}), "iteration 1: layer 3 is in two iterations");
  expect_refused(MakeSchedule({{4, 3}, {1}}), "layer 2 is in no iteration");
  LayerSchedule schedule = MakeSchedule({{4, 3}, {2, 1}, {}});
  schedule.iterations[1].fill = {4, 3};
  schedule.iterations[2].fill = {4, 3, 2, 1};
  EXPECT_TRUE(Validate(schedule, 4).ok());
  EXPECT_THAT(SynchronizedLayers(schedule.iterations[1]), ElementsAre(4, 3, 2, 1));
  schedule.iterations[1].fill = {4, 3, 2};
  expect_refused(schedule, "iteration 1: the fill has layer 2, not above 2");
  schedule.iterations[1].fill = {3};
  expect_refused(schedule, "iteration 1: the fill has layer 3, not 4");
  schedule.iterations[1].fill = {};
  schedule.iterations[2].fill = {4, 3, 2, 1, 0};
  expect_refused(schedule, "iteration 2: the fill has layer 0");
}

TEST(ScheduleHashTest, TellsSchedulesApartAndNeverChanges) {
  LayerSchedule schedule = MakeSchedule({{5, 4, 3}, {2, 1}});
  const uint64_t hash = ScheduleHash(schedule);
  // FNV-1a of the 32-bit numbers 2, 3, 5, 4, 3, 0, 2, 2, 1, 0.
  EXPECT_EQ(hash, 0x55d6647279a169f7u);
  EXPECT_NE(ScheduleHash(MakeSchedule({{5, 4}, {3, 2, 1}})), hash);
  EXPECT_NE(ScheduleHash(MakeSchedule({{5, 4, 3}, {2, 1}, {}})), hash);
  EXPECT_NE(ScheduleHash(MakeSchedule({{2, 1}, {5, 4, 3}})), hash);
  schedule.iterations[1].fill = {5};
  EXPECT_NE(ScheduleHash(schedule), hash);
}

}  // namespace
}  // namespace causeway::scheduler
