#include "base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace causeway {
namespace {

using testing::ElementsAre;

// The values that the authors' reference programs for splitmix64 and xoshiro256** print.
TEST(Random, SeedsBySplitmix64) {
  EXPECT_THAT(Random(1234567).state(),
              ElementsAre(6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u));
}

TEST(Random, IsXoshiro256StarStar) {
  Random random(0);
  random.set_state({1, 2, 3, 4});
  EXPECT_EQ(random(), 11520u);
  EXPECT_EQ(random(), 0u);
  EXPECT_EQ(random(), 1509978240u);
  EXPECT_EQ(random(), 1215971899390074240u);
}

TEST(Random, ContinuesFromASavedState) {
  Random random(3);
  random();
  Random restarted(99);
  restarted.set_state(random.state());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(random(), restarted());
}

TEST(Random, BelowIsUniform) {
  Random random(5);
  std::vector<int> counts(6);
  for (int i = 0; i < 60000; ++i) ++counts.at(random.Below(6));
  for (int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.Below(1), 0u);
}

TEST(Random, BelowHasNoBiasForLargeBounds) {
  // With a plain remainder, the lowest third of the range would come up half of the time.
  const uint64_t bound = (uint64_t{1} << 63) + (uint64_t{1} << 62);
  Random random(6);
  int low = 0;
  for (int i = 0; i < 30000; ++i) low += random.Below(bound) < bound / 3;
  EXPECT_NEAR(low, 10000, 500);
}

TEST(Random, UniformFillsTheUnitInterval) {
  Random random(7);
  double sum = 0, least = 1, most = 0;
  for (int i = 0; i < 20000; ++i) {
    double value = random.Uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
  EXPECT_LT(least, 0.001);
  EXPECT_GT(most, 0.999);
}

std::vector<int64_t> Shuffled(uint64_t seed, int size) {
  std::vector<int64_t> values(size);
  std::iota(values.begin(), values.end(), 0);
  Random(seed).Shuffle(absl::MakeSpan(values));
  return values;
}

TEST(Random, ShuffleIsAPermutationFixedBySeed) {
  std::vector<int64_t> values = Shuffled(11, 1000);
  EXPECT_EQ(values, Shuffled(11, 1000));
  EXPECT_NE(values, Shuffled(12, 1000));
  std::sort(values.begin(), values.end());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(values[i], i);
  EXPECT_THAT(Shuffled(1, 0), ElementsAre());
  EXPECT_THAT(Shuffled(1, 1), ElementsAre(0));
}

// Shards and epochs on disk depend on these: a change here breaks running jobs.
TEST(Random, ShuffleAndMixSeedAreFrozen) {
  EXPECT_THAT(Shuffled(42, 8), ElementsAre(7, 2, 4, 0, 3, 5, 1, 6));
  EXPECT_EQ(MixSeed(1, {"job", "worker"}, 3), 1707201107323543935u);
}

TEST(Random, ShuffleReachesEveryPermutationEquallyOften) {
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t seed = 0; seed < 6000; ++seed) ++counts[Shuffled(seed, 3)];
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [permutation, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(MixSeed, EveryPartCounts) {
  std::set<uint64_t> seeds = {MixSeed(0, {}),      MixSeed(1, {}),          MixSeed(0, {""}),
                              MixSeed(0, {}, 1),   MixSeed(0, {"ab", "c"}), MixSeed(0, {"a", "bc"}),
                              MixSeed(0, {"abc"}), MixSeed(0, {"c", "ab"}), MixSeed(0, {"abc"}, 1),
                              MixSeed(1, {"abc"})};
  EXPECT_EQ(seeds.size(), 10u);
}

TEST(RandomBytes, AreOfTheLengthAskedForAndDiffer) {
  EXPECT_EQ(RandomBytes(0), "");
  std::set<std::string> all;
  for (int i = 0; i < 10; ++i) {
    all.insert(RandomBytes(16));
    EXPECT_EQ(all.begin()->size(), 16u);
  }
  EXPECT_EQ(all.size(), 10u);
  // More than the system gives in one go.
  EXPECT_NE(RandomBytes(1 << 20).find_last_not_of('\0'), std::string::npos);
}

}  // namespace
}  // namespace causeway
