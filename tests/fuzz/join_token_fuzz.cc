// What people and command lines hand over as text: join tokens, addresses, identities.
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "dataplane/pki.h"
#include "jobspec/config.h"
#include "server/authz.h"
#include "tests/fuzz/fuzz_require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;  // NOLINT
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<server::JoinToken> token = server::ParseJoinToken(text);
  if (token.ok()) {
    Require(token->ToString() == text);
  } else {
    Require(absl::IsInvalidArgument(token.status()));
    // A token is shown to nobody: what is said does not depend on it.
    Require(token.status() == server::ParseJoinToken("x").status());
  }
  const absl::StatusOr<dataplane::PeerIdentity> identity = dataplane::ParseIdentityUri(text);
  if (identity.ok()) Require(dataplane::IdentityUri(*identity) == text);
  const absl::StatusOr<jobspec::HostPort> address = jobspec::ParseHostPort(text, /*allow_port_zero=*/true);
  if (address.ok()) {
    const absl::StatusOr<jobspec::HostPort> again = jobspec::ParseHostPort(address->ToString(), true);
    Require(again.ok() && *again == *address);
  }
  return 0;
}
