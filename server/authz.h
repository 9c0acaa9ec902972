#ifndef CAUSEWAY_SERVER_AUTHZ_H_
#define CAUSEWAY_SERVER_AUTHZ_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dataplane/link.h"

namespace causeway::server {

// One row of the table of rights: which roles may call a method.
struct RpcRule {
  absl::string_view method;  // "/package.Service/Method"
  bool anonymous = false;
  bool worker = false;
  bool operator_ = false;
};

// The whole table; a method that is not in it may be called by nobody.
absl::Span<const RpcRule> RpcRules();

// Errors: Unauthenticated (no certificate, and the method is not open to that), PermissionDenied (the role may not call
// it, or nobody may; a certificate that has expired since the connection was made).
absl::Status Authorize(const dataplane::PeerIdentity& peer, absl::string_view method, absl::Time wall_now);

// A join token as the operator hands it on: "cw1.ID.SECRET". Only the hash of the secret is stored.
struct JoinToken {
  std::string id;      // 12 hex digits
  std::string secret;  // 43 characters, base64url of 32 random bytes
  std::string ToString() const;
};
JoinToken NewJoinToken();
// Errors: InvalidArgument (not of that form; the message never holds the token).
absl::StatusOr<JoinToken> ParseJoinToken(absl::string_view text);
// SHA-256 of the secret, 32 raw bytes.
std::string HashTokenSecret(absl::string_view secret);
// Compares without early exit.
bool SameHash(absl::string_view a, absl::string_view b);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_AUTHZ_H_
