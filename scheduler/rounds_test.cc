#include "scheduler/rounds.h"

#include <limits>

#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

int64_t StepsInRound(int64_t steps, int64_t rounds, int64_t round) {
  return StepsBeforeRound(steps, rounds, round + 1) - StepsBeforeRound(steps, rounds, round);
}

TEST(RoundsTest, OneRoundHasAllSteps) { EXPECT_EQ(StepsInRound(17, 1, 0), 17); }

TEST(RoundsTest, SpreadsWhatDoesNotDivide) {
  EXPECT_EQ(StepsInRound(5, 3, 0), 1);
  EXPECT_EQ(StepsInRound(5, 3, 1), 2);
  EXPECT_EQ(StepsInRound(5, 3, 2), 2);
  // Fewer steps than rounds: the worker sits rounds out.
  EXPECT_EQ(StepsInRound(1, 3, 0), 0);
  EXPECT_EQ(StepsInRound(1, 3, 1), 0);
  EXPECT_EQ(StepsInRound(1, 3, 2), 1);
}

TEST(RoundsTest, SumsToTheStepsAndDiffersByAtMostOne) {
  for (int64_t steps = 0; steps < 60; ++steps) {
    for (int64_t rounds = 1; rounds < 20; ++rounds) {
      int64_t sum = 0;
      for (int64_t round = 0; round < rounds; ++round) {
        const int64_t now = StepsInRound(steps, rounds, round);
        EXPECT_TRUE(now == steps / rounds || now == steps / rounds + 1);
        sum += now;
      }
      EXPECT_EQ(sum, steps);
    }
  }
}

TEST(RoundsTest, DoesNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(StepsInRound(kMost, 2, 0), kMost / 2);
  EXPECT_EQ(StepsInRound(kMost, 2, 1), kMost / 2 + 1);
  EXPECT_EQ(StepsInRound(kMost, kMost, kMost - 1), 1);
}

}  // namespace
}  // namespace causeway::scheduler
