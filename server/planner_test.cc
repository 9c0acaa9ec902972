#include "server/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/fakes/status_matchers.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Spec() {
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_batch()->set_max(64);
  spec.mutable_allocation()->set_method("exact");
  spec.mutable_allocation()->set_objective("barrier");
  spec.mutable_rounds()->set_per_epoch(1);
  spec.mutable_rounds()->set_quorum(0.67);
  return spec;
}

// A device whose time is linear in the batch: `per_sample_s` each and 1 ms besides.
v1::DeviceProfile Device(double per_sample_s, double bytes_per_s = 1e8) {
  v1::DeviceProfile profile;
  for (int64_t size : {8, 16, 32, 64}) {
    auto* time = profile.add_batch_times();
    time->set_batch_size(size);
    time->set_batch_time_s(0.001 + per_sample_s * static_cast<double>(size));
    time->set_repeats(5);
  }
  profile.set_max_parallel(64);
  profile.set_down_bytes_per_s(bytes_per_s);
  profile.set_up_bytes_per_s(bytes_per_s);
  profile.set_eval_samples_per_s(0.3 / per_sample_s);
  return profile;
}

PlanInput Input(const v1::JobSpec* spec, std::vector<v1::DeviceProfile> profiles) {
  PlanInput input{.spec = spec,
                  .samples = 10'000,
                  .record_bytes = 785,
                  .model_bytes = 200'000,
                  .epochs_left = 5,
                  .number = 4,
                  .reason = "test"};
  for (size_t i = 0; i < profiles.size(); ++i) {
    input.candidates.push_back({WorkerId(std::string("w") + static_cast<char>('0' + i)), SiteId("lab"), profiles[i]});
  }
  return input;
}

// Disjoint, in [0, samples), all of it.
void ExpectCovers(const PlanResult& result, int64_t samples) {
  std::vector<scheduler::SampleRange> all;
  for (const auto& shard : result.shards) {
    int64_t own = 0;
    for (const auto& range : shard.ranges) {
      all.push_back(range);
      own += range.end - range.begin;
    }
    const auto& workers = result.plan.workers();
    const auto plan =
        std::find_if(workers.begin(), workers.end(), [&](const auto& w) { return w.worker() == shard.worker; });
    ASSERT_NE(plan, workers.end()) << shard.worker;
    EXPECT_EQ(plan->samples(), own) << shard.worker;
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  int64_t at = 0;
  for (const auto& range : all) {
    EXPECT_EQ(range.begin, at);
    at = range.end;
  }
  EXPECT_EQ(at, samples);
}

TEST(PlannerTest, UnlikeDevicesGetUnlikeShards) {
  const v1::JobSpec spec = Spec();
  ASSERT_OK_AND_ASSIGN(const PlanResult result, MakePlan(Input(&spec, {Device(1e-4), Device(3e-4), Device(1e-4)})));
  ExpectCovers(result, 10'000);
  EXPECT_EQ(result.plan.number(), 4);
  EXPECT_EQ(result.plan.reason(), "test");
  EXPECT_EQ(result.plan.method(), "exact");
  EXPECT_EQ(result.plan.objective(), "barrier");
  EXPECT_FALSE(result.plan.pinned());
  EXPECT_EQ(result.plan.rounds_per_epoch(), 1);
  ASSERT_EQ(result.plan.workers_size(), 3);
  EXPECT_EQ(result.plan.workers(0).worker(), "w0");
  EXPECT_GT(result.plan.workers(0).samples(), result.plan.workers(1).samples() * 3 / 2);
  EXPECT_NEAR(static_cast<double>(result.plan.workers(0).samples()),
              static_cast<double>(result.plan.workers(2).samples()), 64);
  EXPECT_LT(result.plan.predicted_total_s(), result.plan.even_split_total_s());
  for (const v1::WorkerPlan& worker : result.plan.workers()) {
    EXPECT_EQ(worker.steps_per_epoch(), (worker.samples() + worker.batch_size() - 1) / worker.batch_size());
    EXPECT_EQ(worker.site(), "lab");
  }
}

TEST(PlannerTest, TheOrderOfCandidatesDoesNotMatter) {
  const v1::JobSpec spec = Spec();
  PlanInput input = Input(&spec, {Device(1e-4), Device(3e-4), Device(2e-4)});
  ASSERT_OK_AND_ASSIGN(const PlanResult one, MakePlan(input));
  std::reverse(input.candidates.begin(), input.candidates.end());
  ASSERT_OK_AND_ASSIGN(const PlanResult two, MakePlan(input));
  EXPECT_EQ(one.plan.SerializeAsString(), two.plan.SerializeAsString());
  EXPECT_EQ(one.shards, two.shards);
}

TEST(PlannerTest, ASlowedWorkerGetsFewerSamples) {
  const v1::JobSpec spec = Spec();
  ASSERT_OK_AND_ASSIGN(const PlanResult before, MakePlan(Input(&spec, {Device(1e-4), Device(1e-4)})));
  ASSERT_OK_AND_ASSIGN(const PlanResult after, MakePlan(Input(&spec, {Device(1e-4), Device(2e-4)})));
  EXPECT_LT(after.plan.workers(1).samples(), before.plan.workers(1).samples() * 4 / 5);
  EXPECT_GT(after.plan.workers(0).samples(), before.plan.workers(0).samples());
}

TEST(PlannerTest, AWorkerBehindASlowerLinkGetsFewerSamples) {
  v1::JobSpec spec = Spec();
  for (const char* objective : {"barrier", "separable", "pipelined"}) {
    spec.mutable_allocation()->set_objective(objective);
    ASSERT_OK_AND_ASSIGN(const PlanResult before, MakePlan(Input(&spec, {Device(1e-4), Device(1e-4)})));
    ASSERT_OK_AND_ASSIGN(const PlanResult after, MakePlan(Input(&spec, {Device(1e-4), Device(1e-4, 1e6)})));
    EXPECT_LT(after.plan.workers(1).samples(), before.plan.workers(1).samples() * 9 / 10) << objective;
    EXPECT_GT(after.plan.workers(1).comm_s() + after.plan.workers(1).send_s(), 0.1) << objective;
  }
}

TEST(PlannerTest, TheMethodOfTheJob) {
  v1::JobSpec spec = Spec();
  spec.mutable_allocation()->set_method("uniform");
  ASSERT_OK_AND_ASSIGN(const PlanResult uniform, MakePlan(Input(&spec, {Device(1e-4), Device(9e-4)})));
  EXPECT_EQ(uniform.plan.workers(0).samples(), 5000);
  EXPECT_EQ(uniform.plan.workers(1).samples(), 5000);
  EXPECT_DOUBLE_EQ(uniform.plan.even_split_total_s(), uniform.plan.predicted_total_s());
  spec.mutable_allocation()->set_method("proportional");
  ASSERT_OK_AND_ASSIGN(const PlanResult proportional, MakePlan(Input(&spec, {Device(1e-4), Device(9e-4)})));
  EXPECT_GT(proportional.plan.workers(0).samples(), 7000);
  spec.mutable_allocation()->set_method("exact");
  ASSERT_OK_AND_ASSIGN(const PlanResult exact, MakePlan(Input(&spec, {Device(1e-4), Device(9e-4)})));
  spec.mutable_allocation()->set_method("auglag");
  ASSERT_OK_AND_ASSIGN(const PlanResult auglag, MakePlan(Input(&spec, {Device(1e-4), Device(9e-4)})));
  EXPECT_EQ(auglag.plan.method(), "auglag");
  ExpectCovers(auglag, 10'000);
  EXPECT_GE(auglag.plan.predicted_total_s(), exact.plan.predicted_total_s());
  EXPECT_LT(auglag.plan.predicted_total_s(), exact.plan.predicted_total_s() * 1.05);
  spec.mutable_allocation()->set_method("guess");
  EXPECT_THAT(MakePlan(Input(&spec, {Device(1e-4)})), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("guess")));
}

// A worker far away holds nobody up: it is sent fewer samples while the others train on more. In a job nobody starts before
// all data is in place, and the plan says what that comes to.
TEST(PlannerTest, PipelinedJobs) {
  v1::JobSpec spec = Spec();
  ASSERT_OK_AND_ASSIGN(const PlanResult barrier, MakePlan(Input(&spec, {Device(1e-4), Device(1e-4, 1e6)})));
  spec.mutable_allocation()->set_objective("pipelined");
  ASSERT_OK_AND_ASSIGN(const PlanResult pipelined, MakePlan(Input(&spec, {Device(1e-4), Device(1e-4, 1e6)})));
  EXPECT_EQ(pipelined.plan.objective(), "pipelined");
  ExpectCovers(pipelined, 10'000);
  EXPECT_LT(pipelined.plan.predicted_total_s(), barrier.plan.predicted_total_s());
  EXPECT_GE(pipelined.plan.barrier_total_s(), barrier.plan.predicted_total_s() * (1 - 1e-12));
  double longest_s = 0;
  for (const v1::WorkerPlan& worker : pipelined.plan.workers()) longest_s = std::max(longest_s, worker.total_s());
  EXPECT_DOUBLE_EQ(longest_s, pipelined.plan.predicted_total_s());
  EXPECT_EQ(barrier.plan.barrier_total_s(), 0);
}

TEST(PlannerTest, BatchIsTheSmallestThatIsNearlyTheBest) {
  v1::JobSpec spec = Spec();
  // Samples per second: 8 -> 8000, 16 -> 9800, 32 -> 10000, 64 -> 10000.
  v1::DeviceProfile device = Device(1e-4);
  const double times[] = {0.001, 16 / 9800.0, 0.0032, 0.0064};
  for (int i = 0; i < 4; ++i) device.mutable_batch_times(i)->set_batch_time_s(times[i]);
  ASSERT_OK_AND_ASSIGN(const PlanResult result, MakePlan(Input(&spec, {device})));
  EXPECT_EQ(result.plan.workers(0).batch_size(), 16);
  spec.mutable_batch()->set_max(8);
  ASSERT_OK_AND_ASSIGN(const PlanResult small, MakePlan(Input(&spec, {device})));
  EXPECT_EQ(small.plan.workers(0).batch_size(), 8);
  spec.mutable_batch()->set_per_worker(64);
  ASSERT_OK_AND_ASSIGN(const PlanResult fixed, MakePlan(Input(&spec, {device})));
  EXPECT_EQ(fixed.plan.workers(0).batch_size(), 64);
}

TEST(PlannerTest, BatchSizesToProfile) {
  v1::BatchSpec batch;
  batch.set_max(64);
  EXPECT_THAT(BatchSizesToProfile(batch), ElementsAre(8, 16, 32, 64));
  batch.set_max(100);
  EXPECT_THAT(BatchSizesToProfile(batch), ElementsAre(8, 16, 32, 64, 100));
  batch.set_max(8);
  EXPECT_THAT(BatchSizesToProfile(batch), ElementsAre(2, 4, 8));
  batch.set_per_worker(48);
  EXPECT_THAT(BatchSizesToProfile(batch), ElementsAre(24, 48, 96));
}

TEST(PlannerTest, APinnedPlanIsTakenAsItIs) {
  v1::JobSpec spec = Spec();
  PlanInput input = Input(&spec, {Device(1e-4), Device(1e-4), Device(1e-4)});
  v1::Plan pinned;
  pinned.set_samples(10'000);
  auto* w = pinned.add_workers();
  w->set_worker("w2");
  w->set_samples(9000);
  w->set_batch_size(10);
  w = pinned.add_workers();
  w->set_worker("w0");
  w->set_samples(1000);
  input.pinned = pinned;
  ASSERT_OK_AND_ASSIGN(const PlanResult result, MakePlan(input));
  ExpectCovers(result, 10'000);
  EXPECT_TRUE(result.plan.pinned());
  EXPECT_EQ(result.plan.workers(0).samples(), 1000);
  EXPECT_EQ(result.plan.workers(1).samples(), 0);
  EXPECT_EQ(result.plan.workers(2).samples(), 9000);
  EXPECT_EQ(result.plan.workers(2).batch_size(), 10);
  EXPECT_EQ(result.plan.workers(2).steps_per_epoch(), 900);

  input.pinned->mutable_workers(0)->set_samples(9001);
  EXPECT_THAT(MakePlan(input), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pinned")));
  input.pinned->mutable_workers(0)->set_samples(-1000);
  EXPECT_THAT(MakePlan(input), StatusIs(absl::StatusCode::kInvalidArgument));
  input.pinned->mutable_workers(0)->set_samples(9000);
  input.pinned->mutable_workers(0)->set_worker("w7");
  EXPECT_THAT(MakePlan(input),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("pinned"), HasSubstr("w7"))));
}

TEST(PlannerTest, WhatCannotBePlanned) {
  v1::JobSpec spec = Spec();
  PlanInput input = Input(&spec, {Device(1e-4), Device(1e-4), Device(1e-4)});
  input.samples = 2;
  EXPECT_THAT(MakePlan(input),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("2 samples"), HasSubstr("3 workers"))));
  input.samples = 3;
  ASSERT_OK_AND_ASSIGN(const PlanResult three, MakePlan(input));
  ExpectCovers(three, 3);

  input.candidates.clear();
  EXPECT_THAT(MakePlan(input), StatusIs(absl::StatusCode::kFailedPrecondition));
  input = Input(&spec, {v1::DeviceProfile()});
  EXPECT_FALSE(MakePlan(input).ok());

  spec.mutable_rounds()->set_per_epoch(40);
  spec.mutable_batch()->set_per_worker(64);
  input = Input(&spec, {Device(1e-4), Device(1e-4)});
  input.samples = 64 * 2 * 39;
  EXPECT_THAT(MakePlan(input), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("per_epoch"), HasSubstr("40"), HasSubstr("39"))));
  input.samples = 64 * 2 * 40;
  EXPECT_OK(MakePlan(input));
}

TEST(PlannerTest, AReplanMovesNoMoreThanItMust) {
  const v1::JobSpec spec = Spec();
  PlanInput input = Input(&spec, {Device(1e-4), Device(2e-4), Device(1e-4)});
  ASSERT_OK_AND_ASSIGN(const PlanResult first, MakePlan(input));
  input.previous = first.shards;
  input.candidates.erase(input.candidates.begin() + 1);
  ASSERT_OK_AND_ASSIGN(const PlanResult second, MakePlan(input));
  ExpectCovers(second, 10'000);
  for (const auto& shard : second.shards) {
    const auto old =
        std::find_if(first.shards.begin(), first.shards.end(), [&](const auto& s) { return s.worker == shard.worker; });
    ASSERT_NE(old, first.shards.end());
    for (const auto& range : old->ranges) {
      bool kept = false;
      for (const auto& now : shard.ranges) kept |= now.begin <= range.begin && range.end <= now.end;
      EXPECT_TRUE(kept) << shard.worker;
    }
  }
}

}  // namespace
}  // namespace causeway::server
