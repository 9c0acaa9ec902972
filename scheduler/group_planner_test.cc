#include "scheduler/group_planner.h"

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Four workers a node, eight nodes a rack.
Network ThreeTiers() {
  return {{{.name = "worker", .unit_workers = 1, .bandwidth_bytes_per_s = 300, .latency_s = 0.001},
           {.name = "node", .unit_workers = 4, .bandwidth_bytes_per_s = 50, .latency_s = 0.01},
           {.name = "rack", .unit_workers = 32, .bandwidth_bytes_per_s = 100, .latency_s = 0.1}}};
}

GroupCost Cost(const GroupLayout& layout, const GroupModel& model, const Network& network = ThreeTiers(),
               SiteExchange exchange = SiteExchange::kAllReduce) {
  const absl::StatusOr<GroupCost> cost = CostOfGroups(layout, model, network, exchange);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return cost.ok() ? *cost : GroupCost();
}

TEST(GroupRankTest, EightWorkersInTwoSites) {
  const GroupLayout layout{.sites = 2, .workers_per_site = 4, .shards = 4};
  EXPECT_THAT(AveragingGroup(layout, 0), ElementsAre(0, 4));
  EXPECT_THAT(AveragingGroup(layout, 5), ElementsAre(1, 5));
  EXPECT_THAT(AveragingGroup(layout, 2), ElementsAre(2, 6));
  EXPECT_THAT(AveragingGroup(layout, 7), ElementsAre(3, 7));
  EXPECT_THAT(ShardGroup(layout, 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ReplicaGroup(layout, 6), ElementsAre(6));
}

TEST(GroupRankTest, SitesOfTwoReplicas) {
  const GroupLayout layout{.sites = 3, .workers_per_site = 6, .shards = 3};
  EXPECT_EQ(RankOf(layout, {.site = 1, .replica = 1, .shard = 2}), 11);
  EXPECT_THAT(ShardGroup(layout, 10), ElementsAre(9, 10, 11));
  EXPECT_THAT(ReplicaGroup(layout, 10), ElementsAre(7, 10));
  EXPECT_THAT(SiteGroup(layout, 10), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(AveragingGroup(layout, 10), ElementsAre(4, 10, 16));
}

// Each family of groups divides the workers; a rank's place leads back to it; and averaging, done on ranks themselves, gives
// each worker the mean of its own shard and replica over the sites.
TEST(GroupRankTest, GroupsDivideTheWorkers) {
  for (const GroupLayout& layout : {GroupLayout{.sites = 4, .workers_per_site = 12, .shards = 3},
                                    GroupLayout{.sites = 1, .workers_per_site = 8, .shards = 8},
                                    GroupLayout{.sites = 5, .workers_per_site = 1, .shards = 1},
                                    GroupLayout{.sites = 2, .workers_per_site = 6, .shards = 1}}) {
    for (const auto& group_of : {ShardGroup, ReplicaGroup, SiteGroup, AveragingGroup}) {
      std::set<int64_t> seen;
      for (int64_t rank = 0; rank < layout.workers(); ++rank) {
        EXPECT_EQ(RankOf(layout, PlaceOf(layout, rank)), rank);
        const std::vector<int64_t> group = group_of(layout, rank);
        EXPECT_THAT(group, testing::Contains(rank));
        for (const int64_t member : group) EXPECT_EQ(group_of(layout, member), group);
        if (group.front() == rank) seen.insert(group.begin(), group.end());
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), layout.workers());
    }
    for (int64_t rank = 0; rank < layout.workers(); ++rank) {
      const GroupPlace place = PlaceOf(layout, rank);
      for (const int64_t member : AveragingGroup(layout, rank)) {
        EXPECT_EQ(PlaceOf(layout, member).replica, place.replica);
        EXPECT_EQ(PlaceOf(layout, member).shard, place.shard);
      }
      EXPECT_EQ(static_cast<int64_t>(AveragingGroup(layout, rank).size()), layout.sites);
    }
  }
}

TEST(GroupMethodTest, Names) {
  EXPECT_EQ(GroupMethodName({.sites = 1, .workers_per_site = 8, .shards = 8}), "fsdp");
  EXPECT_EQ(GroupMethodName({.sites = 1, .workers_per_site = 8, .shards = 4}), "hsdp");
  EXPECT_EQ(GroupMethodName({.sites = 2, .workers_per_site = 4, .shards = 4}), "fl_fsdp");
  EXPECT_EQ(GroupMethodName({.sites = 2, .workers_per_site = 4, .shards = 2}), "fl_hsdp");
  for (const SiteExchange exchange : {SiteExchange::kAllReduce, SiteExchange::kSplitAllReduce, SiteExchange::kServer}) {
    EXPECT_EQ(*SiteExchangeFromName(SiteExchangeName(exchange)), exchange);
  }
  EXPECT_EQ(SiteExchangeFromName("mail").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GroupCostTest, BytesAreTheFormulas) {
  const double m = 1000;
  const GroupCost fsdp = Cost({.sites = 1, .workers_per_site = 64, .shards = 64}, {.parameter_bytes = m});
  EXPECT_DOUBLE_EQ(fsdp.step_bytes, 3 * 63 / 64.0 * m);
  EXPECT_EQ(fsdp.inter_bytes, 0);
  const GroupCost hsdp = Cost({.sites = 1, .workers_per_site = 64, .shards = 4}, {.parameter_bytes = m});
  EXPECT_DOUBLE_EQ(hsdp.step_bytes, 3 * 3 / 4.0 * m + 2 * 15 / 16.0 * m / 4);
  const GroupCost fl_fsdp =
      Cost({.sites = 4, .workers_per_site = 16, .shards = 16, .period = 5}, {.parameter_bytes = m});
  EXPECT_DOUBLE_EQ(fl_fsdp.intra_bytes, 3 * 15 / 16.0 * m);
  EXPECT_DOUBLE_EQ(fl_fsdp.inter_bytes, 2 * 3 / 4.0 * m / 16);
  EXPECT_DOUBLE_EQ(fl_fsdp.step_bytes, fl_fsdp.intra_bytes + fl_fsdp.inter_bytes / 5);
  const GroupLayout layout{.sites = 4, .workers_per_site = 16, .shards = 4, .period = 2};
  const GroupCost fl_hsdp = Cost(layout, {.parameter_bytes = m});
  EXPECT_DOUBLE_EQ(fl_hsdp.intra_bytes, 3 * 3 / 4.0 * m + 2 * 3 / 4.0 * m / 4);
  EXPECT_DOUBLE_EQ(fl_hsdp.inter_bytes, 2 * 3 / 4.0 * m / 4);
  // Without redundancy, 1/R of the shard between the sites, and what is missing from the other replicas.
  const GroupCost split = Cost(layout, {.parameter_bytes = m}, ThreeTiers(), SiteExchange::kSplitAllReduce);
  EXPECT_DOUBLE_EQ(split.intra_bytes, fl_hsdp.intra_bytes);
  EXPECT_DOUBLE_EQ(split.inter_bytes, 2 * 3 / 4.0 * m / 16 + 3 / 4.0 * m / 4);
  const GroupCost server = Cost(layout, {.parameter_bytes = m}, ThreeTiers(), SiteExchange::kServer);
  EXPECT_DOUBLE_EQ(server.inter_bytes, 2 * m / 16 + 3 / 4.0 * m / 4);
}

TEST(GroupCostTest, OneReplicaIsFsdp) {
  const GroupLayout layout{.sites = 4, .workers_per_site = 16, .shards = 16, .period = 3};
  for (const SiteExchange exchange : {SiteExchange::kAllReduce, SiteExchange::kSplitAllReduce}) {
    const GroupCost cost = Cost(layout, {.parameter_bytes = 7}, ThreeTiers(), exchange);
    EXPECT_EQ(cost.replicate.bytes, 0);
    EXPECT_DOUBLE_EQ(cost.inter_bytes, 2 * 3 / 4.0 * 7 / 16);
  }
}

// PAPERS: 0.23 %, 2.7 % and 2.1 % of the bytes go between the groups.
TEST(GroupCostTest, SharesOfThePublishedSettings) {
  const auto share = [](int64_t sites, int64_t per_site, int64_t shards, int64_t period) {
    return Cost({.sites = sites, .workers_per_site = per_site, .shards = shards, .period = period},
                {.parameter_bytes = 16e9})
        .inter_share;
  };
  EXPECT_THAT(share(8, 64, 64, 4), DoubleNear(0.0023, 0.00005));
  EXPECT_THAT(share(128, 4, 4, 8), DoubleNear(0.027, 0.0005));
  EXPECT_THAT(share(16, 32, 4, 8), DoubleNear(0.021, 0.0005));
}

TEST(CollectiveCostTest, TheSlowestCrossedTierBinds) {
  const Network network = ThreeTiers();
  // Inside a node: only the workers' own links.
  CollectiveCost cost = *CostOfCollective(network, 64, {.members = 4, .stride = 1}, Collective::kAllGather, 400);
  EXPECT_DOUBLE_EQ(cost.bytes, 300);
  EXPECT_DOUBLE_EQ(cost.seconds, 300 / 300.0 + 3 * 0.001);
  EXPECT_EQ(cost.tier, 0);
  EXPECT_EQ(cost.congestion, 1);
  // Half a rack, one ring: each node's link is crossed once.
  cost = *CostOfCollective(network, 64, {.members = 16, .stride = 1}, Collective::kReduceScatter, 160);
  EXPECT_DOUBLE_EQ(cost.bytes, 150);
  EXPECT_DOUBLE_EQ(cost.seconds, 150 / 50.0 + 15 * 0.01);
  EXPECT_EQ(cost.tier, 1);
  // The whole cluster; the racks' links are faster than a node's, but the latency is theirs.
  cost = *CostOfCollective(network, 64, {.members = 64, .stride = 1}, Collective::kAllReduce, 64, 3);
  EXPECT_DOUBLE_EQ(cost.bytes, 126);
  EXPECT_DOUBLE_EQ(cost.seconds, 126 / 50.0 + 3 * 126 * 0.1);
  EXPECT_EQ(cost.tier, 1);
}

TEST(CollectiveCostTest, CollectivesShareTheLinksThatTheyCross) {
  const Network network = ThreeTiers();
  // Sites of one node each, averaging over all 16 nodes: four rings through each node's link, four through each rack's.
  CollectiveCost cost = *CostOfCollective(network, 64, {.members = 16, .stride = 4}, Collective::kAllReduce, 160);
  EXPECT_DOUBLE_EQ(cost.bytes, 300);
  EXPECT_EQ(cost.congestion, 4);
  EXPECT_EQ(cost.tier, 1);
  EXPECT_DOUBLE_EQ(cost.seconds, 4 * 300 / 50.0 + 30 * 0.1);
  // Sites of one rack each: 32 rings through each rack's link, four through a node's.
  cost = *CostOfCollective(network, 64, {.members = 2, .stride = 32}, Collective::kAllReduce, 100);
  EXPECT_DOUBLE_EQ(cost.bytes, 100);
  EXPECT_EQ(cost.congestion, 32);
  EXPECT_EQ(cost.tier, 2);
  EXPECT_DOUBLE_EQ(cost.seconds, 32 * 100 / 100.0 + 2 * 0.1);
}

// Counts the groups through each link from the members themselves.
TEST(CollectiveCostTest, CongestionIsCountedRight) {
  std::mt19937 random(5);
  const auto pick = [&](std::vector<int64_t> values) { return values[random() % values.size()]; };
  for (int round = 0; round < 200; ++round) {
    const CollectiveFamily family{.members = pick({2, 3, 4, 8}), .stride = pick({1, 2, 3, 8})};
    const int64_t workers = family.members * family.stride * pick({1, 2, 3});
    const int64_t unit = pick({2, 3, 4, 6, 16});
    int64_t expected = 0;
    for (int64_t begin = 0; begin < workers; begin += unit) {
      int64_t crossing = 0;
      for (int64_t run = 0; run < workers; run += family.members * family.stride) {
        for (int64_t offset = 0; offset < family.stride; ++offset) {
          int64_t inside = 0;
          for (int64_t j = 0; j < family.members; ++j) {
            const int64_t rank = run + offset + j * family.stride;
            inside += rank >= begin && rank < begin + unit;
          }
          crossing += inside > 0 && inside < family.members;
        }
      }
      expected = std::max(expected, crossing);
    }
    // The second tier is so slow that it binds wherever it is crossed.
    const Network network{{{.name = "own", .unit_workers = 1, .bandwidth_bytes_per_s = 1e9},
                           {.name = "unit", .unit_workers = unit, .bandwidth_bytes_per_s = 1}}};
    const CollectiveCost cost = *CostOfCollective(network, workers, family, Collective::kAllGather, 10);
    EXPECT_EQ(cost.tier == 1 ? cost.congestion : 0, expected)
        << workers << " workers, units of " << unit << ", members " << family.members << ", stride " << family.stride;
  }
}

TEST(GroupCostTest, SecondsAddUpAndOnlyExchangesLeaveASite) {
  const GroupModel model{.parameter_bytes = 6400, .layers = 5};
  const GroupLayout layout{.sites = 16, .workers_per_site = 4, .shards = 4, .period = 4};
  const GroupCost cost = Cost(layout, model);
  EXPECT_EQ(cost.gather.tier, 0);
  EXPECT_EQ(cost.scatter.tier, 0);
  EXPECT_EQ(cost.exchange.tier, 1);
  EXPECT_DOUBLE_EQ(cost.intra_s, 3 * (0.75 * 6400 / 300 + 5 * 3 * 0.001));
  EXPECT_DOUBLE_EQ(cost.inter_s, 4 * (2 * 15 / 16.0 * 1600) / 50 + 5 * 30 * 0.1);
  EXPECT_DOUBLE_EQ(cost.step_s, cost.intra_s + cost.inter_s / 4);
  // Through a server: a node's link carries its four workers' shards, a rack's those of 32; out, and in again.
  const GroupCost server = *CostOfGroups(layout, model, ThreeTiers(), SiteExchange::kServer);
  EXPECT_DOUBLE_EQ(server.inter_s, 2 * (32 * 1600 / 100.0 + 5 * 0.1));
  EXPECT_EQ(server.exchange.tier, 2);
  const GroupCost slow = *CostOfGroups(layout, model, ThreeTiers(), SiteExchange::kServer, 10);
  EXPECT_DOUBLE_EQ(slow.inter_s, 2 * (64 * 1600 / 10.0 + 5 * 0.1));
  EXPECT_EQ(slow.exchange.tier, 3);
}

TEST(GroupCostTest, OneWorkerSendsNothing) {
  const GroupCost cost = Cost({}, {.parameter_bytes = 10});
  EXPECT_EQ(cost.step_bytes, 0);
  EXPECT_EQ(cost.step_s, 0);
  EXPECT_EQ(cost.inter_share, 0);
}

GroupProblem Problem() {
  GroupProblem problem{.workers = 64,
                       .model = {.parameter_bytes = 1000, .state_bytes = 7000, .largest_layer_bytes = 100},
                       .network = ThreeTiers(),
                       .device_memory_bytes = 2200,
                       .max_period = 8,
                       .compute_s = 10};
  return problem;
}

TEST(GroupPlannerTest, TheFastestTierThatHoldsTheModel) {
  const std::vector<GroupChoice> choices = *PlanGroups(Problem());
  // 2200 bytes need four shards; all sharding stays in a node.
  EXPECT_EQ(choices[0].layout.shards, 4);
  EXPECT_EQ(choices[0].layout.workers_per_site, 4);
  EXPECT_EQ(choices[0].memory_bytes, 2100);
  for (const GroupChoice& choice : choices) EXPECT_LE(choice.memory_bytes, 2200);
}

// Written down once more: every layout and every T, T the least within the fraction.
TEST(GroupPlannerTest, EqualsEnumeration) {
  std::mt19937 random(7);
  const auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  for (int round = 0; round < 20; ++round) {
    GroupProblem problem = Problem();
    problem.workers = std::vector<int64_t>{12, 16, 30, 64}[random() % 4];
    problem.device_memory_bytes = uniform(600, 9000);
    problem.max_period = 1 + random() % 10;
    problem.compute_s = uniform(0, 30);
    problem.min_workers_per_site = 1 + random() % 6;
    problem.exchange = random() % 2 ? SiteExchange::kSplitAllReduce : SiteExchange::kAllReduce;
    double best_s = std::numeric_limits<double>::infinity();
    size_t fitting = 0;
    for (int64_t g = 1; g <= problem.workers; ++g) {
      for (int64_t k = problem.min_workers_per_site; k <= problem.workers; ++k) {
        for (int64_t s = 1; s <= k; ++s) {
          if (g * k != problem.workers || k % s != 0 || 8000.0 / s + 100 > problem.device_memory_bytes) continue;
          ++fitting;
          for (int64_t t = 1; t <= problem.max_period; ++t) {
            const GroupCost cost = *CostOfGroups({.sites = g, .workers_per_site = k, .shards = s, .period = t},
                                                 problem.model, problem.network, problem.exchange);
            const bool enough = cost.inter_s / t <= problem.exchange_fraction * (cost.intra_s + problem.compute_s);
            if (!enough && t < problem.max_period) continue;
            best_s = std::min(best_s, cost.step_s);
            break;
          }
        }
      }
    }
    const absl::StatusOr<std::vector<GroupChoice>> choices = PlanGroups(problem);
    if (fitting == 0) {
      EXPECT_EQ(choices.status().code(), absl::StatusCode::kFailedPrecondition);
      continue;
    }
    ASSERT_TRUE(choices.ok()) << choices.status();
    EXPECT_EQ(choices->size(), fitting);
    EXPECT_DOUBLE_EQ(choices->front().cost.step_s, best_s);
    for (const GroupChoice& choice : *choices) EXPECT_LE(choice.layout.period, problem.max_period);
  }
}

TEST(GroupPlannerTest, RaisesThePeriodOnlyAsFarAsItPays) {
  GroupProblem problem = Problem();
  problem.max_period = 1000;
  const GroupChoice choice = PlanGroups(problem)->front();
  const double other_s = choice.cost.intra_s + problem.compute_s;
  EXPECT_GT(choice.layout.period, 1);
  EXPECT_LT(choice.layout.period, 1000);
  EXPECT_LE(choice.cost.inter_s / choice.layout.period, 0.05 * other_s);
  EXPECT_GT(choice.cost.inter_s / (choice.layout.period - 1), 0.05 * other_s);
}

TEST(GroupPlannerTest, NamesWhatIsWrong) {
  const auto error = [](auto&& change) {
    GroupProblem problem = Problem();
    change(problem);
    const absl::Status status = PlanGroups(problem).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error([](auto& p) { p.workers = 0; }), HasSubstr("workers"));
  EXPECT_THAT(error([](auto& p) { p.max_period = 0; }), HasSubstr("max_period"));
  EXPECT_THAT(error([](auto& p) { p.min_workers_per_site = 65; }), HasSubstr("min_workers_per_site"));
  EXPECT_THAT(error([](auto& p) { p.exchange_fraction = 0; }), HasSubstr("exchange_fraction"));
  EXPECT_THAT(error([](auto& p) { p.compute_s = NAN; }), HasSubstr("compute_s"));
  EXPECT_THAT(error([](auto& p) { p.device_memory_bytes = -1; }), HasSubstr("device_memory_bytes"));
  EXPECT_THAT(error([](auto& p) { p.server_bandwidth_bytes_per_s = 0; }), HasSubstr("server_bandwidth"));
  EXPECT_THAT(error([](auto& p) { p.model.parameter_bytes = 0; }), HasSubstr("parameter_bytes"));
  EXPECT_THAT(error([](auto& p) { p.model.state_bytes = INFINITY; }), HasSubstr("state_bytes"));
  EXPECT_THAT(error([](auto& p) { p.model.layers = 0; }), HasSubstr("layers"));
  EXPECT_THAT(error([](auto& p) { p.network.tiers.clear(); }), HasSubstr("tiers"));
  EXPECT_THAT(error([](auto& p) { p.network.tiers[0].unit_workers = 2; }), HasSubstr("\"worker\": unit_workers"));
  EXPECT_THAT(error([](auto& p) { p.network.tiers[2].unit_workers = 6; }), HasSubstr("\"rack\": unit_workers"));
  EXPECT_THAT(error([](auto& p) { p.network.tiers[2].unit_workers = 4; }), HasSubstr("\"rack\": unit_workers"));
  EXPECT_THAT(error([](auto& p) { p.network.tiers[1].bandwidth_bytes_per_s = 0; }), HasSubstr("\"node\": bandwidth"));
  EXPECT_THAT(error([](auto& p) { p.network.tiers[1].latency_s = -1; }), HasSubstr("\"node\": latency_s"));
  EXPECT_THAT(error([](auto& p) { p.network.tiers[1].name = "worker"; }), HasSubstr("twice"));
}

TEST(GroupLayoutTest, NamesWhatIsWrong) {
  const auto error = [](const GroupLayout& layout) { return std::string(Validate(layout).message()); };
  EXPECT_EQ(error({}), "");
  EXPECT_THAT(error({.sites = 0}), HasSubstr("sites"));
  EXPECT_THAT(error({.workers_per_site = -1}), HasSubstr("workers_per_site"));
  EXPECT_THAT(error({.workers_per_site = 6, .shards = 4}), HasSubstr("shards"));
  EXPECT_THAT(error({.period = 0}), HasSubstr("period"));
  EXPECT_THAT(error({.sites = 1000, .workers_per_site = 1000}), HasSubstr("times"));
}

}  // namespace
}  // namespace causeway::scheduler
