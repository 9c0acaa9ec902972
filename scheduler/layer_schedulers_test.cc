#include "scheduler/layer_schedulers.h"

#include <algorithm>
#include <cmath>
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
using Sets = std::vector<std::vector<int>>;

constexpr LayerScheduler kAll[] = {LayerScheduler::kEqual, LayerScheduler::kDreamDdp, LayerScheduler::kBrute,
                                   LayerScheduler::kExact, LayerScheduler::kFree};

// What the header promises of every result.
ScheduleResult Scheduled(LayerScheduler scheduler, const LayerTimes& times, int period) {
  const absl::StatusOr<ScheduleResult> result = ScheduleLayers(scheduler, times, period);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->schedule.period(), period);
  const absl::StatusOr<ScheduleTiming> timing = TimeSchedule(times, result->schedule);
  EXPECT_TRUE(timing.ok()) << LayerSchedulerName(scheduler) << ": " << timing.status();
  EXPECT_EQ(timing->objective_ns, result->objective_ns) << LayerSchedulerName(scheduler);
  EXPECT_EQ(result->optimal, result->objective_ns == result->lower_bound_ns);
  EXPECT_LE(result->lower_bound_ns, result->objective_ns);
  // Layer 1 can never be hidden.
  EXPECT_GE(result->lower_bound_ns, period * times.total_backward_ns() + times.comm_ns(1));
  int expected = times.layers();
  for (const ScheduledIteration& iteration : result->schedule.iterations) {
    EXPECT_TRUE(iteration.fill.empty());
    if (scheduler == LayerScheduler::kFree) continue;
    for (const int layer : iteration.layers) EXPECT_EQ(layer, expected--) << LayerSchedulerName(scheduler);
  }
  return *result;
}

int64_t SetCost(const LayerTimes& times, const std::vector<int>& set) {
  return std::max(times.total_backward_ns(), CommEndNs(times, set));
}

// The objective over all assignments of layers 1..layer, of which those above are in `sets` already; with `contiguous`
// only those that cut the backward order.
int64_t Enumerate(const LayerTimes& times, bool contiguous, Sets& sets, int layer, size_t first_set) {
  if (layer == 0) {
    int64_t sum = 0;
    for (const std::vector<int>& set : sets) sum += SetCost(times, set);
    return sum;
  }
  int64_t best = std::numeric_limits<int64_t>::max();
  for (size_t h = contiguous ? first_set : 0; h < sets.size(); ++h) {
    sets[h].push_back(layer);
    best = std::min(best, Enumerate(times, contiguous, sets, layer - 1, h));
    sets[h].pop_back();
  }
  return best;
}

int64_t Enumerate(const LayerTimes& times, int period, bool contiguous) {
  Sets sets(period);
  return Enumerate(times, contiguous, sets, times.layers(), 0);
}

// Algorithm 2 word for word, remembering nothing.
class PlainAlgorithm2 {
 public:
  PlainAlgorithm2(const LayerTimes& times, int period) : times_(times), period_(period), sets_(period) {
    Solve(times.layers(), 0);
  }

  int64_t leaves = 0;
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  Sets best;

 private:
  int64_t End(int h) const { return CommEndNs(times_, sets_[h]); }

  void Take(int layer, int h) {
    sets_[h].push_back(layer);
    Solve(layer - 1, h);
    sets_[h].pop_back();
  }

  void Solve(int layer, int h) {
    const int64_t backward_ns = times_.total_backward_ns();
    if (layer == 0) return Add();
    if (h == period_ - 1) {
      const std::vector<int> before = sets_[h];
      for (int rest = layer; rest >= 1; --rest) sets_[h].push_back(rest);
      Add();
      sets_[h] = before;
      return;
    }
    if (sets_[h].empty()) return Take(layer, h);
    sets_[h].push_back(layer);
    const bool hidden = End(h) <= backward_ns;
    sets_[h].pop_back();
    if (hidden) return Take(layer, h);
    if (End(h) > backward_ns) return Solve(layer, h + 1);
    Take(layer, h);
    Solve(layer, h + 1);
  }

  void Add() {
    ++leaves;
    int64_t sum = 0;
    for (const std::vector<int>& set : sets_) sum += SetCost(times_, set);
    if (sum < best_ns) {
      best_ns = sum;
      best = sets_;
    }
  }

  const LayerTimes& times_;
  const int period_;
  Sets sets_;
};

int64_t Binomial(int n, int k) { return k == 0 ? 1 : Binomial(n - 1, k - 1) * n / k; }

struct Golden {
  std::vector<int> b, c;
  int64_t objective_s;
  Sets sets;
  int64_t leaves;
  Sets fill;  // By the rule "end".
};

const std::vector<Golden>& Goldens() {
  static const std::vector<Golden> goldens = {
      {{2, 2, 2, 2, 2}, {1, 3, 2, 4, 2}, 22, {{5, 4, 3}, {2, 1}}, 2, {{}, {5, 4}}},
      {{1, 2, 1, 2, 1, 3}, {1, 2, 4, 3, 2, 8}, 35, {{6}, {5, 4}, {3, 2, 1}}, 2, {{}, {}, {}}},
      {{3, 1, 2, 2, 4, 1}, {2, 5, 3, 1, 6, 2}, 32, {{6, 5, 4, 3}, {2, 1}}, 2, {{}, {6}}},
      {{3, 1, 2, 2, 4, 1}, {2, 5, 3, 1, 6, 2}, 43, {{6, 5, 4}, {3}, {2, 1}}, 3, {{}, {6}, {6}}},
      {std::vector<int>(10, 1),
       std::vector<int>(10, 2),
       35,
       {{10, 9, 8, 7, 6}, {5, 4}, {3, 2, 1}},
       4,
       {{}, {10, 9}, {10, 9, 8}}},
      {std::vector<int>(8, 4),
       {3, 3, 9, 3, 3, 9, 3, 3},
       132,
       {{8, 7, 6, 5, 4}, {3}, {2, 1}, {}},
       4,
       {{}, {8, 7, 6, 5}, {8, 7, 6, 5, 4}, {8, 7, 6, 5, 4}}},
      {{5, 1, 1, 5, 1, 1, 5},
       {1, 1, 1, 1, 1, 1, 1},
       58,
       {{7, 6, 5, 4, 3, 2, 1}, {}, {}},
       2,
       {{}, {7, 6, 5, 4, 3, 2}, {7, 6, 5, 4, 3, 2}}},
  };
  return goldens;
}

TEST(LayerSchedulersTest, GoldenVectors) {
  for (size_t i = 0; i < Goldens().size(); ++i) {
    SCOPED_TRACE(i);
    const Golden& golden = Goldens()[i];
    const LayerTimes times = MakeTimes(golden.b, golden.c);
    const int period = static_cast<int>(golden.sets.size());
    for (const LayerScheduler scheduler : {LayerScheduler::kDreamDdp, LayerScheduler::kBrute, LayerScheduler::kExact}) {
      const ScheduleResult result = Scheduled(scheduler, times, period);
      EXPECT_EQ(result.objective_ns, golden.objective_s * kSecond) << LayerSchedulerName(scheduler);
      EXPECT_TRUE(result.optimal);
    }
    const ScheduleResult dreamddp = Scheduled(LayerScheduler::kDreamDdp, times, period);
    EXPECT_EQ(LayersOf(dreamddp.schedule), golden.sets);
    EXPECT_EQ(dreamddp.candidates, golden.leaves);
    EXPECT_EQ(FillOf(*FillBubbles(times, dreamddp.schedule, FillRule::kEnd)), golden.fill);
  }
}

TEST(LayerSchedulersTest, BackwardOrderMatters) {
  std::vector<int> b = {3, 1, 2, 2, 4, 1}, c = {2, 5, 3, 1, 6, 2};
  std::reverse(b.begin(), b.end());
  std::reverse(c.begin(), c.end());
  EXPECT_EQ(Scheduled(LayerScheduler::kDreamDdp, MakeTimes(b, c), 2).objective_ns, 33 * kSecond);
}

TEST(LayerSchedulersTest, StallsMatter) {
  // Judged by the plain sum of the averages, a cut that costs 29 looks best.
  const LayerTimes times = MakeTimes({3, 2, 4, 1}, {6, 1, 7, 1});
  EXPECT_EQ(Scheduled(LayerScheduler::kDreamDdp, times, 2).objective_ns, 28 * kSecond);
}

TEST(LayerSchedulersTest, BruteCountsEveryCut) {
  std::mt19937 random(3);
  for (const auto& [layers, period] : {std::pair(10, 5), {1, 1}, {1, 6}, {7, 1}, {3, 8}, {12, 3}}) {
    const ScheduleResult result = Scheduled(LayerScheduler::kBrute, RandomTimes(layers, 5, 9, random), period);
    EXPECT_EQ(result.candidates, Binomial(layers + period - 1, period - 1));
  }
  EXPECT_EQ(Scheduled(LayerScheduler::kBrute, RandomTimes(10, 5, 9, random), 5).candidates, 1001);
  EXPECT_EQ(Scheduled(LayerScheduler::kBrute, RandomTimes(30, 5, 9, random), 5).candidates, 46376);
}

TEST(LayerSchedulersTest, ContiguousOnesAgreeWithEnumerationAndEachOther) {
  std::mt19937 random(5);
  for (int i = 0; i < 4000; ++i) {
    SCOPED_TRACE(i);
    const int layers = 1 + random() % 9, period = 1 + random() % 5;
    const LayerTimes times = RandomTimes(layers, 1 + random() % 6, 1 + random() % 12, random);
    const ScheduleResult brute = Scheduled(LayerScheduler::kBrute, times, period);
    const ScheduleResult exact = Scheduled(LayerScheduler::kExact, times, period);
    const ScheduleResult dreamddp = Scheduled(LayerScheduler::kDreamDdp, times, period);
    const ScheduleResult equal = Scheduled(LayerScheduler::kEqual, times, period);
    EXPECT_EQ(exact.objective_ns, brute.objective_ns);
    EXPECT_EQ(dreamddp.objective_ns, brute.objective_ns);
    EXPECT_EQ(equal.lower_bound_ns, brute.objective_ns);
    // The ties, too.
    EXPECT_EQ(exact.schedule, brute.schedule);
    const PlainAlgorithm2 plain(times, period);
    EXPECT_EQ(dreamddp.candidates, plain.leaves);
    EXPECT_EQ(LayersOf(dreamddp.schedule), plain.best);
    if (i % 4 == 0) {
      EXPECT_EQ(brute.objective_ns, Enumerate(times, period, true));
    }
    if (HasFailure()) break;
  }
}

TEST(LayerSchedulersTest, DreamDdpIsExactAtFullSize) {
  std::mt19937 random(11);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    const int period = i < 50 ? 10 : 1 + random() % 140;
    const LayerTimes times = RandomTimes(125, 10, 1 << (random() % 9), random);
    const ScheduleResult dreamddp = Scheduled(LayerScheduler::kDreamDdp, times, period);
    EXPECT_EQ(dreamddp.objective_ns, Scheduled(LayerScheduler::kExact, times, period).objective_ns);
    if (period == 10) {
      EXPECT_LE(dreamddp.candidates, 1 << 9);
    }
  }
}

TEST(LayerSchedulersTest, LeavesAreCountedUpToTheLargestNumber) {
  // Every iteration but the last hides one layer, and forks at the next.
  std::vector<int> b(300, 0);
  b[0] = 100;
  const LayerTimes times = MakeTimes(b, std::vector<int>(300, 60));
  EXPECT_EQ(Scheduled(LayerScheduler::kDreamDdp, times, 63).candidates, int64_t{1} << 62);
  EXPECT_EQ(Scheduled(LayerScheduler::kDreamDdp, times, 64).candidates, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Scheduled(LayerScheduler::kDreamDdp, times, 100).candidates, std::numeric_limits<int64_t>::max());
}

TEST(LayerSchedulersTest, FreeIsNeverWorseAndItsBoundHolds) {
  std::mt19937 random(13);
  int better = 0, best = 0, proven = 0;
  constexpr int kInstances = 800;
  for (int i = 0; i < kInstances; ++i) {
    SCOPED_TRACE(i);
    const int period = 2 + random() % 2;
    const int layers = 2 + random() % (period == 2 ? 6 : 5);
    const LayerTimes times = RandomTimes(layers, 10, 20, random);
    const ScheduleResult exact = Scheduled(LayerScheduler::kExact, times, period);
    const ScheduleResult free = Scheduled(LayerScheduler::kFree, times, period);
    const int64_t optimum = Enumerate(times, period, false);
    EXPECT_LE(free.objective_ns, exact.objective_ns);
    EXPECT_GE(free.objective_ns, optimum);
    EXPECT_LE(free.lower_bound_ns, optimum);
    better += optimum < exact.objective_ns ? 1 : 0;
    best += free.objective_ns == optimum ? 1 : 0;
    proven += free.optimal ? 1 : 0;
  }
  // Neither search nor bound is perfect, but both are good.
  EXPECT_GT(better, kInstances / 20);
  EXPECT_GE(best, kInstances * 99 / 100);
  EXPECT_GE(proven, kInstances * 96 / 100);
}

TEST(LayerSchedulersTest, TheBoundOfFreeIsTightForOneIteration) {
  std::mt19937 random(19);
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(Scheduled(LayerScheduler::kFree, RandomTimes(6, 10, 20, random), 1).optimal) << "instance " << i;
  }
}

TEST(LayerSchedulersTest, FreeBeatsEveryCut) {
  const LayerTimes times = MakeTimes({1, 3, 1, 3}, {6, 3, 6, 4});
  EXPECT_EQ(Scheduled(LayerScheduler::kExact, times, 2).objective_ns, 27 * kSecond);
  EXPECT_EQ(Scheduled(LayerScheduler::kFree, times, 2).objective_ns, 26 * kSecond);
  EXPECT_EQ(TimeSchedule(times, MakeSchedule({{4, 2, 1}, {3}}))->objective_ns, 26 * kSecond);
}

TEST(LayerSchedulersTest, EqualPieces) {
  const LayerTimes ten = MakeTimes(std::vector<int>(10, 1), std::vector<int>(10, 2));
  const ScheduleResult equal = Scheduled(LayerScheduler::kEqual, ten, 3);
  EXPECT_THAT(LayersOf(equal.schedule),
              ElementsAre(ElementsAre(10, 9, 8), ElementsAre(7, 6, 5, 4), ElementsAre(3, 2, 1)));
  EXPECT_EQ(equal.objective_ns, 36 * kSecond);
  EXPECT_EQ(equal.lower_bound_ns, 35 * kSecond);
  EXPECT_FALSE(equal.optimal);
  std::mt19937 random(17);
  for (int i = 0; i < 300; ++i) {
    const int layers = 1 + random() % 20, period = 1 + random() % 30;
    for (const ScheduledIteration& iteration :
         Scheduled(LayerScheduler::kEqual, RandomTimes(layers, 5, 9, random), period).schedule.iterations) {
      const int count = static_cast<int>(iteration.layers.size());
      EXPECT_GE(count, layers / period);
      EXPECT_LE(count, (layers + period - 1) / period);
    }
  }
}

TEST(LayerSchedulersTest, PeriodsBeyondTheLayers) {
  const LayerTimes times = MakeTimes({2, 2}, {5, 5});
  for (const LayerScheduler scheduler : kAll) {
    const ScheduleResult result = Scheduled(scheduler, times, 500);
    EXPECT_EQ(result.objective_ns, (500 * 4 + 3 + 5) * kSecond) << LayerSchedulerName(scheduler);
  }
}

TEST(LayerSchedulersTest, Refusals) {
  const LayerTimes times = MakeTimes({2, 2}, {5, 5});
  for (const LayerScheduler scheduler : kAll) {
    for (const int period : {-1, 0, kMaxPeriod + 1}) {
      const absl::Status status = ScheduleLayers(scheduler, times, period).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), ::testing::HasSubstr("period is"));
    }
    EXPECT_EQ(*LayerSchedulerFromName(LayerSchedulerName(scheduler)), scheduler);
  }
  std::mt19937 random(1);
  EXPECT_EQ(ScheduleBrute(RandomTimes(125, 2, 9, random), 10).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LayerSchedulerFromName("best").status().code(), absl::StatusCode::kInvalidArgument);
}

// The published profiles, against an independent dynamic programme on times rounded to 1e-8 s.
struct Published {
  std::string name;
  int period;
  double mean_s, overflow_s, flsgd_s;
};

std::vector<LayerProfile> ReadRounded(const std::string& name) {
  std::vector<LayerProfile> profiles = ReadProfiles(name);
  for (LayerProfile& profile : profiles) {
    profile.t_bp_s = std::round(profile.t_bp_s * 1e8) / 1e8;
    profile.t_comm_s = std::round(profile.t_comm_s * 1e8) / 1e8;
  }
  return profiles;
}

TEST(LayerSchedulersTest, PublishedProfiles) {
  for (const Published& published : {Published{"resnet18-32workers", 5, .169832, .655246, .199512},
                                     {"gpt2-16workers-1gbit", 10, .598994, 5.101636, .653067},
                                     {"gpt2-16workers-5gbit", 10, .145729, .825028, .185072},
                                     {"llama2-124m-16workers-10gbit", 10, .129717, .741424, .168522}}) {
    SCOPED_TRACE(published.name);
    const LayerTimes times = MakeTimes(ReadRounded(published.name));
    for (const LayerScheduler scheduler : {LayerScheduler::kExact, LayerScheduler::kDreamDdp}) {
      const ScheduleResult result = Scheduled(scheduler, times, published.period);
      const ScheduleTiming timing = *TimeSchedule(times, result.schedule);
      EXPECT_NEAR(ToSeconds(timing.objective_ns) / published.period, published.mean_s, 5.1e-7);
      EXPECT_NEAR(ToSeconds(timing.overflow_ns), published.overflow_s, 5.1e-7);
      EXPECT_TRUE(Validate(*FillBubbles(times, result.schedule, FillRule::kEnd), times.layers()).ok());
    }
    EXPECT_NEAR(ToSeconds(times.total_backward_ns()) + ToSeconds(times.total_comm_ns()) / published.period,
                published.flsgd_s, 5.1e-7);
    const ScheduleResult free = Scheduled(LayerScheduler::kFree, times, published.period);
    EXPECT_LE(free.objective_ns, Scheduled(LayerScheduler::kExact, times, published.period).objective_ns);
  }
}

double OverflowOfExact(const std::vector<LayerProfile>& profiles, int period) {
  const LayerTimes times = MakeTimes(profiles);
  return ToSeconds(TimeSchedule(times, Scheduled(LayerScheduler::kExact, times, period).schedule)->overflow_ns);
}

TEST(LayerSchedulersTest, PublishedSweeps) {
  const std::vector<LayerProfile> all = ReadRounded("resnet18-32workers");
  for (const auto& [layers, overflow_s] :
       {std::pair(10, .01156961), {15, .01160427}, {20, .01395334}, {25, .02487955}, {30, .08826199}}) {
    EXPECT_NEAR(OverflowOfExact({all.begin(), all.begin() + layers}, 5), overflow_s, 1.1e-8) << layers << " layers";
  }
  for (const auto& [bandwidth, overflow_s] :
       {std::pair(1000, .00014427), {100, .00169144}, {10, .27178827}, {1, 3.60598088}}) {
    std::vector<LayerProfile> profiles(all.begin(), all.begin() + 30);
    for (LayerProfile& profile : profiles) profile.t_comm_s *= 20. / bandwidth;
    EXPECT_NEAR(OverflowOfExact(profiles, 5), overflow_s, 1.1e-8 * std::max(1., 20. / bandwidth))
        << "bandwidth " << bandwidth;
  }
}

}  // namespace
}  // namespace causeway::scheduler
