#include "cli/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kCluster[] =
    "schema: causeway.plan-input/1\n"
    "samples: 60\n"
    "sample_bytes: 10\n"
    "model_bytes: 100\n"
    "epochs: 2\n"
    "workers:\n"
    "- {name: w1, site: a, bandwidth_bytes_per_s: 100, batch_time_s: 1, batch_size: 1}\n"
    "- {name: w2, site: b, bandwidth_bytes_per_s: 100, uplink_bytes_per_s: 50, batch_time_s: 1, batch_size: 2}\n";

constexpr char kLayers[] =
    "layers:\n"
    "- {name: a, t_fp_s: 0.5, t_bp_s: 2, t_comm_s: 1}\n"
    "- {name: b, t_fp_s: 0.5, t_bp_s: 2, t_comm_s: 3}\n"
    "- {name: c, t_fp_s: 0, t_bp_s: 2, t_comm_s: 2}\n"
    "- {name: d, t_fp_s: 0, t_bp_s: 2, t_comm_s: 4}\n"
    "- {name: e, t_fp_s: 0, t_bp_s: 2, t_comm_s: 2}\n"
    "site_sync: {period: 2}\n";

SimulationOutcome Simulated(const std::string& text, bool compare = false, int64_t max_spans = 0) {
  absl::StatusOr<PlanInput> input = ParsePlanInput(text, "plan.yaml");
  EXPECT_THAT(input, IsOk());
  absl::StatusOr<SimulationOutcome> outcome = SimulateInput(*input, {.compare = compare, .max_spans = max_spans});
  EXPECT_THAT(outcome, IsOk());
  return outcome.ok() ? *std::move(outcome) : SimulationOutcome();
}

TEST(SimulationTest, AnUndisturbedJobTakesWhatIsPlanned) {
  for (const char* objective : {"barrier", "pipelined"}) {
    const SimulationOutcome outcome = Simulated(
        absl::StrCat(kCluster, "rounds_per_epoch: 2\nallocation: {objective: ", objective, "}\n"), /*compare=*/true);
    ASSERT_EQ(outcome.runs.size(), 4u);
    for (const SimulatedRun& run : outcome.runs) {
      EXPECT_TRUE(run.result.completed);
      // What is planned is the slowest device's, of an epoch; of single rounds the sum is no more than about that.
      EXPECT_NEAR(run.result.total_s, run.planned_s, 0.05 * run.planned_s) << objective;
      EXPECT_EQ(run.result.rounds.size(), 4u);
    }
  }
  const SimulationOutcome outcome = Simulated(kCluster);
  ASSERT_EQ(outcome.runs.size(), 1u);
  EXPECT_NEAR(outcome.runs[0].result.total_s, 49.9, 1e-9);
  EXPECT_EQ(outcome.runs[0].planned_s, 49.9);
  EXPECT_TRUE(outcome.periods.empty());
}

TEST(SimulationTest, APeriodTakesWhatItsMethodCosts) {
  const SimulationOutcome outcome =
      Simulated(absl::StrCat("schema: causeway.plan-input/1\n", kLayers), /*compare=*/true);
  EXPECT_TRUE(outcome.runs.empty());
  ASSERT_EQ(outcome.periods.size(), 5u);
  EXPECT_EQ(outcome.periods[0].method, scheduler::SyncMethod::kDreamDdp);
  EXPECT_EQ(outcome.periods[0].planned.iteration_s, 12.0);
  for (const SimulatedPeriod& period : outcome.periods) {
    EXPECT_NEAR(period.iteration_s, period.planned.iteration_s, 1e-9 * period.planned.iteration_s);
    EXPECT_GT(period.iteration_s, 11.0);
  }
}

TEST(SimulationTest, SitesInLockStepRunTheModelsLayers) {
  const std::string both = absl::StrReplaceAll(absl::StrCat(kCluster, "allocation: {lock_step_sites: true}\n", kLayers),
                                               {{"site: b", "site: a"}});
  const SimulationOutcome outcome = Simulated(both, false, 1000);
  const SimulatedRun& run = outcome.runs[0];
  ASSERT_EQ(run.job.sites.size(), 1u);
  EXPECT_EQ(run.job.sites[0].program.layers(), 5);
  EXPECT_EQ(run.job.sites[0].program.iterations.size(), 2u);
  EXPECT_GT(run.result.sites[0].collective_s, 0);
  // Its steps compute as long as the measured batch, and exchange besides.
  EXPECT_NEAR(run.result.workers[0].compute_s / static_cast<double>(run.result.workers[0].steps), 1.0, 1e-6);
  EXPECT_GT(run.result.total_s, run.planned_s);
}

TEST(SimulationTest, WhatHappensOnTheWay) {
  const double planned = Simulated(kCluster).runs[0].result.total_s;
  const SimulationOutcome slow =
      Simulated(absl::StrCat(kCluster, "simulation: {changes: [{what: compute, worker: w2, at_s: 5, factor: 0.5}]}\n"));
  EXPECT_GT(slow.runs[0].result.total_s, planned + 10);
  const SimulationOutcome link =
      Simulated(absl::StrCat(kCluster, "simulation: {changes: [{what: egress, at_s: 0, factor: 0.5}]}\n"));
  EXPECT_EQ(link.runs[0].result.total_s, planned);  // It has no limit.
  const SimulationOutcome site = Simulated(
      absl::StrCat(kCluster, "simulation: {changes: [{what: site_uplink, site: b, at_s: 0, factor: 0.5}]}\n"));
  EXPECT_EQ(site.runs[0].job.changes[0].index, 1);
  const SimulationOutcome lost = Simulated(absl::StrCat(
      kCluster, "simulation: {quorum: 0.3, deadline_s: 30, absences: [{worker: w2, stop_s: 10, return_s: 30}]}\n"));
  EXPECT_GT(lost.runs[0].result.workers[1].absent_s, 0);
  const SimulationOutcome jitter = Simulated(absl::StrCat(kCluster, "simulation: {compute_jitter: 0.2, seed: 7}\n"));
  EXPECT_NE(jitter.runs[0].result.total_s, planned);
  EXPECT_EQ(jitter.runs[0].result.total_s,
            Simulated(absl::StrCat(kCluster, "simulation: {compute_jitter: 0.2, seed: 7}\n")).runs[0].result.total_s);
  const SimulationOutcome fragments = Simulated(absl::StrCat(kCluster, "simulation: {fragments: 4, delay: 2}\n"));
  EXPECT_EQ(fragments.runs[0].job.rounds.fragment_bytes.size(), 4u);
  EXPECT_LT(fragments.runs[0].result.total_s, planned);  // The exchange is hidden.
}

TEST(SimulationTest, WhatCannotBeSimulated) {
  absl::StatusOr<PlanInput> input = ParsePlanInput(
      absl::StrReplaceAll(kCluster, {{"samples: 60", "samples: 600000000"}, {"epochs: 2", "epochs: 100"}}),
      "plan.yaml");
  ASSERT_THAT(input, IsOk());
  EXPECT_THAT(SimulateInput(*input, {}), StatusIs(kInvalid, HasSubstr("fewer epochs or larger batches")));
  EXPECT_THAT(SimulateInput(PlanInput(), {}), StatusIs(kInvalid, HasSubstr("nothing to simulate")));
  input = ParsePlanInput(absl::StrCat(kCluster,
                                      "allocation: {lock_step_sites: true}\nlayers: [{name: a, t_fp_s: 0, t_bp_s: 0, "
                                      "t_comm_s: 1}]\n"),
                         "plan.yaml");
  ASSERT_THAT(input, IsOk());
  EXPECT_THAT(SimulateInput(*input, {}), StatusIs(kInvalid, HasSubstr("layers: forward and backward take no time")));
}

TEST(SimulationTest, Documents) {
  const SimulationOutcome outcome = Simulated(absl::StrCat(kCluster, kLayers), /*compare=*/true, /*max_spans=*/1000);
  const Json json = SimulationToJson(outcome);
  EXPECT_EQ(json["job"]["method"], "exact");
  EXPECT_EQ(json["job"]["completed"], true);
  EXPECT_EQ(json["job"]["workers"].size(), 2u);
  EXPECT_EQ(json["job"]["workers"][1]["samples"], 39);
  EXPECT_EQ(json["job"]["rounds"].size(), 2u);
  EXPECT_EQ(json["allocation_methods"].size(), 4u);
  EXPECT_EQ(json["methods"].size(), 5u);
  EXPECT_EQ(json["methods"][0]["method"], "dreamddp");
  const std::string text = SimulationText(outcome, 77);
  EXPECT_THAT(text, AllOf(HasSubstr("job (exact): 49.900s; planned 49.900s, training from "), HasSubstr("\nw2 "),
                          HasSubstr("\nexact "), HasSubstr("\nssgd "), HasSubstr("\n1 compute |")));
  // Backward ends after 11 of 13 seconds, 5 places each.
  EXPECT_THAT(text, HasSubstr("2 compute |1>>2>5---------4---------3---------2---------1---------          |\n"
                              "  link    |               5=========4===================2=========#####1####|\n"));
}

TEST(SimulationTest, TheTraceHasEverySpan) {
  const SimulationOutcome outcome = Simulated(kCluster, false, /*max_spans=*/1000);
  const Json trace = TraceJson(outcome.runs[0]);
  size_t complete = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++complete;
    EXPECT_GT(event["dur"].get<double>(), 0);
  }
  EXPECT_EQ(complete, outcome.runs[0].result.spans.size());
  EXPECT_GT(complete, 82u);  // 41 steps in each of two epochs, and transfers.
  EXPECT_THAT(trace.dump(), AllOf(HasSubstr(R"("name":"w2 compute")"), HasSubstr(R"("name":"process_name")")));
}

}  // namespace
}  // namespace causeway::cli
