#ifndef CAUSEWAY_SERVER_CONTROL_SERVICE_H_
#define CAUSEWAY_SERVER_CONTROL_SERVICE_H_

#include <memory>

#include <grpcpp/server_builder.h>

#include "base/clock.h"
#include "base/executor.h"
#include "server/coordinator.h"

namespace causeway::server {

// The services Membership and Operator: decode, call the coordinator on its executor, encode. Rights have been checked before (the
// credentials' authorizer).
//
// Call order: Create Register [the server runs] CloseStreams [shut down] destructor. Thread-safe.
class ControlService {
 public:
  // None is owned; all outlive this.
  static std::unique_ptr<ControlService> Create(Coordinator* coordinator, Executor* executor, Clock* clock);
  virtual ~ControlService() = default;
  virtual void Register(grpc::ServerBuilder* builder) = 0;
  // Ends all open streams (heartbeats, watches), so that a shutdown need not wait for them.
  virtual void CloseStreams() = 0;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_CONTROL_SERVICE_H_
