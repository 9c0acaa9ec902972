#include "dataplane/rate_limiter.h"

#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

using ::testing::ElementsAre;

class RateLimiterTest : public ::testing::Test {
 protected:
  std::unique_ptr<RateLimiter> Make(double rate_bytes_per_s, int64_t burst_bytes) {
    return *RateLimiter::Create({.rate_bytes_per_s = rate_bytes_per_s, .burst_bytes = burst_bytes, .clock = &clock_});
  }
  absl::Time In(absl::Duration d) { return clock_.Now() + d; }

  FakeClock clock_;
};

TEST_F(RateLimiterTest, OptionsAreChecked) {
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(RateLimiter::Create({.rate_bytes_per_s = 0, .clock = &clock_}).status(), invalid);
  EXPECT_THAT(RateLimiter::Create({.rate_bytes_per_s = 1, .burst_bytes = 0, .clock = &clock_}).status(), invalid);
  EXPECT_THAT(RateLimiter::Create({.rate_bytes_per_s = 1}).status(), invalid);
}

TEST_F(RateLimiterTest, BurstPassesThenTheRateHolds) {
  auto limiter = Make(1000, 500);
  EXPECT_THAT(limiter->Acquire(500, 0, clock_.Now()), IsOk());
  EXPECT_THAT(limiter->Acquire(1, 0, clock_.Now()), StatusIs(absl::StatusCode::kDeadlineExceeded));
  clock_.Advance(absl::Milliseconds(100));
  EXPECT_THAT(limiter->Acquire(101, 0, clock_.Now()), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(limiter->Acquire(100, 0, clock_.Now()), IsOk()) << "a vain wait takes nothing";
  clock_.Advance(absl::Hours(1));
  EXPECT_THAT(limiter->Acquire(500, 0, clock_.Now()), IsOk());
  EXPECT_THAT(limiter->Acquire(1, 0, clock_.Now()), StatusIs(absl::StatusCode::kDeadlineExceeded))
      << "idleness saves up one burst only";
  EXPECT_THAT(limiter->Acquire(501, 0, clock_.Now()), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(limiter->Acquire(-1, 0, clock_.Now()), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(RateLimiterTest, WaiterWakesWhenItMayPass) {
  auto limiter = Make(1000, 500);
  ASSERT_THAT(limiter->Acquire(500, 0, clock_.Now()), IsOk());
  absl::Status status;
  const absl::Time start = clock_.Now();
  std::thread waiter([&] { status = limiter->Acquire(250, 0, start + absl::Seconds(10)); });
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  clock_.Advance(absl::Milliseconds(251));
  waiter.join();
  EXPECT_THAT(status, IsOk());
}

TEST_F(RateLimiterTest, WhatAWaiterOversleepsIsNotLost) {
  auto limiter = Make(1000, 500);
  ASSERT_THAT(limiter->Acquire(500, 0, clock_.Now()), IsOk());
  std::thread waiter([&] { EXPECT_THAT(limiter->Acquire(100, 0, In(absl::Hours(1))), IsOk()); });
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  clock_.Advance(absl::Seconds(1));
  waiter.join();
  EXPECT_THAT(limiter->Acquire(500, 0, clock_.Now()), IsOk());
  EXPECT_THAT(limiter->Acquire(400, 0, clock_.Now()), IsOk());
  EXPECT_THAT(limiter->Acquire(1, 0, clock_.Now()), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(RateLimiterTest, WhatWasOversleptIsNoBurstForLater) {
  auto limiter = Make(1000, 500);
  ASSERT_THAT(limiter->Acquire(500, 0, clock_.Now()), IsOk());
  std::thread waiter([&] { EXPECT_THAT(limiter->Acquire(100, 0, In(absl::Hours(1))), IsOk()); });
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  clock_.Advance(absl::Seconds(10));
  waiter.join();
  clock_.Advance(absl::Milliseconds(500));
  EXPECT_THAT(limiter->Acquire(500, 0, clock_.Now()), IsOk());
  EXPECT_THAT(limiter->Acquire(1, 0, clock_.Now()), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(RateLimiterTest, PriorityThenArrivalDecides) {
  auto limiter = Make(1000, 100);
  ASSERT_THAT(limiter->Acquire(100, 0, clock_.Now()), IsOk());
  Mutex mu;
  std::vector<int> order;
  std::vector<std::thread> waiters;
  for (int priority : {2, 1, 0}) {
    waiters.emplace_back([&, priority] {
      EXPECT_THAT(limiter->Acquire(100, priority, In(absl::Hours(1))), IsOk());
      MutexLock lock(&mu);
      order.push_back(priority);
    });
    ASSERT_TRUE(clock_.AwaitWaiters(static_cast<int>(waiters.size())));
  }
  for (size_t passed = 1; passed <= 3; ++passed) {
    clock_.Advance(absl::Milliseconds(101));
    while (true) {
      MutexLock lock(&mu);
      if (order.size() >= passed) break;
    }
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST_F(RateLimiterTest, StopWakesEverybody) {
  auto limiter = Make(1, 10);
  ASSERT_THAT(limiter->Acquire(10, 0, clock_.Now()), IsOk());
  std::vector<std::thread> waiters;
  for (int i = 0; i < 2; ++i) {
    waiters.emplace_back(
        [&] { EXPECT_THAT(limiter->Acquire(10, 0, In(absl::Hours(1))), StatusIs(absl::StatusCode::kCancelled)); });
  }
  ASSERT_TRUE(clock_.AwaitWaiters(2));
  limiter->Stop();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_THAT(limiter->Acquire(0, 0, clock_.Now()), StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace causeway::dataplane
