#include "scheduler/rate_curve.h"

#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

TEST(RateCurveTest, WithoutChanges) {
  const RateCurve curve;
  EXPECT_EQ(curve.FactorAt(7), 1);
  EXPECT_EQ(curve.Finish(3, 4), 7);
  EXPECT_EQ(curve.NextChange(0), std::numeric_limits<double>::infinity());
}

TEST(RateCurveTest, WorkGoesOnAtTheNewRate) {
  RateCurve curve;
  curve.Add(20, 4);
  curve.Add(10, 0.5);
  EXPECT_EQ(curve.FactorAt(9.9), 1);
  EXPECT_EQ(curve.FactorAt(10), 0.5);
  EXPECT_EQ(curve.FactorAt(25), 4);
  EXPECT_EQ(curve.NextChange(0), 10);
  EXPECT_EQ(curve.NextChange(10), 20);
  EXPECT_EQ(curve.Finish(0, 10), 10);
  EXPECT_EQ(curve.Finish(0, 12), 14);  // 10 by t = 10, 2 more at half speed.
  EXPECT_EQ(curve.Finish(0, 15), 20);  // 5 at half speed.
  EXPECT_EQ(curve.Finish(0, 19), 21);  // 4 more at four times.
  EXPECT_EQ(curve.Finish(12, 1), 14);
  EXPECT_EQ(curve.Finish(30, 8), 32);
  curve.Add(20, 2);
  EXPECT_EQ(curve.Finish(0, 19), 22);
}

// What is begun later, or is more, never ends earlier; and what is cut in two ends as the whole does.
TEST(RateCurveTest, MonotoneAndAdditive) {
  std::mt19937 random(3);
  const auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  for (int round = 0; round < 200; ++round) {
    RateCurve curve;
    for (int i = 0; i < 5; ++i) curve.Add(uniform(0, 20), uniform(0.1, 5));
    const double start = uniform(0, 20), a = uniform(0, 10), b = uniform(0, 10);
    EXPECT_LE(curve.Finish(start, a), curve.Finish(start, a + b));
    EXPECT_LE(curve.Finish(start, a), curve.Finish(start + b, a));
    EXPECT_NEAR(curve.Finish(curve.Finish(start, a), b), curve.Finish(start, a + b), 1e-9);
  }
}

}  // namespace
}  // namespace causeway::scheduler
