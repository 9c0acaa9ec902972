#include "scheduler/timeline.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Span At(double start_s, double duration_s, int worker = 0, SpanKind kind = SpanKind::kForward) {
  return {.kind = kind, .worker = worker, .start_s = start_s, .duration_s = duration_s};
}

TEST(TimelineTest, Names) {
  std::set<std::string> names;
  for (const SpanKind kind : {SpanKind::kSend, SpanKind::kForward, SpanKind::kBackward, SpanKind::kCollective,
                              SpanKind::kPush, SpanKind::kPull, SpanKind::kWait}) {
    names.insert(std::string(SpanKindName(kind)));
    EXPECT_FALSE(SpanLaneName(LaneOf(kind)).empty());
  }
  EXPECT_EQ(names.size(), 7u);
  // What runs beside computing must not be in its row.
  EXPECT_NE(LaneOf(SpanKind::kCollective), LaneOf(SpanKind::kBackward));
  EXPECT_NE(LaneOf(SpanKind::kPush), LaneOf(SpanKind::kPull));
}

TEST(SpanRecorderTest, KeepsWhatIsWanted) {
  SpanRecorder recorder({.max_spans = 2, .from_s = 1, .until_s = 5, .workers = 2});
  EXPECT_TRUE(recorder.enabled());
  recorder.Add(At(0.5, 1));   // Too early.
  recorder.Add(At(5, 1));     // Too late.
  recorder.Add(At(2, 0));     // Nothing.
  recorder.Add(At(2, 1, 2));  // Not that worker.
  EXPECT_EQ(recorder.size(), 0u);
  recorder.Add(At(2, 1));
  recorder.Add(At(3, 1));
  EXPECT_EQ(recorder.left_out(), 0);
  recorder.Add(At(4, 1));
  EXPECT_EQ(recorder.left_out(), 1);
  EXPECT_THAT(recorder.Take(), ElementsAre(At(2, 1), At(3, 1)));
}

TEST(SpanRecorderTest, NoneByDefault) {
  SpanRecorder recorder({});
  EXPECT_FALSE(recorder.enabled());
  recorder.Add(At(1, 1));
  EXPECT_THAT(recorder.Take(), IsEmpty());
  EXPECT_EQ(recorder.left_out(), 0);
}

TEST(SpanRecorderTest, CutsWhatWasBrokenOff) {
  SpanRecorder recorder({.max_spans = 10});
  recorder.Add(At(0, 10));
  const size_t first = recorder.size();
  recorder.Add(At(1, 2));
  recorder.Add(At(3, 4));
  recorder.Add(At(5, 4));
  recorder.Cut(first, 5);
  recorder.Add(At(6, 1, 1));
  recorder.CutWorker(0, 4);
  EXPECT_THAT(recorder.Take(), ElementsAre(At(0, 4), At(1, 2), At(3, 1), At(6, 1, 1)));
}

TEST(SpanRecorderTest, SortsByWorkerLaneAndStart) {
  SpanRecorder recorder({.max_spans = 10});
  recorder.Add(At(1, 1, 1));
  recorder.Add(At(2, 1, 0, SpanKind::kPull));
  recorder.Add(At(3, 1, 0, SpanKind::kBackward));
  recorder.Add(At(1, 1, 0));
  EXPECT_THAT(recorder.Take(),
              ElementsAre(At(1, 1, 0), At(3, 1, 0, SpanKind::kBackward), At(2, 1, 0, SpanKind::kPull), At(1, 1, 1)));
}

}  // namespace
}  // namespace causeway::scheduler
