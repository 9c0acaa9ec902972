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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
                                       "jobs/over/model-000008.safetensors",
                                       "jobs/over/model-000009.safetensors",
                                       "journal.db",
                                       "spool/job/f0_r2_a1_4_00_w1.whole",
                                       "tls/ca.key",
                                       "tls/ca.pem",
                                       "tls/coordinator.key",
                                       "tls/coordinator.pem"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names, expected);
  EXPECT_EQ(result->files, 13);
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
  EXPECT_EQ(files.at("jobs/job/model-000003.safetensors"), Read(Path("jobs/job/model-000003.safetensors")));
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

TEST_F(BackupTest, AModelThatIsMissingForGood) {
  for (const char* name : {"jobs/job/model-000002.safetensors", "jobs/over/model-000008.safetensors"}) {
    const std::string content = Read(Path(name));
    ASSERT_OK(files_->Remove(Path(name)));
    EXPECT_THAT(CreateBackup(Options()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(absl::StrCat("old/", name, ", which is not there"))));
    EXPECT_FALSE(files_->Exists(dir_.Join("backup")));
    Write(name, content);
  }
  // Others are pruned in order.
  ASSERT_OK(files_->Remove(Path("jobs/job/model-000001.safetensors")));
  ASSERT_OK(files_->Remove(Path("jobs/over/model-000009.safetensors")));
  const absl::StatusOr<BackupResult> result = CreateBackup(Options());
  ASSERT_OK(result);
  EXPECT_THAT(result->left_out_models, IsEmpty());
}

TEST_F(BackupTest, AModelThatIsDamaged) {
  const auto damage = [&](const std::string& name) {
    std::string content = Read(Path(name));
    content.back() ^= 1;  // Still such a file, with another tensor.
    Write(name, content);
  };
  for (const char* name : {"jobs/job/model-000002.safetensors", "jobs/over/model-000008.safetensors"}) {
    const std::string content = Read(Path(name));
    damage(name);
    EXPECT_THAT(CreateBackup(Options()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(absl::StrCat("old/", name, " is damaged"))));
    Write(name, content.substr(0, content.size() - 1));
    EXPECT_THAT(CreateBackup(Options()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(absl::StrCat("old/", name, " is damaged"))));
    EXPECT_FALSE(files_->Exists(dir_.Join("backup")));
    Write(name, content);
  }
  damage("jobs/job/model-000001.safetensors");
  Write("jobs/over/model-000009.safetensors", "");
  const absl::StatusOr<BackupResult> result = CreateBackup(Options());
  ASSERT_OK(result);
  EXPECT_THAT(result->left_out_models,
              ElementsAre("jobs/job/model-000001.safetensors", "jobs/over/model-000009.safetensors"));
  const std::map<std::string, std::string> files = Files();
  EXPECT_FALSE(files.contains("jobs/job/model-000001.safetensors"));
  EXPECT_FALSE(files.contains("jobs/over/model-000009.safetensors"));
}

TEST_F(BackupTest, AVersionThatWasMadeAgainMeanwhile) {
  bool restarted = false;
  hooked_.before = [&](const std::string& path) {
    // Both models of the job are copied already.
    if (path == Path("coordinator.yaml") && !restarted) {
      restarted = true;
      const std::vector<uint8_t> other = TestModel("another version 2");
      WriteModel(Path("jobs/job/model-000002.safetensors"), other);
      Sql(absl::StrCat("UPDATE commits SET sha256 = x'", dataplane::ToHex(dataplane::Sha256Of(other)),
                       "' WHERE job = 'job' AND version = 2"));
      return absl::UnavailableError("try again");
    }
    return absl::OkStatus();
  };
  ASSERT_OK(CreateBackup(Options()));
  EXPECT_EQ(Files().at("jobs/job/model-000002.safetensors"), Read(Path("jobs/job/model-000002.safetensors")));
}

TEST_F(BackupTest, AJournalThatIsLost) {
  const auto lost = StatusIs(absl::StatusCode::kDataLoss,
                             AllOf(HasSubstr("the journal is empty, but "), HasSubstr("old/jobs holds job")));
  Sql("PRAGMA journal_mode = DELETE");
  Sql("DELETE FROM contributions; DELETE FROM commits; DELETE FROM jobs");
  EXPECT_THAT(CreateBackup(Options()), lost);
  Write("journal.db", "");
  EXPECT_THAT(CreateBackup(Options()), lost);
  ASSERT_OK(files_->Remove(Path("journal.db")));
  EXPECT_THAT(CreateBackup(Options()), lost);
  EXPECT_FALSE(files_->Exists(Path("journal.db")));
  EXPECT_FALSE(files_->Exists(dir_.Join("backup")));
}

TEST_F(BackupTest, ACoordinatorWithoutJobs) {
  Sql("DELETE FROM contributions; DELETE FROM commits; DELETE FROM jobs");
  ASSERT_OK(files_->RemoveTree(Path("jobs")));
  EXPECT_OK(CreateBackup(Options()));
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
