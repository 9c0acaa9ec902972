#include "scheduler/transfer_network.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr double kInf = std::numeric_limits<double>::infinity();

TransferNetwork::Options Net(const std::vector<double>& workers, double coordinator = kInf) {
  TransferNetwork::Options options{.site_of_worker = std::vector<int>(workers.size(), 0),
                                   .sites = {{.bytes_per_s = kInf}},
                                   .coordinator = {.bytes_per_s = coordinator}};
  for (const double rate : workers) options.workers.push_back({.bytes_per_s = rate});
  return options;
}

// (tag, end) of all transfers, in the order in which they end.
std::vector<std::pair<int64_t, double>> RunAll(TransferNetwork& network) {
  std::vector<std::pair<int64_t, double>> ends;
  while (network.NextEvent() < kInf) {
    for (const TransferNetwork::Transfer& t : network.Advance()) ends.emplace_back(t.tag, t.end_s);
  }
  return ends;
}

TEST(TransferNetworkTest, OneAfterTheOtherOnAWorkersLink) {
  TransferNetwork network(Net({10, 5}));
  network.Start(0, 0, 1, 100);
  network.Start(0, 0, 2, 50);
  network.Start(0, 1, 3, 60);
  EXPECT_EQ(network.NextEvent(), 10);
  const std::vector<TransferNetwork::Transfer> ended = network.Advance();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].tag, 1);
  EXPECT_EQ(ended[0].start_s, 0);
  EXPECT_EQ(ended[0].bytes, 100);
  EXPECT_THAT(RunAll(network), ElementsAre(Pair(3, 12), Pair(2, 15)));
}

TEST(TransferNetworkTest, NothingTakesNoTime) {
  TransferNetwork network(Net({10, kInf}, 100));
  network.Start(3, 0, 1, 0);
  EXPECT_EQ(network.NextEvent(), 3);
  EXPECT_THAT(RunAll(network), ElementsAre(Pair(1, 3)));
  TransferNetwork unlimited(Net({kInf}));
  unlimited.Start(4, 0, 1, 1e12);
  EXPECT_THAT(RunAll(unlimited), ElementsAre(Pair(1, 4)));
}

TEST(TransferNetworkTest, SharesInProportionToSize) {
  // 300 + 100 bytes through a link of 10: both end when it has carried all.
  TransferNetwork network(Net({100, 100}, 10));
  network.Start(0, 0, 1, 300);
  network.Start(0, 1, 2, 100);
  EXPECT_THAT(RunAll(network), ElementsAre(Pair(1, 40), Pair(2, 40)));
  // The second can only use 1 byte a second, and the first takes the rest.
  TransferNetwork slow(Net({100, 1}, 10));
  slow.Start(0, 0, 1, 300);
  slow.Start(0, 1, 2, 100);
  EXPECT_THAT(RunAll(slow), ElementsAre(Pair(1, DoubleNear(300 / 9.0, 1e-9)), Pair(2, DoubleNear(100, 1e-9))));
}

TEST(TransferNetworkTest, ASitesLinkIsItsWorkersOnly) {
  TransferNetwork::Options options = Net({100, 100, 100});
  options.site_of_worker = {0, 0, 1};
  options.sites = {{.bytes_per_s = 20}, {.bytes_per_s = kInf}};
  TransferNetwork network(options);
  for (int w = 0; w < 3; ++w) network.Start(0, w, w, 100);
  EXPECT_THAT(RunAll(network), ElementsAre(Pair(2, 1), Pair(0, 10), Pair(1, 10)));
}

TEST(TransferNetworkTest, UnlimitedLinksBesideAFullOne) {
  TransferNetwork::Options options = Net({kInf, kInf});
  options.site_of_worker = {0, 1};
  options.sites = {{.bytes_per_s = 20}, {.bytes_per_s = kInf}};
  TransferNetwork network(options);
  network.Start(0, 0, 1, 100);
  network.Start(0, 1, 2, 100);
  EXPECT_THAT(RunAll(network), ElementsAre(Pair(2, 0), Pair(1, 5)));
  options.coordinator.bytes_per_s = 50;
  TransferNetwork capped(options);
  capped.Start(0, 0, 1, 100);
  capped.Start(0, 1, 2, 100);
  EXPECT_THAT(RunAll(capped), ElementsAre(Pair(2, DoubleNear(100 / 30.0, 1e-9)), Pair(1, DoubleNear(5, 1e-9))));
}

TEST(TransferNetworkTest, RatesChange) {
  TransferNetwork::Options options = Net({10, 10}, 10);
  options.coordinator.curve.Add(10, 2);   // 20 from t = 10.
  options.workers[1].curve.Add(15, 0.1);  // 1 from t = 15.
  TransferNetwork network(options);
  network.Start(0, 0, 1, 200);
  network.Start(0, 1, 2, 200);
  // 50 each by 10, 100 each by 15; then 10 and 1 a second.
  EXPECT_THAT(RunAll(network), ElementsAre(Pair(1, 25), Pair(2, 115)));
  // The same without a shared link.
  options.coordinator = {.bytes_per_s = kInf};
  TransferNetwork alone(options);
  alone.Start(0, 1, 2, 200);
  EXPECT_THAT(RunAll(alone), ElementsAre(Pair(2, 65)));
}

TEST(TransferNetworkTest, CancelReturnsWhatIsLeft) {
  for (const double coordinator : {kInf, 20.0}) {
    TransferNetwork network(Net({10, 10}, coordinator));
    network.Start(0, 0, 1, 100);
    network.Start(0, 0, 2, 40);
    network.Start(0, 0, 3, 30);
    EXPECT_NEAR(network.Cancel(4, 0, 1), 60, 1e-9);
    EXPECT_NEAR(network.Cancel(5, 0, 3), 30, 1e-9);
    EXPECT_EQ(network.Cancel(5, 0, 9), 0);
    EXPECT_THAT(RunAll(network), ElementsAre(Pair(2, DoubleNear(8, 1e-9))));
  }
}

// The same rules from their definition: every link's level by bisection.
std::map<int64_t, double> Oracle(const TransferNetwork::Options& options, const std::vector<double>& bytes) {
  const size_t n = bytes.size();
  std::vector<double> left = bytes;
  std::map<int64_t, double> ends;
  double now = 0;
  while (ends.size() < n) {
    const auto rate_at = [&](size_t i, double level) { return std::min(options.workers[i].At(now), level * bytes[i]); };
    const auto level_of = [&](double capacity, const auto& use) {
      double lo = 0, hi = 1e9;
      for (int step = 0; step < 200; ++step) {
        const double mid = (lo + hi) / 2;
        (use(mid) > capacity ? hi : lo) = mid;
      }
      return lo;
    };
    std::vector<double> site_level;
    for (size_t s = 0; s < options.sites.size(); ++s) {
      site_level.push_back(level_of(options.sites[s].At(now), [&](double level) {
        double sum = 0;
        for (size_t i = 0; i < n; ++i) {
          if (left[i] > 0 && options.site_of_worker[i] == static_cast<int>(s)) sum += rate_at(i, level);
        }
        return sum;
      }));
    }
    const auto limited = [&](size_t i, double level) {
      return rate_at(i, std::min(level, site_level[options.site_of_worker[i]]));
    };
    const double level = level_of(options.coordinator.At(now), [&](double level) {
      double sum = 0;
      for (size_t i = 0; i < n; ++i) sum += left[i] > 0 ? limited(i, level) : 0;
      return sum;
    });
    double step = options.coordinator.curve.NextChange(now) - now;
    for (const LinkRate& link : options.workers) step = std::min(step, link.curve.NextChange(now) - now);
    for (const LinkRate& link : options.sites) step = std::min(step, link.curve.NextChange(now) - now);
    for (size_t i = 0; i < n; ++i) {
      if (left[i] > 0) step = std::min(step, left[i] / limited(i, level));
    }
    for (size_t i = 0; i < n; ++i) {
      if (left[i] <= 0) continue;
      left[i] -= limited(i, level) * step;
      if (left[i] > 1e-7 * bytes[i]) continue;
      left[i] = 0;
      ends[static_cast<int64_t>(i)] = now + step;
    }
    now += step;
  }
  return ends;
}

TEST(TransferNetworkTest, EqualsTheDefinition) {
  std::mt19937 random(11);
  const auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  for (int round = 0; round < 60; ++round) {
    const size_t n = 2 + random() % 6;
    TransferNetwork::Options options;
    std::vector<double> bytes;
    options.sites = {{.bytes_per_s = uniform(5, 40)}, {.bytes_per_s = random() % 2 ? kInf : uniform(5, 40)}};
    options.coordinator.bytes_per_s = random() % 3 ? uniform(5, 60) : kInf;
    for (size_t i = 0; i < n; ++i) {
      options.site_of_worker.push_back(random() % 2);
      options.workers.push_back({.bytes_per_s = uniform(1, 30)});
      bytes.push_back(uniform(1, 100));
    }
    if (round % 3 == 0) {
      options.workers[0].curve.Add(uniform(0, 5), uniform(0.2, 3));
      options.sites[0].curve.Add(uniform(0, 5), uniform(0.2, 3));
      options.coordinator.curve.Add(uniform(0, 5), uniform(0.2, 3));
    }
    const std::map<int64_t, double> expected = Oracle(options, bytes);
    TransferNetwork network(options);
    for (size_t i = 0; i < n; ++i) network.Start(0, static_cast<int>(i), static_cast<int64_t>(i), bytes[i]);
    for (const auto& [tag, end] : RunAll(network)) EXPECT_NEAR(end, expected.at(tag), 1e-5 * end) << "round " << round;
  }
}

}  // namespace
}  // namespace causeway::scheduler
