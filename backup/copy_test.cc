#include "backup/copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dataplane/digest.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::backup {
namespace {

using ::testing::HasSubstr;

TEST(CopyTest, CopiesAllBlocksAndTellsTheirDigest) {
  const TempDir dir;
  FileSystem* const files = RealFileSystem();
  std::string content;
  for (int i = 0; i < (2 << 20) + 17; ++i) content.push_back(static_cast<char>(i * 7 + i / 1000));
  ASSERT_OK(files->WriteFileAtomically(dir.Join("from"), content));
  const Digest expected = {static_cast<int64_t>(content.size()), dataplane::Sha256Of(content)};
  EXPECT_THAT(CopyFile(files, dir.Join("from"), dir.Join("a/b/to.key"), 0600), IsOkAndHolds(expected));
  EXPECT_THAT(files->ReadFile(dir.Join("a/b/to.key"), 1 << 24), IsOkAndHolds(content));
  EXPECT_THAT(DigestOf(files, dir.Join("a/b/to.key")), IsOkAndHolds(expected));
  struct stat info = {};
  ASSERT_EQ(stat(dir.Join("a/b/to.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(CopyTest, OnlyRegularFilesThatAreThere) {
  const TempDir dir;
  EXPECT_THAT(CopyFile(RealFileSystem(), dir.Join("none"), dir.Join("to"), 0644),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  ASSERT_EQ(mkfifo(dir.Join("pipe").c_str(), 0600), 0);
  EXPECT_THAT(CopyFile(RealFileSystem(), dir.Join("pipe"), dir.Join("to"), 0644),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(RealFileSystem()->Exists(dir.Join("to")));
}

TEST(CopyTest, KeysAreNobodyElses) {
  EXPECT_EQ(ModeOf("tls/ca.key"), 0600);
  EXPECT_EQ(ModeOf("tls/coordinator.pem"), 0600);
  EXPECT_EQ(ModeOf("tls/ca.pem"), 0644);
}

}  // namespace
}  // namespace causeway::backup
