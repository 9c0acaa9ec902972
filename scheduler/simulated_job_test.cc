#include "scheduler/simulated_job.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SimulatedJob Job() {
  const SiteProgram program{.forward_s = {1}, .backward_s = {2}, .iterations = {{}}};
  SimulatedJob job;
  job.sites = {{.name = "a", .program = program}, {.name = "b", .program = program, .lock_step = false}};
  for (const int site : {0, 1, 0, 1}) {
    job.workers.push_back(
        {.name = "w" + std::to_string(job.workers.size()), .site = site, .samples = 10, .batch_size = 4});
  }
  return job;
}

TEST(SimulatedJobTest, ParticipantsAreSitesInLockStepOrWorkersAlone) {
  SimulatedJob job = Job();
  EXPECT_THAT(ParticipantsOf(job), ElementsAre(ElementsAre(0, 2), ElementsAre(1), ElementsAre(3)));
  EXPECT_EQ(EpochSteps(job, {0, 2}), 3);
  job.workers[2].samples = 17;
  EXPECT_EQ(EpochSteps(job, {0, 2}), 5);
  // Without samples no part, but where rounds are of steps.
  job.workers[3].samples = 0;
  EXPECT_THAT(ParticipantsOf(job), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  job.rounds.steps = 7;
  EXPECT_EQ(ParticipantsOf(job).size(), 3u);
}

TEST(SimulatedJobTest, NamesWhatIsWrong) {
  const auto error = [](auto&& change) {
    SimulatedJob job = Job();
    EXPECT_TRUE(Validate(job).ok()) << Validate(job);
    change(job);
    const absl::Status status = Validate(job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error([](auto& j) { j.sites.clear(); }), HasSubstr("no sites"));
  EXPECT_THAT(error([](auto& j) { j.sites[1].name = "a"; }), HasSubstr("used twice"));
  EXPECT_THAT(error([](auto& j) { j.sites[1].program.forward_s = {}; }), HasSubstr("site \"b\""));
  EXPECT_THAT(error([](auto& j) { j.sites[0].uplink_bytes_per_s = 0; }), HasSubstr("uplink_bytes_per_s"));
  EXPECT_THAT(error([](auto& j) { j.sites[0].downlink_bytes_per_s = NAN; }), HasSubstr("downlink_bytes_per_s"));
  EXPECT_THAT(error([](auto& j) { j.sites[0].round_gather_s = -1; }), HasSubstr("round_gather_s"));
  EXPECT_THAT(error([](auto& j) { j.sites[1].program.iterations[0].push_back({.layer = 1}); }), HasSubstr("lock step"));
  EXPECT_THAT(error([](auto& j) { j.workers.clear(); }), HasSubstr("workers"));
  EXPECT_THAT(error([](auto& j) { j.workers[1].name = ""; }), HasSubstr("name is empty"));
  EXPECT_THAT(error([](auto& j) { j.workers[1].site = 2; }), HasSubstr("worker \"w1\": site"));
  EXPECT_THAT(error([](auto& j) { j.workers[1].slowdown = 0; }), HasSubstr("slowdown"));
  EXPECT_THAT(error([](auto& j) { j.workers[1].samples = -1; }), HasSubstr("samples"));
  EXPECT_THAT(error([](auto& j) { j.workers[1].samples = kMaxSamples; }), HasSubstr("steps an epoch"));
  EXPECT_THAT(error([](auto& j) { j.workers[1].batch_size = 0; }), HasSubstr("batch_size"));
  EXPECT_THAT(error([](auto& j) { j.workers[1].site = j.workers[3].site = 0; }), HasSubstr("no workers"));
  EXPECT_THAT(error([](auto& j) {
                for (auto& w : j.workers) w.samples = 0;
              }),
              HasSubstr("no worker has samples"));
  EXPECT_THAT(error([](auto& j) { j.sample_bytes = -1; }), HasSubstr("sample_bytes"));
  EXPECT_THAT(error([](auto& j) { j.egress_bytes_per_s = 0; }), HasSubstr("egress"));
  EXPECT_THAT(error([](auto& j) { j.reform_s = INFINITY; }), HasSubstr("reform_s"));
  EXPECT_THAT(error([](auto& j) { j.compute_jitter = 1; }), HasSubstr("compute_jitter"));
  EXPECT_THAT(error([](auto& j) { j.collective_jitter = -0.1; }), HasSubstr("collective_jitter"));
  EXPECT_THAT(error([](auto& j) { j.rounds.rounds = 0; }), HasSubstr("rounds"));
  EXPECT_THAT(error([](auto& j) { j.rounds.steps = -1; }), HasSubstr("steps"));
  EXPECT_THAT(error([](auto& j) { j.rounds.per_epoch = 0; }), HasSubstr("per_epoch"));
  EXPECT_THAT(error([](auto& j) { j.rounds.fragment_bytes = {}; }), HasSubstr("fragments"));
  EXPECT_THAT(error([](auto& j) { j.rounds.fragment_bytes = {1, -1}; }), HasSubstr("fragment_bytes"));
  EXPECT_THAT(error([](auto& j) { j.rounds.quorum = 0; }), HasSubstr("quorum"));
  EXPECT_THAT(error([](auto& j) { j.rounds.deadline_s = 0; }), HasSubstr("deadline_s"));
  EXPECT_THAT(error([](auto& j) { j.rounds.replan_after_s = -1; }), HasSubstr("replan_after_s"));
  EXPECT_THAT(error([](auto& j) { j.rounds.late_grace_s = NAN; }), HasSubstr("late_grace_s"));
  EXPECT_THAT(error([](auto& j) { j.rounds.all_reduce_s = -1; }), HasSubstr("all_reduce_s"));
  EXPECT_THAT(error([](auto& j) { j.rounds.delay = 4; }), HasSubstr("delay is 4, must be 0 to 3"));
  EXPECT_THAT(error([](auto& j) { j.changes = {{.index = 4}}; }), HasSubstr("changes[0]: index"));
  EXPECT_THAT(error([](auto& j) { j.changes = {{.what = SimulatedChange::What::kSiteUplink, .index = 2}}; }),
              HasSubstr("index"));
  EXPECT_THAT(error([](auto& j) { j.changes = {{.factor = 0}}; }), HasSubstr("factor"));
  EXPECT_THAT(error([](auto& j) { j.absences = {{.worker = 9}}; }), HasSubstr("absences[0]: worker"));
  EXPECT_THAT(error([](auto& j) { j.absences = {{.stop_s = 3, .return_s = 3}}; }), HasSubstr("return_s"));
  EXPECT_THAT(error([](auto& j) {
                j.absences = {{.stop_s = 3, .return_s = 5}, {.stop_s = 4, .return_s = 6}};
              }),
              HasSubstr("overlap"));
}

TEST(JobOfAllocationTest, CarriesOverWhatTheProblemSays) {
  AllocationProblem problem = MakeProblem({{2, 4, 3, 5}, {1, 2, 4, 1}}, 20, 2.5, AllocationObjective::kPipelined);
  problem.devices[1].site = "b";
  problem.devices[1].reads_data_locally = true;
  problem.rounds_per_epoch = 3;
  problem.egress_bytes_per_s = 7;
  const SimulatedJob job = *JobOfAllocation(problem, {.samples = {14, 6}});
  ASSERT_EQ(job.sites.size(), 2u);
  EXPECT_FALSE(job.sites[0].lock_step);
  ASSERT_EQ(job.workers.size(), 2u);
  EXPECT_EQ(job.workers[0].samples, 14);
  EXPECT_EQ(job.workers[0].slowdown, 3);
  EXPECT_EQ(job.workers[0].batch_size, 4);
  EXPECT_EQ(job.workers[0].downlink_bytes_per_s, 0.5);
  EXPECT_EQ(job.workers[1].site, 1);
  EXPECT_TRUE(job.workers[1].reads_data_locally);
  EXPECT_EQ(job.rounds.rounds, 8);
  EXPECT_EQ(job.rounds.per_epoch, 3);
  EXPECT_EQ(job.egress_bytes_per_s, 7);
  EXPECT_EQ(job.ingress_bytes_per_s, 7);
  EXPECT_FALSE(job.wait_for_all_data);
  EXPECT_FALSE(JobOfAllocation(problem, {.samples = {1}}).ok());
}

}  // namespace
}  // namespace causeway::scheduler
