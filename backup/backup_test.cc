#include "backup/backup.h"

#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "backup/backup_test_fixture.h"
#include "backup/manifest.h"
#include "dataplane/identity_file.h"

namespace causeway::backup {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class BackupTest : public DataDirectory {
 protected:
  // All files of the backup but its manifest, which must name exactly these, with their digests.
  std::map<std::string, std::string> Files() {
    std::map<std::string, std::string> files;
    const std::string root = dir_.Join("backup");
    const absl::StatusOr<Manifest> manifest = ParseManifest(Read(root + "/manifest.json"));
    EXPECT_OK(manifest);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string path = entry.path().lexically_relative(root).string();
      if (entry.is_regular_file() && path != kManifestName) files[path] = Read(entry.path().string());
    }
    EXPECT_EQ(manifest->files.size(), files.size());
    for (const Manifest::File& file : manifest->files) {
      EXPECT_EQ(file.bytes, static_cast<int64_t>(files[file.path].size())) << file.path;
      EXPECT_EQ(file.sha256, dataplane::ToHex(dataplane::Sha256Of(files[file.path]))) << file.path;
    }
    return files;
  }
};

TEST_F(BackupTest, HoldsWhatTheJournalNamesAndNothingElse) {
  const absl::StatusOr<BackupResult> result = CreateBackup(Options());
  ASSERT_OK(result);
  const std::map<std::string, std::string> files = Files();
  std::vector<std::string> names;
  for (const auto& [path, content] : files) {
    names.push_back(path);
    if (path != "journal.db") {
      EXPECT_EQ(content, Read(Path(path))) << path;
    }
  }
  std::vector<std::string> expected = {ChunkPath("samples"),
                                       ChunkPath(manifest_),
                                       "coordinator.yaml",
                                       "jobs/job/model-000001.safetensors",
                                       "jobs/job/model-000002.safetensors",
                                       "journal.db",
                                       "spool/job/f0_r2_a1_4_00_w1.whole",
                                       "tls/ca.key",
                                       "tls/ca.pem",
                                       "tls/coordinator.key",
                                       "tls/coordinator.pem"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names, expected);
  EXPECT_EQ(result->files, 11);
  EXPECT_EQ(result->left_out, 1);  // The lost samples.
  EXPECT_EQ(result->incarnation, 4);
  EXPECT_EQ(result->tries, 1);
  EXPECT_EQ(result->manifest_sha256, dataplane::ToHex(dataplane::Sha256Of(Read(dir_.Join("backup/manifest.json")))));
  EXPECT_FALSE(files_->Exists(dir_.Join("backup.partial")));
}

TEST_F(BackupTest, AFileThatGoesMeanwhileIsSoughtInAFreshSnapshot) {
  bool moved_on = false;
  hooked_.before = [&](const std::string& path) {
    // The round is committed just before its contribution would be copied.
    if (path == Path("spool/job/f0_r2_a1_4_00_w1.whole") && !moved_on) {
      moved_on = true;
      Commit("job", 3);
      Sql("DELETE FROM contributions");
      EXPECT_OK(files_->Remove(path));
      EXPECT_OK(files_->Remove(Path("jobs/job/model-000001.safetensors")));
      Contribute("job", "f0_r3_a2_4_00_w1.whole");
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<BackupResult> result = CreateBackup(Options());
  ASSERT_OK(result);
  EXPECT_EQ(result->tries, 2);
  const std::map<std::string, std::string> files = Files();
  EXPECT_EQ(files.at("jobs/job/model-000003.safetensors"), "model 3 of job");
  EXPECT_TRUE(files.contains("spool/job/f0_r3_a2_4_00_w1.whole"));
  EXPECT_FALSE(files.contains("spool/job/f0_r2_a1_4_00_w1.whole"));
  EXPECT_EQ(Number(dir_.Join("backup/journal.db"), "SELECT max(version) FROM commits WHERE job = 'job'"), 3);
}

TEST_F(BackupTest, WhatOnlyAnEarlierTryNeededIsNotInIt) {
  bool moved_on = false;
  hooked_.before = [&](const std::string& path) {
    // The contribution is copied already.
    if (path == Path("jobs/job/model-000002.safetensors") && !moved_on) {
      moved_on = true;
      Commit("job", 3);
      Sql("DELETE FROM contributions");
      EXPECT_OK(files_->Remove(Path("spool/job/f0_r2_a1_4_00_w1.whole")));
      EXPECT_OK(files_->Remove(path));
    }
    return absl::OkStatus();
  };
  ASSERT_OK(CreateBackup(Options()));
  const std::map<std::string, std::string> files = Files();
  EXPECT_FALSE(files.contains("spool/job/f0_r2_a1_4_00_w1.whole"));
  EXPECT_FALSE(files.contains("jobs/job/model-000002.safetensors"));
}

TEST_F(BackupTest, ACoordinatorThatMovesOnTooFast) {
  int round = 2;
  hooked_.before = [&](const std::string& path) {
    if (absl::StartsWith(path, Path("spool/"))) {
      EXPECT_OK(files_->Remove(path));
      Sql("DELETE FROM contributions");
      Contribute("job", absl::StrCat("f0_r", ++round, "_a1_4_00_w1.whole"));
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(CreateBackup(Options()), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("10 tries")));
  EXPECT_FALSE(files_->Exists(dir_.Join("backup")));
  EXPECT_FALSE(files_->Exists(dir_.Join("backup.partial")));
}

TEST_F(BackupTest, AFileThatIsMissingForGood) {
  ASSERT_OK(files_->Remove(Path("jobs/job/model-000002.safetensors")));
  EXPECT_THAT(
      CreateBackup(Options()),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("old/jobs/job/model-000002.safetensors, which is not there")));
  EXPECT_FALSE(files_->Exists(dir_.Join("backup")));
}

TEST_F(BackupTest, ADamagedChunkIsLeftOut) {
  Write(ChunkPath("samples"), "sampleZ");
  const absl::StatusOr<BackupResult> result = CreateBackup(Options());
  ASSERT_OK(result);
  EXPECT_EQ(result->left_out, 2);
  EXPECT_FALSE(Files().contains(ChunkPath("samples")));
}

TEST_F(BackupTest, AFullDiskLeavesNothing) {
  for (const char* at : {"backup.partial/jobs/job/model-000002.safetensors", "backup.partial/manifest.json"}) {
    hooked_.before = [&](const std::string& path) {
      return path == dir_.Join(at) ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
    };
    EXPECT_THAT(CreateBackup(Options()), StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_FALSE(files_->Exists(dir_.Join("backup")));
    EXPECT_FALSE(files_->Exists(dir_.Join("backup.partial")));
  }
}

TEST_F(BackupTest, CredentialsThatDoNotFitTogether) {
  Write("tls/coordinator.key", *dataplane::GenerateKeyPem());
  EXPECT_THAT(CreateBackup(Options()), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("certificate")));
}

TEST_F(BackupTest, AKeyThatLiesWithItsCertificate) {
  ASSERT_OK(dataplane::MergeIdentityFile(files_, Path("tls/coordinator.pem"), Path("tls/coordinator.key")));
  EXPECT_OK(CreateBackup(Options()));
}

TEST_F(BackupTest, NeverOverAnything) {
  ASSERT_OK(files_->MakeDirs(dir_.Join("backup")));
  EXPECT_THAT(CreateBackup(Options()), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("backup")));
}

TEST_F(BackupTest, NoDataDirectory) {
  BackupOptions options = Options();
  options.dir = dir_.Join("nothing");
  EXPECT_THAT(CreateBackup(options), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing")));
}

TEST_F(BackupTest, AConfigurationThatLiesElsewhere) {
  WriteAt(dir_.Join("etc/c.yaml"), "advertise: else.example:7443\n");
  BackupOptions options = Options();
  options.config_path = dir_.Join("etc/c.yaml");
  ASSERT_OK(CreateBackup(options));
  EXPECT_EQ(Files().at("coordinator.yaml"), "advertise: else.example:7443\n");
}

}  // namespace
}  // namespace causeway::backup
