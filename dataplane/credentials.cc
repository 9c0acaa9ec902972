#include "dataplane/credentials.h"

#include <vector>

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "absl/strings/str_cat.h"
#include "base/file.h"
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
    ASSIGN_OR_RETURN(PeerIdentity peer, PeerOf(context));
    return authorizer_(peer, absl::string_view(path->second.data(), path->second.size()));
  }

  const Authorizer authorizer_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files,
                                                                               Authorizer authorizer) {
  RETURN_IF_ERROR(CheckFiles(files));
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(files.key, files.certificate, files.ca, kRefreshSeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
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
