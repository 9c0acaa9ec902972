#include "base/status_macros.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "tests/fakes/status_matchers.h"

namespace causeway {
namespace {

absl::Status Check(const absl::Status& status, bool* went_on) {
  RETURN_IF_ERROR(status);
  *went_on = true;
  return absl::OkStatus();
}

TEST(ReturnIfError, ReturnsErrorsAndGoesOnOtherwise) {
  bool went_on = false;
  EXPECT_THAT(Check(absl::NotFoundError("no"), &went_on), StatusIs(absl::StatusCode::kNotFound, "no"));
  EXPECT_FALSE(went_on);
  EXPECT_THAT(Check(absl::OkStatus(), &went_on), IsOk());
  EXPECT_TRUE(went_on);
}

TEST(ReturnIfError, PutsTheContextFirst) {
  auto call = []() -> absl::Status {
    RETURN_IF_ERROR(absl::DataLossError("torn"), "round 3");
    return absl::OkStatus();
  };
  EXPECT_THAT(call(), StatusIs(absl::StatusCode::kDataLoss, "round 3: torn"));
}

absl::StatusOr<std::unique_ptr<int>> Twice(absl::StatusOr<std::unique_ptr<int>> input) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> number, std::move(input), "twice");
  *number *= 2;
  return number;
}

TEST(AssignOrReturn, MovesTheValueOut) {
  absl::StatusOr<std::unique_ptr<int>> result = Twice(std::make_unique<int>(21));
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(**result, 42);
  EXPECT_THAT(Twice(absl::AbortedError("fenced")), StatusIs(absl::StatusCode::kAborted, "twice: fenced"));
}

TEST(AssignOrReturn, AssignsToWhatExistsAndTwiceInAFunction) {
  auto call = [](absl::StatusOr<std::string> first, absl::StatusOr<std::string> second) -> absl::StatusOr<std::string> {
    std::string text;
    ASSIGN_OR_RETURN(text, first);
    ASSIGN_OR_RETURN(auto more, second);
    return text + more;
  };
  EXPECT_THAT(call(std::string("a"), std::string("b")), IsOkAndHolds("ab"));
  EXPECT_THAT(call(absl::CancelledError("x"), std::string("b")), StatusIs(absl::StatusCode::kCancelled, "x"));
  EXPECT_THAT(call(std::string("a"), absl::CancelledError("y")), StatusIs(absl::StatusCode::kCancelled, "y"));
}

TEST(Annotate, KeepsPayloads) {
  absl::Status status = absl::InternalError("bad");
  status.SetPayload("causeway/detail", absl::Cord("payload"));
  absl::Status annotated = Annotate(status, "here");
  EXPECT_EQ(annotated.message(), "here: bad");
  EXPECT_EQ(annotated.GetPayload("causeway/detail"), absl::Cord("payload"));
  EXPECT_THAT(Annotate(absl::OkStatus(), "here"), IsOk());
}

TEST(StatusMatchers, TellStatusesApart) {
  const absl::StatusOr<int> seven = 7;
  EXPECT_THAT(seven, IsOkAndHolds(testing::Gt(6)));
  EXPECT_THAT(seven, testing::Not(IsOkAndHolds(8)));
  EXPECT_THAT(absl::StatusOr<int>(absl::AbortedError("")), testing::Not(IsOkAndHolds(7)));
  EXPECT_THAT(absl::AbortedError("x"), testing::Not(IsOk()));
  EXPECT_THAT(absl::AbortedError("x"), testing::Not(StatusIs(absl::StatusCode::kAborted, "y")));
  EXPECT_THAT(absl::AbortedError("x"), testing::Not(StatusIs(absl::StatusCode::kCancelled)));
}

}  // namespace
}  // namespace causeway
