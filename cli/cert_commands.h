#ifndef CAUSEWAY_CLI_CERT_COMMANDS_H_
#define CAUSEWAY_CLI_CERT_COMMANDS_H_

#include <string>

#include "absl/status/status.h"
#include "cli/session.h"

// `causeway cert ...`. Errors of all: those of Session::Client and OperatorClient.
namespace causeway::cli {

// All certificates of the fleet that the coordinator knows of: whose, until when, serial, fingerprint.
absl::Status CertShow(Session& session);

// Has a certificate renewed now: `who` is "coordinator", "operator" (the one of this context, whose new key is made here), a worker's name,
// or empty for all of them. The coordinator and the workers do it themselves: this asks them.
// Errors: also those of the file system, Internal (an answer that does not fit).
absl::Status CertRenew(Session& session, const std::string& who);

// Makes this context's operator a new certificate with the authority's key, which is in the coordinator's data directory `dir`: the way back
// when it has expired. No coordinator is asked. Errors: NotFound (no context, no authority there), FailedPrecondition (not the authority of
// this context), those of the file system.
absl::Status CertRenewOperatorFrom(Session& session, const std::string& dir);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_CERT_COMMANDS_H_
