#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace causeway {
namespace {

TEST(Mutex, ExcludesOthers) {
  Mutex mu;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        MutexLock lock(&mu);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 80000);
}

TEST(CondVar, PassesTheTurnBetweenThreads) {
  Mutex mu;
  CondVar turned;
  int turn = 0;
  auto play = [&](int parity) {
    for (int i = 0; i < 100; ++i) {
      MutexLock lock(&mu);
      while (turn % 2 != parity) turned.Wait(&mu);
      ++turn;
      turned.Signal();
    }
  };
  std::thread odd(play, 1);
  play(0);
  odd.join();
  EXPECT_EQ(turn, 200);
}

TEST(CondVar, WaitForReportsTheTimeout) {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  while (!never.WaitFor(&mu, absl::Milliseconds(1))) {
  }
  EXPECT_TRUE(never.WaitFor(&mu, absl::ZeroDuration()));
}

TEST(CondVar, SignalAllWakesWaitersWithoutTimeout) {
  Mutex mu;
  CondVar opened;
  bool open = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      MutexLock lock(&mu);
      while (!open) opened.WaitFor(&mu, absl::InfiniteDuration());
    });
  }
  {
    MutexLock lock(&mu);
    open = true;
    opened.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace causeway
