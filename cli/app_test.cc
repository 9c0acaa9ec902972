#include "cli/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/cli_test_fixture.h"
#include "dataplane/protocol_version.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class AppTest : public CliTest {};

const std::vector<std::vector<std::string>>& AllCommands() {
  static const auto* const commands =
      new std::vector<std::vector<std::string>>{{"init"},           {"site", "add"},    {"site", "list"},
                                                {"site", "remove"}, {"token", "list"},  {"token", "revoke"},
                                                {"worker", "list"}, {"worker", "show"}, {"worker", "remove"},
                                                {"job", "submit"},  {"job", "list"},    {"job", "show"},
                                                {"job", "watch"},   {"job", "abort"},   {"job", "validate"},
                                                {"model", "list"},  {"model", "fetch"}, {"plan"},
                                                {"simulate"},       {"version"},        {"completion"}};
  return *commands;
}

TEST_F(AppTest, EveryCommandHasHelpWithAnExample) {
  for (std::vector<std::string> command : AllCommands()) {
    std::string name = "causeway";
    for (const std::string& word : command) name += " " + word;
    command.push_back("--help");
    EXPECT_EQ(Run(command), 0) << name;
    EXPECT_THAT(out(), AllOf(HasSubstr("Example:\n"),
                             HasSubstr(name == "causeway completion" ? "causeway completion bash" : "\n  " + name)));
    EXPECT_EQ(err(), "");
  }
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(out(), HasSubstr("Exit codes: 0 done, 1 failed, 2 usage or a bad file, 3 timed out, 4 refused."));
}

TEST_F(AppTest, UsageErrorsGoToStandardError) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"job"},
                                             {"nonsense"},
                                             {"job", "nonsense"},
                                             {"job", "list", "--nonsense"},
                                             {"job", "list", "--output", "xml"},
                                             {"job", "list", "extra"}}) {
    EXPECT_EQ(Run(arguments), 2) << testing::PrintToString(arguments);
    EXPECT_EQ(out(), "");
    EXPECT_THAT(err(), Not(IsEmpty()));
  }
  EXPECT_EQ(Run({"job", "list", "--timeout", "5"}), 2);
  EXPECT_THAT(err(), HasSubstr("--timeout: found \"5\"; allowed: a duration"));
  EXPECT_THAT(coordinator_.calls, IsEmpty());
}

TEST_F(AppTest, GlobalFlagsMayStandAnywhere) {
  Write("config/lab/context.yaml", "coordinator: lab:1\noperator: me\n");
  EXPECT_EQ(Run({"--context", "lab", "--timeout", "7s", "job", "list", "--output", "json"}), 0);
  EXPECT_EQ(connected_to_, "lab:1");
  EXPECT_EQ(coordinator_.last_timeout, absl::Seconds(7));
  EXPECT_EQ(OutJson()["schema"], "causeway.jobs/1");
  EXPECT_EQ(Run({"job", "list", "--context", dir_.Join("config/lab")}), 0);
  EXPECT_EQ(connected_to_, "lab:1");
}

TEST_F(AppTest, ErrorsBecomeExitCodes) {
  coordinator_.error = absl::UnavailableError("connection refused");
  EXPECT_EQ(Run({"job", "list"}), 1);
  EXPECT_THAT(err(), HasSubstr("causeway: cannot reach the coordinator at coord.example:7443: is it running there"));
  coordinator_.error = absl::DeadlineExceededError("deadline");
  EXPECT_EQ(Run({"job", "list"}), 3);
  coordinator_.error = absl::PermissionDeniedError("not an operator");
  EXPECT_EQ(Run({"job", "list"}), 4);
  environment_.config_home = dir_.Join("none");
  EXPECT_EQ(Run({"job", "list"}), 1);
  EXPECT_THAT(err(), HasSubstr("`causeway init` makes them"));
  EXPECT_EQ(out(), "");
}

TEST_F(AppTest, InitMakesACoordinatorOnce) {
  std::vector<std::string> command = {"init",      "--address", "127.0.0.1:7443", "--dir", dir_.Join("c"),
                                      "--context", "new"};
  EXPECT_EQ(Run(command), 0) << err();
  EXPECT_THAT(out(), HasSubstr("next: causeway-coordinator --config " + dir_.Join("c/coordinator.yaml")));
  EXPECT_TRUE(RealFileSystem()->Exists(dir_.Join("config/new/operator.key")));
  EXPECT_EQ(Run(command), 4);
  EXPECT_THAT(err(), HasSubstr("is there already"));
  EXPECT_EQ(Run({"init", "--address", "nowhere", "--dir", dir_.Join("d")}), 2);
  EXPECT_THAT(err(), HasSubstr("--address: found \"nowhere\"; allowed: HOST:PORT"));
  EXPECT_EQ(Run({"init", "--address", "a:1", "--dir", dir_.Join("e"), "--context", "json", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.init/1");
}

TEST_F(AppTest, Version) {
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_EQ(out(), std::string("causeway ") + dataplane::kBuildVersion + "\n");
  coordinator_.answers.GetVersion.mutable_version()->set_build("9.9.9");
  EXPECT_EQ(Run({"version"}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr(std::string("causeway      ") + dataplane::kBuildVersion),
                           HasSubstr("coordinator   9.9.9")));
  // Without a coordinator, or credentials, it still answers.
  coordinator_.error = absl::UnavailableError("connection refused");
  EXPECT_EQ(Run({"version", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.version/1");
  EXPECT_EQ(OutJson()["coordinator"], nullptr);
  EXPECT_THAT(err(), HasSubstr("cannot reach"));
  environment_.config_home = dir_.Join("none");
  EXPECT_EQ(Run({"version"}), 0);
  EXPECT_EQ(err(), "");
}

TEST_F(AppTest, CompletionKnowsEveryCommand) {
  EXPECT_EQ(Run({"completion", "bash"}), 0);
  for (const std::vector<std::string>& command : AllCommands()) {
    std::string path = "causeway";
    for (const std::string& word : command) path += " " + word;
    EXPECT_THAT(out(), HasSubstr("\"" + path + "\") words=\""));
  }
  EXPECT_THAT(out(),
              HasSubstr("\"causeway model fetch\") words=\"--help --out --version --context --output --timeout\""));
  EXPECT_EQ(Run({"completion", "tcsh"}), 2);
}

// What may be typed is in docs/reference.md.
TEST_F(AppTest, TheReferenceHasEveryCommandAndFlag) {
  absl::StatusOr<std::string> reference = RealFileSystem()->ReadFile(CAUSEWAY_SOURCE_DIR "/docs/reference.md", 1 << 20);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (const std::vector<std::string>& command : AllCommands()) {
    EXPECT_THAT(*reference, HasSubstr("| `" + absl::StrJoin(command, " ")));
  }
  ASSERT_EQ(Run({"completion", "bash"}), 0);
  std::istringstream words(absl::StrReplaceAll(out(), {{"\"", " "}}));
  int flags = 0;
  for (std::string word; words >> word;) {
    if (word.size() < 3 || word.substr(0, 2) != "--") continue;
    ++flags;
    EXPECT_TRUE(absl::StrContains(*reference, word)) << word;
  }
  EXPECT_GT(flags, 50);
}

}  // namespace
}  // namespace causeway::cli
