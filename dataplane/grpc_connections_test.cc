#include "dataplane/grpc_connections.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
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
      : Client(*MakeClientCredentials({files.certificate, files.key, files.ca}), address) {}
  Client(const std::shared_ptr<grpc::ChannelCredentials>& credentials, const std::string& address)
      : channel_(MakeChannel(ChannelKind::kControl, address, credentials)) {
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

// A bare TCP connection that says nothing.
class Silent {
 public:
  explicit Silent(int port, bool v6) : fd_(socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in6 six = {};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    sockaddr_in four = {};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    four.sin_port = six.sin6_port;
    EXPECT_EQ(v6 ? connect(fd_, reinterpret_cast<sockaddr*>(&six), sizeof(six))
                 : connect(fd_, reinterpret_cast<sockaddr*>(&four), sizeof(four)),
              0);
  }
  ~Silent() { close(fd_); }
  bool Say(size_t bytes) {
    const std::string text(bytes, 'x');
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
  }
  // Whether the server's end is still there: nothing to read, and not the end.
  bool Open() {
    char byte;
    return recv(fd_, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

 private:
  const int fd_;
};

TEST_P(GrpcConnectionsTest, StrangersMayNotStay) {
  const bool v6 = GetParam() == std::string("[::1]");
  Client worker(pki_.Worker("lab", "a1"), address());
  ASSERT_TRUE(worker.Beat());
  StrangerWatch watch({.port = port_, .most_time = absl::Seconds(30), .most_bytes = 1000, .most_connections = 3});
  absl::Time now = RealClock()->Now();
  // What the server has not accepted yet is not there.
  const auto sweep_until = [&](int broken) {
    int sum = 0;
    for (const absl::Time end = RealClock()->Now() + absl::Seconds(10); sum < broken && RealClock()->Now() < end;) {
      sum += watch.Sweep(now);
      RealClock()->SleepFor(absl::Milliseconds(5));
    }
    return sum;
  };
  auto first = std::make_unique<Silent>(port_, v6);
  RealClock()->SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(watch.Sweep(now), 0);
  now += absl::Seconds(29);
  EXPECT_EQ(watch.Sweep(now), 0);
  EXPECT_TRUE(first->Open());
  // Too many: the oldest goes.
  Silent second(port_, v6), third(port_, v6), fourth(port_, v6);
  EXPECT_EQ(sweep_until(1), 1);
  EXPECT_FALSE(first->Open());
  EXPECT_TRUE(second.Open() && third.Open() && fourth.Open());
  first = nullptr;
  RealClock()->SleepFor(absl::Milliseconds(100));
  // Too long.
  EXPECT_EQ(watch.Sweep(now), 0);
  now += absl::Seconds(30);
  EXPECT_EQ(sweep_until(3), 3);
  EXPECT_FALSE(second.Open() || third.Open() || fourth.Open());
  // Whoever has a certificate stays, however long and whatever it says.
  now += absl::Hours(1);
  EXPECT_EQ(watch.Sweep(now), 0);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(worker.Beat());
}

TEST_P(GrpcConnectionsTest, StrangersMayNotSayMuch) {
  auto credentials = MakeAnonymousCredentials(pki_.ca_pem());
  ASSERT_OK(credentials);
  Client stranger(*credentials, address());
  StrangerWatch watch({.port = port_, .most_bytes = 30'000});
  const absl::Time now = RealClock()->Now();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(stranger.Beat());
  EXPECT_EQ(watch.Sweep(now), 0);
  for (int i = 0; i < 2000; ++i) {
    if (!stranger.Beat()) break;
  }
  EXPECT_EQ(watch.Sweep(now), 1);
  EXPECT_FALSE(stranger.Beat());
}

INSTANTIATE_TEST_SUITE_P(Addresses, GrpcConnectionsTest, Values("127.0.0.1", "[::]", "[::1]"));

}  // namespace
}  // namespace causeway::dataplane
