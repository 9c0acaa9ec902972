#ifndef CAUSEWAY_WORKER_GRPC_COORDINATOR_CLIENT_H_
#define CAUSEWAY_WORKER_GRPC_COORDINATOR_CLIENT_H_

#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "proto/membership.pb.h"
#include "worker/coordinator_client.h"

namespace causeway::worker {

// CoordinatorClient over the gRPC service Membership. Channels are control ones.
class GrpcCoordinatorClient : public CoordinatorClient {
 public:
  // Calls made from now on, heartbeat streams included, go over `channel`; those under way end where they are. Thread-safe.
  virtual void UseChannel(std::shared_ptr<grpc::Channel> channel) = 0;
};

// `clock` is not owned and outlives it.
std::unique_ptr<GrpcCoordinatorClient> MakeGrpcCoordinatorClient(std::shared_ptr<grpc::Channel> channel, Clock* clock);

// The call that a worker without a certificate makes, to a coordinator that comes from `ca_pem`. Blocks until `deadline` (steady) at most.
// Errors: those of the coordinator (PermissionDenied: the token; AlreadyExists: the name; FailedPrecondition: versions), Unavailable,
// DeadlineExceeded.
absl::StatusOr<v1::JoinResponse> CallJoin(const std::string& address, const std::string& ca_pem,
                                          const v1::JoinRequest& request, Clock* clock, absl::Time deadline);

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_GRPC_COORDINATOR_CLIENT_H_
