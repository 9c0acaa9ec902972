#include "base/backoff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace causeway {
namespace {

TEST(Backoff, GrowsWithinItsBoundsUpToTheMaximum) {
  Backoff backoff({.initial = absl::Milliseconds(100), .max = absl::Seconds(3), .factor = 2, .seed = 7});
  absl::Duration bound = absl::Milliseconds(100);
  for (int i = 0; i < 200; ++i) {
    absl::Duration delay = backoff.Next();
    EXPECT_GE(delay, bound / 4) << i;
    EXPECT_LE(delay, bound) << i;
    bound = std::min(bound * 2, absl::Seconds(3));
  }
}

TEST(Backoff, SpreadsDelaysOverTheWholeRange) {
  Backoff backoff({.initial = absl::Seconds(1), .max = absl::Seconds(1)});
  std::vector<absl::Duration> delays;
  for (int i = 0; i < 100; ++i) delays.push_back(backoff.Next());
  EXPECT_LT(*std::min_element(delays.begin(), delays.end()), absl::Milliseconds(350));
  EXPECT_GT(*std::max_element(delays.begin(), delays.end()), absl::Milliseconds(900));
}

TEST(Backoff, ResetStartsFromTheInitialDelay) {
  Backoff backoff({.initial = absl::Milliseconds(10), .max = absl::Seconds(10), .factor = 10});
  for (int i = 0; i < 5; ++i) backoff.Next();
  EXPECT_GT(backoff.Next(), absl::Seconds(2));
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(10));
}

TEST(Backoff, SeedsDecideTheDelays) {
  Backoff a({.seed = 1}), same({.seed = 1}), other({.seed = 2});
  absl::Duration first = a.Next();
  EXPECT_EQ(first, same.Next());
  EXPECT_NE(first, other.Next());
}

TEST(Backoff, OnlyLostCallsAreRetried) {
  EXPECT_TRUE(IsRetryable(absl::UnavailableError("")));
  EXPECT_TRUE(IsRetryable(absl::DeadlineExceededError("")));
  for (absl::StatusCode code :
       {absl::StatusCode::kOk, absl::StatusCode::kCancelled, absl::StatusCode::kUnknown,
        absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound, absl::StatusCode::kAlreadyExists,
        absl::StatusCode::kPermissionDenied, absl::StatusCode::kResourceExhausted,
        absl::StatusCode::kFailedPrecondition, absl::StatusCode::kAborted, absl::StatusCode::kOutOfRange,
        absl::StatusCode::kUnimplemented, absl::StatusCode::kInternal, absl::StatusCode::kDataLoss,
        absl::StatusCode::kUnauthenticated}) {
    EXPECT_FALSE(IsRetryable(absl::Status(code, "x"))) << absl::StatusCodeToString(code);
  }
}

}  // namespace
}  // namespace causeway
