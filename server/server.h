#ifndef CAUSEWAY_SERVER_SERVER_H_
#define CAUSEWAY_SERVER_SERVER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "jobspec/config.h"

namespace causeway::server {

// The whole coordinator: made in order, listeners last, stopped in the opposite order.
//
// Call order: Start Stop. Stop is idempotent, takes at most a few seconds and is called by the destructor.
class Server {
 public:
  // Errors: FailedPrecondition (another coordinator holds the data directory), Unavailable (a port is in use; the message names it),
  // NotFound, PermissionDenied, InvalidArgument (keys and certificates), and those of Coordinator::Create.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const jobspec::CoordinatorConfig& config);
  virtual ~Server() = default;
  virtual int port() const = 0;
  virtual int http_port() const = 0;
  virtual void Stop() = 0;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_SERVER_H_
