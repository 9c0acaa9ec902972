#include "base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/fakes/fake_clock.h"

namespace causeway {
namespace {

TEST(RealClock, SteadyTimeDoesNotGoBack) {
  absl::Time last = RealClock()->Now();
  for (int i = 0; i < 1000; ++i) {
    absl::Time now = RealClock()->Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(RealClock, WallTimeIsOfThisCentury) {
  EXPECT_GT(RealClock()->WallNow(), absl::FromCivil(absl::CivilDay(2020, 1, 1), absl::UTCTimeZone()));
  EXPECT_LT(RealClock()->WallNow(), absl::FromCivil(absl::CivilDay(2100, 1, 1), absl::UTCTimeZone()));
}

TEST(RealClock, SleepForTakesAtLeastThatLong) {
  absl::Time before = RealClock()->Now();
  RealClock()->SleepFor(absl::Milliseconds(3));
  EXPECT_GE(RealClock()->Now() - before, absl::Milliseconds(3));
}

TEST(RealClock, AwaitUntilReturnsTrueOnceTheDeadlineHasPassed) {
  Mutex mu;
  CondVar cv;
  absl::Time deadline = RealClock()->Now() + absl::Milliseconds(3);
  MutexLock lock(&mu);
  while (!RealClock()->AwaitUntil(&mu, &cv, deadline)) {
  }
  EXPECT_GE(RealClock()->Now(), deadline);
  EXPECT_TRUE(RealClock()->AwaitUntil(&mu, &cv, absl::InfinitePast()));
}

TEST(RealClock, AwaitUntilWithoutDeadlineEndsWithASignal) {
  Mutex mu;
  CondVar cv;
  bool done = false;
  std::thread signaller([&] {
    MutexLock lock(&mu);
    done = true;
    cv.SignalAll();
  });
  {
    MutexLock lock(&mu);
    while (!done) EXPECT_FALSE(RealClock()->AwaitUntil(&mu, &cv, absl::InfiniteFuture()));
  }
  signaller.join();
}

TEST(FakeClock, StandsStillUntilAdvanced) {
  FakeClock clock;
  absl::Time now = clock.Now(), wall = clock.WallNow();
  EXPECT_NE(now, wall);
  EXPECT_EQ(clock.Now(), now);
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(clock.Now() - now, absl::Seconds(5));
  EXPECT_EQ(clock.WallNow() - wall, absl::Seconds(5));
  clock.JumpWall(-absl::Hours(1));
  EXPECT_EQ(clock.Now() - now, absl::Seconds(5));
  EXPECT_EQ(clock.WallNow() - wall, absl::Seconds(5) - absl::Hours(1));
}

TEST(FakeClock, WakesSleepersWhoseTimeHasCome) {
  FakeClock clock;
  std::atomic<bool> early_woke = false, late_woke = false;
  std::thread early([&] {
    clock.SleepFor(absl::Seconds(10));
    early_woke = true;
  });
  std::thread late([&] {
    clock.SleepFor(absl::Seconds(20));
    late_woke = true;
  });
  ASSERT_TRUE(clock.AwaitWaiters(2));
  clock.Advance(absl::Seconds(9));
  EXPECT_FALSE(early_woke);
  clock.Advance(absl::Seconds(1));
  early.join();
  EXPECT_FALSE(late_woke);
  clock.Advance(absl::Seconds(10));
  late.join();
}

TEST(FakeClock, AwaitUntilEndsWithASignalWhileTimeStandsStill) {
  FakeClock clock;
  Mutex mu;
  CondVar cv;
  bool done = false;
  std::thread waiter([&] {
    MutexLock lock(&mu);
    while (!done) EXPECT_FALSE(clock.AwaitUntil(&mu, &cv, clock.Now() + absl::Seconds(1)));
  });
  ASSERT_TRUE(clock.AwaitWaiters(1));
  {
    MutexLock lock(&mu);
    done = true;
    cv.SignalAll();
  }
  waiter.join();
}

TEST(FakeClock, MayBeAdvancedWithTheWaitersMutexHeld) {
  FakeClock clock;
  Mutex mu;
  CondVar cv;
  std::thread waiter([&] {
    MutexLock lock(&mu);
    absl::Time deadline = clock.Now() + absl::Seconds(1);
    while (!clock.AwaitUntil(&mu, &cv, deadline)) {
    }
  });
  ASSERT_TRUE(clock.AwaitWaiters(1));
  {
    MutexLock lock(&mu);
    clock.Advance(absl::Seconds(1));
  }
  waiter.join();
}

}  // namespace
}  // namespace causeway
