#include "dataplane/credentials.h"

#include <map>
#include <utility>
#include <vector>

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "dataplane/grpc_status.h"
#include "dataplane/pki.h"

namespace causeway::dataplane {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::StaticDataCertificateProvider;

constexpr unsigned kRefreshSeconds = 2;
constexpr int64_t kMaxPemFileBytes = 1 << 20;

// gRPC only complains in its own log when a file is bad, and then refuses every connection.
absl::Status CheckFiles(const TlsFiles& files) {
  FileSystem* file_system = RealFileSystem();
  ASSIGN_OR_RETURN(std::string certificate, file_system->ReadFile(files.certificate, kMaxPemFileBytes));
  ASSIGN_OR_RETURN(std::string key, file_system->ReadFile(files.key, kMaxPemFileBytes));
  ASSIGN_OR_RETURN(std::string ca, file_system->ReadFile(files.ca, kMaxPemFileBytes));
  RETURN_IF_ERROR(CheckKeyMatches(certificate, key), absl::StrCat(files.certificate, " and ", files.key));
  return Annotate(CaPin(ca).status(), files.ca);
}

// ParseCertificate, for certificates that were seen before: who comes comes often, and parsing costs more than a call. Thread-safe.
class IdentityCache {
 public:
  absl::StatusOr<PeerIdentity> Parse(absl::string_view pem) {
    std::string key(pem);
    {
      MutexLock lock(&mu_);
      if (auto it = seen_.find(key); it != seen_.end()) return it->second;
    }
    ASSIGN_OR_RETURN(PeerIdentity peer, ParseCertificate(key));
    MutexLock lock(&mu_);
    if (seen_.size() >= kMaxSeen) seen_.clear();
    seen_.emplace(std::move(key), peer);
    return peer;
  }

 private:
  static constexpr size_t kMaxSeen = 4096;
  Mutex mu_;
  std::map<std::string, PeerIdentity> seen_ ABSL_GUARDED_BY(mu_);
};

// `identities`: may be null.
absl::StatusOr<PeerIdentity> PeerOf(const grpc::AuthContext& context, IdentityCache* identities) {
  const std::vector<grpc::string_ref> certificates = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (certificates.empty()) return PeerIdentity();
  const absl::string_view pem(certificates[0].data(), certificates[0].size());
  absl::StatusOr<PeerIdentity> peer = identities == nullptr ? ParseCertificate(pem) : identities->Parse(pem);
  if (!peer.ok()) return absl::UnauthenticatedError(peer.status().message());
  return peer;
}

// gRPC has checked the certificate against the authority before it asks.
class GateVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  GateVerifier(ConnectionGate gate, std::shared_ptr<IdentityCache> identities)
      : gate_(std::move(gate)), identities_(std::move(identities)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    const grpc::string_ref certificate = request->peer_cert();
    PeerIdentity peer;
    if (!certificate.empty()) {
      absl::StatusOr<PeerIdentity> named =
          identities_->Parse(absl::string_view(certificate.data(), certificate.size()));
      if (named.ok()) peer = *std::move(named);  // Else its calls are refused.
    }
    *sync_status = ToGrpc(gate_(peer));
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const ConnectionGate gate_;
  const std::shared_ptr<IdentityCache> identities_;
};

class AuthorizingProcessor : public grpc::AuthMetadataProcessor {
 public:
  AuthorizingProcessor(Authorizer authorizer, std::shared_ptr<IdentityCache> identities)
      : authorizer_(std::move(authorizer)), identities_(std::move(identities)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    return ToGrpc(Authorize(metadata, *context));
  }

 private:
  absl::Status Authorize(const InputMetadata& metadata, const grpc::AuthContext& context) const {
    auto path = metadata.find(":path");
    if (path == metadata.end()) return absl::PermissionDeniedError("a call without a method");
    ASSIGN_OR_RETURN(PeerIdentity peer, PeerOf(context, identities_.get()));
    return authorizer_(peer, absl::string_view(path->second.data(), path->second.size()));
  }

  const Authorizer authorizer_;
  const std::shared_ptr<IdentityCache> identities_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files,
                                                                               Authorizer authorizer,
                                                                               ConnectionGate gate) {
  RETURN_IF_ERROR(CheckFiles(files));
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(files.key, files.certificate, files.ca, kRefreshSeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  const auto identities = std::make_shared<IdentityCache>();
  if (gate) {
    options.set_certificate_verifier(
        grpc::experimental::ExternalCertificateVerifier::Create<GateVerifier>(std::move(gate), identities));
  }
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<AuthorizingProcessor>(std::move(authorizer), identities));
  return credentials;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeClientCredentials(const TlsFiles& files) {
  RETURN_IF_ERROR(CheckFiles(files));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<FileWatcherCertificateProvider>(files.key, files.certificate, files.ca, kRefreshSeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeAnonymousCredentials(const std::string& ca_pem) {
  RETURN_IF_ERROR(CaPin(ca_pem).status());
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<StaticDataCertificateProvider>(ca_pem));
  options.watch_root_certs();
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<PeerIdentity> GetPeer(const grpc::ServerContextBase& context) {
  return PeerOf(*context.auth_context(), nullptr);
}

}  // namespace causeway::dataplane
