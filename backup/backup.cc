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
#include "backup/checkpoint.h"
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

absl::Status JournalLost(const std::string& dir, const std::string& job) {
  return absl::DataLossError(absl::StrCat("the journal is empty, but ", dir, "/jobs holds ", job,
                                          ": there is nothing to back up until the journal is put back"));
}

absl::StatusOr<std::vector<std::string>> JobFolders(const BackupOptions& options) {
  const std::string jobs = JoinPath(options.dir, "jobs");
  if (!options.files->Exists(jobs)) return std::vector<std::string>();
  return options.files->List(jobs);
}

// One backup on its way, in the folder `aside_`.
class Backup {
 public:
  Backup(const BackupOptions& options, std::string aside) : options_(options), aside_(std::move(aside)) {}

  // Sets *lacks to what the journal needs and is not there (any more), or is not what the journal has. Errors: those of CreateBackup.
  absl::Status Try(std::string* lacks) {
    ++result_.tries;
    lacks->clear();
    const std::string journal = JoinPath(aside_, kJournalName);
    if (options_.files->Exists(journal)) RETURN_IF_ERROR(options_.files->Remove(journal));
    // Listed before: what is journaled meanwhile gets its folder later.
    ASSIGN_OR_RETURN(const std::vector<std::string> folders, JobFolders(options_));
    RETURN_IF_ERROR(SnapshotJournal(JoinPath(options_.dir, kJournalName), journal));
    ASSIGN_OR_RETURN(const JournalFiles named, ReadJournalFiles(journal));
    if (named.jobs == 0 && !folders.empty()) return JournalLost(options_.dir, folders[0]);
    result_.incarnation = named.incarnation;
    ASSIGN_OR_RETURN(wanted_[kJournalName], DigestOf(options_.files, journal));

    std::map<std::string, Digest> before = std::exchange(wanted_, {{kJournalName, wanted_[kJournalName]}});
    copied_.merge(before);
    result_.left_out = 0;
    result_.left_out_models.clear();
    // They are the first to go.
    for (const std::string& path : named.contributions) {
      absl::Status copied = Copy(path, JoinPath(options_.dir, path));
      if (absl::IsNotFound(copied)) {
        *lacks = absl::StrCat("the journal names ", JoinPath(options_.dir, path), ", which is not there");
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(copied);
    }
    for (const bool needed : {true, false}) {
      for (const ModelFile& model : named.models) {
        if (model.needed != needed) continue;
        RETURN_IF_ERROR(CopyModel(model, named.layouts.at(model.job), lacks));
        if (!lacks->empty()) return absl::OkStatus();
      }
    }
    RETURN_IF_ERROR(CopyConfig());
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

  // Sets *lacks as Try does. A version that no job needs and that is damaged is left out.
  absl::Status CopyModel(const ModelFile& model, const dataplane::Layout& layout, std::string* lacks) {
    const std::string from = JoinPath(options_.dir, model.path);
    std::string& whole = whole_[model.path];
    // A coordinator that had to go back made this version again.
    if (!whole.empty() && whole != model.sha256) copied_.erase(model.path);
    absl::Status copied = Copy(model.path, from);
    if (absl::IsNotFound(copied)) {
      if (model.needed) *lacks = absl::StrCat("the journal names ", from, ", which is not there");
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(copied);
    if (whole == model.sha256) return absl::OkStatus();
    const std::string copy = JoinPath(aside_, model.path);
    absl::StatusOr<std::string> found = PackedSha256(options_.files, copy, layout);
    if (found.ok() && *found == model.sha256) {
      whole = *found;
      return absl::OkStatus();
    }
    if (!found.ok() && !absl::IsDataLoss(found.status())) return found.status();
    wanted_.erase(model.path);
    copied_.erase(model.path);
    RETURN_IF_ERROR(options_.files->Remove(copy));
    if (model.needed) {
      *lacks = absl::StrCat(from, " is damaged: ",
                            found.ok() ? absl::StrCat("the tensors have the digest ", dataplane::ToHex(*found),
                                                      ", the journal has ", dataplane::ToHex(model.sha256))
                                       : std::string(found.status().message()));
    } else {
      result_.left_out_models.push_back(model.path);
    }
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
  std::map<std::string, Digest> copied_;      // By earlier tries. Checkpoints, contributions and chunks never change.
  std::map<std::string, Digest> wanted_;      // Of the try at hand.
  std::map<std::string, std::string> whole_;  // Models that were copied: the digest that was found to fit.
  BackupResult result_;
};

}  // namespace

absl::StatusOr<BackupResult> CreateBackup(const BackupOptions& options) {
  FileSystem* files = options.files;
  const std::string out(absl::StripSuffix(options.out, "/"));
  if (out.empty()) return absl::InvalidArgumentError("a backup needs a folder of its own");
  if (files->Exists(out)) return absl::AlreadyExistsError(absl::StrCat(out, " is there already: name a new folder"));
  const absl::StatusOr<int64_t> journal_bytes = files->FileSize(JoinPath(options.dir, kJournalName));
  if (absl::IsNotFound(journal_bytes.status()) || journal_bytes.value_or(1) == 0) {
    ASSIGN_OR_RETURN(const std::vector<std::string> folders, JobFolders(options));
    if (!folders.empty()) return JournalLost(options.dir, folders[0]);
  }
  if (absl::IsNotFound(journal_bytes.status())) {
    return absl::NotFoundError(
        absl::StrCat(options.dir, " is no coordinator's data directory: it has no ", kJournalName));
  }
  const std::string aside = out + ".partial";
  RETURN_IF_ERROR(files->RemoveTree(aside));  // Of an attempt that was killed.
  absl::Cleanup remove_aside = [&] { files->RemoveTree(aside).IgnoreError(); };
  RETURN_IF_ERROR(files->MakeDirs(aside, 0700));
  Backup backup(options, aside);
  std::string lacked, lacks;
  absl::Status tried;
  for (int i = 0; i < kMaxTries; ++i) {
    tried = backup.Try(&lacks);
    if (tried.ok() && lacks.empty()) {
      ASSIGN_OR_RETURN(BackupResult result, backup.Finish());
      RETURN_IF_ERROR(files->Rename(aside, out));
      std::move(remove_aside).Cancel();
      return result;
    }
    if (!tried.ok() && !absl::IsUnavailable(tried)) return tried;
    // A fresh snapshot that names it again: it has not been pruned, it is missing or damaged.
    if (tried.ok() && lacks == lacked) return absl::DataLossError(lacks);
    lacked = lacks;
  }
  if (!tried.ok()) return tried;
  return absl::UnavailableError(absl::StrCat("after ", kMaxTries, " tries still: ", lacks));
}

}  // namespace causeway::backup
