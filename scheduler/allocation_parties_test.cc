#include "scheduler/allocation_parties.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler::internal {
namespace {

using ::testing::ElementsAre;

constexpr AllocationObjective kObjectives[] = {AllocationObjective::kSeparable, AllocationObjective::kBarrier,
                                               AllocationObjective::kPipelined};

AllocationProblem TwoSites() {
  AllocationProblem problem{.samples = 1000,
                            .sample_bytes = 10,
                            .model_bytes = 600,
                            .epochs = 2,
                            .rounds_per_epoch = 3,
                            .objective = AllocationObjective::kBarrier,
                            .egress_bytes_per_s = 1000,
                            .lock_step_sites = true};
  problem.devices = {
      {.name = "a1",
       .site = "a",
       .bandwidth_bytes_per_s = 100,
       .batch_time_s = 0.5,
       .batch_size = 30,
       .max_parallel = 30},
      {.name = "b1", .site = "b", .bandwidth_bytes_per_s = 50, .batch_time_s = 2, .batch_size = 8, .max_parallel = 8},
      {.name = "a2",
       .site = "a",
       .bandwidth_bytes_per_s = 20,
       .uplink_bytes_per_s = 40,
       .batch_time_s = 0.4,
       .batch_size = 10,
       .max_parallel = 10}};
  return problem;
}

TEST(MakePartiesTest, ADeviceAlone) {
  AllocationProblem problem = TwoSites();
  problem.lock_step_sites = false;
  problem.devices[1].capacity_samples = 70;
  problem.devices[0].reads_data_locally = true;
  const PartyProblem parties = MakeParties(problem);
  ASSERT_EQ(parties.parties.size(), 3);
  EXPECT_THAT(parties.parties[2].members, ElementsAre(2));
  EXPECT_DOUBLE_EQ(parties.parties[2].send_s, 0.5);
  EXPECT_DOUBLE_EQ(parties.parties[2].down_s, 30);
  EXPECT_DOUBLE_EQ(parties.parties[2].up_s, 15);
  EXPECT_EQ(parties.parties[2].limit, 1000);
  EXPECT_EQ(parties.parties[1].limit, 70);
  EXPECT_TRUE(parties.parties[0].local);
  EXPECT_EQ(parties.parties[0].send_s, 0);
  EXPECT_DOUBLE_EQ(parties.egress_send_s, 0.01);
  EXPECT_DOUBLE_EQ(parties.egress_model_s, 0.6);
}

TEST(MakePartiesTest, ASiteInLockStepIsOneParty) {
  const PartyProblem parties = MakeParties(TwoSites());
  ASSERT_EQ(parties.parties.size(), 2);
  const Party& a = parties.parties[0];
  EXPECT_THAT(a.members, ElementsAre(0, 2));
  EXPECT_EQ(a.batch_size, 40);
  EXPECT_DOUBLE_EQ(a.step_s, 0.5);
  EXPECT_DOUBLE_EQ(a.send_s,
                   0.25 * 0.5);  // A quarter of the samples over a2's link, 3/4 over a1's five times faster one.
  EXPECT_DOUBLE_EQ(a.down_s, 300.0 / 20);  // Half the model each.
  EXPECT_DOUBLE_EQ(a.up_s, 300.0 / 40);
  EXPECT_EQ(a.limit, 1000);
  EXPECT_FALSE(a.local);
  EXPECT_THAT(parties.parties[1].members, ElementsAre(1));

  // 10 samples a second over one link, 2 over the other.
  EXPECT_DOUBLE_EQ(MakeRelaxedParties(TwoSites()).parties[0].send_s, 1.0 / 12);
}

TEST(MakePartiesTest, ASmallMemberLimitsItsSite) {
  AllocationProblem problem = TwoSites();
  problem.devices[2].capacity_samples = 25;
  // Two full steps of 40, and a third in which a2 has 5 left.
  EXPECT_EQ(MakeParties(problem).parties[0].limit, 115);
  EXPECT_EQ(MakeRelaxedParties(problem).parties[0].limit, 1000);
}

TEST(PartyProblemTest, SharedLinkBoundsWhatRunsTogether) {
  const PartyProblem parties = MakeParties(TwoSites());
  const Party& a = parties.parties[0];
  EXPECT_DOUBLE_EQ(parties.CommSeconds(a, 2), 3 * (15 + 7.5));  // 2 * 0.6 is less.
  EXPECT_DOUBLE_EQ(parties.CommSeconds(a, 20), 3 * (15 + 12));
  EXPECT_DOUBLE_EQ(parties.CommSeconds(a, 50), 3 * (30 + 30));
  EXPECT_DOUBLE_EQ(parties.SendSeconds(a, 100, 200), 12.5);
  EXPECT_DOUBLE_EQ(parties.SendSeconds(a, 100, 2000), 20);
  EXPECT_EQ(parties.SendSeconds(a, 0, 2000), 0);
}

// Of every choice of participants.
int64_t MostPlaced(const PartyProblem& problem, const std::vector<int64_t>& caps, int64_t max_participants,
                   int64_t max_sent) {
  int64_t most = 0;
  for (uint32_t chosen = 0; chosen < 1U << caps.size(); ++chosen) {
    int64_t local = 0, sent = 0, count = 0;
    for (size_t i = 0; i < caps.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      ++count;
      (problem.parties[i].local ? local : sent) += caps[i];
    }
    if (count <= max_participants) most = std::max(most, local + std::min(sent, max_sent));
  }
  return most;
}

TEST(PlacementTest, FindsTheBestParticipants) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  int held = 0;
  for (int n = 0; n < 4000; ++n) {
    PartyProblem problem{.samples = draw(1, 40)};
    std::vector<int64_t> caps;
    for (int64_t i = draw(1, 6); i > 0; --i) {
      caps.push_back(std::min(problem.samples, draw(0, 15)));
      problem.parties.push_back({.members = {}, .limit = problem.samples, .local = draw(0, 2) == 0});
    }
    const int64_t max_sent = draw(0, 2) == 0 ? std::numeric_limits<int64_t>::max() : draw(0, 30);
    const int64_t most_participants = draw(1, 6);
    const Placement placement(&problem, most_participants);
    const bool holds = placement.Holds(caps, max_sent);
    ASSERT_EQ(holds, MostPlaced(problem, caps, most_participants, max_sent) >= problem.samples) << n;
    if (!holds) continue;
    ++held;
    const std::vector<int64_t> samples = placement.Fill(caps, max_sent);
    int64_t sum = 0, sent = 0, participants = 0;
    for (size_t i = 0; i < caps.size(); ++i) {
      ASSERT_GE(samples[i], 0) << n;
      ASSERT_LE(samples[i], caps[i]) << n;
      sum += samples[i];
      sent += problem.parties[i].local ? 0 : samples[i];
      participants += samples[i] > 0;
    }
    ASSERT_EQ(sum, problem.samples) << n;
    ASSERT_LE(sent, max_sent) << n;
    ASSERT_LE(participants, most_participants) << n;
  }
  EXPECT_GT(held, 1000);
}

TEST(PlacementTest, FillsInProportionToTheCaps) {
  PartyProblem problem{.samples = 10};
  problem.parties.resize(3);
  EXPECT_THAT(Placement(&problem, 3).Fill({10, 5, 5}, 100), ElementsAre(5, 3, 2));
  EXPECT_THAT(Placement(&problem, 2).Fill({8, 4, 5}, 100), ElementsAre(6, 0, 4));
}

TEST(PlacementTest, SumsOfHugeCapsDoNotOverflow) {
  PartyProblem problem{.samples = kMaxSamples};
  problem.parties.resize(20000);
  const std::vector<int64_t> caps(20000, kMaxSamples);
  const Placement placement(&problem, 20000);
  ASSERT_TRUE(placement.Holds(caps, kMaxSamples));
  const std::vector<int64_t> samples = placement.Fill(caps, kMaxSamples);
  EXPECT_LE(*std::max_element(samples.begin(), samples.end()), kMaxSamples / 20000 + 1);
}

// The solvers' totals are the evaluator's.
TEST(TotalSecondsTest, IsWhatEvaluateSays) {
  std::mt19937 random(4);
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    for (AllocationObjective objective : kObjectives) {
      AllocationProblem problem = MakeLargeProblem(8, 5000, objective, seed);
      if (seed % 2 == 0) problem.egress_bytes_per_s = 3e6;
      if (seed % 3 == 0) problem.devices[2].reads_data_locally = true;
      std::vector<int64_t> samples(8);
      for (int64_t left = 5000, i = 0; left > 0; ++i) {
        const int64_t more = std::min(left, std::uniform_int_distribution<int64_t>(0, 2000)(random));
        samples[i % 8] += more;
        left -= more;
      }
      const PartyProblem parties = MakeParties(problem);
      double constant_s = 0;
      if (objective == AllocationObjective::kSeparable) {
        for (const Party& party : parties.parties) {
          constant_s = std::max(constant_s, problem.epochs * parties.CommSeconds(party, 8));
        }
      }
      EXPECT_DOUBLE_EQ(TotalSeconds(parties, samples) + constant_s, Evaluate(problem, {samples})->total_s) << seed;
    }
  }
}

TEST(PaysNoMoreThanTest, ComparesWhatParticipantsPay) {
  AllocationProblem problem = TwoSites();
  problem.lock_step_sites = false;
  problem.devices[2].uplink_bytes_per_s.reset();
  PartyProblem parties = MakeParties(problem);  // 6, 12 and 30 s each way; the shared link takes 0.6 s for each.
  EXPECT_TRUE(PaysNoMoreThan(parties, {500, 250, 250}, 1));
  parties.egress_model_s = 4;
  EXPECT_TRUE(PaysNoMoreThan(parties, {0, 500, 500}, 1));
  EXPECT_FALSE(PaysNoMoreThan(parties, {500, 500, 0}, 1));  // 8 s rather than 6.
  EXPECT_TRUE(PaysNoMoreThan(parties, {500, 500, 0}, 2));
  EXPECT_TRUE(PaysNoMoreThan(parties, {500, 500, 0}, 3));
}

// A problem whose cost is known for each number of participants; a relaxation has the least of its range, less what more
// participants pay.
TEST(MinimiseOverParticipantsTest, FindsTheBestNumber) {
  std::mt19937 random(5);
  for (int n = 0; n < 500; ++n) {
    const int64_t parties = std::uniform_int_distribution<int64_t>(1, 40)(random);
    std::vector<double> cost(parties + 1);
    for (double& each : cost) each = std::uniform_int_distribution<int>(10, 100)(random);
    int64_t solved = 0;
    const ParticipantsSolution best = MinimiseOverParticipants(parties, [&](int64_t lo, int64_t hi, double upper_s) {
      ++solved;
      RelaxedSolution solution;
      const auto least = std::min_element(cost.begin() + lo, cost.begin() + hi + 1);
      const double bound_s = *least - static_cast<double>(hi - lo) / 10;
      if (bound_s >= upper_s) return solution;
      solution.bound_s = bound_s;
      solution.total_s = cost[hi];
      solution.samples = {hi};
      return solution;
    });
    EXPECT_EQ(best.total_s, *std::min_element(cost.begin() + 1, cost.end()));
    EXPECT_EQ(best.bound_s, best.total_s);
    EXPECT_EQ(cost[best.samples[0]], best.total_s);
    EXPECT_LE(solved, 2 * parties);
  }
}

TEST(ApportionTest, SharesByWeightUnderLimits) {
  EXPECT_THAT(Apportion(10, {10, 10, 10}, {1, 2, 2}), ElementsAre(2, 4, 4));
  EXPECT_THAT(Apportion(10, {10, 3, 10}, {1, 2, 1}), ElementsAre(4, 3, 3));
  EXPECT_THAT(Apportion(10, {0, 10, 10}, {5, 1, 1}), ElementsAre(0, 5, 5));
}

TEST(SplitAmongMembersTest, GivesEachDeviceItsPart) {
  const AllocationProblem problem = TwoSites();
  EXPECT_THAT(SplitAmongMembers(problem, MakeParties(problem), {800, 200}), ElementsAre(600, 200, 200));
}

}  // namespace
}  // namespace causeway::scheduler::internal
