#ifndef CAUSEWAY_DATAPLANE_GRPC_LINK_H_
#define CAUSEWAY_DATAPLANE_GRPC_LINK_H_

#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dataplane/link.h"

namespace causeway::dataplane {

// Links over the gRPC services Data and Parameters. Deadlines are those of RealClock(); a thread of the dialer's watches them.
// `channel` is a bulk one. Links must be gone before the dialer. Thread-safe.
std::unique_ptr<LinkDialer> MakeGrpcLinkDialer(std::shared_ptr<grpc::Channel> channel);

// The listening side: the services Data and Parameters, each stream handed to a LinkHandler on a thread of gRPC's pool.
// Call order: Create Register [the server runs and is shut down] destructor. CancelAll breaks all streams, so that a server's Shutdown
// need not wait for them.
class GrpcBulkServices {
 public:
  // `handler` is not owned and outlives this.
  static std::unique_ptr<GrpcBulkServices> Create(LinkHandler* handler);
  virtual ~GrpcBulkServices() = default;
  virtual void Register(grpc::ServerBuilder* builder) = 0;
  virtual void CancelAll(absl::string_view reason) = 0;
  // Breaks the streams of one worker; later ones are the authorizer's to refuse.
  virtual void CancelWorker(const std::string& worker, absl::string_view reason) = 0;
};

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_GRPC_LINK_H_
