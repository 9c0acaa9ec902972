#include "scheduler/sync_costs.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/bubble_fill.h"
#include "scheduler/test_layers.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SyncCost Cost(SyncMethod method, const LayerTimes& times, const SyncOptions& options) {
  const absl::StatusOr<SyncCost> cost = CostOf(method, times, options);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return *cost;
}

std::vector<MergedLayers> Merged(const LayerTimes& times, double startup_s) {
  const absl::StatusOr<std::vector<MergedLayers>> merged = MergeSmallLayers(times, startup_s);
  EXPECT_TRUE(merged.ok()) << merged.status();
  return *merged;
}

TEST(SyncCostsTest, ByHand) {
  std::vector<LayerProfile> profiles = MakeProfiles({2, 2, 2, 2, 2}, {1, 3, 2, 4, 2});
  profiles[0].t_fp_s = 3;
  profiles[1].t_fp_s = 1;
  const LayerTimes times = MakeTimes(profiles);
  const SyncOptions options = {.period = 2};
  // f = 4, b = 10, c = 12.
  EXPECT_EQ(Cost(SyncMethod::kSsgd, times, options).iteration_s, 26);
  EXPECT_EQ(Cost(SyncMethod::kSsgd, times, options).exposed_s, 12);
  // 5: 2-4, 4: 4-8, 3: 8-10, 2: 10-13, 1: 13-14.
  EXPECT_EQ(Cost(SyncMethod::kWfbp, times, options).iteration_s, 18);
  EXPECT_EQ(Cost(SyncMethod::kWfbp, times, options).exposed_s, 4);
  EXPECT_EQ(Cost(SyncMethod::kFlsgd, times, options).iteration_s, 20);
  EXPECT_EQ(Cost(SyncMethod::kFlsgd, times, options).exposed_s, 6);
  // {5, 4, 3} ends at 10, {2, 1} at 12; equal pieces are the same here.
  EXPECT_EQ(Cost(SyncMethod::kPlsgdEnp, times, options).iteration_s, 15);
  EXPECT_EQ(Cost(SyncMethod::kDreamDdp, times, options).iteration_s, 15);
  EXPECT_EQ(Cost(SyncMethod::kDreamDdp, times, options).exposed_s, 1);
}

TEST(SyncCostsTest, DreamDdpUsesTheGivenScheduler) {
  const LayerTimes times = MakeTimes({1, 3, 1, 3}, {6, 3, 6, 4});
  const auto iteration_s = [&](LayerScheduler scheduler) {
    return Cost(SyncMethod::kDreamDdp, times, {.period = 2, .scheduler = scheduler}).iteration_s;
  };
  EXPECT_EQ(iteration_s(LayerScheduler::kExact), 13.5);
  EXPECT_EQ(iteration_s(LayerScheduler::kDreamDdp), 13.5);
  EXPECT_EQ(iteration_s(LayerScheduler::kFree), 13);
  EXPECT_EQ(iteration_s(LayerScheduler::kEqual), Cost(SyncMethod::kPlsgdEnp, times, {.period = 2}).iteration_s);
}

TEST(SyncCostsTest, OrderOfTheMethods) {
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE(i);
    const LayerTimes times = RandomTimes(1 + random() % 12, 5, 12, random);
    const SyncOptions options = {.period = static_cast<int>(1 + random() % 6),
                                 .startup_s = static_cast<double>(random() % 4)};
    const auto iteration_s = [&](SyncMethod method) { return Cost(method, times, options).iteration_s; };
    const double tolerance_s = 1e-9;
    EXPECT_LE(iteration_s(SyncMethod::kWfbp), iteration_s(SyncMethod::kSsgd) + tolerance_s);
    EXPECT_LE(iteration_s(SyncMethod::kFlsgd), iteration_s(SyncMethod::kSsgd) + tolerance_s);
    EXPECT_LE(iteration_s(SyncMethod::kPlsgdEnp), iteration_s(SyncMethod::kFlsgd) + tolerance_s);
    EXPECT_LE(iteration_s(SyncMethod::kDreamDdp), iteration_s(SyncMethod::kPlsgdEnp) + tolerance_s);
    for (const SyncMethod method :
         {SyncMethod::kSsgd, SyncMethod::kWfbp, SyncMethod::kFlsgd, SyncMethod::kPlsgdEnp, SyncMethod::kDreamDdp}) {
      const SyncCost cost = Cost(method, times, options);
      EXPECT_NEAR(cost.iteration_s, ToSeconds(times.total_forward_ns() + times.total_backward_ns()) + cost.exposed_s,
                  tolerance_s);
    }
    // One iteration a period, nothing merged: all of the overlapping methods are the same.
    const double wfbp_s = Cost(SyncMethod::kWfbp, times, {}).iteration_s;
    EXPECT_EQ(Cost(SyncMethod::kDreamDdp, times, {}).iteration_s, wfbp_s);
    EXPECT_EQ(Cost(SyncMethod::kPlsgdEnp, times, {}).iteration_s, wfbp_s);
  }
}

// The table in docs/planning.md.
TEST(SyncCostsTest, PublishedProfiles) {
  struct Row {
    std::string name;
    int period;
    double ssgd_s, wfbp_s, flsgd_s, plsgd_enp_s, exact_s, free_s;
  };
  for (const Row& row : {Row{"resnet18-32workers", 5, .8424, .8059, .1995, .1780, .1698, .1681},
                         {"gpt2-16workers-1gbit", 10, 5.7312, 5.6709, .6531, .6207, .5990, .5980},
                         {"gpt2-16workers-5gbit", 10, 1.2817, 1.2281, .1851, .1564, .1457, .1363},
                         {"llama2-124m-16workers-10gbit", 10, 1.1851, 1.1347, .1685, .1419, .1297, .1238}}) {
    SCOPED_TRACE(row.name);
    const LayerTimes times = MakeTimes(ReadProfiles(row.name));
    const auto iteration_s = [&](SyncMethod method, LayerScheduler scheduler) {
      return Cost(method, times, {.period = row.period, .scheduler = scheduler}).iteration_s;
    };
    EXPECT_NEAR(iteration_s(SyncMethod::kSsgd, LayerScheduler::kExact), row.ssgd_s, 5.1e-5);
    EXPECT_NEAR(iteration_s(SyncMethod::kWfbp, LayerScheduler::kExact), row.wfbp_s, 5.1e-5);
    EXPECT_NEAR(iteration_s(SyncMethod::kFlsgd, LayerScheduler::kExact), row.flsgd_s, 5.1e-5);
    EXPECT_NEAR(iteration_s(SyncMethod::kPlsgdEnp, LayerScheduler::kExact), row.plsgd_enp_s, 5.1e-5);
    EXPECT_NEAR(iteration_s(SyncMethod::kDreamDdp, LayerScheduler::kExact), row.exact_s, 5.1e-5);
    EXPECT_NEAR(iteration_s(SyncMethod::kDreamDdp, LayerScheduler::kFree), row.free_s, 5.1e-5);
  }
}

TEST(MergeSmallLayersTest, NothingIsMergedWithoutStartup) {
  std::mt19937 random(4);
  for (int i = 0; i < 200; ++i) {
    const LayerTimes times = RandomTimes(7, 5, 9, random);
    const std::vector<MergedLayers> merged = Merged(times, 0);
    ASSERT_EQ(merged.size(), 7u);
    for (int layer = 7; layer >= 1; --layer) {
      EXPECT_EQ(merged[7 - layer], (MergedLayers{.first = layer, .last = layer, .comm_ns = times.comm_ns(layer)}));
    }
    EXPECT_EQ(CommEndNs(times, merged), CommEndNs(times, std::vector<int>{7, 6, 5, 4, 3, 2, 1}));
  }
}

TEST(MergeSmallLayersTest, ByHand) {
  // All but one second of every average is startup. Singly: 3: 1-4, 2: 4-7, 1: 7-10. Merged {2, 1}: 4-8. All: 3-8.
  const LayerTimes times = MakeTimes({1, 1, 1}, {3, 3, 3});
  EXPECT_THAT(Merged(times, 2), ElementsAre(MergedLayers{3, 3, 3 * kSecond}, MergedLayers{2, 1, 4 * kSecond}));
  EXPECT_EQ(Cost(SyncMethod::kWfbp, times, {.startup_s = 2}).iteration_s, 8);
  EXPECT_EQ(Cost(SyncMethod::kWfbp, times, {}).iteration_s, 10);
  // A layer that takes less than startup pays what it takes: 0.
  EXPECT_EQ(Merged(MakeTimes({1, 1}, {0, 3}), 2).size(), 2u);
}

// All ways to merge, each timed from the definition.
int64_t EnumeratedEnd(const LayerTimes& times, int64_t startup_ns) {
  int64_t best = std::numeric_limits<int64_t>::max();
  const int layers = times.layers();
  for (int cuts = 0; cuts < 1 << (layers - 1); ++cuts) {
    int64_t end = 0, startup = 0, rest = 0;
    for (int layer = layers; layer >= 1; --layer) {
      startup = std::max(startup, std::min(startup_ns, times.comm_ns(layer)));
      rest += std::max<int64_t>(0, times.comm_ns(layer) - startup_ns);
      if (layer > 1 && (cuts >> (layer - 2)) % 2 == 0) continue;
      end = std::max(end, times.backward_end_ns(layer)) + startup + rest;
      startup = rest = 0;
    }
    best = std::min(best, end);
  }
  return best;
}

TEST(MergeSmallLayersTest, EndsAsEarlyAsAnyMerging) {
  std::mt19937 random(6);
  int merged_count = 0;
  for (int i = 0; i < 1000; ++i) {
    SCOPED_TRACE(i);
    const int layers = 1 + random() % 8;
    const LayerTimes times = RandomTimes(layers, 3, 8, random);
    const int startup_s = random() % 5;
    const std::vector<MergedLayers> merged = Merged(times, startup_s);
    EXPECT_EQ(CommEndNs(times, merged), EnumeratedEnd(times, startup_s * kSecond));
    int expected = layers;
    for (const MergedLayers& collective : merged) {
      EXPECT_EQ(collective.first, expected);
      EXPECT_GE(collective.first, collective.last);
      expected = collective.last - 1;
      merged_count += collective.first > collective.last ? 1 : 0;
    }
    EXPECT_EQ(expected, 0);
  }
  EXPECT_GT(merged_count, 300);
}

TEST(SyncCostsTest, Refusals) {
  const LayerTimes times = MakeTimes({1}, {1});
  for (const int period : {0, -1, kMaxPeriod + 1}) {
    EXPECT_THAT(CostOf(SyncMethod::kFlsgd, times, {.period = period}).status().message(), HasSubstr("period is"));
  }
  for (const double startup_s : {-1., std::numeric_limits<double>::quiet_NaN(), 1e7}) {
    const absl::Status status = CostOf(SyncMethod::kWfbp, times, {.startup_s = startup_s}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("startup_s is"));
  }
  EXPECT_EQ(SyncMethodFromName("fsdp").status().code(), absl::StatusCode::kInvalidArgument);
  for (const SyncMethod method :
       {SyncMethod::kSsgd, SyncMethod::kWfbp, SyncMethod::kFlsgd, SyncMethod::kPlsgdEnp, SyncMethod::kDreamDdp}) {
    EXPECT_EQ(*SyncMethodFromName(SyncMethodName(method)), method);
  }
}

}  // namespace
}  // namespace causeway::scheduler
