#include "scheduler/site_step.h"

#include <cmath>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/test_layers.h"

namespace causeway::scheduler {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using When = ProgramCollective::When;

class StepTest : public testing::Test {
 protected:
  StepMembers Members(const std::vector<double>& scale, double ready_s = 0) {
    StepMembers members;
    for (size_t k = 0; k < scale.size(); ++k) {
      members.workers.push_back(static_cast<int>(k));
      members.ready_s.push_back(ready_s);
      members.speed.push_back(&speeds_[k]);
      members.exposed_s.push_back(0);
    }
    members.scale = scale;
    return members;
  }

  RateCurve speeds_[3];
  RateCurve link_speed_;
  StepLink link_{.speed = &link_speed_};
  SpanRecorder recorder_{{.max_spans = 1000}};
  SpanRecorder no_spans_{{}};
};

// PAPERS 1.7, example A: iterations of 10 and 12 seconds, filled or not.
TEST_F(StepTest, TheExampleByHand) {
  LayerSchedule schedule = MakeSchedule({{5, 4, 3}, {2, 1}});
  for (const std::vector<int>& fill : {std::vector<int>{}, std::vector<int>{5, 4}}) {
    schedule.iterations[1].fill = fill;
    const SiteProgram program = *ProgramOfSchedule(MakeTimes({2, 2, 2, 2, 2}, {1, 3, 2, 4, 2}), schedule);
    StepMembers members = Members({1, 1});
    link_.free_s = 0;
    RunStep(program, {.iteration = 0}, members, link_, no_spans_);
    EXPECT_THAT(members.ready_s, Each(10));
    EXPECT_THAT(members.exposed_s, Each(0));
    RunStep(program, {.iteration = 1}, members, link_, no_spans_);
    EXPECT_THAT(members.ready_s, Each(22));
    EXPECT_THAT(members.exposed_s, Each(2));
    RunStep(program, {.iteration = 4}, members, link_, no_spans_);
    EXPECT_THAT(members.ready_s, Each(32));
  }
}

TEST_F(StepTest, ACollectiveWaitsForTheSlowestAndForTheLink) {
  const SiteProgram program{.forward_s = {1, 1},
                            .backward_s = {2, 2},
                            .iterations = {{{When::kAfterBackward, 2, 5, 7}, {When::kAfterBackward, 1, 1, 8}}}};
  StepMembers members = Members({1, 2});
  RunStep(program, {.step = 3}, members, link_, recorder_);
  // Backward of layer 2 ends at 4 and 8; of layer 1 at 6 and 12. The link: 8 to 13, 13 to 14.
  EXPECT_THAT(members.ready_s, Each(14));
  EXPECT_THAT(members.exposed_s, ElementsAre(8, 2));
  EXPECT_EQ(link_.free_s, 14);
  EXPECT_EQ(link_.busy_s, 6);
  EXPECT_EQ(link_.bytes, 15);
  std::vector<Span> of_second;
  for (const Span& span : recorder_.Take()) {
    if (span.worker == 1) of_second.push_back(span);
  }
  const auto span = [](SpanKind kind, int layer, double bytes, double start, double duration) {
    return Span{
        .kind = kind, .worker = 1, .layer = layer, .step = 3, .bytes = bytes, .start_s = start, .duration_s = duration};
  };
  EXPECT_THAT(of_second, ElementsAre(span(SpanKind::kForward, 1, 0, 0, 2), span(SpanKind::kForward, 2, 0, 2, 2),
                                     span(SpanKind::kBackward, 2, 0, 4, 4), span(SpanKind::kBackward, 1, 0, 8, 4),
                                     span(SpanKind::kWait, 0, 0, 12, 2), span(SpanKind::kCollective, 2, 7, 8, 5),
                                     span(SpanKind::kCollective, 1, 8, 13, 1)));
}

TEST_F(StepTest, WithoutCollectivesEachGoesOn) {
  const SiteProgram program{.forward_s = {1}, .backward_s = {2}, .iterations = {{}}};
  StepMembers members = Members({1, 2, 3});
  RunStep(program, {}, members, link_, no_spans_);
  RunStep(program, {}, members, link_, no_spans_);
  EXPECT_THAT(members.ready_s, ElementsAre(6, 12, 18));
}

TEST_F(StepTest, WhatIsGatheredFirstIsWaitedFor) {
  const SiteProgram program =
      *ProgramSharded(MakeTimes({2, 2}, {0, 0}),
                      std::vector<ShardedLayer>{{.gather_s = 1, .scatter_s = 3}, {.gather_s = 1, .scatter_s = 3}});
  StepMembers members = Members({1, 1});
  RunStep(program, {}, members, link_, no_spans_);
  // 1 + 1 forward, 1 + 2 + 3 + 1 + 2 + 3 backward.
  EXPECT_THAT(members.ready_s, Each(14));
  EXPECT_THAT(members.exposed_s, Each(10));
}

TEST_F(StepTest, SpeedsAndRatesThatChange) {
  const SiteProgram program{.forward_s = {4}, .backward_s = {4}, .iterations = {{{When::kAfterLast, 1, 10, 0}}}};
  speeds_[0].Add(2, 0.5);
  speeds_[0].Add(10, 2);
  link_speed_.Add(14, 10);
  StepMembers members = Members({1, 1});
  RunStep(program, {}, members, link_, no_spans_);
  // The first: 2 done by t = 2, 4 more by 10, 2 more by 11. The link: 3 by 14, 7 more in 0.7.
  EXPECT_THAT(members.exposed_s, ElementsAre(testing::DoubleEq(3.7), testing::DoubleEq(6.7)));
  EXPECT_THAT(members.ready_s, Each(testing::DoubleEq(14.7)));
  // From then on the speed is one factor.
  RunStep(program, {}, members, link_, no_spans_);
  EXPECT_THAT(members.ready_s, Each(testing::DoubleNear(14.7 + 8 + 1, 1e-12)));
}

TEST_F(StepTest, CollectivesJitter) {
  const SiteProgram program{.forward_s = {1}, .backward_s = {1}, .iterations = {{{When::kAfterLast, 1, 10, 0}}}};
  link_.jitter = 0.1;
  std::set<double> lengths;
  for (int64_t i = 0; i < 100; ++i) {
    StepMembers members = Members({1});
    link_.free_s = 0;
    RunStep(program, {.iteration = i}, members, link_, no_spans_);
    EXPECT_GT(members.ready_s[0], 2 + 9);
    EXPECT_LT(members.ready_s[0], 2 + 11);
    lengths.insert(members.ready_s[0]);
  }
  EXPECT_EQ(lengths.size(), 100u);
}

TEST(TriangularNoiseTest, Density) {
  double sum = 0, squares = 0;
  int inner = 0;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const double x = TriangularNoise(1, 2, static_cast<uint64_t>(i), 3);
    ASSERT_LT(std::abs(x), 1);
    sum += x;
    squares += x * x;
    inner += std::abs(x) < 0.5;
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1 / 6.0, 0.01);
  EXPECT_NEAR(inner / static_cast<double>(n), 0.75, 0.02);
  EXPECT_EQ(TriangularNoise(1, 2, 3, 4), TriangularNoise(1, 2, 3, 4));
  const std::set<double> different = {TriangularNoise(1, 2, 3, 4), TriangularNoise(5, 2, 3, 4),
                                      TriangularNoise(1, 5, 3, 4), TriangularNoise(1, 2, 5, 4),
                                      TriangularNoise(1, 2, 3, 5)};
  EXPECT_EQ(different.size(), 5u);
}

}  // namespace
}  // namespace causeway::scheduler
