#include "worker/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/status_matchers.h"
#include "worker/sync_none.h"

namespace causeway::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SleepingClock : public FakeClock {
 public:
  void SleepFor(absl::Duration duration) override { Advance(duration); }
};

// Two classes, told apart by which half of the image is bright.
class HalvesSource : public SampleSource {
 public:
  absl::Status ReadRecord(int64_t sample, absl::Span<uint8_t> out) override {
    read.push_back(sample);
    if (sample == missing) return absl::NotFoundError("not in the cache");
    Random random(static_cast<uint64_t>(sample));
    const bool right = sample % 2 == 1;
    for (int i = 0; i < 4; ++i) out[i] = static_cast<uint8_t>(random.Below(100) + ((i >= 2) == right ? 150 : 0));
    out[4] = right ? 1 : 0;
    return absl::OkStatus();
  }
  int64_t missing = -1;
  std::vector<int64_t> read;
};

SampleRanges Ranges(std::vector<std::pair<int64_t, int64_t>> pairs) {
  SampleRanges ranges;
  for (const auto& [begin, end] : pairs) {
    v1::SampleRange* range = ranges.Add();
    range->set_begin(begin);
    range->set_end(end);
  }
  return ranges;
}

v1::DatasetInfo Dataset() {
  v1::DatasetInfo info;
  info.set_record_bytes(5);
  for (int64_t dimension : {1, 2, 2}) info.add_sample_shape(dimension);
  info.set_label_bytes(1);
  return info;
}

v1::TrainTask Task(int64_t first_step, int64_t last_step, int64_t batch_size, int64_t planned_samples,
                   SampleRanges shard) {
  v1::TrainTask task;
  task.set_first_step(first_step);
  task.set_last_step(last_step);
  task.set_batch_size(batch_size);
  task.set_planned_samples(planned_samples);
  *task.mutable_ranges() = std::move(shard);
  return task;
}

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() { MakeModel({}); }

  void MakeModel(FakeModel::Options options) {
    options.classes = 2;
    options.on_batch = [this](int64_t size) {
      batch_sizes_.push_back(size);
      clock_.Advance(absl::Milliseconds(10));
    };
    model_ = std::make_unique<FakeModel>(options);
  }
  Trainer::Options Options() {
    Trainer::Options options{.worker = "a1",
                             .train = Dataset(),
                             .test = Dataset(),
                             .on_progress = [this](const Trainer::Progress& p) { progress_.push_back(p); },
                             .model = model_.get(),
                             .site_sync = sync_.get(),
                             .train_source = &train_,
                             .test_source = &test_,
                             .clock = &clock_};
    options.spec.set_name("halves");
    options.spec.set_seed(5);
    options.spec.mutable_model()->set_classes(2);
    options.spec.mutable_optimizer()->set_name("sgd");
    options.spec.mutable_optimizer()->set_learning_rate(0.5);
    options.spec.mutable_optimizer()->set_momentum(0.5);
    return options;
  }
  std::unique_ptr<Trainer> Make() { return *Trainer::Create(Options()); }
  std::vector<uint8_t> ModelBytes() const {
    std::vector<uint8_t> bytes(model_->layout().total_bytes());
    EXPECT_THAT(model_->Save(absl::MakeSpan(bytes)), IsOk());
    return bytes;
  }

  SleepingClock clock_;
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<SiteSync> sync_ = MakeSyncNone();
  HalvesSource train_, test_;
  std::vector<int64_t> batch_sizes_;
  std::vector<Trainer::Progress> progress_;
};

TEST_F(TrainerTest, LearnsAndCounts) {
  auto trainer = Make();
  auto before = trainer->Evaluate(Ranges({{1000, 1200}}), {});
  ASSERT_THAT(before, IsOk());
  for (int epoch = 0; epoch < 5; ++epoch) {
    v1::TrainTask task = Task(0, 13, 8, 100, Ranges({{0, 100}}));
    task.set_epoch(epoch);
    auto round = trainer->TrainRound(task, {});
    ASSERT_THAT(round, IsOk());
    EXPECT_EQ(round->samples, 100);
    EXPECT_EQ(round->steps, 13);
  }
  auto after = trainer->Evaluate(Ranges({{1000, 1200}}), {});
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(after->total, 200);
  EXPECT_LT(before->correct, 190);
  EXPECT_EQ(after->correct, 200);
  EXPECT_LT(after->loss_sum, 0.5 * before->loss_sum);
}

TEST_F(TrainerTest, RoundsOfAnEpochGoOnceThroughTheShard) {
  auto trainer = Make();
  const SampleRanges shard = Ranges({{0, 12}, {50, 59}});
  ASSERT_THAT(trainer->TrainRound(Task(0, 2, 4, 8, shard), {}), IsOk());
  ASSERT_THAT(trainer->TrainRound(Task(2, 6, 4, 13, shard), {}), IsOk());
  EXPECT_EQ(train_.read, EpochOrder(shard, 5, "halves", "a1", 0));
  EXPECT_THAT(batch_sizes_, ElementsAre(4, 4, 4, 4, 4, 1));
}

TEST_F(TrainerTest, NoBatchOfOneWhereTheModelRefusesIt) {
  MakeModel({.min_train_batch = 2});
  auto trainer = Make();
  const SampleRanges shard = Ranges({{0, 21}});
  auto round = trainer->TrainRound(Task(0, 6, 4, 21, shard), {});
  ASSERT_THAT(round, IsOk());
  EXPECT_EQ(round->samples, 21);
  EXPECT_THAT(batch_sizes_, ElementsAre(4, 4, 4, 4, 3, 2));
  batch_sizes_.clear();
  round = trainer->TrainRound(Task(5, 6, 4, 1, shard), {});
  ASSERT_THAT(round, IsOk());
  EXPECT_EQ(round->samples, 1);
  EXPECT_THAT(batch_sizes_, ElementsAre(2));
}

TEST_F(TrainerTest, TellsProgressAfterEveryStep) {
  auto round = Make()->TrainRound(Task(0, 3, 4, 9, Ranges({{0, 9}})), {});
  ASSERT_THAT(round, IsOk());
  ASSERT_EQ(progress_.size(), 3u);
  EXPECT_EQ(progress_[1].steps_done, 2);
  EXPECT_EQ(progress_[1].steps_planned, 3);
  EXPECT_EQ(progress_[1].samples_done, 8);
  EXPECT_EQ(progress_[2].samples_done, 9);
  EXPECT_DOUBLE_EQ(progress_[2].train_loss, round->loss_mean);
  EXPECT_GT(round->loss_mean, 0);
  EXPECT_NE(progress_[0].train_loss, progress_[1].train_loss);
}

TEST_F(TrainerTest, MeasuresSteadyTimeWithTheEmulation) {
  Trainer::Options options = Options();
  options.slowdown = 3;
  auto trainer = *Trainer::Create(options);
  auto round = trainer->TrainRound(Task(0, 3, 4, 9, Ranges({{0, 9}})), {});
  ASSERT_THAT(round, IsOk());
  EXPECT_DOUBLE_EQ(round->compute_s, 0.09);
  auto evaluation = trainer->Evaluate(Ranges({{0, 130}}), {});
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_DOUBLE_EQ(evaluation->compute_s, 0.06);  // Two batches.
}

TEST_F(TrainerTest, SameSeedSameBytes) {
  const std::vector<uint8_t> initial = ModelBytes();
  std::vector<std::vector<uint8_t>> results;
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(model_->Load(initial), IsOk());
    Trainer::Options options = Options();
    if (i == 2) options.spec.set_seed(6);
    ASSERT_THAT((*Trainer::Create(options))->TrainRound(Task(0, 3, 4, 9, Ranges({{0, 9}})), {}), IsOk());
    results.push_back(ModelBytes());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
}

// Stopping after one round and going on in another process must not show.
TEST_F(TrainerTest, OptimizerStateCanBeCarriedOver) {
  const SampleRanges shard = Ranges({{0, 40}});
  auto trainer = Make();
  ASSERT_THAT(trainer->TrainRound(Task(0, 5, 4, 20, shard), {}), IsOk());
  const std::vector<uint8_t> model = ModelBytes();
  std::vector<uint8_t> state(trainer->optimizer()->state_bytes());
  ASSERT_THAT(trainer->optimizer()->Save(absl::MakeSpan(state)), IsOk());
  ASSERT_THAT(trainer->TrainRound(Task(5, 10, 4, 20, shard), {}), IsOk());
  const std::vector<uint8_t> expected = ModelBytes();

  ASSERT_THAT(model_->Load(model), IsOk());
  auto restarted = Make();
  ASSERT_THAT(restarted->optimizer()->Load(state), IsOk());
  ASSERT_THAT(restarted->TrainRound(Task(5, 10, 4, 20, shard), {}), IsOk());
  EXPECT_EQ(ModelBytes(), expected);

  ASSERT_THAT(model_->Load(model), IsOk());
  ASSERT_THAT(Make()->TrainRound(Task(5, 10, 4, 20, shard), {}), IsOk());
  EXPECT_NE(ModelBytes(), expected);
}

TEST_F(TrainerTest, LearningRateFollowsGlobalSamples) {
  Trainer::Options options = Options();
  options.spec.mutable_optimizer()->mutable_schedule()->set_name("cosine");
  auto trainer = *Trainer::Create(options);
  v1::TrainTask task = Task(0, 3, 4, 9, Ranges({{0, 9}}));
  EXPECT_THAT(trainer->TrainRound(task, {}), StatusIs(absl::StatusCode::kInvalidArgument));
  task.set_job_samples(100);
  task.set_committed_samples(100);  // The end: the rate is 0, only the running mean moves.
  const std::vector<float> before(model_->layers()[1].parameters.begin(), model_->layers()[1].parameters.end());
  ASSERT_THAT(trainer->TrainRound(task, {}), IsOk());
  EXPECT_THAT(model_->layers()[1].parameters, testing::Pointwise(testing::FloatNear(1e-9), before));
}

TEST_F(TrainerTest, RefusesATaskThatDoesNotFitTheShard) {
  auto trainer = Make();
  EXPECT_THAT(trainer->TrainRound(Task(0, 3, 4, 12, Ranges({{0, 9}})), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("plans 12"), HasSubstr("have 9"))));
  EXPECT_THAT(trainer->TrainRound(Task(0, 4, 4, 9, Ranges({{0, 9}})), {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(trainer->TrainRound(Task(0, 3, 4, 9, Ranges({{9, 0}})), {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(model_->train_batches(), 0);
}

TEST_F(TrainerTest, StopsBetweenSteps) {
  std::stop_source stop;
  Trainer::Options options = Options();
  options.on_progress = [&stop](const Trainer::Progress& progress) {
    if (progress.steps_done == 2) stop.request_stop();
  };
  auto trainer = *Trainer::Create(options);
  EXPECT_THAT(trainer->TrainRound(Task(0, 5, 4, 20, Ranges({{0, 20}})), stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(model_->train_batches(), 2);
  EXPECT_THAT(trainer->Evaluate(Ranges({{0, 20}}), stop.get_token()), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(model_->evaluate_batches(), 0);
}

TEST_F(TrainerTest, CutShortItCountsWhatWasDone) {
  auto trainer = *Trainer::Create(Options());
  int asked = 0;
  auto result = trainer->TrainRound(Task(0, 5, 4, 20, Ranges({{0, 20}})), {}, [&asked] { return ++asked == 2; });
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->steps, 2);
  EXPECT_EQ(result->samples, 8);
  EXPECT_EQ(model_->train_batches(), 2);
}

TEST_F(TrainerTest, ErrorsOfDataAndModelComeThrough) {
  train_.missing = 3;
  EXPECT_THAT(Make()->TrainRound(Task(0, 3, 4, 9, Ranges({{0, 9}})), {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("sample 3")));
  train_.missing = -1;
  MakeModel({.max_batch = 3});
  EXPECT_THAT(Make()->TrainRound(Task(0, 3, 4, 9, Ranges({{0, 9}})), {}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(TrainerTest, RefusesImpossibleOptions) {
  const auto refuses = [this](void (*change)(Trainer::Options*)) {
    Trainer::Options options = Options();
    change(&options);
    return absl::IsInvalidArgument(Trainer::Create(options).status());
  };
  EXPECT_TRUE(refuses([](auto* o) { o->slowdown = 0.5; }));
  EXPECT_TRUE(refuses([](auto* o) { o->spec.mutable_optimizer()->set_name("adam"); }));
  EXPECT_TRUE(refuses([](auto* o) { o->spec.mutable_optimizer()->mutable_schedule()->set_name("linear"); }));
  EXPECT_TRUE(refuses([](auto* o) { o->train.set_record_bytes(6); }));
  EXPECT_TRUE(refuses([](auto* o) { o->test.clear_sample_shape(); }));
  EXPECT_TRUE(refuses([](auto* o) { o->spec.mutable_data()->mutable_train()->add_std(-1); }));
}

}  // namespace
}  // namespace causeway::worker
