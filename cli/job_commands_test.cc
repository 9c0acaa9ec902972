#include "cli/job_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cli_test_fixture.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kJob[] =
    "name: fashion\nmodel: {builtin: lenet}\ndata:\n  train: {format: idx, images: a, labels: b}\n  test: {format: "
    "idx, images: c, labels: d}\n"
    "end: {epochs: 1}\n";
constexpr char kPlan[] = "schema: causeway.plan/1\nallocation: {workers: [{name: a1, samples: 10, batch_size: 5}]}\n";

class JobCommandsTest : public CliTest {
 protected:
  v1::GetJobResponse Status(v1::JobState state, const std::string& reason = "") {
    v1::GetJobResponse status;
    status.mutable_summary()->set_job("fashion");
    status.mutable_summary()->set_state(state);
    status.mutable_summary()->set_reason(reason);
    return status;
  }
  void AddJob(const std::string& name, v1::JobState state, int64_t submitted_ms) {
    v1::JobSummary* job = coordinator_.answers.ListJobs.add_jobs();
    job->set_job(name);
    job->set_state(state);
    job->set_submitted_ms(submitted_ms);
  }
};

TEST_F(JobCommandsTest, SubmitSendsFileRequestIdAndPlan) {
  coordinator_.answers.SubmitJob.set_job("fashion");
  EXPECT_EQ(Run({"job", "submit", Write("job.yaml", kJob), "--request-id", "r1", "--plan", Write("plan.yaml", kPlan)}),
            0);
  ASSERT_THAT(coordinator_.calls, SizeIs(1));
  EXPECT_THAT(coordinator_.calls[0],
              AllOf(HasSubstr("SubmitJob yaml: \"name: fashion"), HasSubstr("request_id: \"r1\""),
                    HasSubstr("job.yaml\""), HasSubstr("pinned_plan { samples: 10"), HasSubstr("batch_size: 5")));
  EXPECT_EQ(out(), "fashion submitted; `causeway job watch fashion` follows it\n");
  EXPECT_EQ(coordinator_.last_timeout, absl::Seconds(30));
}

TEST_F(JobCommandsTest, SubmittedBefore) {
  coordinator_.answers.SubmitJob.set_job("fashion");
  coordinator_.answers.SubmitJob.set_existed(true);
  EXPECT_EQ(Run({"job", "submit", Write("job.yaml", kJob)}), 0);
  EXPECT_THAT(out(), HasSubstr("was submitted before"));
  EXPECT_EQ(Run({"job", "submit", Write("job.yaml", kJob), "--output", "json"}), 0);
  EXPECT_EQ(OutJson().dump(), R"({"schema":"causeway.job-submitted/1","job":"fashion","existed":true})");
}

TEST_F(JobCommandsTest, SubmitReadsStandardInput) {
  in_.str(kJob);
  EXPECT_EQ(Run({"job", "submit", "-"}), 0);
  EXPECT_THAT(coordinator_.calls[0], HasSubstr("file_name: \"(standard input)\""));
}

TEST_F(JobCommandsTest, ABadFileIsNotSent) {
  EXPECT_EQ(Run({"job", "submit", Write("job.yaml", "name: X\n")}), 2);
  EXPECT_THAT(err(), AllOf(HasSubstr("job.yaml:1: name:"), HasSubstr("model: missing")));
  EXPECT_EQ(Run({"job", "submit", Write("job.yaml", kJob), "--plan", Write("plan.yaml", "schema: x\n")}), 2);
  EXPECT_THAT(err(), HasSubstr("plan.yaml:1: schema: found \"x\""));
  EXPECT_EQ(Run({"job", "submit", dir_.Join("gone.yaml")}), 1);
  EXPECT_THAT(err(), HasSubstr("gone.yaml"));
  EXPECT_THAT(coordinator_.calls, IsEmpty());
}

TEST_F(JobCommandsTest, SubmitAndWatch) {
  coordinator_.answers.SubmitJob.set_job("fashion");
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_SUBMITTED), Status(v1::JOB_STATE_FINISHED)}, absl::OkStatus()});
  EXPECT_EQ(Run({"job", "submit", Write("job.yaml", kJob), "--watch"}), 0);
  EXPECT_EQ(out(), "fashion: SUBMITTED\nfashion: FINISHED\n");
}

TEST_F(JobCommandsTest, List) {
  AddJob("fashion", v1::JOB_STATE_TRAINING, 1796032800000);
  coordinator_.answers.ListJobs.mutable_jobs(0)->mutable_evaluation()->set_accuracy(0.5);
  EXPECT_EQ(Run({"job", "list"}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("JOB"), HasSubstr("fashion  TRAINING"), HasSubstr("0.5000"),
                           HasSubstr("2026-11-30 10:00:00")));
  EXPECT_EQ(Run({"--output", "json", "job", "list"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.jobs/1");
  EXPECT_EQ(OutJson()["jobs"][0]["state"], "TRAINING");
}

TEST_F(JobCommandsTest, Show) {
  v1::GetJobResponse status = Status(v1::JOB_STATE_TRAINING);
  status.mutable_spec()->mutable_end()->set_epochs(10);
  status.mutable_spec()->mutable_end()->set_target_value(0.9);
  status.mutable_plan()->set_number(2);
  status.mutable_plan()->set_rounds_per_epoch(2);
  status.mutable_plan()->set_reason("worker a2 lost");
  status.mutable_plan()->set_predicted_total_s(50);
  status.mutable_plan()->set_even_split_total_s(100);
  status.mutable_plan()->set_binding("compute");
  for (const char* name : {"a1", "a3"}) {
    v1::WorkerInJob* worker = status.add_workers();
    worker->set_worker(name);
    worker->set_live(true);
  }
  v1::WorkerInJob* worker = status.mutable_workers(0);
  worker->set_takes_part(true);
  v1::WorkerInJob* left_out = status.add_workers();
  left_out->set_worker("a4");
  left_out->set_live(true);
  left_out->set_excluded("prepare: out of memory");
  worker->mutable_emulation()->set_slowdown(4);
  worker->mutable_plan()->set_samples(12345);
  worker->mutable_plan()->set_compute_s(8);
  worker->set_rounds(4);
  worker->set_compute_s(20);
  v1::DeviceProfile::BatchTime* time = worker->mutable_profile()->add_batch_times();
  time->set_batch_size(32);
  time->set_batch_time_s(0.0125);
  worker->mutable_profile()->set_down_bytes_per_s(2 << 20);
  (*status.mutable_rejected())["nan"] = 3;
  for (int i = 0; i < 12; ++i) status.add_rounds()->set_round(i);
  coordinator_.answers.GetJob = status;
  EXPECT_EQ(Run({"job", "show", "fashion"}), 0);
  EXPECT_THAT(coordinator_.calls, ElementsAre("GetJob job: \"fashion\""));
  // 20 s over 4 rounds, 2 of which make an epoch: 10 s, where 8 s were planned.
  EXPECT_THAT(out(),
              AllOf(HasSubstr("10 epochs or accuracy 0.9"), HasSubstr("worker a2 lost"), HasSubstr("predicted 50.0s"),
                    HasSubstr("even split 1m40s"), HasSubstr("a1           32: 0.0125            2.0 MiB/s"),
                    HasSubstr("12345"), HasSubstr("8.0s             10.0s"), HasSubstr("yes: slowdown 4"),
                    HasSubstr("takes no part"), HasSubstr("left out: a4: prepare: out of memory"),
                    HasSubstr("3 contributions: nan"), HasSubstr("the last 10 rounds")));
  EXPECT_EQ(Run({"job", "show", "fashion", "--output=json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.job/1");
  EXPECT_EQ(OutJson()["plan"]["number"], 2);
}

TEST_F(JobCommandsTest, WatchEndsAsTheJobDoes) {
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_FINISHED)}, absl::OkStatus()});
  EXPECT_EQ(Run({"job", "watch", "fashion"}), 0);
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_FAILED, "diverged")}, absl::OkStatus()});
  EXPECT_EQ(Run({"job", "watch", "fashion"}), 1);
  EXPECT_THAT(err(), HasSubstr("fashion FAILED: diverged"));
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_ABORTED)}, absl::OkStatus()});
  EXPECT_EQ(Run({"job", "watch", "fashion"}), 1);
}

TEST_F(JobCommandsTest, WatchWithoutANameTakesTheRunningJob) {
  AddJob("old", v1::JOB_STATE_FINISHED, 1);
  AddJob("running", v1::JOB_STATE_TRAINING, 2);
  AddJob("queued", v1::JOB_STATE_SUBMITTED, 3);
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_FINISHED)}, absl::OkStatus()});
  EXPECT_EQ(Run({"job", "watch"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "WatchJob job: \"running\"");
  coordinator_.answers.ListJobs.Clear();
  AddJob("old", v1::JOB_STATE_FINISHED, 1);
  AddJob("newer", v1::JOB_STATE_FAILED, 2);
  Run({"job", "watch"});
  EXPECT_EQ(coordinator_.calls.back(), "WatchJob job: \"newer\"");
  coordinator_.answers.ListJobs.Clear();
  EXPECT_EQ(Run({"job", "watch"}), 1);
  EXPECT_THAT(err(), HasSubstr("there is no job"));
}

TEST_F(JobCommandsTest, WatchSurvivesARestartOfTheCoordinator) {
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_TRAINING)}, absl::UnavailableError("connection reset")});
  coordinator_.watches.push_back({{}, absl::UnavailableError("connection refused")});
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_TRAINING)}, absl::OkStatus()});  // Stopped in order.
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_TRAINING), Status(v1::JOB_STATE_FINISHED)}, absl::OkStatus()});
  EXPECT_EQ(Run({"job", "watch", "fashion"}), 0);
  EXPECT_EQ(out(), "fashion: TRAINING\nfashion: FINISHED\n");
  EXPECT_EQ(err(),
            "lost the coordinator (connection reset); trying again\nlost the coordinator (it stopped); trying again\n");
}

TEST_F(JobCommandsTest, WatchFailsAtOnceWhenNobodyIsThere) {
  EXPECT_EQ(Run({"job", "watch", "fashion"}), 1);
  EXPECT_THAT(err(), HasSubstr("cannot reach the coordinator at coord.example:7443"));
  EXPECT_THAT(coordinator_.calls, SizeIs(1));
}

TEST_F(JobCommandsTest, WatchGivesUpAtItsTimeout) {
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_TRAINING)}, absl::UnavailableError("connection reset")});
  absl::Time start = clock_.Now();
  EXPECT_EQ(Run({"job", "watch", "fashion", "--timeout", "60s"}), 3);
  EXPECT_EQ(clock_.Now() - start, absl::Seconds(60));
  EXPECT_THAT(err(), HasSubstr("fashion is still TRAINING after 1m"));
  // Said once, not at each of the attempts.
  EXPECT_EQ(err().find("trying again"), err().rfind("trying again"));
  EXPECT_GT(coordinator_.calls.size(), 10u);
}

TEST_F(JobCommandsTest, WatchDoesNotRetryRefusals) {
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_TRAINING)}, absl::PermissionDeniedError("revoked")});
  EXPECT_EQ(Run({"job", "watch", "fashion"}), 4);
  coordinator_.watches.push_back({{}, absl::NotFoundError("no job fashion")});
  EXPECT_EQ(Run({"job", "watch", "fashion"}), 1);
  EXPECT_THAT(err(), HasSubstr("no job fashion"));
}

TEST_F(JobCommandsTest, WatchDrawsOnATerminalAndPrintsJsonLines) {
  environment_.out_is_terminal = true;
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_TRAINING), Status(v1::JOB_STATE_FINISHED)}, absl::OkStatus()});
  EXPECT_EQ(Run({"job", "watch", "fashion"}), 0);
  EXPECT_THAT(out(), HasSubstr("\x1b["));
  coordinator_.watches.push_back({{Status(v1::JOB_STATE_FINISHED)}, absl::OkStatus()});
  EXPECT_EQ(Run({"job", "watch", "fashion", "--output", "json"}), 0);
  EXPECT_THAT(out(), Not(HasSubstr("\x1b[")));
  EXPECT_EQ(OutJson()["summary"]["state"], "FINISHED");
}

TEST_F(JobCommandsTest, Abort) {
  EXPECT_EQ(Run({"job", "abort", "fashion", "--reason", "wrong data"}), 0);
  EXPECT_THAT(coordinator_.calls, ElementsAre("AbortJob job: \"fashion\" reason: \"wrong data\""));
  coordinator_.error = absl::FailedPreconditionError("fashion has ended");
  EXPECT_EQ(Run({"job", "abort", "fashion"}), 4);
}

TEST_F(JobCommandsTest, PauseAndResume) {
  EXPECT_EQ(Run({"job", "pause", "fashion"}), 0);
  EXPECT_THAT(out(), HasSubstr("causeway job resume fashion"));
  EXPECT_EQ(Run({"job", "resume", "fashion", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.job-resumed/1");
  EXPECT_THAT(coordinator_.calls, ElementsAre("PauseJob job: \"fashion\"", "ResumeJob job: \"fashion\""));
  coordinator_.error = absl::FailedPreconditionError("fashion has ended");
  EXPECT_EQ(Run({"job", "pause", "fashion"}), 4);
}

TEST_F(JobCommandsTest, ValidateNeedsNoCoordinator) {
  environment_.config_home = "";
  EXPECT_EQ(Run({"job", "validate", Write("job.yaml", kJob)}), 0);
  EXPECT_THAT(out(), HasSubstr("job.yaml: job fashion is valid"));
  EXPECT_EQ(Run({"job", "validate", dir_.Join("job.yaml"), "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["spec"]["model"]["builtin"], "lenet");
  EXPECT_EQ(Run({"job", "validate", Write("bad.yaml", std::string(kJob) + "seeds: 1\n")}), 2);
  EXPECT_THAT(err(), HasSubstr("bad.yaml:7: seeds: unknown key; did you mean seed?"));
  EXPECT_EQ(out(), "");
  EXPECT_THAT(coordinator_.calls, IsEmpty());
}

}  // namespace
}  // namespace causeway::cli
