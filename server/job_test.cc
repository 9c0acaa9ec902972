#include "server/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/random.h"
#include "dataplane/digest.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using dataplane::DataType;
using dataplane::Layout;
using dataplane::TensorKind;
using Outcome = v1::PushResult;

const absl::Time kWall = absl::FromUnixSeconds(1'800'000'000);
constexpr int64_t kTrain = 1000;
constexpr int64_t kTest = 100;

Layout MakeLayout(int64_t width) {
  return *Layout::Create({{"w", DataType::kFloat32, {width}, TensorKind::kParameter, 1}});
}

v1::JobSpec Spec() {
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_batch()->set_max(32);
  spec.mutable_end()->set_epochs(2);
  spec.mutable_allocation()->set_method("exact");
  spec.mutable_allocation()->set_objective("barrier");
  spec.mutable_rounds()->set_per_epoch(1);
  spec.mutable_rounds()->set_quorum(0.67);
  spec.mutable_rounds()->set_replan_after_s(60);
  return spec;
}

// A worker that does what its assignment says, one task at a time.
struct FakeWorker {
  WorkerId name;
  SiteId site{"lab"};
  int64_t incarnation = 1;
  bool present = true;
  double per_sample_s = 1e-4;
  Layout layout = MakeLayout(4);
  // Of this incarnation.
  bool reported_model = false;
  int64_t data_plan = 0;
  std::map<std::pair<int64_t, int64_t>, bool> pushed;  // (round, attempt) that need not be done again.
};

int64_t Count(const google::protobuf::RepeatedPtrField<v1::SampleRange>& ranges) {
  int64_t n = 0;
  for (const auto& r : ranges) n += r.end() - r.begin();
  return n;
}

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

void ExpectTiles(Ranges ranges, int64_t end) {
  std::sort(ranges.begin(), ranges.end());
  int64_t at = 0;
  for (const auto& [b, e] : ranges) {
    EXPECT_EQ(b, at);
    at = e;
  }
  EXPECT_EQ(at, end);
}

// A job with its fleet: carries out actions as the coordinator does, checks what must always hold, and keeps what a journal would.
class Fleet {
 public:
  explicit Fleet(v1::JobSpec spec = Spec(), int workers = 0, int64_t test = kTest,
                 std::optional<v1::Plan> pinned = std::nullopt) {
    options_.spec = std::move(spec);
    options_.train.set_samples(kTrain);
    options_.train.set_record_bytes(785);
    options_.test.set_samples(test);
    options_.test.set_record_bytes(785);
    options_.pinned = std::move(pinned);
    options_.submitted = kWall;
    job_ = std::make_unique<Job>(options_);
    for (int i = 0; i < workers; ++i) Join(absl::StrCat("w", i));
    job_->Start(now_);
    Settle();
  }

  Job& job() { return *job_; }
  FakeWorker& worker(const std::string& name) { return workers_.at(name); }
  std::map<std::string, FakeWorker>& workers() { return workers_; }
  absl::Time now() const { return now_; }
  v1::Assignment Task(const std::string& name) { return job_->AssignmentFor(WorkerId(name)); }
  const Job::Stored& stored() const { return stored_; }
  const std::vector<std::string>& drops() const { return drops_; }

  FakeWorker& Join(const std::string& name) {
    FakeWorker& w = workers_[name];
    w.name = WorkerId(name);
    SetPresent(name, true);
    return w;
  }
  void SetPresent(const std::string& name, bool present) {
    FakeWorker& w = workers_.at(name);
    w.present = present;
    job_->SetPresent(w.name, w.site, Incarnation(w.incarnation), present, now_);
    Settle();
  }
  void Lose(const std::string& name) { SetPresent(name, false); }
  void RestartWorker(const std::string& name) {
    FakeWorker& w = workers_.at(name);
    ++w.incarnation;
    w.reported_model = false;
    w.data_plan = 0;
    w.pushed.clear();
    SetPresent(name, true);
  }
  void Pass(absl::Duration duration) {
    now_ += duration;
    Settle();
  }

  v1::PushRequest Push(const std::string& name) {
    const FakeWorker& w = workers_.at(name);
    const v1::TrainTask train = Task(name).train();
    v1::PushRequest request;
    request.mutable_fence()->set_job("job");
    request.mutable_fence()->set_round(train.round());
    request.mutable_fence()->set_incarnation(w.incarnation);
    request.set_attempt(train.attempt());
    request.set_layout_sha256(w.layout.hash());
    request.set_parts(1);
    request.add_elements()->set_end(w.layout.total_elements());
    request.set_total_bytes(w.layout.total_bytes());
    request.set_samples(train.planned_samples());
    request.set_sha256(dataplane::Sha256Of(absl::StrCat(name, " ", train.round(), " ", train.attempt())));
    request.set_train_loss(1.5);
    request.set_compute_s(0.5);
    return request;
  }
  absl::StatusOr<std::optional<v1::PushResult>> Check(const v1::PushRequest& request, const std::string& name) {
    auto result = job_->CheckPush(WorkerId(name), Incarnation(workers_.at(name).incarnation), request, now_);
    Settle();
    return result;
  }
  bool Wanted(const v1::PushRequest& request, const std::string& name) {
    auto result = Check(request, name);
    return result.ok() && !result->has_value();
  }
  // A push all the way.
  bool Contribute(const std::string& name, std::optional<int64_t> samples = std::nullopt) {
    v1::PushRequest request = Push(name);
    if (samples.has_value()) request.set_samples(*samples);
    auto answer = job_->CheckPush(WorkerId(name), Incarnation(workers_.at(name).incarnation), request, now_);
    EXPECT_OK(answer);
    if (!answer.ok() || answer->has_value()) return false;
    return Add(name, request);
  }
  bool Add(const std::string& name, const v1::PushRequest& request) {
    if (!job_->BeginAdding(WorkerId(name), request)) return false;
    senders_[name] = request.fence().incarnation();
    Settle();
    v1::StoredContribution info;
    info.set_train_loss(request.train_loss());
    info.set_compute_s(request.compute_s());
    contributions_[{request.fence().round(), request.attempt()}][name] = {request, info};
    job_->OnAdded(WorkerId(name), request, info, now_);
    Settle();
    return true;
  }
  void RejectNext(const std::string& name, const std::string& reason = "not_finite") {
    const v1::PushRequest request = Push(name);
    job_->RejectContribution(WorkerId(name), request, reason, "bad", now_);
    workers_.at(name).pushed[{request.fence().round(), request.attempt()}] = true;
    Settle();
  }

  // Does one thing that the assignment asks for; false: there is nothing to do.
  bool Work(const std::string& name) {
    FakeWorker& w = workers_.at(name);
    if (!w.present) return false;
    const v1::Assignment a = Task(name);
    if (a.job().empty()) return false;
    if (a.has_prepare() && !w.reported_model) {
      w.reported_model = true;
      (void)job_->OnModel(w.name, w.layout, true, now_);
    } else if (a.prepare().upload_initial()) {
      job_->OnInitialCommitted(now_);
      stored_.version = job_->version();
    } else if (a.has_profile()) {
      v1::ReportProfileRequest request;
      request.set_attempt(a.profile().attempt());
      *request.mutable_profile() = Profile(w);
      EXPECT_OK(job_->OnProfile(w.name, request, now_));
    } else if (a.has_evaluate()) {
      Evaluate(name);
      return true;
    } else if (a.has_shard() && a.shard().plan() > w.data_plan) {
      w.data_plan = a.shard().plan();
      v1::ReportDataRequest request;
      request.set_plan(a.shard().plan());
      EXPECT_OK(job_->OnData(w.name, request, now_));
    } else if (a.has_train() && !w.pushed[{a.train().round(), a.train().attempt()}]) {
      w.pushed[{a.train().round(), a.train().attempt()}] = true;
      Contribute(name);
      return true;
    } else {
      return false;
    }
    Settle();
    return true;
  }
  void Evaluate(const std::string& name) {
    const v1::EvaluateTask task = Task(name).evaluate();
    v1::ReportEvaluationRequest request;
    request.set_version(task.version());
    request.set_attempt(task.attempt());
    request.set_total(Count(task.ranges()));
    request.set_correct(std::llround(accuracy(task.version()) * static_cast<double>(request.total())));
    request.set_loss_sum(static_cast<double>(request.total()));
    EXPECT_OK(job_->OnEvaluation(WorkerId(name), request, now_));
    Settle();
  }
  // Everybody works until nobody has anything to do or `done`.
  void Run(const std::function<bool()>& done = [] { return false; }) {
    for (int i = 0; i < 10'000; ++i) {
      bool worked = false;
      for (auto& [name, w] : workers_) {
        if (done() || job_->ended()) return;
        worked |= Work(name);
      }
      if (!worked) return;
    }
    FAIL() << "no end";
  }
  void RunUntilRound(int64_t round) {
    Run([&] { return job_->book() != nullptr && job_->book()->options().round == Round(round); });
    ASSERT_NE(job_->book(), nullptr);
    ASSERT_EQ(job_->book()->options().round, Round(round));
  }

  static v1::DeviceProfile Profile(const FakeWorker& w) {
    v1::DeviceProfile profile;
    for (int64_t size : {8, 16, 32}) {
      auto* time = profile.add_batch_times();
      time->set_batch_size(size);
      time->set_batch_time_s(0.001 + w.per_sample_s * static_cast<double>(size));
    }
    profile.set_max_parallel(32);
    profile.set_down_bytes_per_s(1e8);
    profile.set_up_bytes_per_s(1e8);
    profile.set_eval_samples_per_s(0.3 / w.per_sample_s);
    return profile;
  }

  // Carries actions out until none comes.
  void Settle() {
    for (int turn = 0; turn < 1000; ++turn) {
      const std::vector<Job::Action> actions = job_->Advance(now_, kWall + (now_ - kStart));
      if (actions.empty()) break;
      for (const Job::Action& action : actions) CarryOut(action);
    }
    CheckInvariants();
  }

  // A new coordinator over the same journal; the workers come back as they are.
  void RestartCoordinator() {
    options_.attempt_base += 1'000'000;
    job_ = std::make_unique<Job>(options_);
    restored_ = true;
    if (stored_.state == v1::JOB_STATE_UNSPECIFIED) stored_.state = v1::JOB_STATE_SUBMITTED;
    job_->Restore(stored_, now_);
    for (const Job::Action& action : job_->Advance(now_, kWall)) CarryOut(action);
    restored_ = false;
    if (job_->book() != nullptr) {
      for (const auto& [name, c] :
           contributions_[{job_->book()->options().round.value(), job_->book()->options().attempt}]) {
        job_->RestoreContribution(WorkerId(name), c.first.samples(), c.first.sha256(), c.second);
      }
    }
    for (auto& [name, w] : workers_) {
      w.reported_model = false;
      w.data_plan = 0;
      job_->SetPresent(w.name, w.site, Incarnation(w.incarnation), w.present, now_);
    }
    Settle();
  }

  std::function<double(int64_t)> accuracy = [](int64_t) { return 0.5; };
  bool auto_commit = true;
  int commits = 0;
  int64_t opened = 0;

 private:
  void CarryOut(const Job::Action& action) {
    if (std::holds_alternative<Job::StoreJob>(action)) {
      stored_.state = job_->state();
      stored_.reason = job_->reason();
      stored_.ended = job_->ended_wall();
      stored_.layout = job_->layout();
      stored_.runtime = job_->runtime();
    } else if (const auto* plan = std::get_if<Job::StorePlan>(&action)) {
      if (!stored_.plans.empty()) {
        EXPECT_GT(plan->result.plan.number(), stored_.plans.back().plan.number());
      }
      Ranges all;
      for (const auto& shard : plan->result.shards) {
        for (const auto& r : shard.ranges) all.push_back({r.begin, r.end});
      }
      ExpectTiles(all, kTrain);
      stored_.plans.push_back(plan->result);
    } else if (const auto* profile = std::get_if<Job::StoreProfile>(&action)) {
      stored_.profiles[profile->worker] = profile->profile;
    } else if (const auto* evaluation = std::get_if<Job::StoreEvaluation>(&action)) {
      std::erase_if(stored_.evaluations,
                    [&](const auto& e) { return e.version() == evaluation->evaluation.version(); });
      stored_.evaluations.push_back(evaluation->evaluation);
    } else if (std::holds_alternative<Job::OpenRound>(action)) {
      const RoundBook* book = job_->book();
      if (book == nullptr) return;
      const std::pair<int64_t, int64_t> at(book->options().round.value(), book->options().attempt);
      EXPECT_TRUE(at > last_opened_ || (restored_ && at == last_opened_)) << at.first << " attempt " << at.second;
      EXPECT_EQ(book->options().base.value(), at.first);
      last_opened_ = at;
      ++opened;
    } else if (const auto* drop = std::get_if<Job::DropRound>(&action)) {
      drops_.push_back(drop->reason);
      for (auto it = contributions_.begin(); it != contributions_.end();) {
        it = it->first.first == drop->round.value() ? contributions_.erase(it) : std::next(it);
      }
    } else if (const auto* commit = std::get_if<Job::CommitRound>(&action)) {
      const v1::RoundRecord& record = commit->record;
      EXPECT_EQ(record.version(), stored_.version.value() + 1);
      EXPECT_EQ(record.round(), record.version() - 1);
      int64_t samples = 0;
      int64_t heard = 0;  // Planned samples of those who were.
      for (const auto& [name, c] : contributions_[last_opened_]) {
        samples += c.first.samples();
        if (c.first.samples() > 0) heard += job_->book()->Find(WorkerId(name))->participant.planned_samples;
      }
      EXPECT_EQ(record.samples(), samples);
      EXPECT_GE(static_cast<double>(heard),
                options_.spec.rounds().quorum() * static_cast<double>(job_->book()->planned_samples()));
      EXPECT_GT(samples, 0);
      if (!auto_commit) return;
      Commit(record);
    }
  }

 public:
  void Commit(const v1::RoundRecord& record) {
    stored_.version = Version(record.version());
    stored_.rounds.push_back(record);
    contributions_.clear();
    ++commits;
    job_->OnRoundCommitted(Version(record.version()), now_);
  }

 private:
  void CheckInvariants() {
    Ranges tests;
    bool evaluating = false;
    for (const auto& [name, w] : workers_) {
      const v1::Assignment a = Task(name);
      if (a.has_train()) {
        const RoundBook::Entry* entry = job_->book()->Find(w.name);
        ASSERT_NE(entry, nullptr);
        // Who has contributed keeps the task until the commit, but not as a new process; who was rejected does not.
        const auto sender = senders_.find(name);
        EXPECT_TRUE(
            entry->state == RoundBook::State::kOutstanding || entry->state == RoundBook::State::kAdding ||
            (entry->state == RoundBook::State::kCounted && sender != senders_.end() && sender->second == w.incarnation))
            << name;
        EXPECT_EQ(a.train().round(), last_opened_.first);
        EXPECT_EQ(a.train().attempt(), last_opened_.second);
        EXPECT_GT(a.train().planned_samples(), 0);
        EXPECT_LE(a.train().planned_samples(), Count(a.train().ranges()));
      }
      if (a.has_evaluate()) {
        evaluating = true;
        for (const auto& r : a.evaluate().ranges()) tests.push_back({r.begin(), r.end()});
      }
      if (job_->ended()) {
        EXPECT_EQ(a.job(), "");
      }
    }
    if (evaluating) {
      std::sort(tests.begin(), tests.end());
      for (size_t i = 1; i < tests.size(); ++i) EXPECT_LE(tests[i - 1].second, tests[i].first) << "parts overlap";
    }
    int64_t samples = 0;
    for (const auto& record : stored_.rounds) samples += record.samples();
    EXPECT_EQ(job_->committed_samples(), samples);
    EXPECT_EQ(job_->version(), stored_.version);
  }

  const absl::Time kStart = absl::FromUnixSeconds(5000);
  absl::Time now_ = kStart;
  Job::Options options_;
  std::unique_ptr<Job> job_;
  std::map<std::string, FakeWorker> workers_;
  Job::Stored stored_;
  std::map<std::pair<int64_t, int64_t>, std::map<std::string, std::pair<v1::PushRequest, v1::StoredContribution>>>
      contributions_;
  std::map<std::string, int64_t> senders_;  // Incarnation of the newest contribution.
  std::pair<int64_t, int64_t> last_opened_{-1, 0};
  bool restored_ = false;
  std::vector<std::string> drops_;
};

// A fleet whose job was started before its workers came.
Fleet WithWorkers(int n, v1::JobSpec spec = Spec(), int64_t test = kTest) {
  Fleet fleet(std::move(spec), 0, test);
  for (int i = 0; i < n; ++i) fleet.Join(absl::StrCat("w", i));
  return fleet;
}

bool IsWorking(const v1::Assignment& a, int64_t round) { return a.has_train() && a.train().round() == round; }

TEST(JobTest, AWholeLife) {
  Fleet fleet = WithWorkers(3);
  fleet.worker("w1").per_sample_s = 3e-4;
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_PROFILING);
  fleet.Run([&] { return fleet.job().plan() != nullptr; });
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_DISTRIBUTING);
  const v1::Plan plan = fleet.job().plan()->plan;
  EXPECT_EQ(plan.reason(), "first plan");
  EXPECT_LT(plan.workers(1).samples() * 3, plan.workers(0).samples() * 2);
  EXPECT_THAT(fleet.job().WaitingFor(), ElementsAre("w0", "w1", "w2"));
  fleet.RunUntilRound(0);
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_TRAINING);
  for (int i = 0; i < 3; ++i) {
    const v1::TrainTask train = fleet.Task(absl::StrCat("w", i)).train();
    EXPECT_EQ(train.planned_samples(), plan.workers(i).samples());
    EXPECT_EQ(train.last_step(), plan.workers(i).steps_per_epoch());
    EXPECT_EQ(train.job_samples(), 2 * kTrain);
    EXPECT_EQ(train.round_samples(), kTrain);
    EXPECT_EQ(train.committed_samples(), 0);
    EXPECT_EQ(train.deadline_ms(), 30'000);
  }
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.job().final_version(), Version(2));
  EXPECT_EQ(fleet.commits, 2);
  EXPECT_EQ(fleet.stored().state, v1::JOB_STATE_FINISHED);
  ASSERT_THAT(fleet.job().evaluations(), SizeIs(3));
  for (const auto& evaluation : fleet.job().evaluations()) {
    EXPECT_TRUE(evaluation.complete());
    EXPECT_EQ(evaluation.total(), kTest);
    EXPECT_DOUBLE_EQ(evaluation.loss(), 1);
  }
  const v1::GetJobResponse status = fleet.job().Status(fleet.now());
  EXPECT_DOUBLE_EQ(status.summary().epochs_done(), 2);
  EXPECT_EQ(status.summary().version(), 2);
  EXPECT_EQ(status.summary().evaluation().version(), 2);
  EXPECT_EQ(status.summary().rounds_planned(), 2);
  EXPECT_GT(status.summary().ended_ms(), 0);
  ASSERT_EQ(status.rounds_size(), 2);
  EXPECT_EQ(status.rounds(0).evaluation().version(), 0);
  EXPECT_EQ(status.rounds(1).contributions(), 3);
  EXPECT_DOUBLE_EQ(status.rounds(1).train_loss(), 1.5);
  EXPECT_EQ(status.workers(0).rounds(), 2);
  EXPECT_DOUBLE_EQ(status.workers(0).compute_s(), 1);
}

TEST(JobTest, WithoutATestSetItEndsAtTheLastCommit) {
  Fleet fleet = WithWorkers(2, Spec(), /*test=*/0);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_THAT(fleet.job().evaluations(), IsEmpty());
}

TEST(JobTest, TheUploaderDies) {
  Fleet fleet = WithWorkers(2);
  fleet.Work("w0");
  EXPECT_TRUE(fleet.Task("w0").prepare().upload_initial());
  fleet.Work("w1");
  EXPECT_FALSE(fleet.Task("w1").prepare().upload_initial());
  fleet.Lose("w0");
  EXPECT_TRUE(fleet.Task("w1").prepare().upload_initial());
  EXPECT_FALSE(fleet.Task("w1").has_profile());
  fleet.Work("w1");
  EXPECT_EQ(fleet.job().version(), Version(0));
  EXPECT_TRUE(fleet.Task("w1").has_profile());
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
}

TEST(JobTest, OnlyTheUploaderMayUpload) {
  Fleet fleet = WithWorkers(2);
  fleet.Work("w0");
  fleet.Work("w1");
  v1::PushRequest request = fleet.Push("w0");
  request.set_initial(true);
  request.set_attempt(0);
  EXPECT_TRUE(fleet.Wanted(request, "w0"));
  ASSERT_OK_AND_ASSIGN(auto other, fleet.Check(request, "w1"));
  EXPECT_EQ(other->reason(), "not_uploader");
  request.set_total_bytes(17);
  ASSERT_OK_AND_ASSIGN(auto shape, fleet.Check(request, "w0"));
  EXPECT_EQ(shape->reason(), "wrong_shape");
  fleet.Work("w0");
  ASSERT_OK_AND_ASSIGN(auto again, fleet.Check(request, "w0"));
  EXPECT_EQ(again->outcome(), Outcome::OUTCOME_COUNTED);
}

TEST(JobTest, LayoutsDisagree) {
  Fleet fleet = WithWorkers(3);
  fleet.worker("w1").layout = MakeLayout(5);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  const v1::GetJobResponse status = fleet.job().Status(fleet.now());
  EXPECT_THAT(status.workers(1).excluded(), HasSubstr("layout"));
  EXPECT_FALSE(status.workers(1).takes_part());
  EXPECT_EQ(status.rounds(0).contributions(), 2);
}

TEST(JobTest, NoWorkerCanDoIt) {
  Fleet fleet = WithWorkers(2);
  v1::ReportFailureRequest failure;
  failure.set_task("prepare");
  failure.set_message("no such model");
  EXPECT_OK(fleet.job().OnFailure(WorkerId("w0"), failure, fleet.now()));
  fleet.Settle();
  EXPECT_NE(fleet.Task("w0").job(), "") << "not permanent: it tries again";
  failure.set_permanent(true);
  EXPECT_OK(fleet.job().OnFailure(WorkerId("w0"), failure, fleet.now()));
  fleet.Settle();
  EXPECT_EQ(fleet.Task("w0").job(), "");
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_PROFILING);
  EXPECT_OK(fleet.job().OnFailure(WorkerId("w1"), failure, fleet.now()));
  fleet.Settle();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(fleet.job().reason(), AllOf(HasSubstr("w0"), HasSubstr("no such model")));
}

TEST(JobTest, WhatAMemberReportsDoesNotFillTheLog) {
  TempDir dir;
  ASSERT_OK(log::Configure({.file = dir.Join("log")}));
  const auto lines = [&] {
    std::vector<std::string> found;
    std::stringstream text;
    text << std::ifstream(dir.Join("log")).rdbuf();
    for (std::string line; std::getline(text, line);) {
      if (absl::StrContains(line, "worker_reports_failure")) found.push_back(line);
    }
    return found;
  };
  Fleet fleet = WithWorkers(2);
  v1::ReportFailureRequest failure;
  failure.set_task("train");
  for (int i = 0; i < 100; ++i) EXPECT_OK(fleet.job().OnFailure(WorkerId("w0"), failure, fleet.now()));
  EXPECT_THAT(lines(), SizeIs(20));
  EXPECT_OK(fleet.job().OnFailure(WorkerId("w1"), failure, fleet.now()));
  EXPECT_THAT(lines(), SizeIs(21));
  for (int i = 0; i < 100; ++i)
    EXPECT_OK(fleet.job().OnFailure(WorkerId("w0"), failure, fleet.now() + absl::Minutes(1)));
  EXPECT_THAT(lines(), SizeIs(22));
  EXPECT_THAT(lines().back(), HasSubstr("worker=w0 task=train permanent=false message=\"\" times=81"));
  EXPECT_OK(log::Configure({}));
}

TEST(JobTest, FewerSamplesThanWorkers) {
  v1::JobSpec spec = Spec();
  spec.mutable_rounds()->set_per_epoch(1000);
  Fleet fleet = WithWorkers(2, spec);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(fleet.job().reason(), HasSubstr("per_epoch"));
}

TEST(JobTest, AWorkerLostWhileProfilingIsNotWaitedFor) {
  Fleet fleet = WithWorkers(3);
  fleet.Run([&] { return fleet.Task("w1").has_profile(); });
  fleet.Lose("w1");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 2);
}

TEST(JobTest, AMuteWorkerHoldsUpPreparingAndProfilingForAWhileOnly) {
  Fleet fleet = WithWorkers(2);
  const auto work = [&] {
    while (fleet.Work("w0")) {
    }
  };
  work();
  EXPECT_THAT(fleet.job().WaitingFor(), testing::Contains("w1"));
  EXPECT_FALSE(fleet.Task("w0").has_profile());
  fleet.Pass(absl::Seconds(121));
  EXPECT_TRUE(fleet.Task("w0").has_profile());
  EXPECT_THAT(fleet.job().Status(fleet.now()).workers(1).excluded(), HasSubstr("its model"));
  work();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
}

TEST(JobTest, AnOddProfileCostsItsWorkerOnly) {
  v1::JobSpec spec = Spec();
  spec.mutable_batch()->set_per_worker(16);
  Fleet fleet = WithWorkers(2, spec);
  fleet.Run([&] { return fleet.Task("w1").has_profile(); });
  v1::ReportProfileRequest request;
  request.set_attempt(fleet.Task("w1").profile().attempt());
  *request.mutable_profile() = Fleet::Profile(fleet.worker("w1"));
  request.mutable_profile()->set_max_parallel(0);
  EXPECT_THAT(fleet.job().OnProfile(WorkerId("w1"), request, fleet.now()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  // It would not be read back at the next start.
  request.mutable_profile()->set_max_parallel(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(fleet.job().OnProfile(WorkerId("w1"), request, fleet.now()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  request.mutable_profile()->set_max_parallel(8);
  EXPECT_OK(fleet.job().OnProfile(WorkerId("w1"), request, fleet.now()));
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_THAT(fleet.job().Status(fleet.now()).workers(1).excluded(), HasSubstr("largest batch is 8"));
}

TEST(JobTest, AMuteUploaderIsReplaced) {
  Fleet fleet = WithWorkers(2);
  fleet.Run([&] { return fleet.Task("w0").prepare().upload_initial() && fleet.Task("w1").has_prepare(); });
  while (fleet.Work("w1")) {
  }
  fleet.Pass(absl::Seconds(200));
  EXPECT_TRUE(fleet.Task("w1").prepare().upload_initial());
  while (fleet.Work("w1")) {
  }
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
}

TEST(JobTest, WhoFetchesNothingOfANewPlanDoesNotHoldItUp) {
  v1::JobSpec spec = Spec();
  spec.mutable_end()->set_epochs(200);
  Fleet fleet = WithWorkers(2, spec);
  fleet.RunUntilRound(1);
  fleet.Join("w2");
  fleet.Run([&] { return fleet.job().plan()->plan.workers_size() == 3; });
  ASSERT_TRUE(fleet.Task("w2").has_shard());
  for (int i = 0; i < 14; ++i) {
    EXPECT_EQ(fleet.job().Status(fleet.now()).workers(2).excluded(), i < 13 ? "" : "waited in vain for its shard") << i;
    for (int k = 0; k < 4; ++k) {
      fleet.Work("w0");
      fleet.Work("w1");
    }
    fleet.Pass(absl::Seconds(10));
  }
  EXPECT_THAT(fleet.job().Status(fleet.now()).workers(2).excluded(), HasSubstr("its shard"));
  EXPECT_EQ(fleet.job().Status(fleet.now()).workers(0).excluded(), "");
  while (fleet.Work("w0") || fleet.Work("w1")) {
  }
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
}

TEST(JobTest, WhoIsLeftOutHasSaidWhy) {
  Fleet fleet = WithWorkers(2);
  fleet.Run([&] { return fleet.job().state() == v1::JOB_STATE_DISTRIBUTING; });
  v1::ReportFailureRequest failure;
  failure.set_task("shard");
  failure.set_message("No space left on device");
  EXPECT_OK(fleet.job().OnFailure(WorkerId("w1"), failure, fleet.now()));
  EXPECT_EQ(fleet.job().Status(fleet.now()).workers(1).excluded(), "");
  for (int i = 0; i < 14; ++i) {
    fleet.Work("w0");
    fleet.Pass(absl::Seconds(10));
  }
  EXPECT_EQ(fleet.job().Status(fleet.now()).workers(1).excluded(),
            "waited in vain for its shard; its last trouble: shard: No space left on device");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
}

TEST(JobTest, AWorkerLostWhileDistributingIsPlannedOut) {
  Fleet fleet = WithWorkers(3);
  fleet.Run([&] { return fleet.job().state() == v1::JOB_STATE_DISTRIBUTING; });
  fleet.Work("w0");
  fleet.Lose("w1");
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_DISTRIBUTING);
  EXPECT_THAT(fleet.job().plan()->plan.reason(), HasSubstr("w1"));
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 2);
  EXPECT_GT(fleet.Task("w0").shard().plan(), 1);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
}

TEST(JobTest, AllLostWhileDistributing) {
  Fleet fleet = WithWorkers(2);
  fleet.Run([&] { return fleet.job().state() == v1::JOB_STATE_DISTRIBUTING; });
  fleet.Lose("w0");
  fleet.Lose("w1");
  fleet.Pass(absl::Hours(1));
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_DISTRIBUTING);
  fleet.SetPresent("w1", true);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 1);
}

TEST(JobTest, AWorkerThatFetchesNothingIsLeftOut) {
  v1::JobSpec spec = Spec();
  spec.mutable_end()->set_epochs(6);
  Fleet fleet = WithWorkers(2, spec);
  fleet.Run([&] { return fleet.job().state() == v1::JOB_STATE_DISTRIBUTING; });
  fleet.Work("w0");
  v1::WorkerProgress progress;
  progress.set_job("job");
  for (int i = 1; i < 5; ++i) {
    progress.set_fetch_bytes_done(i);
    fleet.job().OnProgress(WorkerId("w1"), progress, fleet.now());
    fleet.Pass(absl::Seconds(100));
  }
  EXPECT_EQ(fleet.job().plan()->plan.number(), 1);
  EXPECT_THAT(fleet.job().WaitingFor(), ElementsAre("w1"));
  fleet.Pass(absl::Seconds(21));
  EXPECT_GT(fleet.job().plan()->plan.number(), 1);
  EXPECT_NE(fleet.job().Status(fleet.now()).workers(1).excluded(), "");
  while (fleet.job().version() < Version(1)) ASSERT_TRUE(fleet.Work("w0"));
  // It goes on trying, and is back when it has the data, though nobody's plan is that one any more.
  EXPECT_EQ(fleet.Task("w1").shard().plan(), 1);
  EXPECT_FALSE(fleet.Task("w1").has_train());
  EXPECT_TRUE(fleet.Work("w1"));
  EXPECT_EQ(fleet.job().Status(fleet.now()).workers(1).excluded(), "");
  while (fleet.job().version() < Version(2)) ASSERT_TRUE(fleet.Work("w0"));
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 2);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  const v1::GetJobResponse shown = fleet.job().Status(fleet.now());
  EXPECT_EQ(shown.rounds(0).contributions(), 1);
  EXPECT_EQ(shown.rounds(shown.rounds_size() - 1).contributions(), 2);
}

TEST(JobTest, AWorkerLostInARoundWithTheQuorum) {
  Fleet fleet = WithWorkers(4);
  fleet.RunUntilRound(0);
  fleet.Lose("w3");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  const v1::GetJobResponse status = fleet.job().Status(fleet.now());
  EXPECT_EQ(status.rounds(0).contributions(), 3);
  EXPECT_EQ(status.rounds(0).planned_contributions(), 4);
  // Planned anew over the three that are left.
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 3);
  // Its samples of the first round are missing, so that the epochs take a round more.
  EXPECT_GE(status.summary().epochs_done(), 2);
  EXPECT_EQ(status.rounds_size(), 3);
  EXPECT_FALSE(status.rounds(0).evaluation().complete());
  EXPECT_TRUE(status.summary().evaluation().complete());
}

TEST(JobTest, BelowTheQuorumTheRoundWaitsThenIsRepeatedByTheLiving) {
  Fleet fleet = WithWorkers(2);
  fleet.RunUntilRound(0);
  const int64_t attempt = fleet.job().book()->options().attempt;
  fleet.Lose("w1");
  fleet.Run();
  EXPECT_THAT(fleet.job().WaitingFor(), ElementsAre("w1"));
  EXPECT_EQ(fleet.commits, 0);
  fleet.Pass(absl::Seconds(89));
  EXPECT_THAT(fleet.drops(), IsEmpty());
  fleet.Pass(absl::Seconds(1));
  EXPECT_THAT(fleet.drops(), ElementsAre(AllOf(HasSubstr("quorum"), HasSubstr("w1"))));
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 1);
  EXPECT_EQ(fleet.stored().rounds[0].round(), 0);
  EXPECT_GT(fleet.job().Status(fleet.now()).workers(0).rounds(), 0);
  EXPECT_EQ(attempt, 1);
}

TEST(JobTest, WhoIsLateIsAskedForWhatItHasDone) {
  Fleet fleet = WithWorkers(3);
  fleet.RunUntilRound(0);
  ASSERT_TRUE(fleet.Contribute("w0"));
  ASSERT_TRUE(fleet.Contribute("w1"));
  fleet.Pass(absl::Seconds(29));
  EXPECT_FALSE(fleet.Task("w2").train().deliver_now());
  const v1::TrainTask before = fleet.Task("w2").train();
  fleet.Pass(absl::Seconds(1));
  v1::TrainTask asked = fleet.Task("w2").train();
  EXPECT_TRUE(asked.deliver_now());
  asked.set_deliver_now(false);
  EXPECT_EQ(asked.SerializeAsString(), before.SerializeAsString());  // The same task otherwise.
  EXPECT_EQ(fleet.commits, 0);
  ASSERT_TRUE(fleet.Contribute("w2", 7));
  ASSERT_EQ(fleet.commits, 1);
  EXPECT_EQ(fleet.stored().rounds[0].contributions(), 3);
  EXPECT_EQ(fleet.stored().rounds[0].samples(), kTrain - before.planned_samples() + 7);
  EXPECT_FALSE(fleet.Task("w2").train().deliver_now());  // The next round is another.
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
}

TEST(JobTest, WhoDeliversNothingIsNotWaitedForBeyondTheGrace) {
  Fleet fleet = WithWorkers(4);
  fleet.RunUntilRound(0);
  for (const char* name : {"w0", "w1", "w2"}) ASSERT_TRUE(fleet.Contribute(name));
  fleet.Pass(absl::Seconds(30));
  EXPECT_EQ(fleet.commits, 0);
  fleet.Pass(absl::Seconds(2));
  EXPECT_EQ(fleet.commits, 1);
}

TEST(JobTest, NobodyIsLateWhileTheCoordinatorHasNoRoom) {
  Fleet fleet = WithWorkers(2);
  fleet.RunUntilRound(0);
  for (int i = 0; i < 100; ++i) {  // For ten minutes, longer than deadline and replan_after together.
    fleet.job().OnNoRoom(fleet.now());
    fleet.Pass(absl::Seconds(6));
  }
  EXPECT_THAT(fleet.drops(), IsEmpty());
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.stored().rounds[0].contributions(), 2);
}

TEST(JobTest, ADrainingWorkerDeliversAndIsPlannedNoMore) {
  Fleet fleet = WithWorkers(3);
  fleet.RunUntilRound(0);
  fleet.job().SetDraining(WorkerId("w1"), fleet.now());
  fleet.Settle();
  const v1::Assignment task = fleet.Task("w1");
  EXPECT_TRUE(task.train().deliver_now());
  EXPECT_FALSE(task.has_evaluate());
  EXPECT_FALSE(task.has_shard());
  EXPECT_FALSE(fleet.Task("w0").train().deliver_now());
  ASSERT_TRUE(fleet.Contribute("w1", 5));
  fleet.Lose("w1");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.stored().rounds[0].contributions(), 3);
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 2);
}

TEST(JobTest, ADrainedWorkerThatIsStartedAgainIsPlannedAgain) {
  Fleet fleet = WithWorkers(4);
  fleet.RunUntilRound(0);
  fleet.job().SetDraining(WorkerId("w1"), fleet.now());
  fleet.Lose("w1");
  fleet.RunUntilRound(1);
  EXPECT_FALSE(fleet.Task("w1").has_train());
  fleet.RestartWorker("w1");
  EXPECT_TRUE(fleet.Task("w1").has_prepare());
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 4);
}

TEST(JobTest, APauseCommitsWhatIsDoneAndStandsStill) {
  Fleet fleet = WithWorkers(2);
  fleet.RunUntilRound(0);
  ASSERT_TRUE(fleet.Contribute("w0"));
  fleet.job().Pause(fleet.now());
  fleet.Settle();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_TRAINING);
  EXPECT_TRUE(fleet.Task("w1").train().deliver_now());
  ASSERT_TRUE(fleet.Contribute("w1", 3));
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(fleet.commits, 1);
  EXPECT_TRUE(fleet.stored().runtime.paused());
  fleet.Run();
  fleet.Pass(absl::Hours(5));
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_PAUSED);
  EXPECT_FALSE(fleet.Task("w0").has_train());
  fleet.RestartCoordinator();
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_PAUSED);
  fleet.job().Resume(fleet.now());
  fleet.Settle();
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED) << fleet.job().reason();
  EXPECT_FALSE(fleet.stored().runtime.paused());
}

TEST(JobTest, APauseAtAnyTimeAndARestartInIt) {
  for (int steps = 0; steps < 40; ++steps) {
    SCOPED_TRACE(steps);
    Fleet fleet = WithWorkers(2);
    int left = steps;
    fleet.Run([&] { return left-- == 0; });
    if (fleet.job().ended()) break;
    fleet.job().Pause(fleet.now());
    fleet.Settle();
    fleet.Run();
    if (fleet.job().ended()) continue;  // Only its last evaluation was left.
    ASSERT_EQ(fleet.job().state(), v1::JOB_STATE_PAUSED);
    if (steps % 2 == 1) fleet.RestartCoordinator();
    ASSERT_EQ(fleet.job().state(), v1::JOB_STATE_PAUSED);
    fleet.job().Resume(fleet.now());
    fleet.Settle();
    fleet.Run();
    ASSERT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED) << fleet.job().reason();
  }
}

TEST(JobTest, AQueuedJobThatIsPausedDoesNotStart) {
  Job::Options options;
  options.spec = Spec();
  options.train.set_samples(kTrain);
  Job job(options);
  job.Pause(absl::UnixEpoch());
  job.Start(absl::UnixEpoch());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUBMITTED);
  EXPECT_THAT(job.reason(), HasSubstr("paused"));
  job.Resume(absl::UnixEpoch());
  job.Start(absl::UnixEpoch());
  EXPECT_EQ(job.state(), v1::JOB_STATE_PROFILING);
}

TEST(JobTest, AWorkerThatReturnsInTimeCounts) {
  Fleet fleet = WithWorkers(2);
  fleet.RunUntilRound(0);
  fleet.Lose("w1");
  fleet.Run();
  fleet.Pass(absl::Seconds(40));
  fleet.SetPresent("w1", true);
  EXPECT_TRUE(IsWorking(fleet.Task("w1"), 0));
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.stored().rounds[0].contributions(), 2);
  EXPECT_THAT(fleet.drops(), IsEmpty());
}

TEST(JobTest, AWorkerThatRestartsInARoundDoesItAgain) {
  Fleet fleet = WithWorkers(2);
  fleet.RunUntilRound(0);
  const v1::PushRequest old = fleet.Push("w1");
  fleet.RestartWorker("w1");
  EXPECT_TRUE(IsWorking(fleet.Task("w1"), 0));
  ASSERT_OK_AND_ASSIGN(auto answer, fleet.Check(old, "w1"));
  EXPECT_EQ(answer->outcome(), Outcome::OUTCOME_NOT_WANTED);
  EXPECT_EQ(answer->reason(), "old_incarnation");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.stored().rounds[0].contributions(), 2);
}

TEST(JobTest, AWorkerThatRestartsAfterItContributedDoesNotDoItAgain) {
  Fleet fleet = WithWorkers(2);
  fleet.RunUntilRound(0);
  fleet.Work("w1");
  fleet.Work("w1");
  ASSERT_EQ(fleet.job().book()->counted(), 1);
  EXPECT_TRUE(IsWorking(fleet.Task("w1"), 0)) << "until the commit, so that it hears the answer";
  fleet.RestartWorker("w1");
  EXPECT_FALSE(fleet.Task("w1").has_train());
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
}

TEST(JobTest, AJoiningWorkerIsPlannedInBetweenRounds) {
  v1::JobSpec spec = Spec();
  spec.mutable_end()->set_epochs(4);
  Fleet fleet = WithWorkers(2, spec);
  fleet.RunUntilRound(1);
  fleet.Join("w2");
  EXPECT_TRUE(fleet.Task("w2").has_prepare());
  EXPECT_FALSE(fleet.Task("w2").has_profile());
  fleet.Work("w2");
  EXPECT_TRUE(fleet.Task("w2").has_profile());
  fleet.Work("w2");
  EXPECT_EQ(fleet.job().plan()->plan.number(), 1) << "not while a round is open";
  while (fleet.job().book()->options().round == Round(1)) {
    fleet.Work("w0");
    fleet.Work("w1");
  }
  // Round 2 opens on the old plan while the data of the new one is on its way.
  EXPECT_EQ(fleet.job().plan()->plan.number(), 2);
  EXPECT_THAT(fleet.job().plan()->plan.reason(), HasSubstr("with w2"));
  EXPECT_EQ(fleet.Task("w0").train().plan(), 1);
  EXPECT_EQ(fleet.Task("w0").shard().plan(), 2);
  EXPECT_EQ(fleet.Task("w2").shard().plan(), 2);
  EXPECT_FALSE(fleet.Task("w2").has_train());
  fleet.RunUntilRound(3);
  EXPECT_EQ(fleet.Task("w2").train().plan(), 2);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.stored().rounds[3].contributions(), 3);
}

TEST(JobTest, ALostWorkerThatReturnsBetweenRoundsIsPlannedInAgain) {
  v1::JobSpec spec = Spec();
  spec.mutable_end()->set_epochs(6);
  Fleet fleet = WithWorkers(4, spec);
  fleet.RunUntilRound(0);
  fleet.Lose("w3");
  fleet.RunUntilRound(2);
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 3);
  fleet.SetPresent("w3", true);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.job().plan()->plan.workers_size(), 4);
  EXPECT_EQ(fleet.stored().rounds.back().contributions(), 4);
}

TEST(JobTest, ARemovedWorkerGetsNothingMore) {
  Fleet fleet = WithWorkers(3);
  fleet.RunUntilRound(0);
  fleet.job().Forget(WorkerId("w1"), fleet.now());
  fleet.Lose("w1");
  EXPECT_EQ(fleet.Task("w1").job(), "");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED) << "nobody waits for it";
}

TEST(JobTest, BelowTheQuorumNobodyWaitsForWhoHasLeft) {
  Fleet fleet = WithWorkers(3);
  fleet.RunUntilRound(1);
  fleet.Lose("w1");
  const absl::Time before = fleet.now();
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_TRAINING) << "it may come back";
  EXPECT_THAT(fleet.drops(), IsEmpty());
  fleet.job().Left(WorkerId("w1"));
  fleet.Settle();
  EXPECT_THAT(fleet.drops(), ElementsAre(HasSubstr("missing w1 (left)")));
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.now(), before);
}

TEST(JobTest, WhatIsToldToAPush) {
  Fleet fleet = WithWorkers(3);
  fleet.RunUntilRound(0);
  const v1::PushRequest good = fleet.Push("w0");
  const auto expect = [&](v1::PushRequest request, Outcome::Outcome outcome, const std::string& reason,
                          const std::string& name = "w0") {
    auto answer = fleet.Check(request, name);
    ASSERT_THAT(answer, IsOk());
    ASSERT_TRUE(answer->has_value()) << reason;
    EXPECT_EQ((*answer)->outcome(), outcome) << reason;
    EXPECT_EQ((*answer)->reason(), reason);
  };
  v1::PushRequest bad = good;
  bad.mutable_fence()->set_incarnation(9);
  expect(bad, Outcome::OUTCOME_NOT_WANTED, "old_incarnation");
  bad = good;
  bad.mutable_fence()->set_round(1);
  expect(bad, Outcome::OUTCOME_NOT_WANTED, "stale_round");
  bad = good;
  bad.set_attempt(good.attempt() + 1);
  expect(bad, Outcome::OUTCOME_NOT_WANTED, "stale_round");
  EXPECT_TRUE(fleet.Wanted(good, "w0"));

  ASSERT_TRUE(fleet.job().BeginAdding(WorkerId("w0"), good));
  EXPECT_FALSE(fleet.job().BeginAdding(WorkerId("w0"), good));
  EXPECT_THAT(fleet.Check(good, "w0"), StatusIs(absl::StatusCode::kUnavailable));
  fleet.job().CancelAdding(WorkerId("w0"));
  EXPECT_TRUE(fleet.Add("w0", good));
  expect(good, Outcome::OUTCOME_COUNTED, "");
  bad = good;
  bad.set_sha256(std::string(32, 'x'));
  expect(bad, Outcome::OUTCOME_NOT_WANTED, "replayed");

  fleet.Join("w3");
  v1::PushRequest stranger = fleet.Push("w1");
  expect(stranger, Outcome::OUTCOME_NOT_WANTED, "not_participant", "w3");

  bad = fleet.Push("w1");
  bad.set_layout_sha256(MakeLayout(5).hash());
  expect(bad, Outcome::OUTCOME_REJECTED, "wrong_layout", "w1");
  EXPECT_FALSE(fleet.Task("w1").has_train());
  // What is rejected stays rejected.
  bad.set_layout_sha256(good.layout_sha256());
  expect(bad, Outcome::OUTCOME_REJECTED, "wrong_layout", "w1");

  bad = fleet.Push("w2");
  bad.set_samples(bad.samples() + 1);
  expect(bad, Outcome::OUTCOME_REJECTED, "wrong_weight", "w2");
  const v1::GetJobResponse status = fleet.job().Status(fleet.now());
  EXPECT_EQ(status.rejected().at("wrong_layout"), 2);
  EXPECT_EQ(status.rejected().at("wrong_weight"), 1);
  EXPECT_EQ(status.rejected().at("stale_round"), 2);
  EXPECT_EQ(status.rejected().at("replayed"), 1);
}

TEST(JobTest, ShapesThatDoNotFit) {
  const std::vector<std::function<void(v1::PushRequest*)>> ways = {
      [](auto* r) { r->set_part(1); },
      [](auto* r) { r->set_parts(2); },
      [](auto* r) { r->mutable_fence()->set_fragment(1); },
      [](auto* r) { r->mutable_elements(0)->set_begin(1); },
      [](auto* r) { r->mutable_elements(0)->set_end(3); },
      [](auto* r) { r->set_total_bytes(r->total_bytes() + 1); },
      [](auto* r) { r->set_total_bytes(int64_t{1} << 60); },
      [](auto* r) { r->set_sha256("short"); },
  };
  for (const auto& way : ways) {
    Fleet fleet = WithWorkers(4);
    fleet.RunUntilRound(0);
    v1::PushRequest request = fleet.Push("w0");
    way(&request);
    ASSERT_OK_AND_ASSIGN(auto answer, fleet.Check(request, "w0"));
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->reason(), "wrong_shape");
    fleet.Run();
    EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED) << "the job goes on";
  }
}

TEST(JobTest, ThreeRejectedRoundsInARowFailTheJob) {
  Fleet fleet = WithWorkers(2);
  fleet.RunUntilRound(1);
  int64_t attempt = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(IsWorking(fleet.Task("w0"), 1)) << i;
    EXPECT_GT(fleet.Task("w0").train().attempt(), attempt);
    attempt = fleet.Task("w0").train().attempt();
    fleet.RejectNext("w0");
    fleet.RejectNext("w1");
  }
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(fleet.job().reason(), AllOf(HasSubstr("w0: not_finite"), HasSubstr("3 times"), HasSubstr("version 1")));
  EXPECT_EQ(fleet.job().final_version(), Version(1));
  EXPECT_THAT(fleet.drops(), SizeIs(3));
}

TEST(JobTest, ACommitForgetsRejections) {
  v1::JobSpec spec = Spec();
  spec.mutable_end()->set_epochs(4);
  Fleet fleet = WithWorkers(2, spec);
  for (int round = 0; round < 4; ++round) {
    fleet.RunUntilRound(round);
    for (int i = 0; i < 2; ++i) {
      fleet.RejectNext("w0");
      fleet.RejectNext("w1");
    }
  }
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_THAT(fleet.drops(), SizeIs(8));
}

TEST(JobTest, ZeroWeightFailsTheJob) {
  Fleet fleet = WithWorkers(2);
  fleet.RunUntilRound(1);
  EXPECT_TRUE(fleet.Contribute("w0", 0));
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_TRAINING);
  EXPECT_TRUE(fleet.Contribute("w1", 0));
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(fleet.job().reason(), HasSubstr("zero"));
  EXPECT_EQ(fleet.job().final_version(), Version(1));
}

TEST(JobTest, TheVersionThatReachedTheTargetIsFinal) {
  for (const bool loss : {false, true}) {
    v1::JobSpec spec = Spec();
    spec.mutable_end()->set_epochs(10);
    spec.mutable_end()->set_target_metric(loss ? v1::METRIC_LOSS : v1::METRIC_ACCURACY);
    spec.mutable_end()->set_target_value(loss ? 1.0 : 0.8);
    Fleet fleet = WithWorkers(3, spec);
    fleet.accuracy = [](int64_t version) { return version >= 3 ? 0.9 : 0.1; };
    fleet.Run();
    EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
    EXPECT_EQ(fleet.job().reason(), "target reached");
    EXPECT_EQ(fleet.job().final_version(), Version(loss ? 0 : 3));
    EXPECT_EQ(fleet.job().Summary().version(), loss ? 0 : 3);
    EXPECT_EQ(fleet.job().Summary().evaluation().version(), loss ? 0 : 3);
  }
}

TEST(JobTest, APartialEvaluationReachesNoTarget) {
  v1::JobSpec spec = Spec();
  spec.mutable_end()->set_target_metric(v1::METRIC_ACCURACY);
  spec.mutable_end()->set_target_value(0.5);
  Fleet fleet = WithWorkers(4, spec);
  fleet.accuracy = [](int64_t version) { return version == 0 ? 1.0 : 0.1; };
  fleet.RunUntilRound(0);
  fleet.Lose("w3");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_NE(fleet.job().reason(), "target reached");
}

TEST(JobTest, EndByRoundsAndBySamples) {
  v1::JobSpec spec = Spec();
  spec.mutable_end()->set_rounds(3);
  spec.mutable_end()->set_epochs(0);
  Fleet rounds = WithWorkers(2, spec);
  rounds.Run();
  EXPECT_EQ(rounds.job().final_version(), Version(3));
  spec.mutable_end()->set_rounds(0);
  spec.mutable_end()->set_samples(kTrain + 1);
  Fleet samples = WithWorkers(2, spec);
  samples.Run();
  EXPECT_EQ(samples.job().final_version(), Version(2));
}

TEST(JobTest, EvaluationPartsAreDisjointAndCoverTheTestSet) {
  Fleet fleet = WithWorkers(3);
  fleet.worker("w0").per_sample_s = 5e-4;
  fleet.RunUntilRound(0);
  Ranges all;
  std::map<std::string, int64_t> counts;
  for (const char* name : {"w0", "w1", "w2"}) {
    const v1::EvaluateTask task = fleet.Task(name).evaluate();
    EXPECT_EQ(task.version(), 0);
    counts[name] = Count(task.ranges());
    for (const auto& r : task.ranges()) all.push_back({r.begin(), r.end()});
    // The part lies in what its cache holds.
    EXPECT_EQ(Count(fleet.Task(name).shard().test_ranges()), counts[name]);
  }
  ExpectTiles(all, kTest);
  EXPECT_LT(counts["w0"] * 3, counts["w1"]);
  // An impossible report is refused and changes nothing.
  v1::ReportEvaluationRequest request;
  request.set_attempt(fleet.Task("w0").evaluate().attempt());
  request.set_total(counts["w0"]);
  request.set_correct(counts["w0"] + 1);
  EXPECT_THAT(fleet.job().OnEvaluation(WorkerId("w0"), request, fleet.now()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  request.set_correct(0);
  request.set_total(counts["w0"] - 1);
  EXPECT_THAT(fleet.job().OnEvaluation(WorkerId("w0"), request, fleet.now()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(fleet.Task("w0").has_evaluate());
}

TEST(JobTest, ALostEvaluatorOfTheLastEvaluationIsReplaced) {
  Fleet fleet = WithWorkers(3);
  fleet.Run([&] { return fleet.Task("w1").evaluate().version() == 2; });
  fleet.Work("w0");
  fleet.Lose("w1");
  fleet.Settle();
  EXPECT_TRUE(fleet.Task("w0").has_evaluate());
  // It comes back too late: its part is another's.
  fleet.SetPresent("w1", true);
  EXPECT_FALSE(fleet.Task("w1").has_evaluate());
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_TRUE(fleet.job().evaluations().back().complete());
  EXPECT_EQ(fleet.job().evaluations().back().total(), kTest);
}

TEST(JobTest, TheLastEvaluationDoesNotWaitForEver) {
  Fleet fleet = WithWorkers(3);
  fleet.Run([&] { return fleet.Task("w1").evaluate().version() == 2; });
  fleet.Work("w0");
  for (const char* name : {"w0", "w1", "w2"}) fleet.Lose(name);
  fleet.Pass(absl::Seconds(59));
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_TRAINING);
  EXPECT_THAT(fleet.job().WaitingFor(), ElementsAre("w1", "w2"));
  fleet.Pass(absl::Seconds(2));
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.job().reason(), "the last evaluation is partial: w1, w2 did not answer in time");
  EXPECT_FALSE(fleet.job().evaluations().back().complete());
  EXPECT_EQ(fleet.job().final_version(), Version(2));
}

TEST(JobTest, NobodyIsThereForTheLastEvaluation) {
  for (const bool returns : {false, true}) {
    Fleet fleet = WithWorkers(2);
    fleet.auto_commit = false;
    v1::RoundRecord record;
    fleet.RunUntilRound(0);
    fleet.auto_commit = true;
    fleet.RunUntilRound(1);
    while (fleet.Task("w0").has_evaluate() || fleet.Task("w1").has_evaluate()) {
      if (fleet.Task("w0").has_evaluate()) fleet.Work("w0");
      if (fleet.Task("w1").has_evaluate()) fleet.Work("w1");
    }
    fleet.auto_commit = false;
    EXPECT_TRUE(fleet.Contribute("w0"));
    EXPECT_TRUE(fleet.Contribute("w1"));
    record.set_version(2);
    record.set_round(1);
    record.set_samples(kTrain);
    fleet.Lose("w0");
    fleet.Lose("w1");
    fleet.Commit(record);
    fleet.Settle();
    EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_TRAINING);
    fleet.Pass(absl::Seconds(50));
    if (returns) {
      fleet.SetPresent("w1", true);
      fleet.Run();
      EXPECT_EQ(fleet.job().reason(), "");
      EXPECT_TRUE(fleet.job().evaluations().back().complete());
    } else {
      EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_TRAINING);
      fleet.Pass(absl::Seconds(11));
    }
    EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
    EXPECT_EQ(fleet.job().final_version(), Version(2));
  }
}

TEST(JobTest, SubRoundsCoverTheShardAndAWorkerWithFewStepsSitsOut) {
  v1::JobSpec spec = Spec();
  spec.mutable_rounds()->set_per_epoch(8);
  spec.mutable_end()->set_epochs(1);
  spec.mutable_batch()->set_per_worker(32);
  Fleet fleet = WithWorkers(2, spec);
  fleet.worker("w1").per_sample_s = 2e-3;
  std::map<std::string, int64_t> samples;
  std::map<std::string, int64_t> next_step;
  std::map<std::string, int> rounds;
  for (int64_t round = 0; round < 8; ++round) {
    fleet.RunUntilRound(round);
    for (const char* name : {"w0", "w1"}) {
      const v1::Assignment a = fleet.Task(name);
      if (!a.has_train()) continue;
      EXPECT_EQ(a.train().first_step(), next_step[name]);
      EXPECT_EQ(a.train().epoch(), 0);
      next_step[name] = a.train().last_step();
      samples[name] += a.train().planned_samples();
      ++rounds[name];
    }
  }
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(rounds["w0"], 8);
  EXPECT_LT(rounds["w1"], 8);
  EXPECT_GT(rounds["w1"], 0);
  for (const auto& w : fleet.job().plan()->plan.workers()) {
    EXPECT_EQ(samples[w.worker()], w.samples());
    EXPECT_EQ(next_step[w.worker()], w.steps_per_epoch());
  }
  EXPECT_EQ(fleet.job().committed_samples(), kTrain);
  EXPECT_EQ(fleet.job().final_version(), Version(8));
}

TEST(JobTest, APinnedPlan) {
  v1::Plan pinned;
  pinned.set_samples(kTrain);
  for (const auto& [name, samples] : std::map<std::string, int64_t>{{"w0", 900}, {"w1", 100}}) {
    auto* w = pinned.add_workers();
    w->set_worker(name);
    w->set_samples(samples);
    w->set_batch_size(10);
  }
  Fleet fleet(Spec(), 0, kTest, pinned);
  fleet.Join("w0");
  fleet.Join("w2");
  fleet.Run();
  EXPECT_EQ(fleet.job().plan(), nullptr);
  EXPECT_THAT(fleet.job().reason(), HasSubstr("w1"));
  fleet.Join("w1");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  const v1::GetJobResponse status = fleet.job().Status(fleet.now());
  EXPECT_TRUE(status.plan().pinned());
  EXPECT_EQ(status.plan().number(), 1);
  EXPECT_FALSE(status.workers(2).takes_part()) << "a worker with no samples is listed so";
  EXPECT_EQ(status.rounds(0).contributions(), 2);
}

TEST(JobTest, AbortAtAnyTime) {
  for (int steps = 0; steps < 30; ++steps) {
    Fleet fleet = WithWorkers(2);
    int done = 0;
    fleet.Run([&] { return done++ == steps; });
    fleet.job().Abort("enough", fleet.now());
    fleet.Settle();
    if (fleet.job().state() == v1::JOB_STATE_FINISHED) continue;
    EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_ABORTED);
    EXPECT_EQ(fleet.stored().reason, "enough");
    EXPECT_NE(fleet.stored().ended, absl::InfinitePast());
    EXPECT_EQ(fleet.job().final_version().has_value(), fleet.job().version().value() >= 0);
  }
}

TEST(JobTest, SitesOfTheJobOnly) {
  v1::JobSpec spec = Spec();
  spec.add_sites("lab");
  Fleet fleet = WithWorkers(1, spec);
  fleet.workers()["x"].name = WorkerId("x");
  fleet.worker("x").site = SiteId("elsewhere");
  fleet.SetPresent("x", true);
  EXPECT_EQ(fleet.Task("x").job(), "");
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.job().Status(fleet.now()).workers_size(), 1);
}

TEST(JobTest, ARestartInARoundKeepsWhatWasCounted) {
  Fleet fleet = WithWorkers(3);
  fleet.RunUntilRound(1);
  const int64_t attempt = fleet.Task("w0").train().attempt();
  const v1::PushRequest pushed = fleet.Push("w0");
  fleet.Work("w0");
  fleet.Work("w0");
  ASSERT_EQ(fleet.job().book()->counted(), 1);
  fleet.RestartCoordinator();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_TRAINING);
  EXPECT_EQ(fleet.job().committed_samples(), kTrain);
  EXPECT_FALSE(fleet.Task("w0").has_train());
  EXPECT_TRUE(IsWorking(fleet.Task("w1"), 1));
  EXPECT_EQ(fleet.Task("w1").train().attempt(), attempt) << "the round it was in goes on";
  // Not acknowledged before the crash: it is offered again, and counts as before.
  ASSERT_OK_AND_ASSIGN(auto again, fleet.Check(pushed, "w0"));
  EXPECT_EQ(again->outcome(), Outcome::OUTCOME_COUNTED);
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.stored().rounds[1].contributions(), 3);
  EXPECT_EQ(fleet.stored().rounds[1].samples(), kTrain);
  EXPECT_TRUE(fleet.job().evaluations().back().complete());
}

TEST(JobTest, ARestartAtAnyTime) {
  for (int steps = 0; steps < 40; ++steps) {
    SCOPED_TRACE(steps);
    v1::JobSpec spec = Spec();
    spec.mutable_end()->set_epochs(3);
    Fleet fleet = WithWorkers(2, spec);
    int done = 0;
    fleet.Run([&] { return done++ == steps; });
    fleet.RestartCoordinator();
    fleet.Run();
    EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
    EXPECT_EQ(fleet.job().final_version(), Version(3));
    fleet.RestartCoordinator();
    EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
    EXPECT_EQ(fleet.job().final_version(), Version(3));
    EXPECT_EQ(fleet.job().Summary().evaluation().version(), 3);
  }
}

TEST(JobTest, ARestartOverAWorkerThatDoesNotComeBack) {
  Fleet fleet = WithWorkers(4);
  fleet.RunUntilRound(0);
  fleet.worker("w2").present = false;
  fleet.RestartCoordinator();
  fleet.Run();
  EXPECT_EQ(fleet.job().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(fleet.stored().rounds[0].contributions(), 3);
}

// Everything at random, coordinator restarts included; the checks are in Fleet. Once nothing bad happens any more, the job ends.
TEST(JobTest, RandomLives) {
  std::map<v1::JobState, int> ends;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    v1::JobSpec spec = Spec();
    spec.mutable_end()->set_epochs(1 + static_cast<double>(random.Below(4)));
    spec.mutable_rounds()->set_per_epoch(1 + static_cast<int64_t>(random.Below(4)));
    spec.mutable_rounds()->set_quorum(0.3 + 0.7 * random.Uniform());
    Fleet fleet = WithWorkers(5, spec, random.Below(4) == 0 ? 0 : kTest);
    for (auto& [name, w] : fleet.workers()) w.per_sample_s = 1e-4 * (1 + static_cast<double>(random.Below(8)));
    for (int event = 0; event < 400 && !fleet.job().ended(); ++event) {
      const std::string name = absl::StrCat("w", random.Below(5));
      FakeWorker& w = fleet.worker(name);
      switch (random.Below(20)) {
        case 0: fleet.SetPresent(name, !w.present); break;
        case 1:
          if (!w.present) fleet.SetPresent(name, true);
          break;
        case 2:
          if (random.Below(3) == 0) fleet.RestartWorker(name);
          break;
        case 3: fleet.Pass(absl::Seconds(static_cast<int64_t>(random.Below(40)))); break;
        case 4:
          if (random.Below(3) == 0) fleet.RestartCoordinator();
          break;
        case 5:
          if (w.present && fleet.Task(name).has_train() && random.Below(2) == 0) fleet.RejectNext(name);
          break;
        case 6:
          if (random.Below(3) == 0) fleet.job().Pause(fleet.now());
          fleet.Settle();
          break;
        case 7:
          fleet.job().Resume(fleet.now());
          fleet.Settle();
          break;
        case 8:
          if (w.present && random.Below(3) == 0) fleet.job().SetDraining(w.name, fleet.now());
          fleet.Settle();
          break;
        default: fleet.Work(name);
      }
    }
    for (auto& [name, w] : fleet.workers()) {
      if (!w.present) fleet.SetPresent(name, true);
    }
    fleet.job().Resume(fleet.now());
    fleet.Settle();
    // Whoever was left out for good, or drains, begins anew as a new process.
    for (auto& [name, w] : fleet.workers()) {
      if (!fleet.job().ended()) fleet.RestartWorker(name);
    }
    for (int i = 0; i < 50 && !fleet.job().ended(); ++i) {
      fleet.Run();
      fleet.Pass(absl::Seconds(100));
    }
    EXPECT_TRUE(fleet.job().ended()) << v1::JobState_Name(fleet.job().state()) << ": " << fleet.job().reason();
    ++ends[fleet.job().state()];
    if (HasFailure()) return;
  }
  EXPECT_GT(ends[v1::JOB_STATE_FINISHED], 200);
}

}  // namespace
}  // namespace causeway::server
