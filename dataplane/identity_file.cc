#include "dataplane/identity_file.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "dataplane/pki.h"

namespace causeway::dataplane {
namespace {

constexpr int64_t kMaxPemFileBytes = 1 << 20;

}  // namespace

bool HoldsKey(absl::string_view pem) { return absl::StrContains(pem, "PRIVATE KEY-----"); }

absl::Status WriteIdentityFile(FileSystem* fs, const std::string& path, absl::string_view certificates_pem,
                               absl::string_view key_pem) {
  RETURN_IF_ERROR(CheckKeyMatches(certificates_pem, key_pem), path);
  return fs->WriteFileAtomically(path, absl::StrCat(certificates_pem, key_pem), 0600);
}

absl::Status MergeIdentityFile(FileSystem* fs, const std::string& certificate_path, const std::string& key_path) {
  if (!fs->Exists(key_path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string certificates, fs->ReadFile(certificate_path, kMaxPemFileBytes));
  if (!HoldsKey(certificates)) {
    ASSIGN_OR_RETURN(const std::string key, fs->ReadFile(key_path, kMaxPemFileBytes));
    RETURN_IF_ERROR(WriteIdentityFile(fs, certificate_path, certificates, key));
  }
  return fs->Remove(key_path);
}

}  // namespace causeway::dataplane
