#ifndef CAUSEWAY_TESTS_FAKES_STATUS_MATCHERS_H_
#define CAUSEWAY_TESTS_FAKES_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"

namespace causeway {
namespace internal {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

template <typename ValueMatcher>
class IsOkAndHoldsMatcher {
 public:
  using is_gtest_matcher = void;
  explicit IsOkAndHoldsMatcher(ValueMatcher matcher) : matcher_(std::move(matcher)) {}

  template <typename T>
  bool MatchAndExplain(const absl::StatusOr<T>& result, testing::MatchResultListener* listener) const {
    if (!result.ok()) {
      *listener << "whose status is " << result.status().ToString();
      return false;
    }
    *listener << "whose value " << testing::PrintToString(*result) << " ";
    return testing::SafeMatcherCast<const T&>(matcher_).MatchAndExplain(*result, listener);
  }
  void DescribeTo(std::ostream* os) const { *os << "is OK and holds the value wanted"; }
  void DescribeNegationTo(std::ostream* os) const { *os << "is not OK or does not hold the value wanted"; }

 private:
  ValueMatcher matcher_;
};

}  // namespace internal

// These match absl::Status and absl::StatusOr<T>.
//   EXPECT_THAT(file->Sync(), IsOk());
//   EXPECT_THAT(Parse("7"), IsOkAndHolds(7));
//   EXPECT_THAT(Parse("x"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"x\"")));
MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << "whose status is " << internal::StatusOf(arg).ToString();
  return internal::StatusOf(arg).ok();
}

template <typename ValueMatcher>
internal::IsOkAndHoldsMatcher<ValueMatcher> IsOkAndHolds(ValueMatcher matcher) {
  return internal::IsOkAndHoldsMatcher<ValueMatcher>(std::move(matcher));
}

MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) + " and a message that " +
               testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = internal::StatusOf(arg);
  *result_listener << "whose status is " << status.ToString();
  return status.code() == code && testing::Matches(message)(std::string(status.message()));
}
MATCHER_P(StatusIs, code, "has code " + absl::StatusCodeToString(code)) {
  *result_listener << "whose status is " << internal::StatusOf(arg).ToString();
  return internal::StatusOf(arg).code() == code;
}

}  // namespace causeway

#define EXPECT_OK(expression) EXPECT_THAT(expression, ::causeway::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT(expression, ::causeway::IsOk())
// ASSERT_OK_AND_ASSIGN(auto x, StatusOrExpr());
#define ASSERT_OK_AND_ASSIGN(lhs, expression) \
  CAUSEWAY_ASSERT_OK_AND_ASSIGN_(CAUSEWAY_CONCAT_(causeway_statusor_, __LINE__), lhs, expression)
#define CAUSEWAY_ASSERT_OK_AND_ASSIGN_(var, lhs, expression) \
  auto var = (expression);                                   \
  ASSERT_THAT(var, ::causeway::IsOk());                      \
  lhs = std::move(var).value()

#endif  // CAUSEWAY_TESTS_FAKES_STATUS_MATCHERS_H_
