#include "backup/restore.h"

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "backup/copy.h"
#include "backup/journal_snapshot.h"
#include "backup/manifest.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "dataplane/pki.h"
#include "jobspec/yaml_reader.h"

namespace causeway::backup {
namespace {

constexpr absl::Duration kLeafLifetime = absl::Hours(24 * 365);
// Other machines' clocks may be behind this one's.
constexpr absl::Duration kClockTolerance = absl::Hours(1);
constexpr int64_t kMaxPemBytes = 1 << 20;

// Errors found, each with the name of its file.
absl::Status Verdict(absl::StatusCode code, const std::string& backup, const std::vector<std::string>& findings) {
  constexpr size_t kShown = 20;
  if (findings.empty()) return absl::OkStatus();
  std::vector<std::string> shown(findings.begin(), findings.begin() + std::min(findings.size(), kShown));
  if (findings.size() > kShown) shown.push_back(absl::StrCat("and ", findings.size() - kShown, " more"));
  return absl::Status(
      code, absl::StrCat("the backup ", backup,
                         " is not what its manifest says, nothing was restored: ", absl::StrJoin(shown, "; ")));
}

// What lies in the backup beside the manifest and its files. Folders are those that its files are in, no others.
absl::Status CheckNothingForeign(const RestoreOptions& options, const Manifest& manifest) {
  std::set<std::string> folders = {""};
  std::set<std::string> expected = {kManifestName};
  for (const Manifest::File& file : manifest.files) {
    expected.insert(file.path);
    for (size_t slash = file.path.find('/'); slash != std::string::npos; slash = file.path.find('/', slash + 1)) {
      folders.insert(file.path.substr(0, slash));
      expected.insert(file.path.substr(0, slash));
    }
  }
  std::vector<std::string> foreign;
  for (const std::string& folder : folders) {
    const absl::StatusOr<std::vector<std::string>> names = options.files->List(JoinPath(options.backup, folder));
    if (!names.ok()) continue;  // Its files are missing then, and named as such.
    for (const std::string& name : *names) {
      const std::string path = folder.empty() ? name : JoinPath(folder, name);
      if (!expected.contains(path)) foreign.push_back(absl::StrCat(path, " is not in the manifest"));
    }
  }
  return Verdict(absl::StatusCode::kFailedPrecondition, options.backup, foreign);
}

absl::Status CopyVerified(const RestoreOptions& options, const Manifest& manifest, const std::string& aside) {
  std::error_code error;
  const std::string root = std::filesystem::canonical(options.backup, error).string();
  if (error) return absl::NotFoundError(absl::StrCat("cannot resolve ", options.backup, ": ", error.message()));
  std::vector<std::string> damaged, links;
  for (const Manifest::File& file : manifest.files) {
    const std::string from = JoinPath(root, file.path);
    const absl::StatusOr<std::string> resolved = ResolveBelow(root, file.path);
    if (absl::IsNotFound(resolved.status())) {
      damaged.push_back(absl::StrCat(file.path, " is missing"));
      continue;
    }
    if (!resolved.ok() || *resolved != from) {
      links.push_back(absl::StrCat(file.path, " is a link"));
      continue;
    }
    ASSIGN_OR_RETURN(const int64_t bytes, options.files->FileSize(from));
    if (bytes != file.bytes) {
      damaged.push_back(absl::StrCat(file.path, " has ", bytes, " bytes, not ", file.bytes));
      continue;
    }
    // What is compared is what was copied, whatever happens to the backup meanwhile.
    ASSIGN_OR_RETURN(const Digest digest, CopyFile(options.files, from, JoinPath(aside, file.path), ModeOf(file.path)));
    if (digest.bytes != file.bytes || dataplane::ToHex(digest.sha256) != file.sha256) {
      damaged.push_back(absl::StrCat(file.path, " has another SHA-256"));
    }
  }
  RETURN_IF_ERROR(Verdict(absl::StatusCode::kFailedPrecondition, options.backup, links));
  return Verdict(absl::StatusCode::kDataLoss, options.backup, damaged);
}

// The coordinator's own certificate, for another address.
absl::Status IssueCertificate(const RestoreOptions& options, const std::string& aside) {
  const jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(aside);
  ASSIGN_OR_RETURN(const std::string ca, options.files->ReadFile(tls.ca, kMaxPemBytes));
  ASSIGN_OR_RETURN(const std::string ca_key, options.files->ReadFile(tls.ca_key, kMaxPemBytes));
  ASSIGN_OR_RETURN(const std::string key, dataplane::GenerateKeyPem());
  ASSIGN_OR_RETURN(const std::string csr, dataplane::CreateCsr(key));
  dataplane::LeafOptions leaf = {.hosts = {options.address->host},
                                 .validity = {options.wall_now - kClockTolerance, options.wall_now + kLeafLifetime}};
  leaf.identity.role = dataplane::PeerIdentity::Role::kCoordinator;
  ASSIGN_OR_RETURN(const std::string certificate, dataplane::SignCsr(csr, ca, ca_key, leaf),
                   "with the authority in the backup");
  RETURN_IF_ERROR(options.files->WriteFileAtomically(tls.key, key, 0600));
  return options.files->WriteFileAtomically(tls.certificate, certificate + ca);
}

// Rewrites coordinator.yaml in `aside` where it would not do any more. `dir` is absolute; it is where the file will be.
absl::StatusOr<jobspec::CoordinatorConfig> AdaptConfig(const RestoreOptions& options, const std::string& aside,
                                                       const std::string& dir) {
  const std::string path = JoinPath(aside, kConfigName);
  ASSIGN_OR_RETURN(const std::string text, options.files->ReadFile(path, jobspec::YamlDocument::kMaxBytes));
  ASSIGN_OR_RETURN(jobspec::CoordinatorConfig config, jobspec::ParseCoordinatorYaml(text, JoinPath(dir, kConfigName)));
  const std::string default_data_root = JoinPath(dir, "data");
  const bool elsewhere = config.dir != dir;
  if (!elsewhere && !options.address.has_value()) return config;
  if (elsewhere && config.data_root == JoinPath(config.dir, "data")) config.data_root = default_data_root;
  if (options.address.has_value()) {
    if (config.listen.port == config.advertise.port) config.listen.port = options.address->port;
    config.advertise = *options.address;
  }
  // Left to their defaults, so that the folder may be moved.
  config.dir.clear();
  if (config.data_root == default_data_root) config.data_root.clear();
  RETURN_IF_ERROR(options.files->WriteFileAtomically(path, jobspec::FormatCoordinatorYaml(config)));
  config.dir = dir;
  if (config.data_root.empty()) config.data_root = default_data_root;
  return config;
}

}  // namespace

absl::StatusOr<RestoreResult> RestoreBackup(const RestoreOptions& options) {
  FileSystem* files = options.files;
  const std::string dir =
      std::filesystem::absolute(std::string(absl::StripSuffix(options.dir, "/"))).lexically_normal().string();
  if (files->Exists(dir)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(dir));
    if (!names.empty()) {
      return absl::AlreadyExistsError(
          absl::StrCat(dir, " is not empty (", names[0], "): a backup is restored into a new folder only"));
    }
  }
  ASSIGN_OR_RETURN(const std::string text, files->ReadFile(JoinPath(options.backup, kManifestName), kMaxManifestBytes),
                   absl::StrCat(options.backup, " is no backup"));
  ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text), options.backup);
  RETURN_IF_ERROR(CheckNothingForeign(options, manifest));

  const std::string aside = dir + ".restoring";
  RETURN_IF_ERROR(files->RemoveTree(aside));  // Of an attempt that was killed.
  absl::Cleanup remove_aside = [&] { files->RemoveTree(aside).IgnoreError(); };
  RETURN_IF_ERROR(files->MakeDirs(aside, 0755));
  RETURN_IF_ERROR(CopyVerified(options, manifest, aside));
  ASSIGN_OR_RETURN(const jobspec::CoordinatorConfig config, AdaptConfig(options, aside, dir));
  if (options.address.has_value()) RETURN_IF_ERROR(IssueCertificate(options, aside));
  RETURN_IF_ERROR(ForkJournal(JoinPath(aside, kJournalName)));

  RestoreResult result = {.config_path = JoinPath(dir, kConfigName),
                          .advertise = config.advertise.ToString(),
                          .listen = config.listen.ToString(),
                          .data_root = config.data_root,
                          .files = static_cast<int64_t>(manifest.files.size()),
                          .created = absl::FromUnixMillis(manifest.created_ms),
                          .manifest_sha256 = dataplane::ToHex(dataplane::Sha256Of(text))};
  for (const Manifest::File& file : manifest.files) result.bytes += file.bytes;
  RETURN_IF_ERROR(files->Rename(aside, dir));
  std::move(remove_aside).Cancel();
  return result;
}

}  // namespace causeway::backup
