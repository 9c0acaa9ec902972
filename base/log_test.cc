#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::log {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { EXPECT_THAT(Configure({}), IsOk()); }

  void ConfigureFile(Format format, Level level = Level::kInfo) {
    ASSERT_THAT(Configure({.level = level, .format = format, .file = dir_.Join("log"), .component = "worker"}), IsOk());
  }

  std::vector<std::string> Lines() {
    absl::StatusOr<std::string> text = RealFileSystem()->ReadFile(dir_.Join("log"), 1 << 20);
    EXPECT_THAT(text, IsOk());
    std::vector<std::string> lines = absl::StrSplit(*text, '\n');
    EXPECT_EQ(lines.back(), "");
    lines.pop_back();
    return lines;
  }

  // The line without its time and level.
  std::string TextOf(std::initializer_list<Field> fields) {
    Info("e", fields);
    return Lines().back().substr(27);
  }

  TempDir dir_;
};

TEST_F(LogTest, TextLinesHaveTimeLevelComponentEventAndFields) {
  ConfigureFile(Format::kText);
  Info("round committed", {{"job", "fashion"}, {"round", 3}, {"samples", int64_t{60000}}});
  EXPECT_THAT(Lines(), ElementsAre(MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
                                                "\\.[0-9][0-9][0-9]Z I worker round_committed job=fashion round=3 "
                                                "samples=60000")));
}

TEST_F(LogTest, TextQuotesValuesThatWouldBeAmbiguous) {
  ConfigureFile(Format::kText);
  EXPECT_EQ(TextOf({{"v", "plain/path:1.5,x"}}), "worker e v=plain/path:1.5,x");
  EXPECT_EQ(TextOf({{"v", ""}}), "worker e v=\"\"");
  EXPECT_EQ(TextOf({{"v", "two words"}}), "worker e v=\"two words\"");
  EXPECT_EQ(TextOf({{"v", "say \"a\""}}), "worker e v=\"say \\\"a\\\"\"");
  EXPECT_EQ(TextOf({{"v", "a=b"}}), "worker e v=\"a=b\"");
  EXPECT_EQ(TextOf({{"v", absl::NotFoundError("no job")}}), "worker e v=\"NOT_FOUND: no job\"");
  EXPECT_EQ(TextOf({{"b", true}, {"u", uint64_t{18446744073709551615u}}, {"d", 0.1}, {"n", std::nan("")}}),
            "worker e b=true u=18446744073709551615 d=0.1 n=nan");
}

TEST_F(LogTest, NothingFromOutsideBreaksALine) {
  for (Format format : {Format::kText, Format::kJson}) {
    ConfigureFile(format);
    const size_t before = Lines().size();
    Info("bad\nevent", {{"k\ney", "v\nalue\r\x1b[31m\x85\xff\xc2\x85"}});
    const std::vector<std::string> lines = Lines();
    ASSERT_THAT(lines, SizeIs(before + 1));
    for (char c : lines.back()) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
  }
}

TEST_F(LogTest, JsonLinesAreTypedObjects) {
  ConfigureFile(Format::kJson);
  Warning("worker lost",
          {{"worker", "gpu \"0\"\n\xff"}, {"round", 3}, {"alive", false}, {"age_s", 1.5}, {"loss", std::nan("")}});
  ASSERT_THAT(Lines(), SizeIs(1));
  nlohmann::json line = nlohmann::json::parse(Lines()[0]);
  EXPECT_THAT(line.at("ts").get<std::string>(), MatchesRegex("20..-..-..T..:..:..\\....Z"));
  EXPECT_EQ(line.at("level"), "warning");
  EXPECT_EQ(line.at("component"), "worker");
  EXPECT_EQ(line.at("event"), "worker_lost");
  EXPECT_EQ(line.at("worker"), "gpu \"0\"\n\xef\xbf\xbd");
  EXPECT_EQ(line.at("round"), 3);
  EXPECT_EQ(line.at("alive"), false);
  EXPECT_EQ(line.at("age_s"), 1.5);
  EXPECT_EQ(line.at("loss"), "nan");
}

TEST_F(LogTest, LinesCarryTheFieldsOfTheProcess) {
  ConfigureFile(Format::kText);
  SetProcessFields({{"worker", "lab-1"}, {"rank", 3}});
  EXPECT_EQ(TextOf({}), "worker e worker=lab-1 rank=3");
  EXPECT_EQ(TextOf({{"round", 7}}), "worker e round=7 worker=lab-1 rank=3");
  EXPECT_EQ(TextOf({{"worker", "far-2"}}), "worker e worker=far-2 rank=3");
  SetProcessFields({{"rank", 4}});
  EXPECT_EQ(TextOf({}), "worker e rank=4");
  ConfigureFile(Format::kJson);
  Info("e", {});
  EXPECT_FALSE(nlohmann::json::parse(Lines().back()).contains("rank"));
  SetProcessFields({{"rank", 4}});
  Info("e", {});
  EXPECT_EQ(nlohmann::json::parse(Lines().back()).at("rank"), 4);
}

TEST_F(LogTest, LevelsBelowTheLimitAreLeftOut) {
  ConfigureFile(Format::kText, Level::kWarning);
  Debug("a", {});
  Info("b", {});
  Warning("c", {});
  Error("d", {});
  EXPECT_THAT(Lines(), ElementsAre(EndsWith(" W worker c"), EndsWith(" E worker d")));
}

TEST_F(LogTest, DebugShowsAll) {
  ConfigureFile(Format::kText, Level::kDebug);
  Debug("a", {});
  EXPECT_THAT(Lines(), ElementsAre(EndsWith(" D worker a")));
}

TEST_F(LogTest, AppendsToAnExistingFile) {
  ConfigureFile(Format::kText);
  Info("first", {});
  ConfigureFile(Format::kText);
  Info("second", {});
  EXPECT_THAT(Lines(), ElementsAre(EndsWith("first"), EndsWith("second")));
}

TEST_F(LogTest, WithoutAFileLinesGoToStandardError) {
  ASSERT_THAT(Configure({}), IsOk());
  testing::internal::CaptureStderr();
  Info("hello", {{"n", 1}});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), EndsWith("Z I - hello n=1\n"));
}

TEST_F(LogTest, FilesThatCannotBeOpenedAreErrors) {
  EXPECT_THAT(Configure({.file = dir_.Join("missing/log")}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing/log")));
  EXPECT_FALSE(RealFileSystem()->Exists(dir_.Join("missing")));
}

TEST_F(LogTest, ThreadsDoNotMixTheirLines) {
  ConfigureFile(Format::kText);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) Info("tick", {{"t", t}, {"i", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Lines(), SizeIs(200));
  for (const std::string& line : Lines()) EXPECT_THAT(line, MatchesRegex(".* I worker tick t=[0-3] i=[0-9]+"));
}

TEST(LogParse, LevelsAndFormats) {
  EXPECT_THAT(ParseLevel("debug"), IsOkAndHolds(Level::kDebug));
  EXPECT_THAT(ParseLevel("info"), IsOkAndHolds(Level::kInfo));
  EXPECT_THAT(ParseLevel("warning"), IsOkAndHolds(Level::kWarning));
  EXPECT_THAT(ParseLevel("error"), IsOkAndHolds(Level::kError));
  EXPECT_THAT(ParseLevel("loud"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("debug, info, warning, error")));
  EXPECT_THAT(ParseFormat("text"), IsOkAndHolds(Format::kText));
  EXPECT_THAT(ParseFormat("json"), IsOkAndHolds(Format::kJson));
  EXPECT_THAT(ParseFormat("xml"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text nor json")));
}

TEST(CheckDeathTest, SaysWhatFailedAndAborts) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  CAUSEWAY_CHECK(1 + 1 == 2);
  EXPECT_DEATH(CAUSEWAY_CHECK(1 + 1 == 3),
               "E - check_failed file=.*log_test.cc line=[0-9]+ condition=\"1 \\+ 1 == 3\"");
}

}  // namespace
}  // namespace causeway::log
