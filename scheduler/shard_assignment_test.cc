#include "scheduler/shard_assignment.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;

std::vector<WorkerRanges> Assign(const std::vector<WorkerSamples>& workers,
                                 const std::vector<WorkerRanges>& previous = {}) {
  const absl::StatusOr<std::vector<WorkerRanges>> shards = AssignShards(workers, previous);
  EXPECT_TRUE(shards.ok()) << shards.status();
  return *shards;
}

TEST(AssignShardsTest, FirstPlanIsConsecutiveByName) {
  EXPECT_THAT(Assign({{"c", 3}, {"a", 5}, {"b", 0}, {"d", 2}}),
              ElementsAre(WorkerRanges{"c", {{5, 8}}}, WorkerRanges{"a", {{0, 5}}}, WorkerRanges{"b", {}},
                          WorkerRanges{"d", {{8, 10}}}));
}

TEST(AssignShardsTest, SameCountsChangeNothing) {
  const std::vector<WorkerSamples> workers = {{"a", 5}, {"b", 7}};
  const std::vector<WorkerRanges> first = Assign(workers);
  EXPECT_EQ(Assign(workers, first), first);
}

TEST(AssignShardsTest, ReplanMovesOnlyTheDifference) {
  const std::vector<WorkerRanges> first = Assign({{"a", 5}, {"b", 5}, {"c", 5}});
  EXPECT_THAT(
      Assign({{"a", 7}, {"b", 2}, {"c", 6}}, first),
      ElementsAre(WorkerRanges{"a", {{0, 5}, {7, 9}}}, WorkerRanges{"b", {{5, 7}}}, WorkerRanges{"c", {{9, 15}}}));
}

TEST(AssignShardsTest, LostWorkersSamplesGoToTheOthers) {
  const std::vector<WorkerRanges> first = Assign({{"a", 4}, {"b", 4}, {"c", 4}});
  EXPECT_THAT(Assign({{"a", 6}, {"c", 6}}, first),
              ElementsAre(WorkerRanges{"a", {{0, 6}}}, WorkerRanges{"c", {{6, 12}}}));
}

TEST(AssignShardsTest, JoiningWorkerTakesFromTheOthers) {
  const std::vector<WorkerRanges> first = Assign({{"b", 6}, {"c", 6}});
  EXPECT_THAT(
      Assign({{"a", 4}, {"b", 4}, {"c", 4}}, first),
      ElementsAre(WorkerRanges{"a", {{4, 6}, {10, 12}}}, WorkerRanges{"b", {{0, 4}}}, WorkerRanges{"c", {{6, 10}}}));
}

TEST(AssignShardsTest, DatasetMayGrowAndShrink) {
  const std::vector<WorkerRanges> first = Assign({{"a", 4}, {"b", 4}});
  EXPECT_THAT(Assign({{"a", 5}, {"b", 6}}, first),
              ElementsAre(WorkerRanges{"a", {{0, 4}, {8, 9}}}, WorkerRanges{"b", {{4, 8}, {9, 11}}}));
  EXPECT_THAT(Assign({{"a", 2}, {"b", 3}}, first),
              ElementsAre(WorkerRanges{"a", {{0, 2}}}, WorkerRanges{"b", {{2, 5}}}));
}

// The oracle: an owner per sample.
std::map<std::string, std::vector<bool>> Owned(const std::vector<WorkerRanges>& shards, int64_t samples) {
  std::map<std::string, std::vector<bool>> owned;
  std::vector<bool> taken(samples);
  for (const WorkerRanges& shard : shards) {
    std::vector<bool>& own = owned[shard.worker];
    own.resize(samples);
    int64_t last_end = -1;
    for (const SampleRange& range : shard.ranges) {
      EXPECT_LT(last_end, range.begin);
      EXPECT_LT(range.begin, range.end);
      EXPECT_LE(range.end, samples);
      for (int64_t i = range.begin; i < range.end; ++i) {
        EXPECT_FALSE(taken[i]) << "sample " << i << " is assigned twice";
        taken[i] = own[i] = true;
      }
      last_end = range.end;
    }
  }
  EXPECT_EQ(std::count(taken.begin(), taken.end(), true), samples);
  return owned;
}

TEST(AssignShardsTest, ChainsOfReplansStayDisjointCompleteAndMoveTheLeast) {
  std::mt19937 random(5);
  const auto draw = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  for (int chain = 0; chain < 200; ++chain) {
    std::vector<WorkerRanges> previous;
    std::map<std::string, std::vector<bool>> owned_before;
    for (int plan = 0; plan < 6; ++plan) {
      std::vector<WorkerSamples> workers;
      for (int w = 0; w < 7; ++w) {
        if (draw(0, 3) > 0) workers.push_back({absl::StrCat("w", w), draw(0, 20)});
      }
      std::shuffle(workers.begin(), workers.end(), random);
      int64_t total = 0;
      for (const WorkerSamples& worker : workers) total += worker.samples;
      const std::vector<WorkerRanges> shards = Assign(workers, previous);
      ASSERT_EQ(shards.size(), workers.size());
      std::map<std::string, std::vector<bool>> owned = Owned(shards, total);
      for (size_t i = 0; i < workers.size(); ++i) {
        ASSERT_EQ(shards[i].worker, workers[i].worker);
        const std::vector<bool>& own = owned[workers[i].worker];
        ASSERT_EQ(std::count(own.begin(), own.end(), true), workers[i].samples);
        std::vector<bool> before = owned_before[workers[i].worker];
        before.resize(total);
        int64_t kept = 0;
        for (int64_t s = 0; s < total; ++s) kept += own[s] && before[s];
        ASSERT_EQ(kept, std::min<int64_t>(workers[i].samples, std::count(before.begin(), before.end(), true)));
      }
      previous = shards;
      owned_before = owned;
    }
  }
}

TEST(AssignShardsTest, DependsOnNamesNotOnOrder) {
  const std::vector<WorkerRanges> previous = Assign({{"a", 5}, {"b", 5}, {"c", 5}});
  std::vector<WorkerRanges> one = Assign({{"a", 7}, {"d", 3}, {"c", 1}}, previous);
  std::vector<WorkerRanges> other = Assign({{"c", 1}, {"a", 7}, {"d", 3}}, {previous[2], previous[0], previous[1]});
  EXPECT_THAT(other, ElementsAre(one[2], one[0], one[1]));
}

TEST(AssignShardsTest, RefusesBadInput) {
  const auto code = [](const std::vector<WorkerSamples>& workers, const std::vector<WorkerRanges>& previous) {
    return AssignShards(workers, previous).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({{"a", 1}, {"a", 2}}, {}), kInvalid);
  EXPECT_EQ(code({{"a", -1}}, {}), kInvalid);
  EXPECT_EQ(code({{"a", 1}, {"b", std::numeric_limits<int64_t>::max()}}, {}), kInvalid);
  EXPECT_EQ(code({{"a", 9}}, {{"a", {{0, 5}}}, {"b", {{4, 6}}}}), kInvalid);
  EXPECT_EQ(code({{"a", 9}}, {{"a", {{0, 5}, {3, 4}}}}), kInvalid);
  EXPECT_EQ(code({{"a", 9}}, {{"a", {{-1, 5}}}}), kInvalid);
  EXPECT_EQ(code({{"a", 9}}, {{"a", {{5, 4}}}}), kInvalid);
  EXPECT_EQ(code({}, {}), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace causeway::scheduler
