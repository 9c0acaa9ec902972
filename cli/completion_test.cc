#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::cli {
namespace {

using ::testing::HasSubstr;

const std::vector<CommandWords>& Commands() {
  static const auto* const commands = new std::vector<CommandWords>{{"causeway", {"job", "version", "--help"}},
                                                                    {"causeway job", {"list", "show", "--help"}},
                                                                    {"causeway job show", {"--help", "--output"}}};
  return *commands;
}

// What bash offers for the last of `words`.
std::string Complete(const std::string& script, const std::string& words) {
  TempDir dir;
  EXPECT_THAT(RealFileSystem()->WriteFileAtomically(dir.Join("script"), script), IsOk());
  std::string command =
      absl::StrCat("bash -c 'source ", dir.Join("script"), "; COMP_WORDS=(", words,
                   "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _causeway; echo -n \"${COMPREPLY[*]}\"'");
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[1000] = {};
  size_t size = fread(buffer, 1, sizeof(buffer) - 1, pipe);
  EXPECT_EQ(pclose(pipe), 0);
  return std::string(buffer, size);
}

TEST(CompletionTest, BashOffersWhatMayFollow) {
  absl::StatusOr<std::string> script = CompletionScript("bash", Commands());
  ASSERT_THAT(script, IsOk());
  EXPECT_EQ(Complete(*script, "causeway \"\""), "job version --help");
  EXPECT_EQ(Complete(*script, "causeway j"), "job");
  EXPECT_EQ(Complete(*script, "causeway job s"), "show");
  EXPECT_EQ(Complete(*script, "causeway job show --o"), "--output");
  EXPECT_EQ(Complete(*script, "causeway job show name --h"), "--help");
}

TEST(CompletionTest, OtherShells) {
  EXPECT_THAT(CompletionScript("zsh", Commands()), IsOkAndHolds(HasSubstr("#compdef causeway\n")));
  absl::StatusOr<std::string> fish = CompletionScript("fish", Commands());
  ASSERT_THAT(fish, IsOk());
  EXPECT_THAT(*fish, HasSubstr("complete -c causeway -f -n '__fish_use_subcommand' -a 'job version'\n"));
  EXPECT_THAT(
      *fish,
      HasSubstr(
          "-n '__fish_seen_subcommand_from job; and not __fish_seen_subcommand_from list show' -a 'list show'\n"));
  EXPECT_THAT(*fish,
              HasSubstr("-n '__fish_seen_subcommand_from job; and __fish_seen_subcommand_from show' -l output\n"));
  EXPECT_THAT(CompletionScript("tcsh", Commands()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("allowed: bash, zsh, fish")));
}

}  // namespace
}  // namespace causeway::cli
