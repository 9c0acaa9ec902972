#ifndef CAUSEWAY_DATAPLANE_CREDENTIALS_H_
#define CAUSEWAY_DATAPLANE_CREDENTIALS_H_

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dataplane/link.h"

namespace causeway::dataplane {

// PEM files. They are watched: a replaced file is used by new connections within a few seconds.
struct TlsFiles {
  std::string certificate;  // A server's holds leaf and CA, a client's the leaf.
  std::string key;          // May be the same file (identity_file.h): both are then replaced at once.
  std::string ca;           // Whom the other end must come from.
};

// Decides on every call that arrives, those to unknown methods too, before anything else is done with it. `method` is the path,
// "/causeway.v1.Data/Fetch". Called on gRPC's threads, several at once; must not block. Its error is the call's status.
using Authorizer = std::function<absl::Status(const PeerIdentity& peer, absl::string_view method)>;

// Decides on every connection, after its handshake. As above; its error ends the connection.
using ConnectionGate = std::function<absl::Status(const PeerIdentity& peer)>;

// TLS 1.3 (see ConfigureGrpcProcess). A client may come without a certificate, it is then kAnonymous; one that presents a certificate that
// does not verify gets no connection. Errors: InvalidArgument (files that do not parse or do not fit together), NotFound, PermissionDenied.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files,
                                                                               Authorizer authorizer,
                                                                               ConnectionGate gate = nullptr);

// A client with a certificate. The server must come from files.ca and be called kCoordinatorDnsName (the channel must say so: MakeChannel
// does). Errors as above.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeClientCredentials(const TlsFiles& files);

// A client without a certificate, for Join. The server must come from `ca_pem`. Errors: InvalidArgument.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeAnonymousCredentials(const std::string& ca_pem);

// Who calls. Errors: Unauthenticated (a certificate without a valid identity).
absl::StatusOr<PeerIdentity> GetPeer(const grpc::ServerContextBase& context);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_CREDENTIALS_H_
