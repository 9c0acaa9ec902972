#include "scheduler/round_steps.h"

#include <vector>

#include "gtest/gtest.h"
#include "scheduler/rounds.h"

namespace causeway::scheduler {
namespace {

TEST(RoundStepsTest, OfANumberOfSteps) {
  SimulatedJob job;
  job.workers = {{.batch_size = 3}, {.batch_size = 5}};
  job.rounds = {.steps = 7, .fragment_bytes = {1, 1, 1}};
  const RoundSteps steps(job);
  EXPECT_EQ(steps.RoundStart(0, 4), 28);
  EXPECT_EQ(steps.StepsOf(0, 4), 7);
  EXPECT_EQ(steps.SendPosition(0, 0, 1), 7 + 2);
  EXPECT_EQ(steps.SendPosition(0, 1, 1), 7 + 4);
  EXPECT_EQ(steps.SendPosition(0, 2, 1), 14);
  EXPECT_EQ(steps.SamplesOf(0, 3, {0, 1}), 56);
  EXPECT_EQ(steps.SamplesOf(0, 3, {1}), 35);
  EXPECT_EQ(steps.SamplesOf(0, 3, {1}, 2), 10);
}

// The rounds of an epoch are those that the product's workers do, and together have each sample once.
TEST(RoundStepsTest, OfAnEpoch) {
  for (const int64_t samples : {1, 10, 33, 100}) {
    for (const int64_t per_epoch : {1, 3, 7, 40}) {
      SimulatedJob job;
      job.workers = {{.samples = samples, .batch_size = 4}, {.samples = samples / 2, .batch_size = 4}};
      job.rounds.per_epoch = per_epoch;
      const int64_t epoch_steps = EpochSteps(job, {0, 1});
      const RoundSteps steps(job);
      double seen = 0;
      for (int64_t round = 0; round < per_epoch; ++round) {
        const int64_t expected =
            StepsBeforeRound(epoch_steps, per_epoch, round + 1) - StepsBeforeRound(epoch_steps, per_epoch, round);
        EXPECT_EQ(steps.StepsOf(epoch_steps, round), expected);
        EXPECT_EQ(steps.StepsOf(epoch_steps, 5 * per_epoch + round), expected);
        EXPECT_EQ(steps.SendPosition(epoch_steps, 0, round), steps.RoundStart(epoch_steps, round) + expected);
        if (expected > 0) {
          EXPECT_LT(steps.SamplesOf(epoch_steps, round, {0, 1}, expected - 1),
                    steps.SamplesOf(epoch_steps, round, {0, 1}));
        }
        seen += steps.SamplesOf(epoch_steps, round, {0, 1});
        EXPECT_EQ(steps.SamplesOf(epoch_steps, round, {0}), steps.SamplesOf(epoch_steps, per_epoch + round, {0}));
      }
      EXPECT_EQ(seen, static_cast<double>(samples + samples / 2));
      EXPECT_EQ(steps.RoundStart(epoch_steps, 2 * per_epoch), 2 * epoch_steps);
    }
  }
}

}  // namespace
}  // namespace causeway::scheduler
