#include "server/log_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace causeway::server {
namespace {

using ::testing::ElementsAre;

// What the lines of `tries` tries in a row stand for.
std::vector<int64_t> Lines(LogBudget* budget, const std::string& key, absl::Time now, int tries) {
  std::vector<int64_t> lines;
  for (int i = 0; i < tries; ++i) {
    if (const int64_t times = budget->Take(key, now); times > 0) lines.push_back(times);
  }
  return lines;
}

TEST(LogBudgetTest, TheFirstOnesThenOneAPeriodThatStandsForTheRest) {
  LogBudget budget({.at_once = 3, .period = absl::Minutes(1)});
  const absl::Time begin = absl::UnixEpoch();
  EXPECT_THAT(Lines(&budget, "w1", begin, 10), ElementsAre(1, 1, 1));
  EXPECT_THAT(Lines(&budget, "w1", begin + absl::Seconds(59), 10), ElementsAre());
  EXPECT_THAT(Lines(&budget, "w1", begin + absl::Seconds(60), 10), ElementsAre(18));
  EXPECT_THAT(Lines(&budget, "w1", begin + absl::Seconds(120), 10), ElementsAre(10));
  EXPECT_THAT(Lines(&budget, "w2", begin + absl::Seconds(120), 1), ElementsAre(1));
}

TEST(LogBudgetTest, AQuietPeriodGivesThemAllAgain) {
  LogBudget budget({.at_once = 3, .period = absl::Minutes(1)});
  const absl::Time begin = absl::UnixEpoch();
  Lines(&budget, "w1", begin, 10);
  EXPECT_THAT(Lines(&budget, "w1", begin + absl::Minutes(5), 1), ElementsAre(8));
  EXPECT_THAT(Lines(&budget, "w1", begin + absl::Minutes(6), 10), ElementsAre(1, 1, 1));
}

TEST(LogBudgetTest, WhoStaysWithinItLosesNothing) {
  LogBudget budget;
  for (int minute = 0; minute < 10; ++minute) {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(budget.Take("w1", absl::UnixEpoch() + absl::Minutes(minute)), 1);
  }
}

}  // namespace
}  // namespace causeway::server
