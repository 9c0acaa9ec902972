#include "cli/measured_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "jobspec/job_spec.h"
#include "tests/fakes/fake_operator_client.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Knows several jobs.
class JobsClient : public FakeOperatorClient {
 public:
  JobsClient(FakeCoordinator* coordinator, const std::map<std::string, v1::GetJobResponse>* jobs)
      : FakeOperatorClient(coordinator), jobs_(jobs) {}

  absl::StatusOr<v1::GetJobResponse> GetJob(const v1::GetJobRequest& request, absl::Duration) override {
    asked.push_back(request.job());
    return jobs_->at(request.job());
  }

  std::vector<std::string> asked;

 private:
  const std::map<std::string, v1::GetJobResponse>* jobs_;
};

class MeasuredInputTest : public testing::Test {
 protected:
  v1::JobSpec Spec(const std::string& more = "", const std::string& images = "a") {
    absl::StatusOr<v1::JobSpec> spec = jobspec::ParseJobYaml(
        "name: fashion\nmodel: {builtin: lenet}\ndata:\n  train: {format: idx, images: " + images +
            ", labels: b}\n  test: {format: idx, images: c, labels: d}\n" +
            (more.empty() ? "end: {epochs: 3}\n" : more),
        "job.yaml");
    EXPECT_THAT(spec, IsOk());
    return *spec;
  }
  void AddWorker(const std::string& name, const std::string& site, bool live = true, bool removed = false) {
    v1::WorkerStatus* worker = coordinator_.answers.ListWorkers.add_workers();
    worker->set_worker(name);
    worker->set_site(site);
    worker->set_live(live);
    worker->set_removed(removed);
  }
  // Submitted after those before.
  void AddJob(const std::string& name, const v1::JobSpec& spec, const std::map<std::string, double>& batch_seconds) {
    v1::JobSummary* summary = coordinator_.answers.ListJobs.add_jobs();
    summary->set_job(name);
    summary->set_model(spec.model().builtin());
    v1::GetJobResponse& job = jobs_[name];
    *job.mutable_spec() = spec;
    job.mutable_plan()->set_samples(1000);
    job.mutable_plan()->set_sample_bytes(10);
    job.mutable_plan()->set_model_bytes(100);
    for (const auto& [worker, seconds] : batch_seconds) {
      v1::WorkerInJob* member = job.add_workers();
      member->set_worker(worker);
      if (seconds == 0) continue;  // It measured nothing.
      v1::DeviceProfile* profile = member->mutable_profile();
      profile->set_down_bytes_per_s(1000);
      profile->set_up_bytes_per_s(500);
      profile->set_max_parallel(64);
      auto* time = profile->add_batch_times();
      time->set_batch_size(32);
      time->set_batch_time_s(seconds);
    }
  }
  absl::StatusOr<MeasuredInput> Measure(const v1::JobSpec& spec) {
    return MeasuredPlanInput(spec, &client_, absl::Seconds(5));
  }

  FakeCoordinator coordinator_;
  std::map<std::string, v1::GetJobResponse> jobs_;
  JobsClient client_{&coordinator_, &jobs_};
};

TEST_F(MeasuredInputTest, TheNewestProfileOfEachLiveWorker) {
  AddWorker("b1", "far");
  AddWorker("a1", "lab");
  AddWorker("a2", "lab", /*live=*/false);
  AddWorker("a3", "lab", /*live=*/true, /*removed=*/true);
  AddWorker("a4", "lab");
  AddJob("first", Spec(), {{"a1", 1.0}, {"b1", 2.0}, {"a2", 3.0}});
  AddJob("second", Spec(), {{"a1", 1.5}, {"a3", 4.0}, {"a4", 0}});
  absl::StatusOr<MeasuredInput> measured =
      Measure(Spec("end: {epochs: 3}\nallocation: {method: uniform, objective: separable}\n"));
  ASSERT_THAT(measured, IsOk());
  EXPECT_EQ(measured->input.allocation->method, scheduler::AllocationMethod::kUniform);
  const scheduler::AllocationProblem& problem = measured->input.allocation->problem;
  EXPECT_EQ(problem.samples, 1000);
  EXPECT_EQ(problem.sample_bytes, 10);
  EXPECT_EQ(problem.model_bytes, 100);
  EXPECT_EQ(problem.epochs, 3);
  EXPECT_EQ(problem.objective, scheduler::AllocationObjective::kSeparable);
  ASSERT_EQ(problem.devices.size(), 2u);
  EXPECT_EQ(problem.devices[0].name, "a1");
  EXPECT_EQ(problem.devices[0].site, "lab");
  EXPECT_EQ(problem.devices[0].batch_time_s, 1.5);
  EXPECT_EQ(problem.devices[0].bandwidth_bytes_per_s, 1000);
  EXPECT_EQ(problem.devices[0].uplink_bytes_per_s, 500);
  EXPECT_EQ(problem.devices[1].name, "b1");
  EXPECT_EQ(problem.devices[1].batch_time_s, 2.0);
  EXPECT_FALSE(measured->input.schedule.has_value());
  EXPECT_THAT(measured->remarks, Contains("profiles were measured for second, first"));
  EXPECT_THAT(measured->remarks, Contains("left out: a4 has not measured this model yet"));
  EXPECT_THAT(measured->remarks, Contains(HasSubstr("no layer schedules")));
}

TEST_F(MeasuredInputTest, OnlyJobsWithTheSameModelAndTrainingSetCount) {
  AddWorker("a1", "lab");
  AddJob("first", Spec(), {{"a1", 1.0}});
  AddJob("other-data", Spec("", "other"), {{"a1", 2.0}});
  v1::JobSpec mlp = Spec();
  mlp.mutable_model()->set_builtin("mlp");
  AddJob("other-model", mlp, {{"a1", 3.0}});
  v1::JobSpec classes = Spec();
  classes.mutable_model()->set_classes(7);
  AddJob("other-classes", classes, {{"a1", 4.0}});
  AddJob("no-plan", Spec(), {{"a1", 5.0}});
  jobs_["no-plan"].clear_plan();
  absl::StatusOr<MeasuredInput> measured = Measure(Spec("end: {rounds: 5}\nbatch: {max: 32}\n"));
  ASSERT_THAT(measured, IsOk());
  EXPECT_EQ(measured->input.allocation->problem.devices[0].batch_time_s, 1.0);
  EXPECT_EQ(measured->input.allocation->problem.epochs, 5);
  // A job with another model is not even asked for.
  EXPECT_THAT(client_.asked, ElementsAre("no-plan", "other-classes", "other-data", "first"));
}

TEST_F(MeasuredInputTest, OnlyTheJobsSites) {
  AddWorker("a1", "lab");
  AddWorker("b1", "far");
  AddJob("first", Spec(), {{"a1", 1.0}, {"b1", 2.0}});
  absl::StatusOr<MeasuredInput> measured = Measure(Spec("end: {epochs: 3}\nsites: [far]\n"));
  ASSERT_THAT(measured, IsOk());
  ASSERT_EQ(measured->input.allocation->problem.devices.size(), 1u);
  EXPECT_EQ(measured->input.allocation->problem.devices[0].name, "b1");
  EXPECT_THAT(Measure(Spec("end: {epochs: 3}\nsites: [moon]\n")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no live worker of the job's sites has measured lenet")));
}

TEST_F(MeasuredInputTest, BatchSizesAreTheJobs) {
  AddWorker("a1", "lab");
  AddJob("first", Spec(), {{"a1", 1.0}});
  absl::StatusOr<MeasuredInput> measured = Measure(Spec("end: {epochs: 3}\nbatch: {per_worker: 64}\n"));
  ASSERT_THAT(measured, IsOk());
  EXPECT_EQ(measured->input.allocation->problem.devices[0].batch_size, 64);
  EXPECT_EQ(measured->input.allocation->problem.devices[0].batch_time_s, 2.0);  // One measurement is scaled.
  EXPECT_THAT(
      Measure(Spec("end: {epochs: 3}\nbatch: {per_worker: 65}\n")),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("worker \"a1\": batch size 65 is above max_parallel 64")));
}

TEST_F(MeasuredInputTest, AJobWithoutALength) {
  AddWorker("a1", "lab");
  AddJob("first", Spec(), {{"a1", 1.0}});
  absl::StatusOr<MeasuredInput> measured = Measure(Spec("end: {target: {value: 0.9}}\n"));
  ASSERT_THAT(measured, IsOk());
  EXPECT_EQ(measured->input.allocation->problem.epochs, 1);
  EXPECT_THAT(measured->remarks, Contains(HasSubstr("planned for one epoch")));
}

}  // namespace
}  // namespace causeway::cli
