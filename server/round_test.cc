#include "server/round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Verdict = RoundBook::Verdict;

const absl::Time kOpened = absl::FromUnixSeconds(1000);
const WorkerId kA{"a"};
const WorkerId kB{"b"};
const WorkerId kC{"c"};

// a: 50 samples, b: 30, c: 20; deadline 30 s, 60 s more until the round is dropped.
RoundBook Book(double quorum = 0.6) {
  return RoundBook({.round = Round(3),
                    .attempt = 2,
                    .base = Version(3),
                    .participants = {{kA, 50, 0}, {kB, 30, 1}, {kC, 20, 2}},
                    .quorum = quorum,
                    .deadline = absl::Seconds(30),
                    .replan_after = absl::Seconds(60),
                    .opened = kOpened});
}
void Count(RoundBook* book, const WorkerId& worker, int64_t samples) {
  EXPECT_TRUE(book->MarkAdding(worker, samples, "sha"));
  EXPECT_TRUE(book->MarkCounted(worker));
}
const absl::Time kEarly = kOpened + absl::Seconds(1);
const absl::Time kDeadline = kOpened + absl::Seconds(30);
const absl::Time kDrop = kDeadline + absl::Seconds(60);

TEST(RoundBookTest, CommitsWhenAllAreIn) {
  RoundBook book = Book();
  EXPECT_EQ(book.planned_samples(), 100);
  EXPECT_EQ(book.deadline(), kDeadline);
  EXPECT_THAT(book.WaitingFor(), ElementsAre(kA, kB, kC));
  Count(&book, kA, 50);
  Count(&book, kC, 20);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
  EXPECT_THAT(book.WaitingFor(), ElementsAre(kB));
  Count(&book, kB, 30);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kCommit);
  EXPECT_EQ(book.counted(), 3);
  EXPECT_EQ(book.counted_samples(), 100);
  EXPECT_THAT(book.WaitingFor(), IsEmpty());
}

TEST(RoundBookTest, CommitsAtTheDeadlineWithTheQuorum) {
  RoundBook book = Book();
  Count(&book, kA, 40);
  Count(&book, kC, 20);
  EXPECT_EQ(book.Decide(kDeadline - absl::Milliseconds(1)), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDeadline), Verdict::kCommit);
}

TEST(RoundBookTest, TheLateHaveAGraceToDeliverWhatTheyHave) {
  RoundBook book({.participants = {{kA, 50, 0}, {kB, 30, 1}, {kC, 20, 2}},
                  .quorum = 0.6,
                  .deadline = absl::Seconds(30),
                  .late_grace = absl::Seconds(4),
                  .replan_after = absl::Seconds(60),
                  .opened = kOpened});
  Count(&book, kA, 50);
  Count(&book, kC, 20);
  EXPECT_EQ(book.Decide(kDeadline + absl::Milliseconds(3999)), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDeadline + absl::Seconds(4)), Verdict::kCommit);
  Count(&book, kB, 1);
  EXPECT_EQ(book.Decide(kDeadline), Verdict::kCommit);
  EXPECT_EQ(book.counted_samples(), 71);
}

// The quorum asks who was heard, not how much they did.
TEST(RoundBookTest, PartialWorkOfAllIsAQuorum) {
  RoundBook book = Book();
  Count(&book, kA, 2);
  Count(&book, kB, 0);  // Nothing: not heard.
  EXPECT_EQ(book.Decide(kDeadline), Verdict::kWait);
  Count(&book, kC, 1);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kCommit);
  EXPECT_EQ(book.counted_samples(), 3);
}

TEST(RoundBookTest, ADeadlineThatIsPostponed) {
  RoundBook book = Book();
  book.Postpone(kEarly);  // No later than it was.
  EXPECT_EQ(book.deadline(), kDeadline);
  book.Postpone(kDeadline + absl::Seconds(5));
  EXPECT_EQ(book.deadline(), kDeadline + absl::Seconds(5));
  EXPECT_EQ(book.Decide(kDrop), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDrop + absl::Seconds(5)), Verdict::kDropMissing);
}

TEST(RoundBookTest, BelowTheQuorumItWaitsBeyondTheDeadlineAndIsThenDropped) {
  RoundBook book = Book();
  Count(&book, kA, 50);
  EXPECT_EQ(book.Decide(kDeadline), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDrop - absl::Milliseconds(1)), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDrop), Verdict::kDropMissing);
  EXPECT_THAT(book.WaitingFor(), ElementsAre(kB, kC));
  // One more, late, and it holds.
  Count(&book, kC, 20);
  EXPECT_EQ(book.Decide(kDeadline + absl::Seconds(1)), Verdict::kCommit);
}

TEST(RoundBookTest, TheLostAreNotWaitedForOnceTheQuorumHolds) {
  RoundBook book = Book();
  book.SetPresent(kB, false);
  book.SetPresent(WorkerId("stranger"), false);
  Count(&book, kA, 50);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
  EXPECT_THAT(book.WaitingFor(), ElementsAre(kC));
  Count(&book, kC, 20);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kCommit);
}

TEST(RoundBookTest, BelowTheQuorumTheLostMayReturn) {
  RoundBook book = Book();
  book.SetPresent(kA, false);
  Count(&book, kB, 30);
  Count(&book, kC, 20);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
  EXPECT_THAT(book.WaitingFor(), ElementsAre(kA));
  EXPECT_EQ(book.Decide(kDrop), Verdict::kDropMissing);
  book.SetPresent(kA, true);
  EXPECT_OK(book.CheckWanted(kA, 50));
  Count(&book, kA, 50);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kCommit);
}

TEST(RoundBookTest, WhoHasLeftIsNotExpectedBack) {
  RoundBook book = Book();
  book.SetGone(kA);
  book.SetGone(WorkerId("stranger"));
  Count(&book, kB, 30);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
  EXPECT_THAT(book.WaitingFor(), ElementsAre(kC));
  Count(&book, kC, 20);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kDropMissing);
  EXPECT_THAT(book.WaitingFor(), IsEmpty());
  // Lost again is not gone.
  book.SetPresent(kA, true);
  book.SetPresent(kA, false);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
}

TEST(RoundBookTest, HopelessRoundsEndAtOnce) {
  RoundBook book = Book();
  EXPECT_TRUE(book.MarkRejected(kA, "not_finite", "sha"));
  EXPECT_EQ(book.Find(kA)->reason, "not_finite");
  Count(&book, kB, 30);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
  Count(&book, kC, 20);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kDropRejected);
}

TEST(RoundBookTest, ARejectionDoesNotStopAQuorum) {
  RoundBook book = Book();
  EXPECT_TRUE(book.MarkRejected(kC, "not_finite", "sha"));
  Count(&book, kB, 30);
  Count(&book, kA, 50);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kCommit);
  EXPECT_EQ(book.counted(), 2);
}

TEST(RoundBookTest, RejectedAndLate) {
  RoundBook book = Book();
  EXPECT_TRUE(book.MarkRejected(kC, "not_finite", "sha"));
  EXPECT_EQ(book.Decide(kDrop - absl::Milliseconds(1)), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDrop), Verdict::kDropRejected);
}

TEST(RoundBookTest, ZeroWeight) {
  RoundBook book = Book();
  for (const WorkerId& worker : {kA, kB, kC}) {
    EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
    Count(&book, worker, 0);
  }
  EXPECT_EQ(book.Decide(kEarly), Verdict::kZeroWeight);
}

TEST(RoundBookTest, ATinyQuorumStillNeedsASample) {
  RoundBook book = Book(1e-9);
  Count(&book, kA, 0);
  EXPECT_EQ(book.Decide(kDeadline), Verdict::kWait);
  Count(&book, kB, 1);
  EXPECT_EQ(book.Decide(kDeadline), Verdict::kCommit);
}

TEST(RoundBookTest, AddingBlocksEveryVerdict) {
  RoundBook book = Book();
  Count(&book, kA, 50);
  Count(&book, kB, 30);
  EXPECT_TRUE(book.MarkAdding(kC, 20, "sha"));
  EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDeadline), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDrop), Verdict::kWait);
  book.CancelAdding(kC);
  EXPECT_EQ(book.Find(kC)->state, RoundBook::State::kOutstanding);
  EXPECT_EQ(book.Decide(kEarly), Verdict::kWait);
  EXPECT_EQ(book.Decide(kDeadline), Verdict::kCommit);
}

TEST(RoundBookTest, StatesMoveForwardOnly) {
  RoundBook book = Book();
  EXPECT_FALSE(book.MarkCounted(kA));
  EXPECT_TRUE(book.MarkAdding(kA, 50, "sha"));
  EXPECT_FALSE(book.MarkAdding(kA, 50, "sha"));
  EXPECT_FALSE(book.MarkRejected(kA, "x", "sha"));
  EXPECT_TRUE(book.MarkCounted(kA));
  EXPECT_FALSE(book.MarkCounted(kA));
  EXPECT_FALSE(book.MarkRejected(kA, "x", "sha"));
  book.CancelAdding(kA);
  EXPECT_EQ(book.Find(kA)->state, RoundBook::State::kCounted);
  EXPECT_TRUE(book.MarkRejected(kB, "x", "sha"));
  EXPECT_FALSE(book.MarkRejected(kB, "y", "sha"));
  EXPECT_FALSE(book.MarkAdding(kB, 1, "sha"));
  const WorkerId stranger("stranger");
  EXPECT_FALSE(book.MarkAdding(stranger, 1, "sha"));
  EXPECT_FALSE(book.MarkRejected(stranger, "x", "sha"));
}

TEST(RoundBookTest, WhatIsWanted) {
  RoundBook book = Book();
  EXPECT_OK(book.CheckWanted(kA, 50));
  EXPECT_OK(book.CheckWanted(kA, 0));
  EXPECT_THAT(book.CheckWanted(kA, 51), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(book.CheckWanted(kA, -1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(book.CheckWanted(WorkerId("stranger"), 1), StatusIs(absl::StatusCode::kNotFound));
  Count(&book, kA, 50);
  EXPECT_THAT(book.CheckWanted(kA, 50), StatusIs(absl::StatusCode::kAlreadyExists));
}

// Random events in random order: never a commit below the quorum, never a wait beyond deadline + replan_after.
TEST(RoundBookTest, RandomEvents) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    RoundBook::Options options{.round = Round(0),
                               .quorum = 0.05 + 0.95 * random.Uniform(),
                               .deadline = absl::Seconds(30),
                               .late_grace = absl::Seconds(static_cast<int64_t>(random.Below(20))),
                               .replan_after = absl::Seconds(60),
                               .opened = kOpened};
    const int n = 1 + static_cast<int>(random.Below(6));
    for (int i = 0; i < n; ++i) {
      options.participants.push_back({WorkerId(absl::StrCat("w", i)), 1 + static_cast<int64_t>(random.Below(100)), i});
    }
    RoundBook book(options);
    absl::Time now = kOpened;
    bool ended = false;
    for (int event = 0; event < 200 && !ended; ++event) {
      const auto& participant = options.participants[random.Below(n)];
      const RoundBook::State state = book.Find(participant.worker)->state;
      switch (random.Below(7)) {
        case 0: book.SetPresent(participant.worker, random.Below(2) == 0); break;
        case 1:
        case 2: {
          const int64_t samples =
              random.Below(4) == 0 ? 0 : static_cast<int64_t>(random.Below(participant.planned_samples + 1));
          EXPECT_EQ(book.CheckWanted(participant.worker, samples).ok(), state == RoundBook::State::kOutstanding);
          EXPECT_EQ(book.MarkAdding(participant.worker, samples, "s"), state == RoundBook::State::kOutstanding);
          break;
        }
        case 3:
        case 4: EXPECT_EQ(book.MarkCounted(participant.worker), state == RoundBook::State::kAdding); break;
        case 5:
          if (random.Below(2) == 0) {
            book.CancelAdding(participant.worker);
          } else {
            EXPECT_EQ(book.MarkRejected(participant.worker, "r", "s"), state == RoundBook::State::kOutstanding);
          }
          break;
        case 6: now += absl::Seconds(static_cast<int64_t>(random.Below(10))); break;
      }
      int adding = 0;
      int outstanding_present = 0;
      int64_t heard = 0;
      for (const auto& [worker, entry] : book.entries()) {
        if (entry.state == RoundBook::State::kCounted && entry.samples > 0) heard += entry.participant.planned_samples;
        adding += entry.state == RoundBook::State::kAdding;
        outstanding_present += entry.state == RoundBook::State::kOutstanding && entry.present;
      }
      const bool quorum =
          heard > 0 && static_cast<double>(heard) >= options.quorum * static_cast<double>(book.planned_samples());
      const Verdict verdict = book.Decide(now);
      if (adding > 0) {
        EXPECT_EQ(verdict, Verdict::kWait);
      }
      if (verdict == Verdict::kCommit) {
        EXPECT_TRUE(quorum);
        EXPECT_TRUE(outstanding_present == 0 || now >= book.deadline() + options.late_grace);
      }
      if (verdict == Verdict::kZeroWeight) {
        EXPECT_EQ(book.counted_samples(), 0);
      }
      if (verdict == Verdict::kWait && adding == 0) {
        EXPECT_LT(now, book.deadline() + options.replan_after);
        EXPECT_FALSE(book.WaitingFor().empty());
        if (quorum) {
          EXPECT_TRUE(outstanding_present > 0 && now < book.deadline() + options.late_grace);
        }
      }
      ended = verdict != Verdict::kWait;
    }
    if (ended) continue;
    for (const auto& participant : options.participants) book.MarkCounted(participant.worker);
    EXPECT_NE(book.Decide(book.deadline() + options.replan_after), Verdict::kWait);
  }
}

}  // namespace
}  // namespace causeway::server
