#include "worker/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SleepingClock : public FakeClock {
 public:
  void SleepFor(absl::Duration duration) override { Advance(duration); }
};

class ProfilerTest : public ::testing::Test {
 protected:
  ProfilerTest() { MakeModel({}); }

  // A device of 10 ms a batch and 1 ms a sample, whose every 37th batch takes a second longer.
  void MakeModel(FakeModel::Options options) {
    options.on_batch = [this](int64_t size) {
      batches_.push_back(size);
      clock_.Advance(absl::Milliseconds(10 + size));
      if (++calls_ % 37 == 0) clock_.Advance(absl::Seconds(1));
    };
    model_ = std::make_unique<FakeModel>(options);
  }
  ProfileOptions Options() {
    ProfileOptions options{.sample_shape = {1, 2, 2}, .model = model_.get(), .clock = &clock_};
    options.spec.mutable_model()->set_classes(3);
    options.spec.mutable_optimizer()->set_name("sgd");
    options.spec.mutable_optimizer()->set_momentum(0.9);
    return options;
  }
  static v1::ProfileTask Task(std::vector<int64_t> sizes, double seconds) {
    v1::ProfileTask task;
    for (int64_t size : sizes) task.add_batch_sizes(size);
    task.set_seconds(seconds);
    return task;
  }
  static std::vector<int64_t> Sizes(const v1::DeviceProfile& profile) {
    std::vector<int64_t> sizes;
    for (const auto& time : profile.batch_times()) sizes.push_back(time.batch_size());
    return sizes;
  }

  SleepingClock clock_;
  int calls_ = 0;
  std::vector<int64_t> batches_;
  std::unique_ptr<FakeModel> model_;
};

TEST_F(ProfilerTest, MediansOfEachSize) {
  auto profile = Profile(Options(), Task({8, 16, 32}, 30), {});
  ASSERT_THAT(profile, IsOk());
  ASSERT_EQ(profile->batch_times_size(), 3);
  EXPECT_THAT(Sizes(*profile), ElementsAre(8, 16, 32));
  EXPECT_NEAR(profile->batch_times(0).batch_time_s(), 0.018, 1e-9);
  EXPECT_NEAR(profile->batch_times(1).batch_time_s(), 0.026, 1e-9);
  EXPECT_NEAR(profile->batch_times(2).batch_time_s(), 0.042, 1e-9);
  EXPECT_EQ(profile->max_parallel(), 32);
  EXPECT_NEAR(profile->eval_samples_per_s(), 128 / 0.138, 1e-6);
  EXPECT_EQ(profile->down_bytes_per_s(), 0);
}

TEST_F(ProfilerTest, KeepsMeasuringForTheTimeAskedForTheSizesInTurn) {
  const absl::Time start = clock_.Now();
  auto profile = Profile(Options(), Task({8, 16}, 30), {});
  ASSERT_THAT(profile, IsOk());
  EXPECT_GE(clock_.Now() - start, absl::Seconds(30));
  EXPECT_LE(clock_.Now() - start, absl::Seconds(33));
  EXPECT_GT(profile->batch_times(0).repeats(), 10);
  EXPECT_EQ(profile->batch_times(0).repeats(), profile->batch_times(1).repeats());
  // Twice to warm up, then each for 100 ms.
  ASSERT_GT(batches_.size(), 17u);
  EXPECT_THAT(absl::MakeConstSpan(batches_).first(17),
              ElementsAre(8, 16, 8, 16, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 128, 8, 8));
}

TEST_F(ProfilerTest, MeasuresAFewTimesHoweverSlow) {
  auto profile = Profile(Options(), Task({8}, 0), {});
  ASSERT_THAT(profile, IsOk());
  EXPECT_EQ(profile->batch_times(0).repeats(), kMinRepeats);
}

TEST_F(ProfilerTest, AQuotaOfCpuTimeIsMeasured) {
  // 25 ms of every 100 ms: steps of 5 ms, every fifth with the pause of 75 ms before the next slice.
  int steps = 0;
  model_ = std::make_unique<FakeModel>(FakeModel::Options{.on_batch = [&](int64_t) {
    clock_.Advance(absl::Milliseconds(5));
    if (++steps % 5 == 0) clock_.Advance(absl::Milliseconds(75));
  }});
  auto profile = Profile(Options(), Task({8}, 30), {});
  ASSERT_THAT(profile, IsOk());
  EXPECT_NEAR(profile->batch_times(0).batch_time_s(), 0.020, 0.002);
  EXPECT_NEAR(profile->eval_samples_per_s(), 128 / 0.020, 700);
}

TEST_F(ProfilerTest, AnEmulatedDeviceIsMeasuredAsSlow) {
  ProfileOptions options = Options();
  options.slowdown = 4;
  auto profile = Profile(options, Task({8}, 30), {});
  ASSERT_THAT(profile, IsOk());
  EXPECT_NEAR(profile->batch_times(0).batch_time_s(), 0.072, 1e-9);
}

TEST_F(ProfilerTest, LeavesOutWhatDoesNotFit) {
  MakeModel({.min_train_batch = 2, .max_batch = 128});
  auto profile = Profile(Options(), Task({256, 1, 2, 128, 2, 512}, 1), {});
  ASSERT_THAT(profile, IsOk());
  EXPECT_THAT(Sizes(*profile), ElementsAre(2, 128));
  EXPECT_EQ(profile->max_parallel(), 128);
}

TEST_F(ProfilerTest, FailsWhenNothingFits) {
  MakeModel({.max_batch = 4});
  EXPECT_THAT(Profile(Options(), Task({8, 16}, 1), {}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("batch of 8")));
}

TEST_F(ProfilerTest, TheModelIsAsBefore) {
  std::vector<uint8_t> before(model_->layout().total_bytes()), after(before.size());
  ASSERT_THAT(model_->Save(absl::MakeSpan(before)), IsOk());
  ASSERT_THAT(Profile(Options(), Task({8}, 1), {}), IsOk());
  ASSERT_THAT(model_->Save(absl::MakeSpan(after)), IsOk());
  EXPECT_EQ(after, before);
}

TEST_F(ProfilerTest, Stops) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(Profile(Options(), Task({8}, 1e9), stop.get_token()), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(ProfilerTest, RefusesWhatCannotBeMeasured) {
  EXPECT_THAT(Profile(Options(), Task({}, 1), {}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Profile(Options(), Task({0, 8}, 1), {}), StatusIs(absl::StatusCode::kInvalidArgument));
  ProfileOptions options = Options();
  options.slowdown = 0;
  EXPECT_THAT(Profile(options, Task({8}, 1), {}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::worker
