#include "worker/progress_board.h"

#include <gtest/gtest.h>

namespace causeway::worker {
namespace {

TEST(ProgressBoardTest, StartsIdle) {
  ProgressBoard board;
  EXPECT_EQ(board.Get().phase(), v1::WORKER_PHASE_IDLE);
  EXPECT_FALSE(board.connected());
  board.SetConnected(true);
  EXPECT_TRUE(board.connected());
}

TEST(ProgressBoardTest, ARoundStartsFromNothing) {
  ProgressBoard board;
  board.Reset("fashion");
  EXPECT_EQ(board.Get().round(), -1);
  board.StartRound(2);
  board.SetSteps(3, 10, 96, 0.5);
  EXPECT_EQ(board.Get().steps_done(), 3);
  EXPECT_EQ(board.Get().samples_done(), 96);
  board.StartRound(3);
  EXPECT_EQ(board.Get().job(), "fashion");
  EXPECT_EQ(board.Get().round(), 3);
  EXPECT_EQ(board.Get().steps_done(), 0);
  EXPECT_EQ(board.Get().train_loss(), 0);
}

TEST(ProgressBoardTest, FetchingShowsOnlyWhileNothingElseIsDone) {
  ProgressBoard board;
  board.Reset("fashion");
  board.SetFetching(true, 5, 10);
  EXPECT_EQ(board.Get().phase(), v1::WORKER_PHASE_FETCHING);
  EXPECT_EQ(board.Get().fetch_bytes_done(), 5);
  board.SetPhase(v1::WORKER_PHASE_TRAINING);
  EXPECT_EQ(board.Get().phase(), v1::WORKER_PHASE_TRAINING);
  board.SetPhase(v1::WORKER_PHASE_WAITING);
  EXPECT_EQ(board.Get().phase(), v1::WORKER_PHASE_FETCHING);
  board.SetFetching(false, 10, 10);
  EXPECT_EQ(board.Get().phase(), v1::WORKER_PHASE_WAITING);
}

}  // namespace
}  // namespace causeway::worker
