#include "dataplane/grpc_channel.h"

#include <stdlib.h>

#include <memory>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_status.h"
#include "proto/membership.grpc.pb.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::dataplane {
namespace {

// Must come before gRPC's first use, as in a main.
const bool kConfigured = (ConfigureGrpcProcess(), true);

// Notes which connections calls come over.
class CountingService : public v1::Membership::Service {
 public:
  grpc::Status Leave(grpc::ServerContext* context, const v1::LeaveRequest*, v1::LeaveResponse*) override {
    MutexLock lock(&mu_);
    connections_.insert(context->peer());
    return grpc::Status::OK;
  }
  size_t connections() {
    MutexLock lock(&mu_);
    return connections_.size();
  }

 private:
  Mutex mu_;
  std::set<std::string> connections_ ABSL_GUARDED_BY(mu_);
};

class GrpcChannelTest : public ::testing::Test {
 protected:
  GrpcChannelTest() {
    grpc::ServerBuilder builder;
    ApplyServerArgs(&builder);
    builder.AddListeningPort(
        "127.0.0.1:0",
        *MakeServerCredentials(Tls(pki_.Coordinator()),
                               [](const PeerIdentity&, absl::string_view) { return absl::OkStatus(); }),
        &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcChannelTest() override { server_->Shutdown(); }

  static TlsFiles Tls(const TestPki::Files& files) {
    return {.certificate = files.certificate, .key = files.key, .ca = files.ca};
  }

  std::shared_ptr<grpc::Channel> Channel(ChannelKind kind) {
    return MakeChannel(kind, absl::StrCat("localhost:", port_), credentials_);
  }
  static absl::Status Call(const std::shared_ptr<grpc::Channel>& channel, size_t request_bytes = 0) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1::LeaveRequest request;
    request.set_reason(std::string(request_bytes, 'x'));
    v1::LeaveResponse response;
    return FromGrpc(v1::Membership::NewStub(channel)->Leave(&context, request, &response));
  }

  TempDir dir_;
  TestPki pki_{dir_.path()};
  CountingService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_ = *MakeClientCredentials(Tls(pki_.Worker("lab", "a1")));
};

TEST_F(GrpcChannelTest, EveryChannelHasAConnectionOfItsOwn) {
  std::shared_ptr<grpc::Channel> control = Channel(ChannelKind::kControl);
  std::shared_ptr<grpc::Channel> second = Channel(ChannelKind::kControl);
  std::shared_ptr<grpc::Channel> bulk = Channel(ChannelKind::kBulk);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Call(control), IsOk());
    EXPECT_THAT(Call(second), IsOk());
    EXPECT_THAT(Call(bulk), IsOk());
  }
  EXPECT_EQ(service_.connections(), 3);
}

TEST_F(GrpcChannelTest, ProxyOfTheEnvironmentIsIgnored) {
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  setenv("https_proxy", "http://127.0.0.1:1", 1);
  EXPECT_THAT(Call(Channel(ChannelKind::kControl)), IsOk());
  unsetenv("http_proxy");
  unsetenv("https_proxy");
}

TEST_F(GrpcChannelTest, MessagesAreBounded) {
  std::shared_ptr<grpc::Channel> bulk = Channel(ChannelKind::kBulk);
  EXPECT_THAT(Call(bulk, kMaxMessageBytes - 100), IsOk());
  EXPECT_THAT(Call(bulk, kMaxMessageBytes), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(GrpcChannelTest, NobodyThereIsUnavailable) {
  EXPECT_THAT(Call(MakeChannel(ChannelKind::kControl, "127.0.0.1:1", credentials_)),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace causeway::dataplane
