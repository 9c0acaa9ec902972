#ifndef CAUSEWAY_DATAPLANE_GRPC_STATUS_H_
#define CAUSEWAY_DATAPLANE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace causeway::dataplane {

// The codes are the same numbers on both sides; details and payloads are dropped.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_GRPC_STATUS_H_
