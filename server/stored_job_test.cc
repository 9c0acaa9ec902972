#include "server/stored_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "jobspec/job_spec.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::server {
namespace {

using ::testing::HasSubstr;

struct Stored {
  Job::Options options;
  Job::Stored stored;
};

Stored Possible() {
  Stored s;
  v1::JobSpec& spec = s.options.spec;
  spec.set_name("job");
  spec.mutable_rounds()->set_per_epoch(1);
  spec.mutable_rounds()->set_quorum(0.67);
  spec.mutable_checkpoint()->set_every_rounds(1);
  spec.mutable_checkpoint()->set_keep(3);
  spec.mutable_batch()->set_max(128);
  spec.mutable_model()->set_classes(10);
  s.options.train.set_samples(100);
  s.options.test.set_samples(10);
  s.stored.state = v1::JOB_STATE_TRAINING;
  PlanResult& plan = s.stored.plans.emplace_back();
  plan.plan.set_number(1);
  plan.plan.set_samples(100);
  plan.plan.set_rounds_per_epoch(1);
  v1::WorkerPlan* worker = plan.plan.add_workers();
  worker->set_worker("w1");
  worker->set_site("lab");
  worker->set_samples(100);
  worker->set_batch_size(10);
  worker->set_steps_per_epoch(10);
  plan.shards.push_back({.worker = "w1", .ranges = {{.begin = 0, .end = 100}}});
  auto* participant = s.stored.runtime.mutable_open_round()->add_participants();
  participant->set_worker("w1");
  participant->set_planned_samples(100);
  v1::DeviceProfile& profile = s.stored.profiles[WorkerId("w1")];
  profile.add_batch_times()->set_batch_size(1);
  profile.mutable_batch_times(0)->set_batch_time_s(0.1);
  profile.set_max_parallel(1);
  profile.set_down_bytes_per_s(1e6);
  profile.set_up_bytes_per_s(1e6);
  profile.set_eval_samples_per_s(100);
  s.stored.rounds.emplace_back().set_samples(100);
  s.stored.evaluations.emplace_back().set_total(10);
  return s;
}

TEST(StoredJobTest, WhatCanBe) {
  Stored s = Possible();
  EXPECT_OK(CheckStoredJob(s.options, s.stored));
  // By the plan, not by those of it who were there for the round.
  s.stored.runtime.mutable_open_round()->mutable_participants(0)->set_rank(7);
  EXPECT_OK(CheckStoredJob(s.options, s.stored));
}

// What is accepted from an operator is not refused at the next start.
TEST(StoredJobTest, EveryBoundOfAJobIsTakenUpAgain) {
  const std::string least =
      "name: job\nmodel: {builtin: mlp, classes: 2}\nseed: 0\nbatch: {per_worker: 1, max: 1}\nend: {rounds: 1, "
      "samples: 1}\n"
      "rounds: {quorum: 0.000001, deadline: 1s, replan_after: 1s, max_change: 0.001}\norphan_timeout: 1s\n"
      "checkpoint: {every_rounds: 1, keep: 1}\n";
  const std::string most =
      "name: job\nmodel: {builtin: mlp, classes: 1000000}\nseed: 9223372036854775807\n"
      "batch: {per_worker: 1048576, max: 1048576}\n"
      "end: {epochs: 1000000, rounds: 1125899906842624, samples: 1125899906842624}\n"
      "rounds: {every: {per_epoch: 100000}, quorum: 1, deadline: 240h, replan_after: 240h, max_change: 1e300}\n"
      "orphan_timeout: 8760h\n";
  for (const std::string& yaml : {least, most}) {
    Stored s = Possible();
    auto spec = jobspec::ParseJobYaml(
        yaml + "data:\n  train: {format: idx, images: a, labels: b}\n  test: {format: idx, images: c, labels: d}\n",
        "job.yaml");
    ASSERT_OK(spec);
    s.options.spec = *std::move(spec);
    EXPECT_OK(CheckStoredJob(s.options, s.stored)) << yaml;
  }
}

TEST(StoredJobTest, AProfileIsWithinWhatCanBeMeasured) {
  const v1::DeviceProfile possible = Possible().stored.profiles.begin()->second;
  ASSERT_OK(CheckProfile(possible));
  for (double rate : {5e-324, 1e-6, 1e16, 1.7e308}) {
    v1::DeviceProfile profile = possible;
    profile.set_up_bytes_per_s(rate);
    EXPECT_THAT(CheckProfile(profile), StatusIs(absl::StatusCode::kInvalidArgument)) << rate;
  }
  for (double seconds : {-1.0, 0.0, 1e7, 1.7e308}) {
    v1::DeviceProfile profile = possible;
    profile.mutable_batch_times(0)->set_batch_time_s(seconds);
    EXPECT_THAT(CheckProfile(profile), StatusIs(absl::StatusCode::kInvalidArgument)) << seconds;
  }
}

TEST(StoredJobTest, WhatCannotBe) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, std::function<void(Stored*)>>> damages = {
      {"job's name", [](Stored* s) { s->options.spec.set_name("../x"); }},
      {"per_epoch", [](Stored* s) { s->options.spec.mutable_rounds()->set_per_epoch(0); }},
      {"quorum", [&](Stored* s) { s->options.spec.mutable_rounds()->set_quorum(nan); }},
      {"keep", [](Stored* s) { s->options.spec.mutable_checkpoint()->set_keep(0); }},
      {"every_rounds", [](Stored* s) { s->options.spec.mutable_checkpoint()->set_every_rounds(-1); }},
      {"rounds per epoch", [](Stored* s) { s->stored.plans[0].plan.set_rounds_per_epoch(0); }},
      {"plan's number", [](Stored* s) { s->stored.plans[0].plan.set_number(0); }},
      {"planned samples", [&](Stored* s) { s->stored.plans[0].plan.mutable_workers(0)->set_samples(kHuge); }},
      {"worker's batch", [](Stored* s) { s->stored.plans[0].plan.mutable_workers(0)->set_batch_size(0); }},
      {"steps per epoch", [](Stored* s) { s->stored.plans[0].plan.mutable_workers(0)->set_steps_per_epoch(101); }},
      {"batch time", [&](Stored* s) { s->stored.plans[0].plan.mutable_workers(0)->set_batch_time_s(nan); }},
      {"planned worker's name", [](Stored* s) { s->stored.plans[0].plan.mutable_workers(0)->set_worker(""); }},
      {"begin of a shard", [](Stored* s) { s->stored.plans[0].shards[0].ranges[0].begin = -1; }},
      {"end of a shard", [](Stored* s) { s->stored.plans[0].shards[0].ranges[0].end = 101; }},
      {"rank", [](Stored* s) { s->stored.runtime.mutable_open_round()->mutable_participants(0)->set_rank(-1); }},
      {"participant's samples",
       [](Stored* s) { s->stored.runtime.mutable_open_round()->mutable_participants(0)->set_planned_samples(-1); }},
      {"attempt", [](Stored* s) { s->stored.runtime.mutable_open_round()->set_attempt(-1); }},
      {"impossible rate", [](Stored* s) { s->stored.profiles.begin()->second.clear_eval_samples_per_s(); }},
      {"round's samples", [](Stored* s) { s->stored.rounds[0].set_samples(-1); }},
      {"hits", [](Stored* s) { s->stored.evaluations[0].set_correct(11); }},
      {"without layout", [](Stored* s) { s->stored.version = Version(0); }},
      {"state is 77", [](Stored* s) { s->stored.state = static_cast<v1::JobState>(77); }},
      {"training set", [](Stored* s) { s->options.train.set_samples(-1); }},
  };
  for (const auto& [what, damage] : damages) {
    Stored s = Possible();
    damage(&s);
    EXPECT_THAT(CheckStoredJob(s.options, s.stored), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(what)));
  }
}

TEST(CheckProfileTest, OnlyWhatCanBeMeasured) {
  const v1::DeviceProfile good = Possible().stored.profiles.begin()->second;
  EXPECT_OK(CheckProfile(good));
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  using Damage = std::function<void(v1::DeviceProfile*)>;
  std::vector<Damage> damages = {
      [](v1::DeviceProfile* p) { p->clear_batch_times(); },
      [](v1::DeviceProfile* p) {
        while (p->batch_times_size() <= 100) *p->add_batch_times() = p->batch_times(0);
      },
      [](v1::DeviceProfile* p) { p->set_max_parallel(0); },
      [](v1::DeviceProfile* p) { p->set_max_parallel(kHuge); },
      [](v1::DeviceProfile* p) { p->mutable_batch_times(0)->set_batch_size(0); },
      [](v1::DeviceProfile* p) { p->mutable_batch_times(0)->set_batch_size(kHuge); },
  };
  for (const double odd : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    damages.push_back([odd](v1::DeviceProfile* p) { p->mutable_batch_times(0)->set_batch_time_s(odd); });
    damages.push_back([odd](v1::DeviceProfile* p) { p->set_down_bytes_per_s(odd); });
    damages.push_back([odd](v1::DeviceProfile* p) { p->set_up_bytes_per_s(odd); });
    damages.push_back([odd](v1::DeviceProfile* p) { p->set_eval_samples_per_s(odd); });
  }
  for (const Damage& damage : damages) {
    v1::DeviceProfile bad = good;
    damage(&bad);
    EXPECT_THAT(CheckProfile(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad.ShortDebugString();
  }
}

TEST(CheckFetchedTest, OnlyWhatCanBeFetched) {
  const auto check = [](int64_t bytes, double seconds) {
    v1::ReportDataRequest request;
    request.set_bytes_fetched(bytes);
    request.set_seconds(seconds);
    return CheckFetched(request);
  };
  EXPECT_OK(check(0, 0));
  EXPECT_OK(check(int64_t{1} << 40, 1e6));
  for (const int64_t bytes : {int64_t{-1}, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()})
    EXPECT_THAT(check(bytes, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  for (const double seconds : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_THAT(check(1, seconds), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::server
