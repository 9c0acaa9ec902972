#include "server/grpc_call_watch.h"

#include <utility>

#include "dataplane/credentials.h"
#include "dataplane/grpc_status.h"

namespace causeway::server {
namespace {

using OnError = std::function<void(const dataplane::PeerIdentity&, absl::string_view, const absl::Status&)>;

class CallWatch : public grpc::experimental::Interceptor {
 public:
  CallWatch(grpc::experimental::ServerRpcInfo* info, const OnError& on_error) : info_(info), on_error_(on_error) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      const absl::Status status = dataplane::FromGrpc(methods->GetSendStatus());
      if (!status.ok()) {
        on_error_(dataplane::GetPeer(*info_->server_context()).value_or(dataplane::PeerIdentity()), info_->method(),
                  status);
      }
    }
    methods->Proceed();
  }

 private:
  grpc::experimental::ServerRpcInfo* const info_;  // Not owned; outlives this.
  const OnError& on_error_;
};

class CallWatchFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallWatchFactory(OnError on_error) : on_error_(std::move(on_error)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new CallWatch(info, on_error_);
  }

 private:
  const OnError on_error_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallWatch(OnError on_error) {
  return std::make_unique<CallWatchFactory>(std::move(on_error));
}

}  // namespace causeway::server
