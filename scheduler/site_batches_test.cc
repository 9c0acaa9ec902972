#include "scheduler/site_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Times measured at four sizes: a fixed cost and one per sample.
SiteMember Member(int64_t max_parallel, double fixed_s, double per_sample_s) {
  SiteMember member{.max_parallel = max_parallel, .measurements = {}};
  for (int64_t size : {4, 16, 64, 256}) {
    member.measurements.push_back({.batch_size = size, .batch_time_s = fixed_s + per_sample_s * size});
  }
  return member;
}

std::vector<int64_t> Sizes(const std::vector<BatchMeasurement>& batches) {
  std::vector<int64_t> sizes;
  for (const BatchMeasurement& batch : batches) sizes.push_back(batch.batch_size);
  return sizes;
}

TEST(ChooseSiteBatchesTest, InProportionToSpeedWhereTimesAre) {
  const auto batches = ChooseSiteBatches({Member(1000, 0, 0.001), Member(1000, 0, 0.003), Member(1000, 0, 0.002)}, 110);
  ASSERT_TRUE(batches.ok()) << batches.status();
  EXPECT_THAT(Sizes(*batches), ElementsAre(60, 20, 30));
  for (const BatchMeasurement& batch : *batches) EXPECT_NEAR(batch.batch_time_s, 0.06, 1e-12);
}

TEST(ChooseSiteBatchesTest, OneMeasurementIsInProportion) {
  const auto batches = ChooseSiteBatches(
      {{.max_parallel = 100, .measurements = {{32, 0.02}}}, {.max_parallel = 100, .measurements = {{16, 0.02}}}}, 48);
  ASSERT_TRUE(batches.ok()) << batches.status();
  EXPECT_THAT(Sizes(*batches), ElementsAre(32, 16));
}

// A device with a high fixed cost is relatively faster at large batches; speeds at one size would not tell.
TEST(ChooseSiteBatchesTest, TakesTheSpeedNearTheBatchThatIsChosen) {
  const std::vector<SiteMember> members = {Member(1000, 0.1, 0.001), Member(1000, 0, 0.01)};
  const auto small = ChooseSiteBatches(members, 22);
  const auto large = ChooseSiteBatches(members, 550);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_THAT(Sizes(*small), ElementsAre(11, 11));   // 0.1 + 0.011 and 0.11
  EXPECT_THAT(Sizes(*large), ElementsAre(491, 59));  // 0.1 + 0.491 and 0.59
}

TEST(ChooseSiteBatchesTest, NobodyGoesAboveMaxParallel) {
  const auto batches = ChooseSiteBatches({Member(20, 0, 0.001), Member(1000, 0, 0.003)}, 110);
  ASSERT_TRUE(batches.ok()) << batches.status();
  EXPECT_THAT(Sizes(*batches), ElementsAre(20, 90));
  EXPECT_NEAR((*batches)[1].batch_time_s, 0.27, 1e-12);
}

TEST(ChooseSiteBatchesTest, TwoSamplesAtLeastWhereThereAreEnough) {
  const std::vector<SiteMember> members = {Member(1000, 0, 0.001), Member(1000, 0, 1)};
  EXPECT_THAT(Sizes(*ChooseSiteBatches(members, 50)), ElementsAre(48, 2));
  EXPECT_THAT(Sizes(*ChooseSiteBatches(members, 3)), ElementsAre(2, 1));
  EXPECT_THAT(Sizes(*ChooseSiteBatches({Member(1000, 0, 0.001), Member(1, 0, 1)}, 50)), ElementsAre(49, 1));
}

TEST(ChooseSiteBatchesTest, FlatAndFallingTimesStillSumUp) {
  // A measurement that is faster than a smaller one counts as no slower.
  const SiteMember flat{.max_parallel = 64, .measurements = {{1, 0.01}, {32, 0.009}, {64, 0.0095}}};
  const auto batches = ChooseSiteBatches({flat, flat, flat}, 100);
  ASSERT_TRUE(batches.ok()) << batches.status();
  const std::vector<int64_t> sizes = Sizes(*batches);
  EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 100);
  EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), 64);
}

// Every way to share the batch: none has a shorter step.
TEST(ChooseSiteBatchesTest, NoOtherSharesMakeAShorterStep) {
  std::mt19937 random(11);
  const auto draw = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  for (int n = 0; n < 300; ++n) {
    std::vector<SiteMember> members;
    int64_t room = 0;
    for (int m = 0; m < 3; ++m) {
      members.push_back(Member(draw(1, 12), 0.01 * draw(0, 5), 0.01 * draw(1, 5)));
      room += members.back().max_parallel;
    }
    const int64_t site_batch = draw(3, room);
    const auto batches = ChooseSiteBatches(members, site_batch);
    ASSERT_TRUE(batches.ok()) << batches.status();
    int64_t sum = 0;
    double step = 0;
    for (size_t m = 0; m < 3; ++m) {
      sum += (*batches)[m].batch_size;
      step = std::max(step, (*batches)[m].batch_time_s);
      ASSERT_LE((*batches)[m].batch_size, members[m].max_parallel);
    }
    ASSERT_EQ(sum, site_batch);
    const auto least = [&](size_t m) { return std::min<int64_t>(members[m].max_parallel, site_batch >= 6 ? 2 : 1); };
    double best = 1e9;
    for (int64_t a = least(0); a <= members[0].max_parallel; ++a) {
      for (int64_t b = least(1); b <= members[1].max_parallel; ++b) {
        const int64_t c = site_batch - a - b;
        if (c < least(2) || c > members[2].max_parallel) continue;
        best = std::min(best, std::max({*EstimateBatchTime(members[0].measurements, a),
                                        *EstimateBatchTime(members[1].measurements, b),
                                        *EstimateBatchTime(members[2].measurements, c)}));
      }
    }
    ASSERT_NEAR(step, best, 1e-12) << n;
  }
}

TEST(ChooseSiteBatchesTest, RefusesBadInput) {
  const auto error = [](const std::vector<SiteMember>& members, int64_t site_batch) {
    const auto batches = ChooseSiteBatches(members, site_batch);
    EXPECT_EQ(batches.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(batches.status().message());
  };
  EXPECT_THAT(error({}, 8), HasSubstr("not in 0..0"));
  EXPECT_THAT(error({Member(8, 0, 1), Member(8, 0, 1)}, 17), HasSubstr("17, not in 2..16"));
  EXPECT_THAT(error({Member(8, 0, 1), Member(8, 0, 1)}, 1), HasSubstr("1, not in 2..16"));
  EXPECT_THAT(error({Member(8, 0, 1), Member(0, 0, 1)}, 4), HasSubstr("member 1: max_parallel is 0"));
  EXPECT_THAT(error({{.max_parallel = 8, .measurements = {}}}, 4), HasSubstr("member 0: no batch was measured"));
  EXPECT_THAT(error({{.max_parallel = 8, .measurements = {{2, 1}, {2, 1}}}}, 4), HasSubstr("measured twice"));
}

TEST(SiteCapacityTest, AMemberMayBeFullOneStepBeforeTheLast) {
  EXPECT_EQ(SiteCapacity({{.batch_size = 4, .capacity_samples = 40}}), 40);
  EXPECT_EQ(SiteCapacity({{.batch_size = 4, .capacity_samples = 42}}), 42);
  // Full after 2 steps of 3; in the third the other takes 9 more.
  EXPECT_EQ(SiteCapacity({{.batch_size = 3, .capacity_samples = 6}, {.batch_size = 9, .capacity_samples = 1000}}), 33);
  EXPECT_EQ(SiteCapacity({{.batch_size = 3, .capacity_samples = 0}, {.batch_size = 9, .capacity_samples = 1000}}), 9);
  const int64_t huge = int64_t{1} << 50;
  EXPECT_EQ(SiteCapacity({{.batch_size = huge, .capacity_samples = huge}, {.batch_size = 1, .capacity_samples = huge}}),
            huge);
}

TEST(SplitSiteSamplesTest, InProportionToBatches) {
  EXPECT_THAT(SplitSiteSamples({{6, 1000}, {2, 1000}, {4, 1000}}, 120), ElementsAre(60, 20, 40));
  EXPECT_THAT(SplitSiteSamples({{6, 1000}, {2, 1000}}, 0), ElementsAre(0, 0));
}

// Whatever the amount: all samples, in the fewest steps, under the capacities, and no last step of one sample where it
// can be avoided.
TEST(SplitSiteSamplesTest, HoldsItsContractOnRandomSites) {
  std::mt19937 random(12);
  const auto draw = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  int single = 0;
  for (int n = 0; n < 3000; ++n) {
    std::vector<SiteMemberRoom> members;
    int64_t site_batch = 0;
    for (int64_t m = draw(1, 5); m > 0; --m) {
      members.push_back({.batch_size = draw(2, 9), .capacity_samples = n % 2 == 0 ? 100000 : draw(0, 60)});
      site_batch += members.back().batch_size;
    }
    const int64_t samples = draw(0, std::min<int64_t>(2000, SiteCapacity(members)));
    const std::vector<int64_t> split = SplitSiteSamples(members, samples);
    const int64_t steps = (samples + site_batch - 1) / site_batch;
    ASSERT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), samples) << n;
    for (size_t m = 0; m < members.size(); ++m) {
      ASSERT_GE(split[m], 0) << n;
      ASSERT_LE(split[m], steps * members[m].batch_size) << n;
      ASSERT_LE(split[m], members[m].capacity_samples) << n;
      if (n % 2 == 0 && members.size() > 1 && site_batch > 2 * static_cast<int64_t>(members.size()) && samples > 10) {
        single += split[m] % members[m].batch_size == 1;  // Batches of two alone cannot avoid it.
      }
      if (n % 2 == 0) {
        ASSERT_NEAR(static_cast<double>(split[m]), static_cast<double>(samples * members[m].batch_size) / site_batch,
                    2 * static_cast<double>(members.size()))
            << n;
      }
    }
  }
  EXPECT_EQ(single, 0);
}

TEST(SplitSiteSamplesTest, ATrillionSamples) {
  const std::vector<int64_t> split =
      SplitSiteSamples({{1000, int64_t{1} << 50}, {24, int64_t{1} << 50}}, int64_t{1} << 50);
  EXPECT_THAT(split, ElementsAre(1000 * (int64_t{1} << 40), 24 * (int64_t{1} << 40)));
}

}  // namespace
}  // namespace causeway::scheduler
