#include "base/ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/fakes/status_matchers.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(StrongId, ComparesHashesAndPrints) {
  EXPECT_EQ(JobId("fashion"), JobId("fashion"));
  EXPECT_LT(Round(2), Round(10));
  EXPECT_EQ(Round().value(), 0);
  absl::flat_hash_map<WorkerId, int> by_worker = {{WorkerId("a"), 1}, {WorkerId("b"), 2}};
  EXPECT_EQ(by_worker.at(WorkerId("b")), 2);
  std::ostringstream os;
  os << Generation(7) << " " << SiteId("berlin");
  EXPECT_EQ(os.str(), "7 berlin");
}

TEST(StrongId, KindsDoNotMix) {
  EXPECT_FALSE((std::is_convertible_v<Round, Version>));
  EXPECT_FALSE((std::is_constructible_v<Round, Generation>));
  EXPECT_FALSE((std::is_convertible_v<int64_t, Round>));
}

TEST(ValidateName, AcceptsNames) {
  for (const char* name : {"a", "0", "fashion-mnist", "gpu0.berlin_2", "a.b.c", "a-"}) {
    EXPECT_THAT(ValidateName("job", name), IsOk()) << name;
  }
  EXPECT_THAT(ValidateName("job", std::string(63, 'a')), IsOk());
}

TEST(ValidateName, RefusesTheRest) {
  for (const std::string& name : std::vector<std::string>{"", "A", "-a", ".a", "_a", "..", "a..b", "a/b", "a b", "a\n",
                                                          "ä", "a\"b", "a{b", std::string("a\0b", 3)}) {
    EXPECT_THAT(ValidateName("job", name), StatusIs(absl::StatusCode::kInvalidArgument)) << name;
  }
  EXPECT_THAT(ValidateName("job", std::string(64, 'a')), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ValidateName, SaysWhatWasFoundOnOneLine) {
  EXPECT_THAT(ValidateName("worker name", "Up\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("worker name \"Up\\n\""), HasSubstr("[a-z0-9][a-z0-9._-]{0,62}"),
                             Not(HasSubstr("\n")))));
}

}  // namespace
}  // namespace causeway
