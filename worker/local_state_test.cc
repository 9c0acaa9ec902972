#include "worker/local_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::worker {
namespace {

class LocalStateTest : public testing::Test {
 protected:
  std::unique_ptr<LocalState> Open() {
    auto state = LocalState::Open(RealFileSystem(), dir_.path(), absl::FromUnixSeconds(1700000000));
    EXPECT_THAT(state, IsOk());
    return *std::move(state);
  }
  static LocalState::OptimizerState State(int64_t round, std::vector<uint8_t> bytes) {
    return {1, round, round, std::move(bytes)};
  }

  TempDir dir_;
  const JobId job_{"fashion"};
};

TEST_F(LocalStateTest, EveryOpenIsANewIncarnation) {
  EXPECT_EQ(Open()->incarnation(), Incarnation(1));
  EXPECT_EQ(Open()->incarnation(), Incarnation(2));
}

// A worker that counted from 1 again would be refused as an old process of its own.
TEST_F(LocalStateTest, ALostIncarnationGoesOnFromTheClock) {
  for (const char* content : {"seven", "", "-3", "9223372036854775807"}) {
    ASSERT_THAT(RealFileSystem()->WriteFileAtomically(dir_.Join("incarnation"), content), IsOk());
    EXPECT_EQ(Open()->incarnation(), Incarnation(1700000001)) << content;
  }
  EXPECT_EQ(Open()->incarnation(), Incarnation(1700000002));
  ASSERT_THAT(RealFileSystem()->MakeDirs(dir_.Join("cache")), IsOk());
  ASSERT_THAT(RealFileSystem()->Remove(dir_.Join("incarnation")), IsOk());
  EXPECT_EQ(Open()->incarnation(), Incarnation(1700000001));
}

TEST_F(LocalStateTest, OptimizerStateSurvivesARestart) {
  auto state = Open();
  EXPECT_FALSE(state->HasOptimizer(job_));
  EXPECT_THAT(state->LoadOptimizer(job_, 5), IsOkAndHolds(testing::Eq(std::nullopt)));
  LocalState::OptimizerState saved{3, 4, 9, {1, 2, 0, 255}};
  ASSERT_THAT(state->SaveOptimizer(job_, saved), IsOk());
  state = Open();
  EXPECT_TRUE(state->HasOptimizer(job_));
  EXPECT_FALSE(state->HasOptimizer(JobId("other")));
  auto loaded = state->LoadOptimizer(job_, 5);
  ASSERT_THAT(loaded, IsOk());
  ASSERT_TRUE(loaded->has_value());
  EXPECT_EQ((*loaded)->plan, 3);
  EXPECT_EQ((*loaded)->round, 4);
  EXPECT_EQ((*loaded)->version, 9);
  EXPECT_EQ((*loaded)->bytes, saved.bytes);
}

TEST_F(LocalStateTest, ARoundDoneAgainBeginsWhereItBegan) {
  auto state = Open();
  for (int64_t round : {8, 9, 10})
    ASSERT_THAT(state->SaveOptimizer(job_, State(round, {static_cast<uint8_t>(round)})), IsOk());
  EXPECT_EQ(state->NewestOptimizer(job_, 11), 10);
  EXPECT_EQ(state->NewestOptimizer(job_, 10), 9);
  EXPECT_EQ(state->NewestOptimizer(job_, 9), std::nullopt);  // Two are kept.
  EXPECT_EQ((*state->LoadOptimizer(job_, 10))->bytes, std::vector<uint8_t>{9});
}

TEST_F(LocalStateTest, DamagedStateIsNone) {
  auto state = Open();
  ASSERT_THAT(state->SaveOptimizer(job_, State(1, {1, 2, 3})), IsOk());
  const std::string path = dir_.Join("jobs/fashion/optimizer-1");
  std::string content = *RealFileSystem()->ReadFile(path, 1000);
  content.back() ^= 1;
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(path, content), IsOk());
  EXPECT_THAT(state->LoadOptimizer(job_, 2), IsOkAndHolds(testing::Eq(std::nullopt)));
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(path, "short"), IsOk());
  EXPECT_THAT(state->LoadOptimizer(job_, 2), IsOkAndHolds(testing::Eq(std::nullopt)));
}

TEST_F(LocalStateTest, RemembersTheDatasets) {
  auto state = Open();
  EXPECT_THAT(state->LoadDatasets(job_), StatusIs(absl::StatusCode::kNotFound));
  v1::ShardTask shard;
  shard.set_plan(4);
  shard.mutable_train()->set_samples(60);
  shard.mutable_test()->set_samples(10);
  shard.add_train_ranges()->set_end(5);
  ASSERT_THAT(state->SaveDatasets(job_, shard), IsOk());
  auto datasets = Open()->LoadDatasets(job_);
  ASSERT_THAT(datasets, IsOk());
  EXPECT_EQ(datasets->train().samples(), 60);
  EXPECT_EQ(datasets->test().samples(), 10);
  EXPECT_EQ(datasets->train_ranges_size(), 0);
}

TEST_F(LocalStateTest, DropsOtherJobs) {
  auto state = Open();
  ASSERT_THAT(state->KeepOnly(job_), IsOk());
  ASSERT_THAT(state->SaveOptimizer(JobId("old"), State(1, {1})), IsOk());
  ASSERT_THAT(state->SaveOptimizer(job_, State(1, {1})), IsOk());
  ASSERT_THAT(state->KeepOnly(job_), IsOk());
  EXPECT_FALSE(state->HasOptimizer(JobId("old")));
  EXPECT_TRUE(state->HasOptimizer(job_));
}

}  // namespace
}  // namespace causeway::worker
