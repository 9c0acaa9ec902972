#include "cli/period.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Backward takes 4 s, an exchange of both layers 4 s.
PlanInput::SchedulePart TwoLayers(int period) {
  PlanInput::SchedulePart input;
  input.layers = {{.name = "a", .t_fp_s = 1, .t_bp_s = 2, .t_comm_s = 1},
                  {.name = "b", .t_fp_s = 1, .t_bp_s = 2, .t_comm_s = 3}};
  input.options.period = period;
  return input;
}

std::string Gantt(scheduler::SyncMethod method, int period) {
  absl::StatusOr<SimulatedPeriod> simulated = SimulatePeriod(TwoLayers(period), method, /*with_spans=*/true);
  EXPECT_THAT(simulated, IsOk());
  return PeriodGantt(*simulated, 52);
}

TEST(PeriodTest, TakesWhatTheMethodCosts) {
  for (scheduler::SyncMethod method :
       {scheduler::SyncMethod::kSsgd, scheduler::SyncMethod::kWfbp, scheduler::SyncMethod::kFlsgd,
        scheduler::SyncMethod::kPlsgdEnp, scheduler::SyncMethod::kDreamDdp}) {
    for (int period : {1, 2, 7}) {
      absl::StatusOr<SimulatedPeriod> simulated = SimulatePeriod(TwoLayers(period), method, /*with_spans=*/false);
      ASSERT_THAT(simulated, IsOk());
      EXPECT_NEAR(simulated->iteration_s, simulated->planned.iteration_s, 1e-9);
      EXPECT_THAT(simulated->spans, IsEmpty());
    }
  }
}

TEST(PeriodTest, EveryMethodHasAGantt) {
  EXPECT_THAT(Gantt(scheduler::SyncMethod::kSsgd, 5),
              HasSubstr("1 compute |1>>>2>>>2-------1-------                |\n"
                        "  link    |                        2###########1###|\n"));
  EXPECT_THAT(Gantt(scheduler::SyncMethod::kWfbp, 5),
              HasSubstr("1 compute |1>>>>2>>>>2---------1---------          |\n"
                        "  link    |                    2=========#####1####|\n"));
  // The second iteration of the period is as good as empty.
  EXPECT_THAT(Gantt(scheduler::SyncMethod::kDreamDdp, 2), HasSubstr("2 compute |"));
}

TEST(PeriodTest, LongPeriodsAreCut) {
  const std::string text = Gantt(scheduler::SyncMethod::kFlsgd, 40);
  EXPECT_THAT(text, HasSubstr("\n32 compute |"));
  EXPECT_THAT(text, Not(HasSubstr("\n33 compute |")));
  EXPECT_THAT(text, HasSubstr("\nand 8 iterations more\n"));
}

TEST(PeriodTest, TooMuchWork) {
  PlanInput::SchedulePart input;
  for (int i = 0; i < 100; ++i) {
    input.layers.push_back({.name = absl::StrCat(i), .t_fp_s = 1, .t_bp_s = 1, .t_comm_s = 1});
  }
  input.options = {.period = 50, .scheduler = scheduler::LayerScheduler::kBrute};
  EXPECT_THAT(SimulatePeriod(input, scheduler::SyncMethod::kDreamDdp, false),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::cli
