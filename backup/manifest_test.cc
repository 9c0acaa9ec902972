#include "backup/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::backup {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Manifest Sample() {
  const std::string sha256(64, 'a');
  return {.program = "1.0",
          .created_ms = 1'800'000'000'000,
          .incarnation = 3,
          .files = {{"chunks/ab/abcd", 5, sha256},
                    {"coordinator.yaml", 100, sha256},
                    {"jobs/job.1/model-000001.safetensors", int64_t{1} << 40, sha256},
                    {"journal.db", 4096, sha256},
                    {"tls/ca.key", 0, sha256}}};
}

TEST(ManifestTest, ReadsWhatItWrites) { EXPECT_THAT(ParseManifest(FormatManifest(Sample())), IsOkAndHolds(Sample())); }

TEST(ManifestTest, PathsOfADataDirectoryOnly) {
  for (const char* path : {"journal.db", "coordinator.yaml", "tls/x.pem", "jobs/j/model-000001.safetensors",
                           "spool/j/f0_r2_a1000003_24_00ff_w-1.whole", "chunks/0f/0f00"}) {
    EXPECT_OK(CheckPath(path)) << path;
  }
  for (const char* path :
       {"", "/", "lock", "journal.db-wal", "/etc/passwd", "../journal.db", "jobs/../../x/y", "tls/..", "tls/.x",
        "tls//a", "tls/a/", "jobs/a", "jobs/a/b/c", "tls/a b", "tls/a\nb", "data/a/b", "./tls/a", "tls/\xc3\xa9"}) {
    EXPECT_THAT(CheckPath(path), StatusIs(absl::StatusCode::kInvalidArgument)) << path;
  }
  EXPECT_THAT(CheckPath(absl::StrCat("tls/", std::string(256, 'a'))), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckPath(absl::string_view("tls/a\0", 6)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ManifestTest, RefusesWhatIsNoManifest) {
  const std::string good = FormatManifest(Sample());
  const auto with = [&](absl::string_view from, absl::string_view to) {
    const std::string changed = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_NE(changed, good) << from;
    return ParseManifest(changed).status();
  };
  const auto refused = [](absl::string_view why) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("manifest.json: "), HasSubstr(std::string(why))));
  };
  EXPECT_THAT(ParseManifest(""), refused("not a JSON object"));
  EXPECT_THAT(ParseManifest("[]"), refused("not a JSON object"));
  EXPECT_THAT(ParseManifest(good.substr(0, good.size() / 2)), refused("not a JSON object"));
  EXPECT_THAT(ParseManifest(std::string(100'000, '[')), refused("not a JSON object"));
  EXPECT_THAT(with("causeway.backup/1", "causeway.backup/2"),
              refused("causeway.backup/2\", expected causeway.backup/1"));
  EXPECT_THAT(with("\"program\"", "\"programme\""), refused("are needed"));
  EXPECT_THAT(with("\"bytes\": 5", "\"bytes\": -5"), refused("a file needs"));
  EXPECT_THAT(with("\"bytes\": 5", "\"bytes\": 1e3"), refused("a file needs"));
  EXPECT_THAT(with("\"bytes\": 5", "\"bytes\": 18446744073709551615"), refused("a file needs"));
  EXPECT_THAT(with(std::string(64, 'a'), std::string(64, 'A')), refused("a file needs"));
  EXPECT_THAT(with(std::string(64, 'a'), std::string(63, 'a')), refused("a file needs"));
  EXPECT_THAT(with("tls/ca.key", "tls/../ca.key"), refused("tls/../ca.key"));
  EXPECT_THAT(with("tls/ca.key", "journal.db"), refused("journal.db is there twice"));
  EXPECT_THAT(with("tls/ca.key", "chunks/aa/bb"), refused("out of order"));
  EXPECT_THAT(with("journal.db", "jobs/z/x"), refused("it has no journal.db"));
  EXPECT_THAT(with("coordinator.yaml", "chunks/ab/b"), refused("it has no coordinator.yaml"));
}

}  // namespace
}  // namespace causeway::backup
