#include "backup/restore.h"

#include <filesystem>

#include "absl/strings/str_replace.h"
#include "backup/backup_test_fixture.h"
#include "backup/manifest.h"

namespace causeway::backup {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RestoreTest : public DataDirectory {
 protected:
  RestoreTest() { EXPECT_OK(CreateBackup(Options())); }

  RestoreOptions Into(const std::string& name = "new") {
    return {.backup = dir_.Join("backup"), .dir = dir_.Join(name), .wall_now = kNow, .files = files_};
  }
  std::string Saved(const std::string& relative) { return dir_.Join("backup/" + relative); }
  void ExpectNothing() {
    EXPECT_FALSE(files_->Exists(dir_.Join("new")));
    EXPECT_FALSE(files_->Exists(dir_.Join("new.restoring")));
  }
};

TEST_F(RestoreTest, EveryFileAsItWas) {
  const absl::StatusOr<RestoreResult> result = RestoreBackup(Into());
  ASSERT_OK(result);
  EXPECT_EQ(result->files, 13);
  EXPECT_EQ(result->advertise, "old.example:7443");
  EXPECT_EQ(result->config_path, dir_.Join("new/coordinator.yaml"));
  EXPECT_EQ(result->data_root, dir_.Join("new/data"));
  EXPECT_EQ(result->created, kNow);
  const absl::StatusOr<Manifest> manifest = ParseManifest(Read(Saved("manifest.json")));
  ASSERT_OK(manifest);
  for (const Manifest::File& file : manifest->files) {
    if (file.path != kJournalName) {
      EXPECT_EQ(Read(dir_.Join("new/" + file.path)), Read(Saved(file.path))) << file.path;
    }
  }
  EXPECT_EQ(Number(dir_.Join("new/journal.db"), "SELECT count(*) FROM commits"), 6);
  EXPECT_EQ(Number(dir_.Join("new/journal.db"), "SELECT value FROM meta WHERE key = 'incarnation'"), 1004);
  EXPECT_FALSE(files_->Exists(dir_.Join("new.restoring")));
  EXPECT_EQ(std::filesystem::status(dir_.Join("new/tls/ca.key")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(RestoreTest, AnotherAddress) {
  RestoreOptions options = Into();
  options.address = {"new.example", 8443};
  const absl::StatusOr<RestoreResult> result = RestoreBackup(options);
  ASSERT_OK(result);
  const absl::StatusOr<jobspec::CoordinatorConfig> config = jobspec::LoadCoordinatorConfig(result->config_path);
  ASSERT_OK(config);
  EXPECT_EQ(config->advertise.ToString(), "new.example:8443");
  EXPECT_EQ(config->listen.ToString(), "127.0.0.1:8443");
  EXPECT_EQ(config->lease, absl::Seconds(3));  // What else it said.
  EXPECT_EQ(config->dir, dir_.Join("new"));
  EXPECT_EQ(config->data_root, dir_.Join("new/data"));
  const jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(dir_.Join("new"));
  const std::string chain = Read(tls.certificate);
  EXPECT_OK(dataplane::CheckKeyMatches(chain, Read(tls.key)));
  EXPECT_NE(Read(tls.key), Read(Path("tls/coordinator.key")));
  // As a joining worker sees it: the authority is the same.
  const std::string leaf = chain.substr(0, chain.size() - ca_.size());
  EXPECT_OK(dataplane::VerifyChainAgainstPin({leaf, ca_}, *dataplane::CaPin(ca_), kNow));
  EXPECT_EQ(dataplane::ParseCertificate(leaf)->not_after, kNow + absl::Hours(24 * 365));
}

TEST_F(RestoreTest, AListenerOnAPortOfItsOwnStays) {
  Write("coordinator.yaml", "advertise: old.example:443\nlisten: 127.0.0.1:7443\n");
  ASSERT_OK(files_->RemoveTree(dir_.Join("backup")));
  ASSERT_OK(CreateBackup(Options()));
  RestoreOptions options = Into();
  options.address = {"new.example", 443};
  const absl::StatusOr<RestoreResult> result = RestoreBackup(options);
  ASSERT_OK(result);
  EXPECT_EQ(result->listen, "127.0.0.1:7443");
}

TEST_F(RestoreTest, AConfigurationThatNamesTheOldFolderIsMoved) {
  Write("coordinator.yaml", absl::StrCat("advertise: old.example:7443\ndir: ", dir_.Join("old"), "\n"));
  ASSERT_OK(files_->RemoveTree(dir_.Join("backup")));
  ASSERT_OK(CreateBackup(Options()));
  const absl::StatusOr<RestoreResult> result = RestoreBackup(Into());
  ASSERT_OK(result);
  const absl::StatusOr<jobspec::CoordinatorConfig> config = jobspec::LoadCoordinatorConfig(result->config_path);
  ASSERT_OK(config);
  EXPECT_EQ(config->dir, dir_.Join("new"));
  EXPECT_EQ(config->data_root, dir_.Join("new/data"));
}

TEST_F(RestoreTest, AnEmptyFolderWillDoAndNoOther) {
  ASSERT_OK(files_->MakeDirs(dir_.Join("new")));
  EXPECT_OK(RestoreBackup(Into()));
  EXPECT_THAT(RestoreBackup(Into()), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("is not empty")));
  EXPECT_THAT(RestoreBackup(Into("new/")), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(RestoreTest, DamagedAndMissingFilesAreAllNamed) {
  std::string model = Read(Saved("jobs/job/model-000002.safetensors"));
  model.back() ^= 1;
  WriteAt(Saved("jobs/job/model-000002.safetensors"), model);
  WriteAt(Saved("tls/ca.pem"), "short");
  ASSERT_OK(files_->Remove(Saved("spool/job/f0_r2_a1_4_00_w1.whole")));
  EXPECT_THAT(RestoreBackup(Into()),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("jobs/job/model-000002.safetensors has another SHA-256"),
                             HasSubstr("tls/ca.pem has 5 bytes"), HasSubstr("f0_r2_a1_4_00_w1.whole is missing"))));
  ExpectNothing();
}

TEST_F(RestoreTest, EveryFileIsVerified) {
  const absl::StatusOr<Manifest> manifest = ParseManifest(Read(Saved("manifest.json")));
  ASSERT_OK(manifest);
  for (const Manifest::File& file : manifest->files) {
    std::string content = Read(Saved(file.path));
    const std::string whole = content;
    content.back() ^= 1;
    WriteAt(Saved(file.path), content);
    EXPECT_THAT(RestoreBackup(Into()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(file.path))) << file.path;
    ExpectNothing();
    WriteAt(Saved(file.path), whole);
  }
  EXPECT_OK(RestoreBackup(Into()));
}

TEST_F(RestoreTest, ForeignFilesAreNamed) {
  WriteAt(Saved("tls/extra.pem"), "x");
  WriteAt(Saved("jobs/other/model.safetensors"), "x");
  EXPECT_THAT(RestoreBackup(Into()),
              StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("tls/extra.pem is not in the manifest"),
                                                                    HasSubstr("jobs/other is not in the manifest"))));
  ExpectNothing();
}

TEST_F(RestoreTest, LinksAreNotFollowed) {
  // To the very content that is expected: it is the link that is refused.
  const std::string path = Saved("jobs/job/model-000001.safetensors");
  std::filesystem::rename(path, dir_.Join("outside"));
  std::filesystem::create_symlink(dir_.Join("outside"), path);
  EXPECT_THAT(RestoreBackup(Into()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("model-000001.safetensors is a link")));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("model-000002.safetensors", path);  // Within the backup.
  EXPECT_THAT(RestoreBackup(Into()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("model-000001.safetensors is a link")));
  std::filesystem::remove(path);
  std::filesystem::rename(dir_.Join("outside"), path);
  std::filesystem::rename(Saved("tls"), dir_.Join("tls"));
  std::filesystem::create_directory_symlink(dir_.Join("tls"), Saved("tls"));
  EXPECT_THAT(RestoreBackup(Into()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tls/ca.key is a link")));
  ExpectNothing();
}

TEST_F(RestoreTest, AManifestThatLeadsOutOfTheFolder) {
  WriteAt(Saved("manifest.json"), absl::StrReplaceAll(Read(Saved("manifest.json")), {{"tls/ca.key", "tls/../../x"}}));
  EXPECT_THAT(RestoreBackup(Into()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tls/../../x")));
  ExpectNothing();
}

TEST_F(RestoreTest, AFullDiskLeavesNothing) {
  hooked_.before = [&](const std::string& path) {
    return path == dir_.Join("new.restoring/journal.db") ? absl::ResourceExhaustedError("the disk is full")
                                                         : absl::OkStatus();
  };
  EXPECT_THAT(RestoreBackup(Into()), StatusIs(absl::StatusCode::kResourceExhausted));
  ExpectNothing();
}

TEST_F(RestoreTest, NoBackup) {
  RestoreOptions options = Into();
  options.backup = dir_.Join("nothing");
  EXPECT_THAT(RestoreBackup(options), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing is no backup")));
}

}  // namespace
}  // namespace causeway::backup
