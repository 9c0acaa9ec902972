#include "dataplane/grpc_connections.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_channel.h"
#include "proto/membership.grpc.pb.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::dataplane {
namespace {

using ::testing::Values;

const bool kConfigured = (ConfigureGrpcProcess(), true);

// Reads a stream until it ends.
class Listener : public v1::Membership::Service {
 public:
  grpc::Status Heartbeat(grpc::ServerContext*,
                         grpc::ServerReaderWriter<v1::HeartbeatResponse, v1::HeartbeatRequest>* stream) override {
    v1::HeartbeatRequest beat;
    while (stream->Read(&beat)) stream->Write(v1::HeartbeatResponse());
    return grpc::Status::OK;
  }
};

class Client {
 public:
  Client(const TestPki::Files& files, const std::string& address)
      : channel_(MakeChannel(ChannelKind::kControl, address,
                             *MakeClientCredentials({files.certificate, files.key, files.ca}))) {
    context_.set_deadline(absl::ToChronoTime(RealClock()->WallNow() + absl::Seconds(30)));
    stream_ = v1::Membership::NewStub(channel_)->Heartbeat(&context_);
  }
  ~Client() {
    context_.TryCancel();
    stream_->Finish().IgnoreError();
  }
  bool Beat() {
    v1::HeartbeatResponse answer;
    return stream_->Write({}) && stream_->Read(&answer);
  }

 private:
  grpc::ClientContext context_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::HeartbeatRequest, v1::HeartbeatResponse>> stream_;
};

// Of the address that the server listens at: both kinds, and one for both.
class GrpcConnectionsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const TestPki::Files files = pki_.Coordinator();
    auto credentials = MakeServerCredentials({files.certificate, files.key, files.ca},
                                             [](const PeerIdentity&, absl::string_view) { return absl::OkStatus(); });
    ASSERT_OK(credentials);
    grpc::ServerBuilder builder;
    ApplyServerArgs(&builder);
    builder.AddListeningPort(absl::StrCat(GetParam(), ":0"), *credentials, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) GTEST_SKIP() << "no " << GetParam() << " on this machine";
  }
  ~GrpcConnectionsTest() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }
  std::string address() const {
    return absl::StrCat(GetParam() == std::string("[::1]") ? "[::1]:" : "127.0.0.1:", port_);
  }

  TempDir dir_;
  TestPki pki_{dir_.path()};
  Listener service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_P(GrpcConnectionsTest, BreaksThoseOfOnePeerAlone) {
  const TestPki::Files a1 = pki_.Worker("lab", "a1");
  Client first(a1, address()), second(a1, address()), other(pki_.Worker("lab", "a2"), address());
  ASSERT_TRUE(first.Beat() && second.Beat() && other.Beat());
  EXPECT_EQ(BreakConnections([](const PeerIdentity& peer) { return peer.name == "a3"; }), 0);
  ASSERT_TRUE(first.Beat() && second.Beat() && other.Beat());
  EXPECT_EQ(BreakConnections([](const PeerIdentity& peer) {
              return peer.role == PeerIdentity::Role::kWorker && peer.name == "a1" && peer.site == "lab";
            }),
            2);
  EXPECT_FALSE(first.Beat());
  EXPECT_FALSE(second.Beat());
  EXPECT_TRUE(other.Beat());
  // It may come again.
  Client again(a1, address());
  EXPECT_TRUE(again.Beat());
}

INSTANTIATE_TEST_SUITE_P(Addresses, GrpcConnectionsTest, Values("127.0.0.1", "[::]", "[::1]"));

}  // namespace
}  // namespace causeway::dataplane
