#include "worker/job_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "dataplane/digest.h"
#include "tests/fakes/fake_coordinator.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kTrainSamples = 40;
constexpr int64_t kTestSamples = 20;

// Runs what is added at once.
class InlineExecutor : public Executor {
 public:
  void Start() override {}
  void Stop() override {}
  void Add(Task task) override { std::move(task)(); }
  TimerId AddAt(absl::Time, Task) override { return 0; }
  void Cancel(TimerId) override {}
};

class JobRunnerTest : public testing::Test {
 protected:
  JobRunnerTest() {
    spec_.set_name("fashion");
    spec_.mutable_model()->set_builtin("fake");
    spec_.mutable_model()->set_classes(3);
    spec_.mutable_optimizer()->set_name("sgd");
    spec_.mutable_optimizer()->set_learning_rate(0.1);
    spec_.mutable_optimizer()->set_momentum(0.9);
    spec_.mutable_optimizer()->mutable_schedule()->set_name("constant");
    spec_.set_seed(7);
    train_ = AddDataset(kTrainSamples, 1);
    test_ = AddDataset(kTestSamples, 2);
    WorkerMetrics::Options metrics;
    metrics.registry = registry_.get();
    metrics.clock = RealClock();
    metrics_ = std::make_unique<WorkerMetrics>(metrics);
    Start(dir_.Join("a"));
  }

  v1::DatasetInfo AddDataset(int64_t samples, int seed) {
    std::vector<uint8_t> records;
    for (int64_t i = 0; i < samples; ++i) {
      for (int pixel = 0; pixel < 4; ++pixel) records.push_back(static_cast<uint8_t>(seed * 31 + i * 13 + pixel * 7));
      records.push_back(static_cast<uint8_t>(i % 3));
    }
    return coordinator_.AddDataset(records, {1, 2, 2}, 10);
  }

  // As a new process of the worker in `dir`.
  void Start(const std::string& dir) {
    runner_.reset();
    state_ = *LocalState::Open(RealFileSystem(), dir, absl::FromUnixSeconds(1700000000));
    cache_ = *ChunkCache::Open({RealFileSystem(), dir + "/cache", 1 << 20});
    JobRunner::Options options;
    options.job = "fashion";
    options.spec = spec_;
    options.worker = "lab-1";
    options.incarnation = state_->incarnation().value();
    options.site_generation = [] { return 4; };
    options.reporter = &inline_;
    options.prober = &inline_;
    options.transfer.dialer = &dialer_;
    options.transfer.clock = RealClock();
    options.transfer.max_attempts = 2;
    options.transfer.backoff.initial = absl::Milliseconds(1);
    options.report_backoff.initial = absl::Milliseconds(1);
    options.client = &coordinator_;
    options.factory = &factory_;
    options.cache = cache_.get();
    options.state = state_.get();
    options.metrics = metrics_.get();
    options.board = &board_;
    options.clock = RealClock();
    runner_ = std::make_unique<JobRunner>(std::move(options));
  }

  v1::Assignment Prepare(bool upload = false) const {
    v1::Assignment assignment;
    assignment.set_job("fashion");
    *assignment.mutable_spec() = spec_;
    assignment.mutable_prepare()->set_upload_initial(upload);
    *assignment.mutable_prepare()->mutable_train() = train_;
    return assignment;
  }
  v1::Assignment Shard() const {
    v1::Assignment assignment = Prepare();
    assignment.mutable_shard()->set_plan(1);
    *assignment.mutable_shard()->mutable_train() = train_;
    *assignment.mutable_shard()->mutable_test() = test_;
    assignment.mutable_shard()->add_train_ranges()->set_end(30);
    assignment.mutable_shard()->add_test_ranges()->set_end(10);
    return assignment;
  }
  v1::Assignment Round(int64_t round, int64_t attempt = 1) const {
    v1::Assignment assignment = Prepare();
    v1::TrainTask* train = assignment.mutable_train();
    train->set_plan(1);
    train->set_round(round);
    train->set_version(round);
    train->set_epoch(round);
    train->set_last_step(4);
    train->set_batch_size(8);
    train->set_planned_samples(30);
    train->set_attempt(attempt);
    train->set_round_samples(30);
    train->set_job_samples(300);
    train->add_ranges()->set_end(30);
    return assignment;
  }
  v1::Assignment Evaluation(int64_t version) const {
    v1::Assignment assignment = Prepare();
    assignment.mutable_evaluate()->set_version(version);
    assignment.mutable_evaluate()->set_attempt(1);
    assignment.mutable_evaluate()->add_ranges()->set_end(10);
    return assignment;
  }

  TaskResult Run(TaskKind kind, const v1::Assignment& assignment) {
    const Task task{kind, std::string(TaskName(kind)) + " " + assignment.ShortDebugString(),
                    std::make_shared<v1::Assignment>(assignment)};
    return runner_->Run(task, context_);
  }

  // The initial model as version 0 (and, for want of another, all later ones), and the data.
  void GetReady() {
    ASSERT_THAT(Run(TaskKind::kPrepare, Prepare(true)).status, IsOk());
    const auto initial = coordinator_.pushes().back();
    const dataplane::Layout layout = *dataplane::Layout::FromProto(coordinator_.models().back().layout());
    for (int64_t version = 0; version < 4; ++version) coordinator_.SetModel(version, layout, initial.bytes);
    ASSERT_THAT(Run(TaskKind::kShard, Shard()).status, IsOk());
  }

  // The SHA-256 of what a round came to.
  std::string Train(int64_t round, int64_t attempt = 1) {
    EXPECT_THAT(Run(TaskKind::kTrain, Round(round, attempt)).status, IsOk());
    return coordinator_.pushes().back().request.sha256();
  }

  TempDir dir_;
  FakeCoordinator coordinator_{RealClock()};
  FakeLinkDialer dialer_{&coordinator_, RealClock()};
  std::atomic<int> batches_{0};
  std::function<void()> on_batch_;
  FakeModelFactory factory_{[this] {
    FakeModel::Options options;
    options.on_batch = [this](int64_t) {
      ++batches_;
      if (on_batch_) on_batch_();
    };
    return options;
  }()};
  v1::JobSpec spec_;
  v1::DatasetInfo train_;
  v1::DatasetInfo test_;
  std::unique_ptr<MetricRegistry> registry_ = MetricRegistry::Create();
  std::unique_ptr<WorkerMetrics> metrics_;
  ProgressBoard board_;
  std::shared_ptr<TaskContext> context_ = std::make_shared<TaskContext>();
  std::unique_ptr<ChunkCache> cache_;
  std::unique_ptr<LocalState> state_;
  InlineExecutor inline_;
  std::unique_ptr<JobRunner> runner_;
};

TEST_F(JobRunnerTest, ReportsItsModel) {
  ASSERT_THAT(Run(TaskKind::kPrepare, Prepare()).status, IsOk());
  ASSERT_THAT(coordinator_.models(), SizeIs(1));
  const v1::ReportModelRequest report = coordinator_.models()[0];
  EXPECT_EQ(report.fence().job(), "fashion");
  EXPECT_EQ(report.fence().round(), -1);
  EXPECT_EQ(report.fence().site_generation(), 4);
  EXPECT_EQ(report.fence().incarnation(), 1);
  EXPECT_FALSE(report.has_optimizer_state());
  EXPECT_EQ(dataplane::Layout::FromProto(report.layout())->hash(), report.layout_sha256());
  EXPECT_THAT(coordinator_.pushes(), IsEmpty());
}

TEST_F(JobRunnerTest, UploadsInitialValues) {
  ASSERT_THAT(Run(TaskKind::kPrepare, Prepare(true)).status, IsOk());
  ASSERT_THAT(coordinator_.pushes(), SizeIs(1));
  EXPECT_TRUE(coordinator_.pushes()[0].request.initial());
  FakeModel::Options same;
  same.seed = 7;
  FakeModel model(same);
  std::vector<uint8_t> bytes(model.layout().total_bytes());
  ASSERT_THAT(model.Save(absl::MakeSpan(bytes)), IsOk());
  EXPECT_EQ(coordinator_.pushes()[0].bytes, bytes);

  coordinator_.SetPushOutcome(v1::PushResult::OUTCOME_NOT_WANTED);
  EXPECT_TRUE(Run(TaskKind::kPrepare, Prepare(true)).try_again);
}

TEST_F(JobRunnerTest, MeasuresOnce) {
  v1::Assignment assignment = Prepare();
  assignment.mutable_profile()->set_attempt(1);
  assignment.mutable_profile()->add_batch_sizes(4);
  assignment.mutable_profile()->set_record_bytes(train_.record_bytes());
  assignment.mutable_profile()->set_seconds(0.01);
  ASSERT_THAT(Run(TaskKind::kProfile, assignment).status, IsOk());
  ASSERT_THAT(coordinator_.profiles(), SizeIs(1));
  const v1::DeviceProfile profile = coordinator_.profiles()[0].profile();
  EXPECT_EQ(profile.batch_times_size(), 1);
  EXPECT_GT(profile.down_bytes_per_s(), 0);
  EXPECT_GT(profile.up_bytes_per_s(), 0);
  EXPECT_GT(profile.round_trip_s(), 0);

  const int batches = batches_;
  ASSERT_THAT(Run(TaskKind::kProfile, assignment).status, IsOk());
  EXPECT_EQ(batches_, batches);
  EXPECT_THAT(coordinator_.profiles(), SizeIs(2));
  assignment.mutable_profile()->set_attempt(2);
  ASSERT_THAT(Run(TaskKind::kProfile, assignment).status, IsOk());
  EXPECT_GT(batches_, batches);
}

TEST_F(JobRunnerTest, FetchesAndReportsItsShard) {
  ASSERT_THAT(Run(TaskKind::kShard, Shard()).status, IsOk());
  ASSERT_THAT(coordinator_.data(), SizeIs(1));
  EXPECT_EQ(coordinator_.data()[0].plan(), 1);
  EXPECT_EQ(coordinator_.data()[0].bytes_fetched(), 4 * 32 + 150 + 2 * 32 + 50);
  ASSERT_THAT(Run(TaskKind::kShard, Shard()).status, IsOk());
  EXPECT_EQ(coordinator_.data()[1].bytes_fetched(), 0);
  EXPECT_EQ(board_.Get().phase(), v1::WORKER_PHASE_IDLE);
}

TEST_F(JobRunnerTest, EvaluatesAndTrains) {
  GetReady();
  ASSERT_THAT(Run(TaskKind::kEvaluate, Evaluation(0)).status, IsOk());
  ASSERT_THAT(coordinator_.evaluations(), SizeIs(1));
  EXPECT_EQ(coordinator_.evaluations()[0].total(), 10);
  EXPECT_GT(coordinator_.evaluations()[0].loss_sum(), 0);

  const std::string sha256 = Train(0);
  const v1::PushRequest request = coordinator_.pushes().back().request;
  EXPECT_EQ(request.fence().round(), 0);
  EXPECT_EQ(request.samples(), 30);
  EXPECT_EQ(request.steps(), 4);
  EXPECT_EQ(request.attempt(), 1);
  EXPECT_GT(request.train_loss(), 0);
  EXPECT_GT(request.compute_s(), 0);
  EXPECT_GT(request.pull_s(), 0);
  EXPECT_GT(request.evaluate_s(), 0);
  EXPECT_EQ(request.previous_push_s(), 0);
  EXPECT_TRUE(request.fresh_optimizer());
  EXPECT_NE(sha256, coordinator_.pushes().front().request.sha256());
  EXPECT_EQ(board_.Get().phase(), v1::WORKER_PHASE_WAITING);
  EXPECT_EQ(board_.Get().steps_done(), 4);
  EXPECT_THAT(registry_->Expose(), HasSubstr("causeway_worker_samples_total{job=\"fashion\"} 30\n"));

  // Asked for again by a coordinator that has forgotten: the same answer, no work.
  const int batches = batches_;
  EXPECT_EQ(Train(0), sha256);
  ASSERT_THAT(Run(TaskKind::kEvaluate, Evaluation(0)).status, IsOk());
  EXPECT_EQ(batches_, batches);
  EXPECT_THAT(coordinator_.evaluations(), SizeIs(2));

  Train(1);
  EXPECT_FALSE(coordinator_.pushes().back().request.fresh_optimizer());
  EXPECT_GT(coordinator_.pushes().back().request.previous_push_s(), 0);
}

TEST_F(JobRunnerTest, ARestartedWorkerComesToTheSameBytes) {
  GetReady();
  const std::string first = Train(0);
  const std::string second = Train(1);
  EXPECT_NE(first, second);

  Start(dir_.Join("b"));
  GetReady();
  EXPECT_EQ(Train(0), first);
  Start(dir_.Join("b"));
  ASSERT_THAT(Run(TaskKind::kPrepare, Prepare()).status, IsOk());
  EXPECT_TRUE(coordinator_.models().back().has_optimizer_state());
  const int64_t served = coordinator_.served_chunks();
  ASSERT_THAT(Run(TaskKind::kTrainData, Round(1)).status, IsOk());  // The datasets are known from before.
  EXPECT_EQ(coordinator_.served_chunks(), served);
  EXPECT_EQ(Train(1), second);
  EXPECT_FALSE(coordinator_.pushes().back().request.fresh_optimizer());
}

TEST_F(JobRunnerTest, ARoundDoneAgainComesToTheSameBytes) {
  GetReady();
  Train(0);
  const std::string sha256 = Train(1);
  EXPECT_EQ(Train(1, 2), sha256);
  EXPECT_EQ(coordinator_.pushes().back().request.attempt(), 2);
}

TEST_F(JobRunnerTest, ARoundBrokenOffLeavesNoTrace) {
  GetReady();
  Train(0);
  const std::string sha256 = Train(1);
  Start(dir_.Join("b"));
  GetReady();
  Train(0);
  const int batches = batches_;
  on_batch_ = [&] {
    if (batches_ == batches + 2) context_->Cancel("the test says so");
  };
  EXPECT_THAT(Run(TaskKind::kTrain, Round(1)).status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(batches_, batches + 2);
  on_batch_ = nullptr;
  context_ = std::make_shared<TaskContext>();
  EXPECT_EQ(Train(1), sha256);
}

TEST_F(JobRunnerTest, DataThatIsGoneIsFetchedAgain) {
  GetReady();
  Train(0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.Join("a/cache"))) {
    if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), 1);
  }
  TaskResult result = Run(TaskKind::kTrain, Round(1));
  EXPECT_TRUE(result.try_again) << result.status;
  EXPECT_TRUE(result.data_damaged);
  ASSERT_THAT(Run(TaskKind::kTrainData, Round(1)).status, IsOk());
  ASSERT_THAT(Run(TaskKind::kTrain, Round(1)).status, IsOk());
}

TEST_F(JobRunnerTest, DataThatStaysDamagedEndsTheTries) {
  ASSERT_THAT(Run(TaskKind::kPrepare, Prepare()).status, IsOk());
  EXPECT_TRUE(Run(TaskKind::kTrain, Round(0)).try_again);  // Nothing was fetched.
  EXPECT_TRUE(Run(TaskKind::kTrain, Round(0)).try_again);
  EXPECT_FALSE(Run(TaskKind::kTrain, Round(0)).try_again);
}

TEST_F(JobRunnerTest, WhatIsDamagedOnItsWayIsSentAgainAndAgain) {
  coordinator_.FailCalls("Push", 1000, absl::DataLossError("data of offset 256 where 0 was due"));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Run(TaskKind::kPrepare, Prepare(true)).try_again) << i;
  coordinator_.FailCalls("Push", 0, absl::OkStatus());
  EXPECT_THAT(Run(TaskKind::kPrepare, Prepare(true)).status, IsOk());
}

TEST_F(JobRunnerTest, TellsWhatMayPassFromWhatMayNot) {
  GetReady();
  EXPECT_TRUE(Run(TaskKind::kTrain, Round(9)).try_again);  // That version may be gone, or to come.
  coordinator_.SetPushOutcome(v1::PushResult::OUTCOME_NOT_WANTED);
  EXPECT_TRUE(Run(TaskKind::kTrain, Round(0)).try_again);
  coordinator_.SetPushOutcome(v1::PushResult::OUTCOME_REJECTED);
  EXPECT_THAT(Run(TaskKind::kTrain, Round(0)).status, IsOk());

  v1::Assignment impossible = Round(1);
  impossible.mutable_train()->set_last_step(400);
  TaskResult result = Run(TaskKind::kTrain, impossible);
  EXPECT_THAT(result.status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(result.try_again);
}

TEST_F(JobRunnerTest, AnUnknownModelIsFinal) {
  spec_.mutable_model()->set_builtin("transformer");
  Start(dir_.Join("b"));
  TaskResult result = Run(TaskKind::kPrepare, Prepare());
  EXPECT_THAT(result.status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(result.try_again);
}

TEST_F(JobRunnerTest, ReportsAreMadeUntilAnswered) {
  coordinator_.FailCalls("ReportModel", 2, absl::UnavailableError("busy"));
  EXPECT_THAT(Run(TaskKind::kPrepare, Prepare()).status, IsOk());
  EXPECT_THAT(coordinator_.models(), SizeIs(1));
  coordinator_.FailCalls("ReportModel", 2, absl::FailedPreconditionError("register first"));
  EXPECT_THAT(Run(TaskKind::kPrepare, Prepare()).status, IsOk());
  EXPECT_THAT(coordinator_.models(), SizeIs(2));
  coordinator_.FailCalls("ReportModel", 1, absl::InvalidArgumentError("another layout than the others'"));
  EXPECT_THAT(Run(TaskKind::kPrepare, Prepare()).status, IsOk());  // That is an answer.
  EXPECT_THAT(coordinator_.models(), SizeIs(2));
  context_->Cancel("the test says so");
  EXPECT_THAT(Run(TaskKind::kPrepare, Prepare()).status, StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace causeway::worker
