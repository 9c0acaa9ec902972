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

absl::StatusOr<PeerIdentity> PeerOf(const grpc::AuthContext& context) {
  std::vector<grpc::string_ref> certificates = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (certificates.empty()) return PeerIdentity();
  absl::StatusOr<PeerIdentity> peer =
      ParseCertificate(absl::string_view(certificates[0].data(), certificates[0].size()));
  if (!peer.ok()) return absl::UnauthenticatedError(peer.status().message());
  return peer;
}

// gRPC has checked the certificate against the authority before it asks.
class GateVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit GateVerifier(ConnectionGate gate) : gate_(std::move(gate)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    const grpc::string_ref certificate = request->peer_cert();
    PeerIdentity peer;
    if (!certificate.empty()) {
      absl::StatusOr<PeerIdentity> named = ParseCertificate(absl::string_view(certificate.data(), certificate.size()));
      if (named.ok()) peer = *std::move(named);  // Else its calls are refused.
    }
    *sync_status = ToGrpc(gate_(peer));
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const ConnectionGate gate_;
};

class AuthorizingProcessor : public grpc::AuthMetadataProcessor {
 public:
  explicit AuthorizingProcessor(Authorizer authorizer) : authorizer_(std::move(authorizer)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    return ToGrpc(Authorize(metadata, *context));
  }

 private:
  absl::Status Authorize(const InputMetadata& metadata, const grpc::AuthContext& context) const {
    auto path = metadata.find(":path");
    if (path == metadata.end()) return absl::PermissionDeniedError("a call without a method");
    ASSIGN_OR_RETURN(PeerIdentity peer, IdentityOfCaller(context));
    return authorizer_(peer, absl::string_view(path->second.data(), path->second.size()));
  }

  // PeerOf, which parses, for certificates that were seen before: whoever calls, calls often.
  absl::StatusOr<PeerIdentity> IdentityOfCaller(const grpc::AuthContext& context) const {
    const std::vector<grpc::string_ref> certificates = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    if (certificates.empty()) return PeerIdentity();
    const std::string pem(certificates[0].data(), certificates[0].size());
    {
      MutexLock lock(&mu_);
      if (auto it = seen_.find(pem); it != seen_.end()) return it->second;
    }
    ASSIGN_OR_RETURN(PeerIdentity peer, PeerOf(context));
    MutexLock lock(&mu_);
    if (seen_.size() >= kMaxSeen) seen_.clear();
    seen_.emplace(pem, peer);
    return peer;
  }

  static constexpr size_t kMaxSeen = 4096;
  const Authorizer authorizer_;
  mutable Mutex mu_;
  mutable std::map<std::string, PeerIdentity> seen_ ABSL_GUARDED_BY(mu_);
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
  if (gate) {
    options.set_certificate_verifier(
        grpc::experimental::ExternalCertificateVerifier::Create<GateVerifier>(std::move(gate)));
  }
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<AuthorizingProcessor>(std::move(authorizer)));
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

absl::StatusOr<PeerIdentity> GetPeer(const grpc::ServerContextBase& context) { return PeerOf(*context.auth_context()); }

}  // namespace causeway::dataplane
