#ifndef CAUSEWAY_CLI_GRPC_CLIENT_H_
#define CAUSEWAY_CLI_GRPC_CLIENT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cli/context.h"
#include "cli/operator_client.h"

namespace causeway::cli {

// The operator's calls over gRPC, with the credentials of `context`: control and bulk on connections of their own. Connects lazily.
// Errors: those of dataplane::MakeClientCredentials; FailedPrecondition (the certificate has expired).
absl::StatusOr<std::unique_ptr<OperatorClient>> MakeGrpcOperatorClient(const Context& context);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_GRPC_CLIENT_H_
