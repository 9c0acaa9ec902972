// What grpc_link does beyond the contract of links, which tests/contract checks.

#include "dataplane/grpc_link.h"

#include <memory>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completion.h"
#include "base/status_macros.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_channel.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::dataplane {
namespace {

// Must come before gRPC's first use, as in a main.
const bool kConfigured = (ConfigureGrpcProcess(), true);

absl::Time Later() { return RealClock()->Now() + absl::Seconds(30); }

class GrpcLinkTest : public ::testing::Test, public LinkHandler {
 protected:
  GrpcLinkTest() {
    grpc::ServerBuilder builder;
    ApplyServerArgs(&builder);
    builder.AddListeningPort("127.0.0.1:0",
                             *MakeServerCredentials(Tls(pki_.Coordinator()),
                                                    [](const PeerIdentity& peer, absl::string_view) {
                                                      if (peer.name == "a1") return absl::OkStatus();
                                                      return absl::PermissionDeniedError("removed");
                                                    }),
                             &port_);
    services_->Register(&builder);
    server_ = builder.BuildAndStart();
  }
  ~GrpcLinkTest() override {
    services_->CancelAll("over");
    server_->Shutdown();
  }

  // Waits for a second frame that never comes.
  absl::Status Serve(LinkKind, const PeerIdentity&, Link* link) override {
    RETURN_IF_ERROR(link->Read(Later()).status());
    serving_.Set(1);
    absl::Status status = link->Read(Later()).status();
    ended_.Set(absl::StatusCodeToString(status.code()));
    return status;
  }

  static TlsFiles Tls(const TestPki::Files& files) {
    return {.certificate = files.certificate, .key = files.key, .ca = files.ca};
  }
  std::unique_ptr<LinkDialer> Dialer(const std::string& worker) {
    return MakeGrpcLinkDialer(MakeChannel(ChannelKind::kBulk, absl::StrCat("127.0.0.1:", port_),
                                          *MakeClientCredentials(Tls(pki_.Worker("lab", worker)))));
  }
  static v1::Frame Data() {
    v1::Frame frame;
    frame.mutable_data();
    return frame;
  }

  TempDir dir_;
  TestPki pki_{dir_.path()};
  int port_ = 0;
  std::unique_ptr<GrpcBulkServices> services_ = GrpcBulkServices::Create(this);
  std::unique_ptr<grpc::Server> server_;
  Completion<int> serving_;
  Completion<std::string> ended_;
};

TEST_F(GrpcLinkTest, CancelAllEndsStreamsAndRefusesNewOnes) {
  std::unique_ptr<LinkDialer> dialer = Dialer("a1");
  std::unique_ptr<Link> link = *dialer->Dial(LinkKind::kPush, Later());
  ASSERT_THAT(link->Write(Data(), {}, Later()), IsOk());
  ASSERT_THAT(serving_.Await(RealClock(), Later(), "the handler"), IsOk());
  services_->CancelAll("stopping");
  EXPECT_THAT(ended_.Await(RealClock(), Later(), "the handler"), IsOkAndHolds("CANCELLED"));
  EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kUnavailable));
  std::unique_ptr<Link> late = *dialer->Dial(LinkKind::kPush, Later());
  late->Write(Data(), {}, Later()).IgnoreError();
  EXPECT_THAT(late->Read(Later()), StatusIs(absl::StatusCode::kUnavailable, "stopping"));
}

TEST_F(GrpcLinkTest, RefusalReachesTheFirstRead) {
  std::unique_ptr<LinkDialer> dialer = Dialer("b2");
  std::unique_ptr<Link> link = *dialer->Dial(LinkKind::kPush, Later());
  link->Write(Data(), {}, Later()).IgnoreError();
  EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kPermissionDenied, "removed"));
  EXPECT_FALSE(serving_.IsSet());
}

}  // namespace
}  // namespace causeway::dataplane
