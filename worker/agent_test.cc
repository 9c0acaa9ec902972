#include "worker/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completion.h"
#include "base/file.h"
#include "dataplane/protocol_version.h"
#include "tests/fakes/fake_coordinator.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::worker {
namespace {

// The real clock, since many threads wait; nothing sleeps, and all waits are for something that was told.
class AgentTest : public testing::Test {
 protected:
  AgentTest() {
    std::vector<uint8_t> records;
    for (int i = 0; i < 40; ++i)
      records.insert(records.end(), {static_cast<uint8_t>(i * 13), 7, 9, 200, static_cast<uint8_t>(i % 3)});
    train_ = coordinator_.AddDataset(records, {1, 2, 2}, 10);
    test_ = train_;
    WorkerMetrics::Options metrics;
    metrics.registry = registry_.get();
    metrics.clock = RealClock();
    metrics_ = std::make_unique<WorkerMetrics>(metrics);
    cache_ = *ChunkCache::Open({RealFileSystem(), dir_.Join("cache"), 1 << 20});
    local_state_ = *LocalState::Open(RealFileSystem(), dir_.path(), absl::FromUnixSeconds(1700000000));

    Agent::Options& options = options_;
    options.worker = "lab-1";
    *options.registration.mutable_version() = dataplane::OurVersion();
    options.registration.set_incarnation(local_state_->incarnation().value());
    options.dir = dir_.path();
    options.transfer.dialer = &bulk_;
    options.transfer.clock = RealClock();
    options.transfer.backoff.initial = absl::Milliseconds(1);
    options.state.reconnect = {absl::Milliseconds(1), absl::Milliseconds(10)};
    options.state.retry_task = {absl::Milliseconds(1), absl::Milliseconds(10)};
    options.report_backoff = {absl::Milliseconds(1), absl::Milliseconds(10)};
    options.on_give_up = [this](const absl::Status& status) { gave_up_.Set(status); };
    options.on_drained = [this] { drained_.Set(true); };
    options.client = &coordinator_;
    options.bulk = &bulk_;
    options.factory = &factory_;
    options.cache = cache_.get();
    options.local_state = local_state_.get();
    options.fs = RealFileSystem();
    options.metrics = metrics_.get();
    options.board = &board_;
    options.clock = RealClock();
    options.answer_grace = absl::Seconds(60);  // Nobody waits so long here.
    Create();
  }

  void Create() {
    auto agent = Agent::Create(options_);
    EXPECT_THAT(agent, IsOk());
    agent_ = *std::move(agent);
  }

  ~AgentTest() override {
    hold_ = false;
    coordinator_.HoldPushAnswers(false);
    agent_->Stop();
  }

  static v1::JobSpec Spec() {
    v1::JobSpec spec;
    spec.set_name("fashion");
    spec.mutable_model()->set_builtin("fake");
    spec.mutable_model()->set_classes(3);
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->set_learning_rate(0.1);
    spec.mutable_optimizer()->mutable_schedule()->set_name("constant");
    spec.set_seed(7);
    return spec;
  }
  v1::Assignment Prepare(bool upload = false) const {
    v1::Assignment assignment;
    assignment.set_job("fashion");
    *assignment.mutable_spec() = Spec();
    assignment.mutable_prepare()->set_upload_initial(upload);
    *assignment.mutable_prepare()->mutable_train() = train_;
    return assignment;
  }
  v1::Assignment WithShard(v1::Assignment assignment) const {
    assignment.mutable_shard()->set_plan(1);
    *assignment.mutable_shard()->mutable_train() = train_;
    *assignment.mutable_shard()->mutable_test() = test_;
    assignment.mutable_shard()->add_train_ranges()->set_end(30);
    assignment.mutable_shard()->add_test_ranges()->set_end(10);
    return assignment;
  }
  v1::Assignment Round(int64_t round) const {
    v1::Assignment assignment = WithShard(Prepare());
    v1::TrainTask* train = assignment.mutable_train();
    train->set_plan(1);
    train->set_round(round);
    train->set_version(round);
    train->set_last_step(3);
    train->set_batch_size(10);
    train->set_planned_samples(30);
    train->set_round_samples(30);
    train->set_job_samples(300);
    train->set_attempt(1);
    train->add_ranges()->set_end(30);
    assignment.mutable_evaluate()->set_version(round);
    assignment.mutable_evaluate()->add_ranges()->set_end(10);
    return assignment;
  }

  // Starts, and brings the worker to where it can train version 0.
  void GetReady() {
    agent_->Start();
    coordinator_.Assign(Prepare(true));
    ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == 1; }));
    const dataplane::Layout layout = *dataplane::Layout::FromProto(coordinator_.models().at(0).layout());
    for (int64_t version = 0; version < 3; ++version)
      coordinator_.SetModel(version, layout, coordinator_.pushes().at(0).bytes);
    coordinator_.Assign(WithShard(Prepare()));
    ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.data().size() == 1; }));
  }

  // To where round 0's contribution has arrived and the round is over before its answer is sent.
  void LoseTheTaskBeforeTheAnswer() {
    GetReady();
    v1::Assignment round = Round(0);
    round.clear_evaluate();
    coordinator_.HoldPushAnswers(true);
    coordinator_.Assign(round);
    ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == 2; }));
    coordinator_.Assign(Round(1));
    ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.heartbeats().back().assignment_sequence() == 4; }));
  }
  bool Counted(int contributions) const {
    return absl::StrContains(
        registry_->Expose(),
        absl::StrCat("causeway_worker_contributions_total{job=\"fashion\",outcome=\"counted\"} ", contributions, "\n"));
  }

  TempDir dir_;
  FakeCoordinator coordinator_{RealClock()};
  // Forwards to the coordinator of this test, whose links count by address.
  class Forwarder : public dataplane::LinkDialer {
   public:
    Forwarder(dataplane::LinkDialer* to, std::atomic<int>* dials) : to_(to), dials_(dials) {}
    absl::StatusOr<std::unique_ptr<dataplane::Link>> Dial(dataplane::LinkKind kind, absl::Time deadline) override {
      ++*dials_;
      return to_->Dial(kind, deadline);
    }

   private:
    dataplane::LinkDialer* const to_;
    std::atomic<int>* const dials_;
  };
  FakeLinkDialer dialer_{&coordinator_, RealClock()};
  std::atomic<int> dials_to_configured_{0};
  std::atomic<int> dials_elsewhere_{0};
  BulkDialer bulk_{[this](const std::string& address) {
                     return std::make_unique<Forwarder>(
                         &dialer_, address == "configured:1" ? &dials_to_configured_ : &dials_elsewhere_);
                   },
                   "configured:1"};
  std::atomic<bool> hold_{false};  // The next batch waits for the end of this.
  std::atomic<int> batches_{0};
  FakeModelFactory factory_{[this] {
    FakeModel::Options options;
    options.on_batch = [this](int64_t) {
      ++batches_;
      EXPECT_TRUE(coordinator_.Await([&] { return !hold_; }));
    };
    return options;
  }()};
  v1::DatasetInfo train_;
  v1::DatasetInfo test_;
  std::unique_ptr<MetricRegistry> registry_ = MetricRegistry::Create();
  std::unique_ptr<WorkerMetrics> metrics_;
  ProgressBoard board_;
  std::unique_ptr<ChunkCache> cache_;
  std::unique_ptr<LocalState> local_state_;
  Completion<bool> gave_up_;
  Completion<bool> drained_;
  Agent::Options options_;
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, WorksThroughAJob) {
  GetReady();
  for (int64_t round = 0; round < 2; ++round) {
    coordinator_.Assign(Round(round));
    ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == static_cast<size_t>(round) + 2; }));
    ASSERT_TRUE(
        coordinator_.Await([&] { return coordinator_.evaluations().size() == static_cast<size_t>(round) + 1; }));
    EXPECT_EQ(coordinator_.pushes().back().request.fence().round(), round);
    EXPECT_EQ(coordinator_.evaluations().back().version(), round);
  }
  EXPECT_TRUE(board_.connected());
  ASSERT_TRUE(coordinator_.Await([&] {
    const v1::WorkerProgress progress = coordinator_.heartbeats().back().progress();
    return progress.round() == 1 && progress.phase() == v1::WORKER_PHASE_WAITING;
  }));
  EXPECT_EQ(coordinator_.heartbeats().back().assignment_sequence(), 4);
  EXPECT_GT(coordinator_.heartbeats().back().disk_free_bytes(), 0);
  EXPECT_GT(coordinator_.heartbeats().back().cache_bytes(), 0);
  EXPECT_EQ(coordinator_.registrations().size(), 1u);
}

TEST_F(AgentTest, SendsBulkWhereTheCoordinatorSays) {
  coordinator_.SetEndpoint("elsewhere:2");
  GetReady();
  EXPECT_EQ(dials_to_configured_, 0);
  EXPECT_GT(dials_elsewhere_, 0);
  coordinator_.SetEndpoint("");
  coordinator_.Restart();
  ASSERT_TRUE(coordinator_.Await(
      [&] { return coordinator_.pushes().size() >= 1 && coordinator_.registrations().size() == 2; }));
  coordinator_.Assign(Round(0));
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == 2; }));
  EXPECT_GT(dials_to_configured_, 0);
}

TEST_F(AgentTest, ALostConnectionDoesNotStopTraining) {
  GetReady();
  hold_ = true;
  const int before = batches_;
  coordinator_.Assign(Round(0));
  ASSERT_TRUE(coordinator_.Await([&] { return batches_ > before; }));
  coordinator_.FailCalls("Register", 1 << 30, absl::UnavailableError("gone"));
  coordinator_.BreakStream(absl::UnavailableError("gone"));
  ASSERT_TRUE(coordinator_.Await([&] { return !board_.connected(); }));
  hold_ = false;
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == 2; }));
  coordinator_.FailCalls("Register", 0, absl::OkStatus());
  ASSERT_TRUE(coordinator_.Await([&] { return board_.connected(); }));
  EXPECT_EQ(coordinator_.pushes().size(), 2u);
}

TEST_F(AgentTest, ARestartedCoordinatorIsOfferedTheContributionAgain) {
  GetReady();
  coordinator_.Assign(Round(0));
  ASSERT_TRUE(
      coordinator_.Await([&] { return coordinator_.pushes().size() == 2 && coordinator_.evaluations().size() == 1; }));
  const int batches = batches_;
  coordinator_.Restart();
  ASSERT_TRUE(
      coordinator_.Await([&] { return coordinator_.pushes().size() == 3 && coordinator_.evaluations().size() == 2; }));
  EXPECT_EQ(coordinator_.pushes()[2].request.sha256(), coordinator_.pushes()[1].request.sha256());
  EXPECT_EQ(batches_, batches);
}

TEST_F(AgentTest, StopsWhatIsNotAssignedAnyMore) {
  GetReady();
  v1::Assignment round = Round(0);
  round.clear_evaluate();
  hold_ = true;
  const int before = batches_;
  coordinator_.Assign(round);
  ASSERT_TRUE(coordinator_.Await([&] { return batches_ == before + 1; }));
  coordinator_.Assign({});
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.heartbeats().back().assignment_sequence() == 4; }));
  hold_ = false;
  v1::Assignment other = Prepare();
  other.set_job("other");
  coordinator_.Assign(other);  // Done when the same thread is through with the round.
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.models().size() == 3; }));
  EXPECT_EQ(batches_, before + 1);  // The step that ran was finished.
  EXPECT_EQ(coordinator_.pushes().size(), 1u);
}

TEST_F(AgentTest, HearsTheAnswerOfTheContributionThatEndsItsRound) {
  LoseTheTaskBeforeTheAnswer();
  EXPECT_FALSE(Counted(1));
  coordinator_.HoldPushAnswers(false);
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == 3; }));
  EXPECT_EQ(coordinator_.pushes()[2].request.fence().round(), 1);
  ASSERT_TRUE(coordinator_.Await([&] { return Counted(2); }));
}

TEST_F(AgentTest, HearsTheAnswerToTheInitialModel) {
  coordinator_.HoldPushAnswers(true);
  agent_->Start();
  coordinator_.Assign(Prepare(true));
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == 1; }));
  coordinator_.Assign(Prepare());
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.heartbeats().back().assignment_sequence() == 2; }));
  testing::internal::CaptureStderr();
  coordinator_.HoldPushAnswers(false);
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.models().size() == 2; }));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("initial_model_sent"));
}

TEST_F(AgentTest, WaitsForAnAnswerNoLongerThanTheGrace) {
  options_.answer_grace = absl::Milliseconds(50);
  Create();
  LoseTheTaskBeforeTheAnswer();
  // The next round's work starts although nothing was answered, and ends in the next contribution.
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == 3; }));
  EXPECT_EQ(coordinator_.pushes()[2].request.fence().round(), 1);
  EXPECT_FALSE(Counted(1));
}

TEST_F(AgentTest, StopsWithoutAnAnswer) {
  LoseTheTaskBeforeTheAnswer();
  const absl::Time begin = RealClock()->Now();
  agent_->Stop();
  EXPECT_LT(RealClock()->Now() - begin, absl::Seconds(20));
}

TEST_F(AgentTest, EndsAtOnceWithoutAnAnswerWhenRemoved) {
  LoseTheTaskBeforeTheAnswer();
  EXPECT_EQ(board_.Get().phase(), v1::WORKER_PHASE_PUSHING);
  coordinator_.BreakStream(absl::PermissionDeniedError("worker lab-1 was removed"));
  EXPECT_TRUE(coordinator_.Await([&] { return board_.Get().phase() == v1::WORKER_PHASE_IDLE; }));
}

TEST_F(AgentTest, ReportsAFinalFailureOnce) {
  agent_->Start();
  v1::Assignment assignment = Prepare();
  assignment.mutable_spec()->mutable_model()->set_builtin("transformer");
  coordinator_.Assign(assignment);
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.failures().size() == 1; }));
  EXPECT_EQ(coordinator_.failures()[0].task(), "prepare");
  EXPECT_EQ(coordinator_.failures()[0].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(coordinator_.failures()[0].permanent());
  const size_t heartbeats = coordinator_.heartbeats().size();
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.heartbeats().size() > heartbeats + 3; }));
  EXPECT_EQ(coordinator_.failures().size(), 1u);
}

TEST_F(AgentTest, TellsOfWhatItTriesAgainAndAgain) {
  agent_->Start();
  coordinator_.Assign(Prepare(true));
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.pushes().size() == 1; }));
  v1::Assignment assignment = WithShard(Prepare());
  // A manifest that nobody has.
  assignment.mutable_shard()->mutable_train()->set_manifest_sha256(std::string(32, 'x'));
  coordinator_.Assign(assignment);
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.failures().size() == 2; }));
  EXPECT_EQ(coordinator_.failures()[0].task(), "shard");
  EXPECT_FALSE(coordinator_.failures()[0].permanent());
}

TEST_F(AgentTest, GivesUpWhenRemoved) {
  GetReady();
  coordinator_.BreakStream(absl::PermissionDeniedError("worker lab-1 was removed"));
  EXPECT_THAT(gave_up_.Await(RealClock(), RealClock()->Now() + absl::Seconds(10), "the end"),
              StatusIs(absl::StatusCode::kPermissionDenied, testing::HasSubstr("removed")));
  agent_->Stop();
  EXPECT_EQ(coordinator_.leaves(), 0);
}

TEST_F(AgentTest, GivesUpOnAnIncompatibleCoordinator) {
  coordinator_.SetProtocolMajor(9);
  agent_->Start();
  EXPECT_THAT(gave_up_.Await(RealClock(), RealClock()->Now() + absl::Seconds(10), "the end"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::AllOf(testing::HasSubstr("9.0"), testing::HasSubstr("1.0"))));
}

TEST_F(AgentTest, LeavesASilentCoordinatorAndComesBack) {
  GetReady();
  coordinator_.Mute();
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.registrations().size() >= 2; }));
}

TEST_F(AgentTest, SaysGoodbye) {
  GetReady();
  agent_->Stop();
  EXPECT_EQ(coordinator_.leaves(), 1);
  agent_->Stop();
  EXPECT_EQ(coordinator_.leaves(), 1);
}

TEST_F(AgentTest, DrainsByDeliveringWhatItHasDone) {
  GetReady();
  v1::Assignment round = Round(0);
  round.clear_evaluate();
  hold_ = true;
  const int before = batches_;
  coordinator_.Assign(round);
  ASSERT_TRUE(coordinator_.Await([&] { return batches_ == before + 1; }));
  agent_->Drain();
  ASSERT_TRUE(coordinator_.Await([&] { return coordinator_.heartbeats().back().draining(); }));
  EXPECT_FALSE(drained_.IsSet());
  hold_ = false;
  ASSERT_THAT(drained_.Await(RealClock(), RealClock()->Now() + absl::Seconds(10), "draining"), IsOk());
  EXPECT_LE(batches_, before + 2);  // The flag may come between two steps.
  ASSERT_EQ(coordinator_.pushes().size(), 2u);
  EXPECT_EQ(coordinator_.pushes()[1].request.samples(), 10 * (batches_ - before));
  agent_->Stop();
  EXPECT_EQ(coordinator_.leaves(), 1);
}

TEST_F(AgentTest, DrainsWhenTheCoordinatorAsks) {
  GetReady();
  v1::Assignment drain = WithShard(Prepare());
  drain.set_drain(true);
  coordinator_.Assign(drain);
  ASSERT_THAT(drained_.Await(RealClock(), RealClock()->Now() + absl::Seconds(10), "draining"), IsOk());
}

TEST_F(AgentTest, StopsInTheMiddleOfARound) {
  GetReady();
  hold_ = true;
  const int before = batches_;
  coordinator_.Assign(Round(0));
  ASSERT_TRUE(coordinator_.Await([&] { return batches_ > before; }));
  hold_ = false;
  agent_->Stop();
  EXPECT_LE(coordinator_.pushes().size(), 2u);
}

}  // namespace
}  // namespace causeway::worker
