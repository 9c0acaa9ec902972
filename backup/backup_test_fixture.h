#ifndef CAUSEWAY_BACKUP_BACKUP_TEST_FIXTURE_H_
#define CAUSEWAY_BACKUP_BACKUP_TEST_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backup/backup.h"
#include "base/file.h"
#include "dataplane/digest.h"
#include "dataplane/layout.h"
#include "dataplane/pki.h"
#include "dataplane/safetensors.h"
#include "jobspec/config.h"
#include "proto/job.pb.h"
#include "proto/journal.pb.h"
#include "proto/membership.pb.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::backup {

inline const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

// The operating system's files; `before` is called before one is opened or made, and may make that fail.
class HookedFiles : public FileSystem {
 public:
  std::function<absl::Status(const std::string& path)> before = [](const std::string&) { return absl::OkStatus(); };

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override {
    return real_->OpenForAppend(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path, int mode) override {
    if (absl::Status status = before(path); !status.ok()) return status;
    return real_->Create(path, mode);
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override {
    if (absl::Status status = before(path); !status.ok()) return status;
    return real_->OpenForRead(path);
  }
  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) override {
    return real_->ReadFile(path, max_bytes);
  }
  absl::Status WriteFileAtomically(const std::string& path, absl::string_view content, int mode) override {
    if (absl::Status status = before(path); !status.ok()) return status;
    return real_->WriteFileAtomically(path, content, mode);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override { return real_->Rename(from, to); }
  absl::Status Remove(const std::string& path) override { return real_->Remove(path); }
  absl::Status RemoveTree(const std::string& path) override { return real_->RemoveTree(path); }
  absl::Status MakeDirs(const std::string& path, int mode) override { return real_->MakeDirs(path, mode); }
  absl::Status Truncate(const std::string& path, int64_t size) override { return real_->Truncate(path, size); }
  bool Exists(const std::string& path) override { return real_->Exists(path); }
  absl::StatusOr<int64_t> FileSize(const std::string& path) override { return real_->FileSize(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override { return real_->List(dir); }
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override { return real_->FreeBytes(path); }
  absl::StatusOr<std::unique_ptr<Lock>> LockFile(const std::string& path) override { return real_->LockFile(path); }

 private:
  FileSystem* const real_ = RealFileSystem();
};

// A model of two tensors, which lie the other way round in a file.
inline dataplane::Layout TestLayout() {
  return *dataplane::Layout::Create({{"w", dataplane::DataType::kFloat32, {6}, dataplane::TensorKind::kParameter, 1},
                                     {"n", dataplane::DataType::kInt64, {}, dataplane::TensorKind::kIntegerBuffer, 1}});
}
inline std::vector<uint8_t> TestModel(const std::string& name) {
  std::vector<uint8_t> packed(TestLayout().total_bytes());
  std::copy_n(name.begin(), std::min(name.size(), packed.size()), packed.begin());
  return packed;
}
inline void WriteModel(const std::string& path, const std::vector<uint8_t>& packed,
                       const dataplane::Layout& layout = TestLayout()) {
  ASSERT_OK(RealFileSystem()->MakeDirs(path.substr(0, path.rfind('/'))));
  absl::StatusOr<std::unique_ptr<WritableFile>> file = RealFileSystem()->Create(path);
  ASSERT_OK(file);
  ASSERT_OK(dataplane::WriteSafetensors(layout, packed, {}, file->get()));
  ASSERT_OK((*file)->Close());
}

// A data directory as a coordinator leaves it: one job in its round 2, with versions 0 (pruned) to 2 and one contribution, and one that has
// ended with version 8 (7 was pruned, 9 came too late). The journal has the tables and columns that docs/journal_format.md promises; tests/e2e uses a real one.
class DataDirectory : public ::testing::Test {
 protected:
  DataDirectory() {
    Write("coordinator.yaml", "advertise: old.example:7443\nlisten: 127.0.0.1:7443\nlease: 3s\n");
    WriteCredentials();
    EXPECT_EQ(sqlite3_open(Path("journal.db").c_str(), &db_), SQLITE_OK);
    Sql("PRAGMA journal_mode = WAL");
    Sql("CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
        "INSERT INTO meta VALUES ('schema_version', 1), ('incarnation', 4);"
        "CREATE TABLE sites (name TEXT PRIMARY KEY, generation INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
        "INSERT INTO sites VALUES ('lab', 7);"
        "CREATE TABLE jobs (name TEXT, state INTEGER, train_data BLOB, test_data BLOB, layout BLOB, runtime BLOB);"
        "CREATE TABLE contributions (job TEXT, path TEXT);"
        "CREATE TABLE commits (job TEXT, version INTEGER, sha256 BLOB, path TEXT);");
    v1::DatasetInfo info;
    const std::string chunk = "samples";
    manifest_ = dataplane::Sha256Of(chunk) + dataplane::Sha256Of("lost samples");
    info.set_manifest_sha256(dataplane::Sha256Of(manifest_));
    WriteChunk(chunk);
    WriteChunk(manifest_);
    const std::string hex = dataplane::ToHex(info.SerializeAsString());
    v1::StoredRuntime training, ended;
    training.set_final_version(-1);
    ended.set_final_version(8);
    const auto blob = [](const auto& message) {
      return absl::StrCat("x'", dataplane::ToHex(message.SerializeAsString()), "'");
    };
    const std::string layout = blob(TestLayout().ToProto());
    Sql(absl::StrCat("INSERT INTO jobs VALUES ('job', ", v1::JOB_STATE_TRAINING, ", x'", hex, "', x'', ", layout, ", ",
                     blob(training), "), ('over', ", v1::JOB_STATE_FINISHED, ", x'', x'', ", layout, ", ", blob(ended),
                     ")"));
    for (int version : {0, 1, 2}) Commit("job", version);
    EXPECT_OK(files_->Remove(Path("jobs/job/model-000000.safetensors")));
    for (int version : {7, 8, 9}) Commit("over", version);
    EXPECT_OK(files_->Remove(Path("jobs/over/model-000007.safetensors")));
    Contribute("job", "f0_r2_a1_4_00_w1.whole");
    Write("jobs/job/model-000003.safetensors", "not journaled yet");
    Write("spool/job/f0_r2_a1_4_00_w2.partial", "half");
    Write("lock", "17\n");
  }
  ~DataDirectory() override { sqlite3_close(db_); }

  std::string Path(const std::string& relative) const { return dir_.Join("old/" + relative); }
  void Write(const std::string& relative, const std::string& content) { WriteAt(Path(relative), content); }
  void WriteAt(const std::string& path, const std::string& content) {
    ASSERT_OK(RealFileSystem()->MakeDirs(path.substr(0, path.rfind('/'))));
    ASSERT_OK(RealFileSystem()->WriteFileAtomically(path, content));
  }
  std::string Read(const std::string& path) {
    const absl::StatusOr<std::string> content = files_->ReadFile(path, 1 << 20);
    EXPECT_OK(content);
    return content.value_or("");
  }
  static std::string ChunkPath(const std::string& content) {
    const std::string name = dataplane::ToHex(dataplane::Sha256Of(content));
    return absl::StrCat("chunks/", name.substr(0, 2), "/", name);
  }
  void WriteChunk(const std::string& content) { Write(ChunkPath(content), content); }
  void Sql(const std::string& sql) {
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  }
  static int64_t Number(const std::string& path, const std::string& sql) {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    int64_t value = -1;
    EXPECT_EQ(sqlite3_exec(
                  db, sql.c_str(),
                  [](void* out, int, char** columns, char**) {
                    *static_cast<int64_t*>(out) = atoll(columns[0]);
                    return 0;
                  },
                  &value, nullptr),
              SQLITE_OK);
    sqlite3_close(db);
    return value;
  }
  void Commit(const std::string& job, int version) {
    const std::string name = absl::StrCat("jobs/", job, "/model-00000", version, ".safetensors");
    const std::vector<uint8_t> model = TestModel(absl::StrCat("model ", version, " of ", job));
    WriteModel(Path(name), model);
    Sql(absl::StrCat("INSERT INTO commits VALUES ('", job, "', ", version, ", x'",
                     dataplane::ToHex(dataplane::Sha256Of(model)), "', '/elsewhere/", name, "')"));
  }
  void Contribute(const std::string& job, const std::string& name) {
    Write(absl::StrCat("spool/", job, "/", name), "part " + name);
    Sql(absl::StrCat("INSERT INTO contributions VALUES ('", job, "', '/elsewhere/spool/", job, "/", name, "')"));
  }
  void WriteCredentials() {
    using namespace dataplane;  // NOLINT
    const jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(dir_.Join("old"));
    const Validity validity = {kNow - absl::Hours(1), kNow + absl::Hours(24 * 3650)};
    const std::string ca_key = *GenerateKeyPem(), key = *GenerateKeyPem();
    ca_ = *CreateCaCertificate(ca_key, "test", validity);
    LeafOptions leaf = {.hosts = {"old.example"}, .validity = validity};
    leaf.identity.role = PeerIdentity::Role::kCoordinator;
    WriteAt(tls.ca, ca_);
    WriteAt(tls.ca_key, ca_key);
    WriteAt(tls.key, key);
    WriteAt(tls.certificate, *SignCsr(*CreateCsr(key), ca_, ca_key, leaf) + ca_);
  }

  BackupOptions Options() {
    return {.dir = dir_.Join("old"), .out = dir_.Join("backup"), .program = "1.0", .wall_now = kNow, .files = files_};
  }

  TempDir dir_;
  HookedFiles hooked_;
  FileSystem* const files_ = &hooked_;
  sqlite3* db_ = nullptr;
  std::string ca_;
  std::string manifest_;
};

}  // namespace causeway::backup

#endif  // CAUSEWAY_BACKUP_BACKUP_TEST_FIXTURE_H_
