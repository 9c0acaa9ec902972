#include "base/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/completion.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/status_matchers.h"

namespace causeway {
namespace {

using testing::ElementsAre;

class SerialExecutorTest : public testing::Test {
 protected:
  // Waits for all that is ready now.
  void Flush() {
    Completion<bool> done;
    executor_.Add([done]() mutable { done.Set(true); });
    EXPECT_THAT(done.Await(RealClock(), RealClock()->Now() + absl::Seconds(10), "the executor"), IsOk());
  }

  Executor::Task Append(int number) {
    return [this, number] { ran_.push_back(number); };
  }

  FakeClock clock_;
  std::vector<int> ran_;  // Written by the executor's thread; read after Flush or Stop.
  SerialExecutor executor_{"test-executor-with-a-long-name", &clock_};
};

TEST_F(SerialExecutorTest, RunsInTheOrderAdded) {
  executor_.Add(Append(1));
  executor_.Start();
  for (int i = 2; i <= 100; ++i) executor_.Add(Append(i));
  Flush();
  ASSERT_EQ(ran_.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran_[i], i + 1);
}

TEST_F(SerialExecutorTest, NeverRunsInsideAdd) {
  executor_.Start();
  executor_.Add([this] {
    executor_.Add(Append(2));
    ran_.push_back(1);
  });
  Flush();
  Flush();
  EXPECT_THAT(ran_, ElementsAre(1, 2));
}

TEST_F(SerialExecutorTest, RunsTimersInOrderOfTimeAndNotBefore) {
  executor_.Start();
  const absl::Time start = clock_.Now();
  executor_.AddAt(start + absl::Seconds(2), Append(2));
  executor_.AddAt(start + absl::Seconds(3), Append(3));
  executor_.AddAt(start + absl::Seconds(1), Append(1));
  executor_.AddAt(start + absl::Seconds(2), Append(22));
  Flush();
  EXPECT_THAT(ran_, ElementsAre());
  clock_.Advance(absl::Seconds(1));
  Flush();
  EXPECT_THAT(ran_, ElementsAre(1));
  clock_.Advance(absl::Seconds(5));
  Flush();
  EXPECT_THAT(ran_, ElementsAre(1, 2, 22, 3));
}

TEST_F(SerialExecutorTest, WakesForATimerWithoutBeingAsked) {
  executor_.Start();
  Completion<bool> ran;
  executor_.AddAt(clock_.Now() + absl::Seconds(9), [ran]() mutable { ran.Set(true); });
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  executor_.AddAt(clock_.Now() + absl::Seconds(1), Append(1));
  clock_.Advance(absl::Seconds(9));
  EXPECT_THAT(ran.Await(RealClock(), RealClock()->Now() + absl::Seconds(10), "the timer"), IsOk());
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(SerialExecutorTest, CancelledTimersDoNotRun) {
  executor_.Start();
  Executor::TimerId first = executor_.AddAt(clock_.Now() + absl::Seconds(1), Append(1));
  Executor::TimerId second = executor_.AddAt(clock_.Now() + absl::Seconds(1), Append(2));
  EXPECT_NE(first, second);
  executor_.Cancel(first);
  executor_.Cancel(first);
  clock_.Advance(absl::Seconds(1));
  Flush();
  EXPECT_THAT(ran_, ElementsAre(2));
  executor_.Cancel(second);
}

// Calls back into the executor when destroyed, as captured objects may.
struct CancelsWhenDestroyed {
  CancelsWhenDestroyed(Executor* executor, std::atomic<int>* destroyed) : executor(executor), destroyed(destroyed) {}
  ~CancelsWhenDestroyed() {
    executor->Cancel(1);
    ++*destroyed;
  }
  Executor* executor;
  std::atomic<int>* destroyed;
};

TEST_F(SerialExecutorTest, DroppedTasksAreDestroyedOutsideTheLock) {
  std::atomic<int> destroyed = 0;
  auto task = [&] {
    return [this, captured = std::make_unique<CancelsWhenDestroyed>(&executor_, &destroyed)] { ran_.push_back(1); };
  };
  executor_.Cancel(executor_.AddAt(clock_.Now() + absl::Seconds(1), task()));
  EXPECT_EQ(destroyed, 1);
  executor_.Add(task());
  executor_.AddAt(clock_.Now() + absl::Seconds(1), task());
  executor_.Stop();
  EXPECT_EQ(destroyed, 3);
  executor_.Add(task());
  executor_.AddAt(clock_.Now(), task());
  EXPECT_EQ(destroyed, 5);
  executor_.Start();
  EXPECT_THAT(ran_, ElementsAre());
}

TEST_F(SerialExecutorTest, StopFinishesTheRunningTaskAndDropsTheRest) {
  executor_.Start();
  Completion<bool> running, go_on;
  executor_.Add([&] {
    running.Set(true);
    EXPECT_THAT(go_on.Await(RealClock(), RealClock()->Now() + absl::Seconds(10), "the test"), IsOk());
    ran_.push_back(1);
  });
  executor_.Add(Append(2));
  ASSERT_THAT(running.Await(RealClock(), RealClock()->Now() + absl::Seconds(10), "the task"), IsOk());
  // Stop drops what is added once it has begun; a task that is destroyed tells us so.
  std::thread stopper([this] { executor_.Stop(); });
  bool dropped = false;
  while (!dropped) {
    auto token = std::make_shared<int>();
    executor_.Add([token] {});
    dropped = token.use_count() == 1;
    std::this_thread::yield();
  }
  go_on.Set(true);
  stopper.join();
  EXPECT_THAT(ran_, ElementsAre(1));
  executor_.Stop();
}

TEST_F(SerialExecutorTest, StopEndsAWaitForATimer) {
  executor_.Start();
  executor_.AddAt(absl::InfiniteFuture(), Append(1));
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  executor_.Stop();
  EXPECT_THAT(ran_, ElementsAre());
}

TEST_F(SerialExecutorTest, NamesItsThread) {
  executor_.Start();
  char name[32] = "";
  executor_.Add([&] { pthread_getname_np(pthread_self(), name, sizeof(name)); });
  Flush();
  EXPECT_STREQ(name, "test-executor-w");
}

}  // namespace
}  // namespace causeway
