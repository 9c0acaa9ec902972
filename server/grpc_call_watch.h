#ifndef CAUSEWAY_SERVER_GRPC_CALL_WATCH_H_
#define CAUSEWAY_SERVER_GRPC_CALL_WATCH_H_

#include <functional>
#include <memory>

#include <grpcpp/support/server_interceptor.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dataplane/link.h"

namespace causeway::server {

// Tells `on_error` of every call that was let in and ends with an error, those whose request could not be decoded included. Called on
// gRPC's threads, several at once; must not block.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallWatch(
    std::function<void(const dataplane::PeerIdentity& peer, absl::string_view method, const absl::Status& status)>
        on_error);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_GRPC_CALL_WATCH_H_
