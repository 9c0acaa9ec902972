#include "cli/plan_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(absl::string_view text, bool compare = false, int columns = 80) {
  absl::StatusOr<PlanInput> input = ParsePlanInput(text, "plan.yaml");
  EXPECT_THAT(input, IsOk());
  absl::StatusOr<PlanResult> plan = MakePlanResult(*input, compare);
  EXPECT_THAT(plan, IsOk());
  return PlanText(*plan, columns);
}

constexpr char kCluster[] =
    "schema: causeway.plan-input/1\n"
    "samples: 60\n"
    "sample_bytes: 10\n"
    "model_bytes: 100\n"
    "epochs: 2\n"
    "workers:\n"
    "- {name: w1, bandwidth_bytes_per_s: 100, batch_time_s: 1, batch_size: 1}\n"
    "- {name: w2, site: lab, bandwidth_bytes_per_s: 100, uplink_bytes_per_s: 50, batch_time_s: 1, batch_size: 2}\n"
    "- {name: far, bandwidth_bytes_per_s: 0.001, batch_time_s: 1, batch_size: 2}\n";

constexpr char kLayers[] =
    "schema: causeway.plan-input/1\n"
    "layers:\n"
    "- {name: a, t_fp_s: 0.5, t_bp_s: 2, t_comm_s: 1}\n"
    "- {name: b, t_fp_s: 0.5, t_bp_s: 2, t_comm_s: 3}\n"
    "- {name: c, t_fp_s: 0, t_bp_s: 2, t_comm_s: 2}\n"
    "- {name: d, t_fp_s: 0, t_bp_s: 2, t_comm_s: 4}\n"
    "- {name: \"e\\e[31m\", t_fp_s: 0, t_bp_s: 2, t_comm_s: 2}\n"
    "site_sync: {period: 2}\n";

TEST(PlanTablesTest, Seconds) {
  EXPECT_EQ(FineSeconds(0), "0s");
  EXPECT_EQ(FineSeconds(1.234e-5), "12.3us");
  EXPECT_EQ(FineSeconds(0.012345), "12.35ms");
  EXPECT_EQ(FineSeconds(0.99951), "1.000s");
  EXPECT_EQ(FineSeconds(12.3456), "12.346s");
  EXPECT_EQ(FineSeconds(125), "2m05s");
  EXPECT_EQ(FineSeconds(1e-12), "1e-06us");
}

TEST(PlanTablesTest, WhoGetsWhatAndWhatBinds) {
  const std::string text = TextOf(kCluster);
  EXPECT_THAT(text, HasSubstr("allocation (exact, barrier): 49.900s for 60 samples and 2 epochs\n"
                              "  bound by    compute\n"));
  EXPECT_THAT(text,
              HasSubstr("WORKER  SITE  SAMPLES  BATCH  STEPS/EPOCH  DATA THERE AFTER  COMPUTE/EPOCH  EXCHANGE/EPOCH  "
                        "TOTAL    SETS\n"
                        "w1      -          21      1           21  2.100s            21.000s        2.000s          "
                        "48.100s  epoch\n"
                        "w2      lab        39      2           20  3.900s            20.000s        3.000s          "
                        "49.900s  send, epoch\n"
                        "far     -           0      -            -  -                 -              -               "
                        "-        -\n"));
}

TEST(PlanTablesTest, MethodsOfAllocationSideBySide) {
  EXPECT_THAT(TextOf(kCluster), Not(HasSubstr("ALLOCATION BY")));
  const std::string text = TextOf(kCluster, /*compare=*/true);
  for (const char* method : {"\nexact ", "\nauglag ", "\nuniform ", "\nproportional "}) {
    EXPECT_THAT(text, HasSubstr(method));
  }
}

TEST(PlanTablesTest, WhatIsHiddenAndWhatIsNot) {
  const std::string text = TextOf(kLayers);
  EXPECT_THAT(text, HasSubstr("schedule (dreamddp by exact, period 2): 12.000s an iteration in the mean\n"));
  EXPECT_THAT(text, HasSubstr("  not hidden  2.000s in a period; layer 1 alone costs 1.000s in any schedule\n"
                              "  objective   22.000s, proven optimal for this scheduler; 1 schedules compared\n"));
  EXPECT_THAT(text, HasSubstr("ITERATION  LAYERS  FILLED WITH  TIME     AVERAGING  HIDDEN  NOT HIDDEN\n"
                              "        1  5..3    -            11.000s  8.000s     8.000s  0s\n"
                              "        2  2..1    5..4         13.000s  10.000s    8.000s  2.000s\n"));
  EXPECT_THAT(
      text, HasSubstr("NOT HIDDEN: LAYER  NAME  ITERATION  BACKWARD ENDED  AVERAGED FROM  TO       HIDDEN  NOT HIDDEN\n"
                      "                2  b             2  8.000s          8.000s         11.000s  2.000s  1.000s\n"
                      "                1  a             2  10.000s         11.000s        12.000s  0s      1.000s\n"));
}

TEST(PlanTablesTest, GanttOfAPeriod) {
  // 65 columns for 13 seconds: 5 a second.
  EXPECT_THAT(TextOf(kLayers, false, 77),
              HasSubstr("1 compute |1>>2>5---------4---------3---------2---------1---------          |\n"
                        "  link    |               5=========4===================3=========          |\n"
                        "2 compute |1>>2>5---------4---------3---------2---------1---------          |\n"
                        "  link    |               5=========4===================2=========#####1####|\n"));
}

TEST(PlanTablesTest, LongPeriodsAreCut) {
  const std::string text = TextOf(absl::StrReplaceAll(kLayers, {{"period: 2", "period: 40"}}));
  EXPECT_THAT(text, HasSubstr("\n32 compute |"));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\n33 compute |")), HasSubstr("and 8 iterations more\n")));
}

TEST(PlanTablesTest, NamesDoNotReachTheTerminalRaw) {
  // Nothing of layer 5 is hidden.
  const std::string text = TextOf(absl::StrReplaceAll(kLayers, {{"t_comm_s: 2}\nsite", "t_comm_s: 99}\nsite"}}));
  EXPECT_THAT(text, AllOf(HasSubstr("e\\x1b[31m"), Not(HasSubstr("\x1b"))));
}

TEST(PlanTablesTest, EverythingHidden) {
  const std::string text = TextOf(
      "schema: causeway.plan-input/1\nlayers:\n- {name: a, t_fp_s: 0, t_bp_s: 1, t_comm_s: 0}\n- {name: b, t_fp_s: 0, "
      "t_bp_s: "
      "1, t_comm_s: 1}\n");
  EXPECT_THAT(text, HasSubstr("everything is hidden under backward\n"));
}

constexpr char kGroups[] =
    "schema: causeway.plan-input/1\n"
    "groups:\n"
    "  {parameter_bytes: 6400, sites: 2, workers_per_site: 4, shards: 2, period: 10,\n"
    "   tiers: [{name: gpu, unit_workers: 1, bandwidth_bytes_per_s: 1e3}, {name: site, unit_workers: 4, "
    "bandwidth_bytes_per_s: 100}]}\n";

TEST(PlanTablesTest, Groups) {
  EXPECT_THAT(TextOf(kGroups), HasSubstr("\nfl_hsdp  "));
  const std::string text =
      TextOf(absl::StrReplaceAll(kGroups, {{"period: 10", "period: 10, device_memory_bytes: 1e6"}}), true);
  EXPECT_THAT(text, AllOf(HasSubstr("\nhsdp "), HasSubstr("WHAT FITS, BEST FIRST")));
}

TEST(PlanTablesTest, MethodsSideBySide) {
  const std::string text = TextOf(kLayers, /*compare=*/true);
  EXPECT_THAT(text, HasSubstr("METHOD     ITERATION  NOT HIDDEN  OF THE FASTEST\n"
                              "ssgd       23.000s    12.000s     1.917x\n"));
}

}  // namespace
}  // namespace causeway::cli
