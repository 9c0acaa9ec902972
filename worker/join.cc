#include "worker/join.h"

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"

namespace causeway::worker {

std::string CaPath(const std::string& dir) { return JoinPath(dir, "tls/ca.pem"); }
std::string CertificatePath(const std::string& dir) { return JoinPath(dir, "tls/worker.pem"); }
std::string KeyPath(const std::string& dir) { return JoinPath(dir, "tls/worker.key"); }
std::string ConfigPath(const std::string& dir) { return JoinPath(dir, "worker.yaml"); }

namespace {

constexpr int64_t kMaxKeyBytes = 64 << 10;

// The key that an earlier try has left here, else a new one. The coordinator knows a repetition by its key, so it lies
// here before the coordinator is asked.
absl::StatusOr<std::string> KeepKey(FileSystem* fs, const std::string& dir) {
  const std::string path = KeyPath(dir);
  if (fs->Exists(path)) return fs->ReadFile(path, kMaxKeyBytes);
  RETURN_IF_ERROR(fs->MakeDirs(dir));
  RETURN_IF_ERROR(fs->MakeDirs(JoinPath(dir, "tls"), 0700));
  ASSIGN_OR_RETURN(std::string key_pem, dataplane::GenerateKeyPem());
  RETURN_IF_ERROR(fs->WriteFileAtomically(path, key_pem, 0600));
  return key_pem;
}

}  // namespace

absl::StatusOr<Joined> Join(const JoinOptions& options) {
  FileSystem* const fs = options.fs;
  const std::string config_path = ConfigPath(options.dir);
  if (fs->Exists(config_path)) {
    return absl::AlreadyExistsError(
        absl::StrCat(config_path, " is there: this folder belongs to a worker that has joined. Start it with ",
                     "`causeway-worker --config ", config_path, "`, or choose another --dir"));
  }
  if (!options.name.empty()) RETURN_IF_ERROR(ValidateName("worker name", options.name));
  if (options.token.empty()) return absl::InvalidArgumentError("the token is empty");

  const absl::Time deadline = options.clock->Now() + options.timeout;
  const std::string address = options.config.coordinator.ToString();
  ASSIGN_OR_RETURN(const std::vector<std::string> chain,
                   options.fetch_chain(options.config.coordinator.host, options.config.coordinator.port, deadline),
                   absl::StrCat("ask ", address, " for its certificate"));
  ASSIGN_OR_RETURN(const std::string ca_pem,
                   dataplane::VerifyChainAgainstPin(chain, options.ca_pin, options.clock->WallNow()),
                   absl::StrCat("check ", address, " against --ca-pin (the token was not sent)"));

  ASSIGN_OR_RETURN(const std::string key_pem, KeepKey(fs, options.dir));
  v1::JoinRequest request;
  *request.mutable_version() = dataplane::OurVersion();
  request.set_token(options.token);
  request.set_worker_name(options.name);
  ASSIGN_OR_RETURN(*request.mutable_csr_pem(), dataplane::CreateCsr(key_pem), KeyPath(options.dir));
  ASSIGN_OR_RETURN(const v1::JoinResponse response, options.call_join(address, ca_pem, request, deadline),
                   absl::StrCat("join ", address));

  RETURN_IF_ERROR(dataplane::CheckKeyMatches(response.certificate_pem(), key_pem), "the coordinator's answer");
  ASSIGN_OR_RETURN(const dataplane::PeerIdentity identity, dataplane::ParseCertificate(response.certificate_pem()),
                   "the coordinator's answer");
  if (identity.role != dataplane::PeerIdentity::Role::kWorker || identity.name != response.worker() ||
      identity.site != response.site()) {
    return absl::InvalidArgumentError(absl::StrCat("the coordinator's answer names worker ", response.worker(),
                                                   " of site ", response.site(), ", its certificate ",
                                                   dataplane::IdentityUri(identity)));
  }

  RETURN_IF_ERROR(fs->WriteFileAtomically(CertificatePath(options.dir), response.certificate_pem()));
  RETURN_IF_ERROR(fs->WriteFileAtomically(CaPath(options.dir), ca_pem));
  jobspec::WorkerConfig config = options.config;
  config.dir.clear();
  RETURN_IF_ERROR(fs->WriteFileAtomically(config_path, jobspec::FormatWorkerYaml(config)));
  return Joined{identity.site, identity.name, config_path};
}

}  // namespace causeway::worker
