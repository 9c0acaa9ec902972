#include "cli/plan_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

PlanInput MustParse(absl::string_view text) {
  absl::StatusOr<PlanInput> input = ParsePlanInput(text, "plan.yaml");
  EXPECT_THAT(input, IsOk());
  return input.ok() ? *std::move(input) : PlanInput();
}

Json PlanJson(absl::string_view text, bool compare = false) {
  absl::StatusOr<PlanResult> plan = MakePlanResult(MustParse(text), compare);
  EXPECT_THAT(plan, IsOk());
  return plan.ok() ? PlanToJson(*plan) : Json();
}

// Two devices of which the second has twice the speed; by hand: 20 batches of 1 second cost as much as 20 of 2 samples.
constexpr char kCluster[] =
    "schema: causeway.plan-input/1\n"
    "samples: 60\n"
    "sample_bytes: 10\n"
    "model_bytes: 100\n"
    "epochs: 2\n"
    "workers:\n"
    "- {name: w1, bandwidth_bytes_per_s: 100, batch_time_s: 1, batch_size: 1}\n"
    "- {name: w2, bandwidth_bytes_per_s: 100, uplink_bytes_per_s: 50, batch_time_s: 1, batch_size: 2}\n";

// PAPERS: five layers that take 2 s each in backward, two iterations.
constexpr char kLayers[] =
    "schema: causeway.plan-input/1\n"
    "layers:\n"
    "- {name: a, t_fp_s: 0.5, t_bp_s: 2, t_comm_s: 1}\n"
    "- {name: b, t_fp_s: 0.5, t_bp_s: 2, t_comm_s: 3}\n"
    "- {name: c, t_fp_s: 0, t_bp_s: 2, t_comm_s: 2}\n"
    "- {name: d, t_fp_s: 0, t_bp_s: 2, t_comm_s: 4}\n"
    "- {name: e, t_fp_s: 0, t_bp_s: 2, t_comm_s: 2}\n"
    "site_sync: {period: 2}\n";

TEST(PlanResultTest, UniformAllocationByHand) {
  const Json json = PlanJson(absl::StrCat(kCluster, "allocation: {method: uniform}\n"));
  // send = 30 * 10 / 100; compute = 30 / 1 * 1 and 30 / 2 * 1; comm = 100 / 100 + 100 / 100 and 100 / 100 + 100 / 50.
  EXPECT_EQ(
      json["allocation"]["workers"].dump(),
      R"([{"name":"w1","samples":30,"batch_size":1,"steps_per_epoch":30,"send_s":3.0,"compute_s":30.0,"comm_s":2.0,)"
      R"("total_s":67.0},{"name":"w2","samples":30,"batch_size":2,"steps_per_epoch":15,"send_s":3.0,)"
      R"("compute_s":15.0,"comm_s":3.0,"total_s":39.0}])");
  EXPECT_EQ(json["allocation"]["total_s"], 67.0);
  EXPECT_EQ(json["allocation"]["method"], "uniform");
  EXPECT_EQ(json["allocation"]["objective"], "barrier");
  EXPECT_EQ(json["allocation"]["binding"], "compute");
  EXPECT_FALSE(json.contains("schedule"));
  EXPECT_FALSE(json.contains("methods"));
  EXPECT_FALSE(json.contains("allocation_methods"));
}

TEST(PlanResultTest, ExactAllocation) {
  const Json json = PlanJson(kCluster, /*compare=*/true);
  // 20 to w1 and 40 to w2 would cost 4 + 2 * 23 = 50; one more for w1 and less for w2: 3.9 + 2 * max(23, 23).
  EXPECT_EQ(json["allocation"]["total_s"].get<double>(), 3.9 + 2 * 23.0);
  EXPECT_EQ(json["allocation"]["workers"][0]["samples"], 21);
  EXPECT_EQ(json["allocation"]["gap_s"], 0.0);
  EXPECT_LE(json["allocation"]["lower_bound_s"].get<double>(), 49.9);
  ASSERT_EQ(json["allocation_methods"].size(), 4u);
  for (const Json& method : json["allocation_methods"]) EXPECT_GE(method["total_s"].get<double>(), 49.9 - 1e-9);
}

TEST(PlanResultTest, ScheduleOfTheWorkedExample) {
  const Json json = PlanJson(kLayers);
  EXPECT_FALSE(json.contains("allocation"));
  EXPECT_EQ(json["schedule"].dump(),
            R"({"site":null,"method":"dreamddp","scheduler":"exact","period":2,"objective_s":22.0,"overflow_s":2.0,)"
            R"("optimal":true,"lower_bound_s":22.0,"candidates":1,"iterations":[)"
            R"({"layers":[5,4,3],"fill":[],"time_s":11.0,"comm_end_s":10.0,"exposed_s":0.0},)"
            R"({"layers":[2,1],"fill":[5,4],"time_s":13.0,"comm_end_s":12.0,"exposed_s":2.0}]})");
  EXPECT_EQ(json["methods"].dump(), R"([{"method":"dreamddp","iteration_s":12.0,"exposed_s":1.0}])");
}

TEST(PlanResultTest, MethodsSideBySide) {
  const Json json = PlanJson(kLayers, /*compare=*/true);
  ASSERT_EQ(json["methods"].size(), 5u);
  // f = 1, b = 10, c = 12.
  EXPECT_EQ(json["methods"][0].dump(), R"({"method":"ssgd","iteration_s":23.0,"exposed_s":12.0})");
  EXPECT_EQ(json["methods"][1]["method"], "wfbp");
  EXPECT_EQ(json["methods"][2].dump(), R"({"method":"flsgd","iteration_s":17.0,"exposed_s":6.0})");
  EXPECT_EQ(json["methods"][3]["method"], "plsgd_enp");
  EXPECT_EQ(json["methods"][4].dump(), R"({"method":"dreamddp","iteration_s":12.0,"exposed_s":1.0})");
}

TEST(PlanResultTest, PlsgdHasEqualPiecesAndNoFill) {
  const Json json = PlanJson(absl::StrReplaceAll(kLayers, {{"period: 2", "period: 2, method: plsgd_enp"}}));
  EXPECT_EQ(json["schedule"]["method"], "plsgd_enp");
  EXPECT_EQ(json["schedule"]["scheduler"], "equal");
  for (const Json& iteration : json["schedule"]["iterations"]) EXPECT_TRUE(iteration["fill"].empty());
}

TEST(PlanResultTest, AMethodWithoutLayersOfItsOwnHasNoSchedule) {
  const Json json = PlanJson(absl::StrReplaceAll(kLayers, {{"period: 2", "period: 2, method: flsgd"}}));
  EXPECT_FALSE(json.contains("schedule"));
  EXPECT_EQ(json["methods"].size(), 1u);
}

constexpr char kGroups[] =
    "schema: causeway.plan-input/1\n"
    "groups:\n"
    "  {parameter_bytes: 6400, sites: 2, workers_per_site: 4, shards: 2, period: 10,\n"
    "   tiers: [{name: gpu, unit_workers: 1, bandwidth_bytes_per_s: 1e3}, {name: site, unit_workers: 4, "
    "bandwidth_bytes_per_s: 100}]}\n";

TEST(PlanResultTest, GroupsByHand) {
  const Json json = PlanJson(kGroups);
  // Inside: 3 * 6400 * 1/2, and 2 * 6400/2 * 1/2 among the two replicas. Between: 2 * 1/2 * 6400/2, every tenth step.
  const Json& groups = json["groups"];
  EXPECT_EQ(groups["method"], "fl_hsdp");
  EXPECT_EQ(groups["replicas"], 2);
  EXPECT_EQ(groups["intra_bytes"], 9600.0 + 3200.0);
  EXPECT_EQ(groups["inter_bytes"], 3200.0);
  EXPECT_EQ(groups["step_bytes"], 12800.0 + 320.0);
  // Four workers exchange through their site's link at the same time.
  EXPECT_EQ(groups["inter_s"], 4 * 3200.0 / 100);
  EXPECT_EQ(json.size(), 1u);
}

TEST(PlanResultTest, GroupMethodsSideBySideAndWhatFits) {
  const Json json = PlanJson(absl::StrReplaceAll(kGroups, {{"period: 10", "period: 10, device_memory_bytes: 1600"}}),
                             /*compare=*/true);
  ASSERT_EQ(json["group_methods"].size(), 4u);
  EXPECT_EQ(json["group_methods"][0]["method"], "fsdp");
  EXPECT_EQ(json["group_methods"][1]["method"], "hsdp");
  EXPECT_EQ(json["group_methods"][2]["method"], "fl_fsdp");
  EXPECT_EQ(json["group_methods"][3]["method"], "fl_hsdp");
  ASSERT_FALSE(json["groups"]["choices"].empty());
  for (const Json& choice : json["groups"]["choices"]) {
    EXPECT_GE(choice["shards"].get<int>(), 4);
    EXPECT_LE(choice["memory_bytes"].get<double>(), 1600);
  }
  absl::StatusOr<PlanInput> input =
      ParsePlanInput(absl::StrReplaceAll(kGroups, {{"period: 10", "period: 10, device_memory_bytes: 1"}}), "f");
  ASSERT_THAT(input, IsOk());
  EXPECT_THAT(MakePlanResult(*input, false), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(PlanResultTest, TooMuchWorkIsRefused) {
  std::string text = "schema: causeway.plan-input/1\nsite_sync: {scheduler: brute, period: 20}\nlayers:\n";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&text, "- {name: l", i, ", t_fp_s: 0, t_bp_s: 1, t_comm_s: 1}\n");
  EXPECT_THAT(MakePlanResult(MustParse(text), false), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(PlanResultTest, DoublesReadBackTheSame) {
  PlanInput input = MustParse(kCluster);
  input.allocation->problem.sample_bytes = 1.0 / 3;
  input.allocation->problem.devices[0].batch_time_s = 0.1 + 0.2;
  absl::StatusOr<PlanResult> plan = MakePlanResult(input, false);
  ASSERT_THAT(plan, IsOk());
  const Json json = Json::parse(JsonDocument("causeway.plan/1", PlanToJson(*plan)));
  const scheduler::Evaluation& evaluation = plan->allocation->evaluation;
  EXPECT_EQ(json["allocation"]["total_s"].get<double>(), evaluation.total_s);
  EXPECT_EQ(json["allocation"]["workers"][0]["send_s"].get<double>(), evaluation.devices[0].send_s);
  EXPECT_EQ(json["allocation"]["workers"][0]["compute_s"].get<double>(), evaluation.devices[0].compute_s);
}

}  // namespace
}  // namespace causeway::cli
