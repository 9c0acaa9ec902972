#include "server/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/random.h"

namespace causeway::server {
namespace {

// Rounds of an epoch have every step and every sample once, the ragged last batch included.
TEST(SharesTest, RoundsTileAnEpoch) {
  for (int64_t samples : {1, 31, 32, 33, 1000}) {
    v1::WorkerPlan worker;
    worker.set_samples(samples);
    worker.set_batch_size(32);
    worker.set_steps_per_epoch((samples + 31) / 32);
    for (int64_t rounds : {1, 2, 3, 7, 50}) {
      int64_t at = 0;
      int64_t counted = 0;
      for (int64_t round = 5 * rounds; round < 6 * rounds; ++round) {  // Of the sixth epoch.
        const Steps steps = StepsOf(worker, round, rounds);
        EXPECT_EQ(steps.first, at);
        EXPECT_GE(steps.last, steps.first);
        at = steps.last;
        counted += steps.samples;
      }
      EXPECT_EQ(at, worker.steps_per_epoch());
      EXPECT_EQ(counted, samples);
    }
  }
}

TEST(SharesTest, PartsAreDisjointInProportionAndHaveEverySample) {
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    Ranges all;
    int64_t at = 0;
    for (int k = 0; k < 3; ++k) {
      at += static_cast<int64_t>(random.Below(5));
      const int64_t begin = at;
      at += 1 + static_cast<int64_t>(random.Below(50));
      all.push_back({begin, at});
    }
    std::vector<double> speeds(1 + random.Below(5));
    double total_speed = 0;
    for (double& speed : speeds) total_speed += speed = static_cast<double>(random.Below(4));
    const std::vector<Ranges> parts = Split(all, speeds);
    ASSERT_EQ(parts.size(), speeds.size());
    std::vector<int64_t> samples;
    for (size_t p = 0; p < parts.size(); ++p) {
      for (const auto& range : parts[p]) {
        for (int64_t s = range.begin; s < range.end; ++s) samples.push_back(s);
      }
      const double share = total_speed > 0 ? speeds[p] / total_speed : 1.0 / static_cast<double>(speeds.size());
      EXPECT_NEAR(static_cast<double>(Count(parts[p])), share * static_cast<double>(Count(all)), 1.0001);
    }
    std::vector<int64_t> expected;
    for (const auto& range : all) {
      for (int64_t s = range.begin; s < range.end; ++s) expected.push_back(s);
    }
    EXPECT_EQ(samples, expected);
  }
}

}  // namespace
}  // namespace causeway::server
