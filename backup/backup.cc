#include "backup/backup.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backup/copy.h"
#include "backup/journal_snapshot.h"
#include "backup/manifest.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "dataplane/identity_file.h"
#include "dataplane/pki.h"
#include "jobspec/config.h"

namespace causeway::backup {
namespace {

constexpr int kMaxTries = 10;
constexpr int64_t kMaxPemBytes = 1 << 20;

// One backup on its way, in the folder `aside_`.
class Backup {
 public:
  Backup(const BackupOptions& options, std::string aside) : options_(options), aside_(std::move(aside)) {}

  // Sets *gone to the file that the journal needs and that is not there (any more). Errors: those of CreateBackup.
  absl::Status Try(std::string* gone) {
    ++result_.tries;
    gone->clear();
    const std::string journal = JoinPath(aside_, kJournalName);
    if (options_.files->Exists(journal)) RETURN_IF_ERROR(options_.files->Remove(journal));
    RETURN_IF_ERROR(SnapshotJournal(JoinPath(options_.dir, kJournalName), journal));
    ASSIGN_OR_RETURN(JournalFiles named, ReadJournalFiles(journal));
    result_.incarnation = named.incarnation;
    ASSIGN_OR_RETURN(wanted_[kJournalName], DigestOf(options_.files, journal));

    std::map<std::string, Digest> before = std::exchange(wanted_, {{kJournalName, wanted_[kJournalName]}});
    copied_.merge(before);
    // The contributions of an open round are the first to go.
    std::reverse(named.needed.begin(), named.needed.end());
    for (const std::string& path : named.needed) {
      absl::Status copied = Copy(path, JoinPath(options_.dir, path));
      if (absl::IsNotFound(copied)) {
        *gone = path;
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(copied);
    }
    for (const std::string& path : named.kept) {
      if (absl::Status copied = Copy(path, JoinPath(options_.dir, path)); !absl::IsNotFound(copied)) {
        RETURN_IF_ERROR(copied);
      }
    }
    RETURN_IF_ERROR(CopyConfig());
    result_.left_out = 0;
    for (const std::string& manifest : named.dataset_manifests) RETURN_IF_ERROR(CopyDataset(manifest));
    return absl::OkStatus();
  }

  // Removes what only earlier tries needed, and writes the manifest.
  absl::StatusOr<BackupResult> Finish() {
    for (const auto& [path, digest] : copied_) {
      if (!wanted_.contains(path)) RETURN_IF_ERROR(options_.files->Remove(JoinPath(aside_, path)));
    }
    Manifest manifest = {.program = options_.program,
                         .created_ms = absl::ToUnixMillis(options_.wall_now),
                         .incarnation = result_.incarnation};
    for (const auto& [path, digest] : wanted_) {
      manifest.files.push_back({path, digest.bytes, dataplane::ToHex(digest.sha256)});
      result_.bytes += digest.bytes;
    }
    result_.files = static_cast<int64_t>(manifest.files.size());
    const std::string text = FormatManifest(manifest);
    // What cannot be read back is no backup.
    RETURN_IF_ERROR(ParseManifest(text).status());
    RETURN_IF_ERROR(options_.files->WriteFileAtomically(JoinPath(aside_, kManifestName), text, 0600));
    result_.manifest_sha256 = dataplane::ToHex(dataplane::Sha256Of(text));
    return result_;
  }

 private:
  absl::Status Copy(const std::string& path, const std::string& from) {
    if (const auto had = copied_.find(path); had != copied_.end() && !absl::StartsWith(path, "tls/")) {
      wanted_.insert(*had);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(wanted_[path], CopyFile(options_.files, from, JoinPath(aside_, path), ModeOf(path)));
    return absl::OkStatus();
  }

  // Configuration and credentials. A certificate that is renewed meanwhile may not fit its key: the next try has both.
  absl::Status CopyConfig() {
    RETURN_IF_ERROR(
        Copy(kConfigName, options_.config_path.empty() ? JoinPath(options_.dir, kConfigName) : options_.config_path));
    const std::string tls = JoinPath(options_.dir, "tls");
    ASSIGN_OR_RETURN(const std::vector<std::string> names, options_.files->List(tls));
    for (const std::string& name : names) {
      const std::string path = absl::StrCat("tls/", name);
      if (absl::StrContains(name, ".tmp-") || !CheckPath(path).ok()) continue;  // Being written.
      RETURN_IF_ERROR(Copy(path, JoinPath(tls, name)));
    }
    const jobspec::TlsPaths copied = jobspec::CoordinatorTlsPaths(aside_);
    ASSIGN_OR_RETURN(const std::string certificate, options_.files->ReadFile(copied.certificate, kMaxPemBytes));
    std::string key = certificate;
    if (!dataplane::HoldsKey(certificate)) {  // The coordinator has not run yet.
      ASSIGN_OR_RETURN(key, options_.files->ReadFile(copied.key, kMaxPemBytes));
    }
    if (absl::Status fits = dataplane::CheckKeyMatches(certificate, key); !fits.ok()) {
      return absl::UnavailableError(absl::StrCat("the coordinator's certificate is being renewed: ", fits.message()));
    }
    ASSIGN_OR_RETURN(const std::string ca, options_.files->ReadFile(copied.ca, kMaxPemBytes));
    ASSIGN_OR_RETURN(const std::string ca_key, options_.files->ReadFile(copied.ca_key, kMaxPemBytes));
    return dataplane::CheckKeyMatches(ca, ca_key);
  }

  // A dataset's chunks: 32 raw bytes each in the manifest. What is missing or damaged is left out; it can be made again.
  absl::Status CopyDataset(const std::string& manifest) {
    ASSIGN_OR_RETURN(const bool there, CopyChunk(manifest));
    if (!there) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string names,
                     options_.files->ReadFile(JoinPath(aside_, ChunkPath(manifest)), kMaxManifestBytes));
    for (size_t i = 0; i + dataplane::kSha256Bytes <= names.size(); i += dataplane::kSha256Bytes) {
      RETURN_IF_ERROR(CopyChunk(dataplane::ToHex(names.substr(i, dataplane::kSha256Bytes))).status());
    }
    return absl::OkStatus();
  }
  static std::string ChunkPath(const std::string& name) {
    return absl::StrCat("chunks/", name.substr(0, 2), "/", name);
  }
  absl::StatusOr<bool> CopyChunk(const std::string& name) {
    const std::string path = ChunkPath(name);
    if (wanted_.contains(path)) return true;
    absl::Status copied = Copy(path, JoinPath(options_.dir, path));
    if (copied.ok() && dataplane::ToHex(wanted_[path].sha256) == name) return true;
    if (copied.ok()) {
      wanted_.erase(path);
      copied = options_.files->Remove(JoinPath(aside_, path));
    }
    if (!copied.ok() && !absl::IsNotFound(copied)) return copied;
    ++result_.left_out;
    return false;
  }

  const BackupOptions& options_;
  const std::string aside_;
  std::map<std::string, Digest> copied_;  // By earlier tries. Checkpoints, contributions and chunks never change.
  std::map<std::string, Digest> wanted_;  // Of the try at hand.
  BackupResult result_;
};

}  // namespace

absl::StatusOr<BackupResult> CreateBackup(const BackupOptions& options) {
  FileSystem* files = options.files;
  const std::string out(absl::StripSuffix(options.out, "/"));
  if (out.empty()) return absl::InvalidArgumentError("a backup needs a folder of its own");
  if (files->Exists(out)) return absl::AlreadyExistsError(absl::StrCat(out, " is there already: name a new folder"));
  if (!files->Exists(JoinPath(options.dir, kJournalName))) {
    return absl::NotFoundError(
        absl::StrCat(options.dir, " is no coordinator's data directory: it has no ", kJournalName));
  }
  const std::string aside = out + ".partial";
  RETURN_IF_ERROR(files->RemoveTree(aside));  // Of an attempt that was killed.
  absl::Cleanup remove_aside = [&] { files->RemoveTree(aside).IgnoreError(); };
  RETURN_IF_ERROR(files->MakeDirs(aside, 0700));
  Backup backup(options, aside);
  std::string gone_before, gone;
  absl::Status tried;
  for (int i = 0; i < kMaxTries; ++i) {
    tried = backup.Try(&gone);
    if (tried.ok() && gone.empty()) {
      ASSIGN_OR_RETURN(BackupResult result, backup.Finish());
      RETURN_IF_ERROR(files->Rename(aside, out));
      std::move(remove_aside).Cancel();
      return result;
    }
    if (!tried.ok() && !absl::IsUnavailable(tried)) return tried;
    // A fresh snapshot that names it again: it has not been pruned, it is missing.
    if (tried.ok() && gone == gone_before) {
      return absl::DataLossError(
          absl::StrCat("the journal names ", JoinPath(options.dir, gone), ", which is not there"));
    }
    gone_before = gone;
  }
  if (!tried.ok()) return tried;
  return absl::UnavailableError(
      absl::StrCat("after ", kMaxTries, " tries a file was still gone before it was copied: ", gone));
}

}  // namespace causeway::backup
