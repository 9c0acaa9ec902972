#include "cli/backup_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cli_test_fixture.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What is saved and restored has its tests in backup/, and with a real journal in tests/e2e.
class BackupCommandsTest : public CliTest {};

TEST_F(BackupCommandsTest, NoDataDirectory) {
  EXPECT_EQ(Run({"backup", "--dir", dir_.Join("none"), "--out", dir_.Join("out")}), 1);
  EXPECT_THAT(err(), AllOf(HasSubstr(dir_.Join("none")), HasSubstr("no coordinator's data directory")));
  EXPECT_EQ(connected_to_, "");
}

TEST_F(BackupCommandsTest, OutIsThere) {
  Write("coordinator/journal.db", "");
  EXPECT_EQ(Run({"backup", "--dir", dir_.Join("coordinator"), "--out", dir_.path()}), 4);
  EXPECT_THAT(err(), HasSubstr("is there already"));
}

TEST_F(BackupCommandsTest, ABadManifestIsABadFile) {
  Write("backup/manifest.json", "{}");
  EXPECT_EQ(Run({"restore", dir_.Join("backup"), "--dir", dir_.Join("new")}), 2);
  EXPECT_THAT(err(), HasSubstr("manifest.json"));
}

TEST_F(BackupCommandsTest, TheAddressIsChecked) {
  EXPECT_EQ(Run({"restore", dir_.Join("backup"), "--dir", dir_.Join("new"), "--address", "nowhere"}), 2);
  EXPECT_THAT(err(), HasSubstr("--address"));
}

TEST_F(BackupCommandsTest, Usage) {
  EXPECT_EQ(Run({"backup"}), 2);
  EXPECT_EQ(Run({"restore", dir_.Join("backup")}), 2);
  EXPECT_EQ(Run({"restore", "--help"}), 0);
  EXPECT_THAT(out(), HasSubstr("--address"));
}

}  // namespace
}  // namespace causeway::cli
