#include "scheduler/site_program.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/test_layers.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using When = ProgramCollective::When;

const std::vector<double> kBytes = {10, 20, 30};

LayerTimes ThreeLayers() { return MakeTimes({1, 2, 3}, {4, 5, 6}); }

TEST(SiteProgramTest, GradientsAfterTheLastBackward) {
  const SiteProgram program = *ProgramSsgd(ThreeLayers(), kBytes);
  EXPECT_THAT(program.backward_s, ElementsAre(1, 2, 3));
  EXPECT_THAT(program.forward_s, ElementsAre(0, 0, 0));
  ASSERT_EQ(program.iterations.size(), 1u);
  EXPECT_THAT(program.iterations[0],
              ElementsAre(ProgramCollective{When::kAfterLast, 3, 6, 30}, ProgramCollective{When::kAfterLast, 2, 5, 20},
                          ProgramCollective{When::kAfterLast, 1, 4, 10}));
}

TEST(SiteProgramTest, ParametersOncePerPeriod) {
  const SiteProgram program = *ProgramFlsgd(ThreeLayers(), 3);
  ASSERT_EQ(program.iterations.size(), 3u);
  EXPECT_THAT(program.iterations[0], IsEmpty());
  EXPECT_THAT(program.iterations[1], IsEmpty());
  EXPECT_EQ(program.iterations[2].size(), 3u);
  EXPECT_THAT(ProgramNone(ThreeLayers())->iterations, ElementsAre(IsEmpty()));
}

TEST(SiteProgramTest, MergedGradientsWhenTheLastIsReady) {
  const std::vector<MergedLayers> merged = {{.first = 3, .last = 2, .comm_ns = 9 * kSecond},
                                            {.first = 1, .last = 1, .comm_ns = 4 * kSecond}};
  EXPECT_THAT(ProgramWfbp(ThreeLayers(), merged, kBytes)->iterations,
              ElementsAre(ElementsAre(ProgramCollective{When::kAfterBackward, 2, 9, 50},
                                      ProgramCollective{When::kAfterBackward, 1, 4, 10})));
  EXPECT_FALSE(ProgramWfbp(ThreeLayers(), {merged.data(), 1}).ok());
  EXPECT_FALSE(ProgramWfbp(ThreeLayers(), {merged.data() + 1, 1}).ok());
}

TEST(SiteProgramTest, TheScheduleWithItsFillFirst) {
  LayerSchedule schedule = MakeSchedule({{3, 2}, {1}});
  schedule.iterations[1].fill = {3};
  EXPECT_THAT(ProgramOfSchedule(ThreeLayers(), schedule)->iterations,
              ElementsAre(ElementsAre(ProgramCollective{When::kAfterBackward, 3, 6, 0},
                                      ProgramCollective{When::kAfterBackward, 2, 5, 0}),
                          ElementsAre(ProgramCollective{When::kAfterBackward, 3, 6, 0},
                                      ProgramCollective{When::kAfterBackward, 1, 4, 0})));
  EXPECT_FALSE(ProgramOfSchedule(ThreeLayers(), MakeSchedule({{3, 2}})).ok());
}

TEST(SiteProgramTest, ShardedLayersAreGatheredTwiceAndScatteredOnce) {
  const std::vector<ShardedLayer> sharded = {{.gather_s = 1, .scatter_s = 2, .replicate_s = 3, .bytes = 4},
                                             {.gather_s = 5, .scatter_s = 6}};
  EXPECT_THAT(ProgramSharded(MakeTimes({1, 1}, {0, 0}), sharded)->iterations,
              ElementsAre(ElementsAre(
                  ProgramCollective{When::kBeforeForward, 1, 1, 4}, ProgramCollective{When::kBeforeForward, 2, 5, 0},
                  ProgramCollective{When::kBeforeBackward, 2, 5, 0}, ProgramCollective{When::kAfterBackward, 2, 6, 0},
                  ProgramCollective{When::kBeforeBackward, 1, 1, 4}, ProgramCollective{When::kAfterBackward, 1, 2, 4},
                  ProgramCollective{When::kAfterBackward, 1, 3, 4})));
  EXPECT_FALSE(ProgramSharded(ThreeLayers(), sharded).ok());
}

TEST(SiteProgramTest, OfEveryMethod) {
  const LayerTimes times = ThreeLayers();
  const SyncOptions options{.period = 2, .scheduler = LayerScheduler::kExact};
  for (const SyncMethod method :
       {SyncMethod::kSsgd, SyncMethod::kWfbp, SyncMethod::kFlsgd, SyncMethod::kPlsgdEnp, SyncMethod::kDreamDdp}) {
    const absl::StatusOr<SiteProgram> program = ProgramOf(method, times, options, FillRule::kEnd, kBytes);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_TRUE(Validate(*program).ok()) << Validate(*program);
  }
  EXPECT_FALSE(ProgramOf(SyncMethod::kFlsgd, times, {.period = 0}).ok());
  EXPECT_FALSE(ProgramOf(SyncMethod::kSsgd, times, {}, FillRule::kNone, {kBytes.data(), 2}).ok());
}

TEST(SiteProgramTest, NamesWhatIsWrong) {
  const auto error = [](auto&& change) {
    SiteProgram program = *ProgramSsgd(ThreeLayers());
    EXPECT_TRUE(Validate(program).ok());
    change(program);
    return std::string(Validate(program).message());
  };
  EXPECT_THAT(error([](auto& p) { p.forward_s.clear(); }), HasSubstr("layers"));
  EXPECT_THAT(error([](auto& p) { p.iterations.clear(); }), HasSubstr("iteration"));
  EXPECT_THAT(error([](auto& p) { p.backward_s[1] = -1; }), HasSubstr("layer 2"));
  EXPECT_THAT(error([](auto& p) { p.iterations[0][0].layer = 4; }), HasSubstr("layer is 4"));
  EXPECT_THAT(error([](auto& p) { p.iterations[0][1].duration_s = std::numeric_limits<double>::infinity(); }),
              HasSubstr("collective 1: duration_s"));
  EXPECT_THAT(error([](auto& p) { p.iterations[0][1].bytes = -1; }), HasSubstr("bytes"));
  EXPECT_THAT(error([](auto& p) { p.iterations[0][1].when = When::kBeforeForward; }), HasSubstr("before the one"));
}

}  // namespace
}  // namespace causeway::scheduler
