#include "cli/plan_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "cli/cli_test_fixture.h"
#include "jobspec/job_spec.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kInput[] =
    "schema: causeway.plan-input/1\n"
    "samples: 60\n"
    "sample_bytes: 10\n"
    "model_bytes: 100\n"
    "workers:\n"
    "- {name: w1, bandwidth_bytes_per_s: 100, batch_time_s: 1, batch_size: 1}\n"
    "- {name: w2, bandwidth_bytes_per_s: 100, batch_time_s: 1, batch_size: 2}\n"
    "layers:\n"
    "- {name: a, t_fp_s: 0, t_bp_s: 1, t_comm_s: 1}\n";

constexpr char kJob[] =
    "name: fashion\nmodel: {builtin: lenet}\ndata:\n  train: {format: idx, images: a, labels: b}\n  test: {format: "
    "idx, images: c, labels: d}\nend: {epochs: 3}\n";

class PlanCommandsTest : public CliTest {};

TEST_F(PlanCommandsTest, TablesOrJson) {
  const std::string file = Write("plan.yaml", kInput);
  EXPECT_EQ(Run({"plan", file}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("allocation (exact, barrier)"),
                           HasSubstr("schedule (dreamddp by exact, period 5)"), HasSubstr("1 compute |")));
  EXPECT_EQ(err(), "");
  EXPECT_EQ(Run({"plan", file, "--compare", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.plan/1");
  EXPECT_EQ(OutJson()["methods"].size(), 5u);
  EXPECT_THAT(coordinator_.calls, IsEmpty());
}

TEST_F(PlanCommandsTest, StandardInput) {
  in_.str(kInput);
  EXPECT_EQ(Run({"plan", "-", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["allocation"]["workers"].size(), 2u);
}

TEST_F(PlanCommandsTest, BadInputIsAUsageError) {
  EXPECT_EQ(Run({"plan", Write("plan.yaml", "schema: causeway.plan-input/1\nlayers: []\n")}), 2);
  EXPECT_THAT(err(), HasSubstr("plan.yaml:2: layers: found 0; allowed: 1 to 4096"));
  in_.str("schema: causeway.plan-input/1\nlayers: []\n");
  EXPECT_EQ(Run({"plan", "-"}), 2);
  EXPECT_THAT(err(), HasSubstr("(standard input):2: layers"));
  EXPECT_EQ(Run({"plan"}), 2);
  EXPECT_THAT(err(), HasSubstr("give either FILE or --job job.yaml"));
  EXPECT_EQ(Run({"plan", "a.yaml", "--job", "b.yaml"}), 2);
  EXPECT_EQ(Run({"plan", dir_.Join("gone.yaml")}), 1);
  EXPECT_EQ(out(), "");
}

// What is planned can be pinned.
TEST_F(PlanCommandsTest, TheAllocationIsAPinnedPlan) {
  std::string text = kInput;
  text.resize(text.find("layers:"));
  ASSERT_EQ(Run({"plan", Write("plan.yaml", text), "--compare", "--output", "json"}), 0);
  absl::StatusOr<v1::Plan> plan = jobspec::ParsePinnedPlan(out(), "plan.json");
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->samples(), 60);
  EXPECT_EQ(plan->workers_size(), 2);
  // With a layer schedule it is refused, by name.
  ASSERT_EQ(Run({"plan", Write("both.yaml", kInput), "--output", "json"}), 0);
  EXPECT_THAT(jobspec::ParsePinnedPlan(out(), "plan.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("schedule: a job cannot follow")));
}

TEST_F(PlanCommandsTest, Simulate) {
  const std::string file = Write("plan.yaml", kInput);
  EXPECT_EQ(Run({"simulate", file}), 0) << err();
  EXPECT_THAT(out(), AllOf(HasSubstr("job (exact): "), HasSubstr("1 compute |")));
  const std::string trace = dir_.Join("trace.json");
  EXPECT_EQ(Run({"simulate", file, "--timeline", trace, "--compare", "--output", "json"}), 0) << err();
  EXPECT_EQ(OutJson()["schema"], "causeway.simulation/1");
  EXPECT_EQ(OutJson()["methods"].size(), 5u);
  absl::StatusOr<std::string> text = RealFileSystem()->ReadFile(trace, 1 << 20);
  ASSERT_THAT(text, IsOk());
  EXPECT_TRUE(Json::parse(*text, nullptr, false)["traceEvents"].is_array());
  const std::string layers =
      Write("layers.yaml", "schema: causeway.plan-input/1\nlayers: [{name: a, t_fp_s: 0, t_bp_s: 1, t_comm_s: 1}]\n");
  EXPECT_EQ(Run({"simulate", layers, "--timeline", trace}), 2);
  EXPECT_THAT(err(), HasSubstr("--timeline is of a job"));
  EXPECT_EQ(Run({"simulate", Write("bad.yaml", "layers: []\n")}), 2);
}

TEST_F(PlanCommandsTest, MeasuredProfilesOfTheFleet) {
  v1::WorkerStatus* worker = coordinator_.answers.ListWorkers.add_workers();
  worker->set_worker("a1");
  worker->set_site("lab");
  worker->set_live(true);
  v1::JobSummary* job = coordinator_.answers.ListJobs.add_jobs();
  job->set_job("old");
  job->set_model("lenet");
  absl::StatusOr<v1::JobSpec> spec = jobspec::ParseJobYaml(kJob, "job.yaml");
  ASSERT_THAT(spec, IsOk());
  v1::GetJobResponse& status = coordinator_.answers.GetJob;
  *status.mutable_spec() = *spec;
  status.mutable_plan()->set_samples(1000);
  status.mutable_plan()->set_sample_bytes(10);
  status.mutable_plan()->set_model_bytes(100);
  v1::WorkerInJob* member = status.add_workers();
  member->set_worker("a1");
  member->mutable_profile()->set_down_bytes_per_s(100);
  member->mutable_profile()->set_up_bytes_per_s(100);
  member->mutable_profile()->set_max_parallel(64);
  auto* time = member->mutable_profile()->add_batch_times();
  time->set_batch_size(10);
  time->set_batch_time_s(1);

  EXPECT_EQ(Run({"plan", "--job", Write("job.yaml", kJob), "--output", "json"}), 0) << err();
  EXPECT_EQ(OutJson()["allocation"]["workers"][0]["samples"], 1000);
  EXPECT_EQ(OutJson()["allocation"]["workers"][0]["compute_s"], 100.0);
  EXPECT_EQ(OutJson()["allocation"]["total_s"], 100.0 + 3 * 102.0);
  EXPECT_FALSE(OutJson().contains("schedules"));
  EXPECT_THAT(err(), HasSubstr("no layer schedules: workers of this version measure batches, not layers"));
  EXPECT_EQ(Run({"plan", "--job", Write("job.yaml", "name: x\n")}), 2);
  coordinator_.error = absl::UnavailableError("connection refused");
  EXPECT_EQ(Run({"plan", "--job", Write("job.yaml", kJob)}), 1);
}

}  // namespace
}  // namespace causeway::cli
