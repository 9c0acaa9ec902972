#include "base/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/status_matchers.h"

namespace causeway {
namespace {

using testing::HasSubstr;

TEST(Completion, TheFirstResultWins) {
  FakeClock clock;
  Completion<std::string> completion;
  EXPECT_FALSE(completion.IsSet());
  EXPECT_TRUE(completion.Set(std::string("one")));
  EXPECT_FALSE(completion.Set(std::string("two")));
  EXPECT_FALSE(completion.Cancel("too late"));
  EXPECT_TRUE(completion.IsSet());
  EXPECT_THAT(completion.Await(&clock, absl::InfinitePast(), "a word"), IsOkAndHolds("one"));
}

TEST(Completion, CopiesShareTheResultAcrossThreads) {
  Completion<int> completion;
  std::thread setter([copy = completion]() mutable { copy.Set(7); });
  EXPECT_THAT(completion.Await(RealClock(), absl::InfiniteFuture(), "a number"), IsOkAndHolds(7));
  setter.join();
}

TEST(Completion, CancelWakesWaiters) {
  FakeClock clock;
  Completion<int> completion;
  std::thread waiter([&] {
    EXPECT_THAT(completion.Await(&clock, clock.Now() + absl::Seconds(1), "a number"),
                StatusIs(absl::StatusCode::kCancelled, "shutting down"));
  });
  ASSERT_TRUE(clock.AwaitWaiters(1));
  EXPECT_TRUE(completion.Cancel("shutting down"));
  waiter.join();
}

TEST(Completion, DeadlineNamesWhatWasWaitedFor) {
  FakeClock clock;
  Completion<int> completion;
  std::thread waiter([&] {
    EXPECT_THAT(completion.Await(&clock, clock.Now() + absl::Seconds(1), "the global model"),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("the global model")));
  });
  ASSERT_TRUE(clock.AwaitWaiters(1));
  clock.Advance(absl::Seconds(1));
  waiter.join();
}

TEST(Completion, CarriesErrors) {
  Completion<int> completion;
  completion.Set(absl::DataLossError("torn"));
  EXPECT_THAT(completion.Await(RealClock(), absl::InfiniteFuture(), "x"),
              StatusIs(absl::StatusCode::kDataLoss, "torn"));
}

}  // namespace
}  // namespace causeway
