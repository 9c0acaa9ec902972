#include "cli/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::cli {
namespace {

using ::testing::HasSubstr;

TEST(ContextTest, ConfigHome) {
  EXPECT_EQ(ConfigHome("", "/home/u"), "/home/u/.config/causeway");
  EXPECT_EQ(ConfigHome("/xdg", "/home/u"), "/xdg/causeway");
  EXPECT_EQ(ConfigHome("relative", "/home/u"), "/home/u/.config/causeway");
  EXPECT_EQ(ConfigHome("", ""), "");
}

TEST(ContextTest, FlagIsANameOrAPath) {
  EXPECT_THAT(ContextDir("", "/c"), IsOkAndHolds("/c"));
  EXPECT_THAT(ContextDir("lab", "/c"), IsOkAndHolds("/c/lab"));
  EXPECT_THAT(ContextDir("./lab", "/c"), IsOkAndHolds("./lab"));
  EXPECT_THAT(ContextDir("/abs/lab", ""), IsOkAndHolds("/abs/lab"));
  EXPECT_THAT(ContextDir("Lab", "/c"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--context \"Lab\"")));
  EXPECT_THAT(ContextDir("", ""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("HOME")));
}

TEST(ContextTest, WrittenReadsBack) {
  TempDir dir;
  Context context = {.dir = dir.path(), .coordinator = {"coord.example", 7443}, .operator_name = "admin"};
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(dir.Join("context.yaml"), ContextYaml(context)), IsOk());
  absl::StatusOr<Context> loaded = LoadContext(dir.path(), RealFileSystem());
  ASSERT_THAT(loaded, IsOk());
  EXPECT_EQ(loaded->coordinator, context.coordinator);
  EXPECT_EQ(loaded->operator_name, "admin");
  EXPECT_EQ(loaded->key_path(), dir.Join("operator.key"));
}

TEST(ContextTest, MissingAndBroken) {
  TempDir dir;
  EXPECT_THAT(LoadContext(dir.path(), RealFileSystem()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("`causeway init`")));
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(dir.Join("context.yaml"), "coordinator: nowhere\nuser: x\n"),
              IsOk());
  absl::Status status = LoadContext(dir.path(), RealFileSystem()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("context.yaml:1: coordinator: found \"nowhere\"")));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("operator: missing")));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("user: unknown key")));
}

}  // namespace
}  // namespace causeway::cli
