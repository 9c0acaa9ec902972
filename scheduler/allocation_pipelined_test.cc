#include "scheduler/allocation_pipelined.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler::internal {
namespace {

using ::testing::ElementsAre;

TEST(SolvePipelinedTest, ByHand) {
  // Four samples take either device 4 + 2 * (3 + 2); five take the first 5 + 2 * (6 + 2).
  const PartyProblem even =
      MakeParties(MakeProblem({{1, 4, 3, 2}, {1, 4, 3, 2}}, 8, 2, AllocationObjective::kPipelined));
  EXPECT_NEAR(SolvePipelined(even).total_s, 14, 1e-9);
  EXPECT_THAT(SolvePipelined(even).samples, ElementsAre(4, 4));
  // A device whose communication alone is longer takes no part.
  const PartyProblem far =
      MakeParties(MakeProblem({{1, 4, 3, 2}, {1, 4, 3, 20}}, 8, 2, AllocationObjective::kPipelined));
  EXPECT_NEAR(SolvePipelined(far).total_s, 8 + 2 * (6 + 2), 1e-9);
  EXPECT_THAT(SolvePipelined(far).samples, ElementsAre(8, 0));
}

// Who gets data early computes while others are still being sent to: less than any barrier allows.
TEST(SolvePipelinedTest, OverlapsSendingWithTraining) {
  AllocationProblem problem = MakeProblem({{1, 1, 1, 1}, {9, 1, 0.1, 1}}, 40, 3, AllocationObjective::kPipelined);
  const PartyProblem parties = MakeParties(problem);
  const std::vector<int64_t> samples = SolvePipelined(parties).samples;
  // 4 and 9.3 s a sample, beside 3 s of communication: 28 and 12 of them.
  EXPECT_THAT(samples, ElementsAre(28, 12));
  EXPECT_NEAR(TotalSeconds(parties, samples), 115, 1e-9);
  problem.objective = AllocationObjective::kBarrier;
  EXPECT_GT(Evaluate(problem, {samples})->total_s, 115 + 20);
}

double EnumeratedTotal(const PartyProblem& problem, std::vector<int64_t>* samples, size_t party, int64_t left) {
  const int64_t limit = problem.parties[party].limit;
  if (party + 1 == problem.parties.size()) {
    (*samples)[party] = left;
    return left <= limit ? TotalSeconds(problem, *samples) : std::numeric_limits<double>::infinity();
  }
  double best = std::numeric_limits<double>::infinity();
  for (int64_t n = 0; n <= std::min(left, limit); ++n) {
    (*samples)[party] = n;
    best = std::min(best, EnumeratedTotal(problem, samples, party + 1, left - n));
  }
  return best;
}

// Where the coordinator's link is the narrowest, so that fewer participants than devices are best, and some read locally.
TEST(SolvePipelinedTest, EqualsFullEnumerationWhereFewTakePart) {
  std::mt19937 random(20240605);
  const auto draw = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  int idle = 0;
  for (int n = 0; n < 500; ++n) {
    PartyProblem problem{.samples = draw(3, 9),
                         .epochs = draw(1, 3) / 2.0,
                         .rounds_per_epoch = 1,
                         .objective = AllocationObjective::kPipelined,
                         .egress_send_s = draw(0, 4) * 0.3,
                         .egress_model_s = draw(1, 4) * 0.3};
    for (int i = 0; i < 6; ++i) {
      const bool local = draw(0, 1) == 0;
      problem.parties.push_back({.members = {},
                                 .send_s = local ? 0 : draw(1, 9) * 0.1,
                                 .down_s = draw(1, 9) * 0.1,
                                 .up_s = draw(1, 9) * 0.1,
                                 .step_s = draw(1, 9) * 0.3,
                                 .batch_size = draw(1, 3),
                                 .limit = draw(2, problem.samples),
                                 .local = local});
    }
    std::vector<int64_t> samples(6);
    const double expected = EnumeratedTotal(problem, &samples, 0, problem.samples);
    const ParticipantsSolution solution = SolvePipelined(problem);
    ASSERT_NEAR(solution.total_s, expected, 1e-11 * expected) << n;
    ASSERT_NEAR(TotalSeconds(problem, solution.samples), expected, 1e-11 * expected) << n;
    ASSERT_EQ(std::accumulate(solution.samples.begin(), solution.samples.end(), int64_t{0}), problem.samples);
    ASSERT_LE(FractionalPipelinedSeconds(problem), expected * (1 + 1e-12)) << n;
    idle += static_cast<int>(std::count(solution.samples.begin(), solution.samples.end(), 0));
  }
  EXPECT_GT(idle, 500);
}

TEST(FractionalPipelinedTest, ByHand) {
  // 4.1 and 9.3 s a sample beside 3 s.
  const PartyProblem parties =
      MakeParties(MakeProblem({{1, 10, 10, 1}, {9, 10, 1, 1}}, 41, 3, AllocationObjective::kPipelined));
  EXPECT_NEAR(FractionalPipelinedSeconds(parties), 3 + 41 / (1 / 4.0 + 1 / 9.3), 1e-9);
}

TEST(FractionalPipelinedTest, RangesOfParticipants) {
  PartyProblem problem{.samples = 12,
                       .epochs = 1,
                       .rounds_per_epoch = 1,
                       .objective = AllocationObjective::kPipelined,
                       .egress_model_s = 1};
  for (int i = 0; i < 3; ++i) {
    problem.parties.push_back({.members = {}, .send_s = 1, .step_s = 1, .batch_size = 1, .limit = 6});
  }
  EXPECT_NEAR(FractionalPipelinedSeconds(problem, 3, 3), 6 + 4 * 2, 1e-9);
  EXPECT_NEAR(FractionalPipelinedSeconds(problem, 1, 3), 2 + 4 * 2, 1e-9);
  EXPECT_NEAR(FractionalPipelinedSeconds(problem, 2, 2), 4 + 6 * 2, 1e-9);
  EXPECT_EQ(FractionalPipelinedSeconds(problem, 1, 1), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(FractionalPipelinedSeconds(problem), 14, 1e-9);
}

// Each sample more is found at its own total, also where the steps are far below the resolution of the rest.
TEST(SolvePipelinedTest, RoundedTotalsLoseNoSample) {
  for (int64_t samples = 1; samples <= 400; ++samples) {
    const PartyProblem parties =
        MakeParties(MakeProblem({{0.1, 3, 0.7, 0.3}}, samples, 1, AllocationObjective::kPipelined));
    ASSERT_THAT(SolvePipelined(parties).samples, ElementsAre(samples));
  }
  for (int64_t samples = 1; samples <= 120; ++samples) {
    const PartyProblem two = MakeParties(
        MakeProblem({{0.1, 3, 0.7, 0.3}, {0.3, 7, 0.9, 0.1}}, samples, 0.3, AllocationObjective::kPipelined));
    std::vector<int64_t> split(2);
    ASSERT_EQ(SolvePipelined(two).total_s, EnumeratedTotal(two, &split, 0, samples)) << samples;
  }
  // Without sending there is nothing between whole batches.
  std::mt19937 random(6);
  const auto draw = [&] { return std::uniform_real_distribution<double>(0.1, 1)(random); };
  for (int n = 0; n < 500; ++n) {
    PartyProblem local{
        .samples = 40, .epochs = draw(), .rounds_per_epoch = 1, .objective = AllocationObjective::kPipelined};
    for (int64_t batch_size : {2, 3}) {
      local.parties.push_back({.members = {}, .step_s = draw(), .batch_size = batch_size, .limit = 40, .local = true});
    }
    std::vector<int64_t> split(2);
    ASSERT_EQ(SolvePipelined(local).total_s, EnumeratedTotal(local, &split, 0, 40)) << n;
  }
  const PartyProblem tiny = MakeParties(
      MakeProblem({{1e-12, 1, 1e-13, 1e4}, {1e-12, 1, 1e-13, 1e4}}, 1001, 1, AllocationObjective::kPipelined));
  const std::vector<int64_t> samples = SolvePipelined(tiny).samples;
  EXPECT_EQ(samples[0] + samples[1], 1001);
}

}  // namespace
}  // namespace causeway::scheduler::internal
