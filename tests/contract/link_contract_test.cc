// One suite over every implementation of dataplane/link.h.

#include "dataplane/link.h"

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completion.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_link.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::dataplane {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Must come before gRPC's first use, as in a main.
const bool kConfigured = (ConfigureGrpcProcess(), true);

absl::Time Soon() { return RealClock()->Now() + absl::Milliseconds(100); }
absl::Time Later() { return RealClock()->Now() + absl::Seconds(30); }

// Serves with what the test at hand sets.
class TestHandler : public LinkHandler {
 public:
  using Body = std::function<absl::Status(LinkKind kind, const PeerIdentity& peer, Link* link)>;
  Body body;  // Set before anybody dials.

  absl::Status Serve(LinkKind kind, const PeerIdentity& peer, Link* link) override { return body(kind, peer, link); }
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual LinkDialer* dialer() = 0;
  virtual void GoAway() = 0;  // From then on nobody is there.
};

class FakeTransport : public Transport {
 public:
  explicit FakeTransport(LinkHandler* handler)
      : dialer_(handler, RealClock(), {.role = PeerIdentity::Role::kWorker, .name = "a1", .site = "lab"}) {}
  LinkDialer* dialer() override { return &dialer_; }
  void GoAway() override { dialer_.FailDials(1000); }

 private:
  FakeLinkDialer dialer_;
};

// On the loopback interface, with certificates at both ends.
class GrpcTransport : public Transport {
 public:
  explicit GrpcTransport(LinkHandler* handler) : services_(GrpcBulkServices::Create(handler)) {
    auto tls = [](const TestPki::Files& files) {
      return TlsFiles{.certificate = files.certificate, .key = files.key, .ca = files.ca};
    };
    int port = 0;
    grpc::ServerBuilder builder;
    ApplyServerArgs(&builder);
    builder.AddListeningPort(
        "127.0.0.1:0",
        *MakeServerCredentials(tls(pki_.Coordinator()),
                               [](const PeerIdentity&, absl::string_view) { return absl::OkStatus(); }),
        &port);
    services_->Register(&builder);
    server_ = builder.BuildAndStart();
    dialer_ = MakeGrpcLinkDialer(MakeChannel(ChannelKind::kBulk, absl::StrCat("127.0.0.1:", port),
                                             *MakeClientCredentials(tls(pki_.Worker("lab", "a1")))));
  }
  ~GrpcTransport() override { GoAway(); }
  LinkDialer* dialer() override { return dialer_.get(); }
  void GoAway() override {
    services_->CancelAll("the server stops");
    server_->Shutdown();
  }

 private:
  TempDir dir_;
  TestPki pki_{dir_.path()};
  std::unique_ptr<GrpcBulkServices> services_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<LinkDialer> dialer_;
};

struct Implementation {
  std::string name;
  std::function<std::unique_ptr<Transport>(LinkHandler*)> make;
};

// Else GoogleTest prints the bytes, addresses among them, into the test's name.
void PrintTo(const Implementation& implementation, std::ostream* os) { *os << implementation.name; }

class LinkContract : public ::testing::TestWithParam<Implementation> {
 protected:
  // Serves with `body` and dials one link.
  std::unique_ptr<Link> Dial(TestHandler::Body body, LinkKind kind = LinkKind::kPush) {
    handler_.body = std::move(body);
    transport_ = GetParam().make(&handler_);
    return DialAgain(kind);
  }
  std::unique_ptr<Link> DialAgain(LinkKind kind) {
    absl::StatusOr<std::unique_ptr<Link>> link = transport_->dialer()->Dial(kind, Later());
    EXPECT_THAT(link, IsOk());
    return *std::move(link);
  }

  TestHandler handler_;
  std::unique_ptr<Transport> transport_;
};

v1::Frame DataAt(int64_t offset) {
  v1::Frame frame;
  frame.mutable_data()->set_offset(offset);
  return frame;
}

// Sends back every frame until the dialing side closes.
absl::Status Echo(LinkKind, const PeerIdentity&, Link* link) {
  while (true) {
    absl::StatusOr<v1::Frame> frame = link->Read(Later());
    if (absl::IsOutOfRange(frame.status())) return absl::OkStatus();
    if (!frame.ok()) return frame.status();
    const std::string payload = std::move(*frame->mutable_payload());
    frame->clear_payload();
    absl::Status status = link->Write(
        *frame, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(payload.data()), payload.size()), Later());
    if (!status.ok()) return status;
  }
}

TEST_P(LinkContract, FramesArriveInOrderAndWhole) {
  std::unique_ptr<Link> link = Dial(Echo);
  for (int i = 0; i < 5; ++i) {
    const std::vector<uint8_t> payload(1000 * i, static_cast<uint8_t>(i));
    ASSERT_THAT(link->Write(DataAt(i), payload, Later()), IsOk());
  }
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<v1::Frame> frame = link->Read(Later());
    ASSERT_THAT(frame, IsOk());
    EXPECT_EQ(frame->data().offset(), i);
    EXPECT_EQ(frame->payload(), std::string(1000 * i, static_cast<char>(i)));
  }
  EXPECT_THAT(link->CloseWrite(), IsOk());
  EXPECT_THAT(link->CloseWrite(), IsOk());  // Idempotent: gRPC itself would abort.
  EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(link->Finish(Later()), IsOk());
  EXPECT_THAT(link->Finish(Later()), IsOk());
}

TEST_P(LinkContract, HandlerHearsKindAndPeer) {
  std::unique_ptr<Link> link;
  auto say = [](LinkKind kind, const PeerIdentity& peer, Link* link) {
    return absl::FailedPreconditionError(absl::StrCat(static_cast<int>(kind), " ", peer.site, "/", peer.name));
  };
  for (LinkKind kind : {LinkKind::kFetch, LinkKind::kProbe, LinkKind::kPull, LinkKind::kPush}) {
    link = link == nullptr ? Dial(say, kind) : DialAgain(kind);
    link->Write(DataAt(0), {}, Later()).IgnoreError();
    EXPECT_THAT(link->Read(Later()),
                StatusIs(absl::StatusCode::kFailedPrecondition, absl::StrCat(static_cast<int>(kind), " lab/a1")));
  }
}

TEST_P(LinkContract, HandlersErrorEndsReads) {
  std::unique_ptr<Link> link = Dial([](LinkKind, const PeerIdentity&, Link* link) {
    link->Write(DataAt(7), {}, Later()).IgnoreError();
    return absl::PermissionDeniedError("not you");
  });
  ASSERT_THAT(link->Write(DataAt(0), {}, Later()), IsOk());
  absl::StatusOr<v1::Frame> frame = link->Read(Later());
  ASSERT_THAT(frame, IsOk());
  EXPECT_EQ(frame->data().offset(), 7);
  EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kPermissionDenied, "not you"));
  EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kPermissionDenied, "not you"));
  EXPECT_THAT(link->Finish(Later()), StatusIs(absl::StatusCode::kPermissionDenied, "not you"));
  EXPECT_THAT(link->Write(DataAt(1), {}, Later()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(LinkContract, HandlersOutOfRangeIsNoOrderlyEnd) {
  std::unique_ptr<Link> link =
      Dial([](LinkKind, const PeerIdentity&, Link* link) { return absl::OutOfRangeError("file too short"); });
  link->Write(DataAt(0), {}, Later()).IgnoreError();
  EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kInternal, "file too short"));
}

TEST_P(LinkContract, HalfCloseReachesTheHandler) {
  std::unique_ptr<Link> link = Dial([](LinkKind, const PeerIdentity&, Link* link) {
    absl::StatusOr<v1::Frame> first = link->Read(Later());
    absl::StatusOr<v1::Frame> second = link->Read(Later());
    if (!first.ok() || !absl::IsOutOfRange(second.status())) return absl::InternalError(second.status().ToString());
    return link->Write(DataAt(42), {}, Later());
  });
  ASSERT_THAT(link->Write(DataAt(0), {}, Later()), IsOk());
  ASSERT_THAT(link->CloseWrite(), IsOk());
  absl::StatusOr<v1::Frame> answer = link->Read(Later());
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->data().offset(), 42);
  EXPECT_THAT(link->Finish(Later()), IsOk());
}

TEST_P(LinkContract, PayloadsAreBounded) {
  std::unique_ptr<Link> link = Dial(Echo);
  EXPECT_THAT(link->Write(DataAt(0), std::vector<uint8_t>(kMaxPayloadBytes + 1), Later()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(link->Write(DataAt(1), std::vector<uint8_t>(kMaxPayloadBytes), Later()), IsOk());
  absl::StatusOr<v1::Frame> frame = link->Read(Later());
  ASSERT_THAT(frame, IsOk());
  EXPECT_EQ(frame->payload().size(), kMaxPayloadBytes);
}

TEST_P(LinkContract, ReadsAndWritesGoOnAtOnce) {
  std::unique_ptr<Link> link = Dial(Echo);
  constexpr int kFrames = 64;  // More than any window holds.
  const std::vector<uint8_t> payload(kMaxPayloadBytes);
  std::thread writer([&] {
    for (int i = 0; i < kFrames; ++i) EXPECT_THAT(link->Write(DataAt(i), payload, Later()), IsOk());
    EXPECT_THAT(link->CloseWrite(), IsOk());
  });
  for (int i = 0; i < kFrames; ++i) {
    absl::StatusOr<v1::Frame> frame = link->Read(Later());
    EXPECT_THAT(frame, IsOk());
    if (!frame.ok()) break;
    EXPECT_EQ(frame->data().offset(), i);
  }
  writer.join();
  EXPECT_THAT(link->Finish(Later()), IsOk());
}

TEST_P(LinkContract, ReadHasADeadline) {
  Completion<int> release;
  std::unique_ptr<Link> link = Dial([release](LinkKind, const PeerIdentity&, Link*) {
    return release.Await(RealClock(), Later(), "the test").status();
  });
  ASSERT_THAT(link->Write(DataAt(0), {}, Later()), IsOk());
  EXPECT_THAT(link->Read(Soon()), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kDeadlineExceeded)) << "the link is dead";
  EXPECT_THAT(link->Write(DataAt(0), {}, Later()), StatusIs(absl::StatusCode::kDeadlineExceeded));
  release.Set(1);
}

TEST_P(LinkContract, WriteHasADeadline) {
  Completion<int> release;
  std::unique_ptr<Link> link = Dial([release](LinkKind, const PeerIdentity&, Link*) {
    return release.Await(RealClock(), Later(), "the test").status();
  });
  const std::vector<uint8_t> payload(kMaxPayloadBytes);
  absl::Status status;
  for (int i = 0; i < 200 && status.ok(); ++i)
    status = link->Write(DataAt(i), payload, RealClock()->Now() + absl::Milliseconds(500));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  release.Set(1);
}

TEST_P(LinkContract, HandlersReadHasADeadline) {
  std::unique_ptr<Link> link = Dial([](LinkKind, const PeerIdentity&, Link* link) {
    EXPECT_THAT(link->Read(Later()), IsOk());
    return link->Read(Soon()).status();
  });
  ASSERT_THAT(link->Write(DataAt(0), {}, Later()), IsOk());
  // gRPC tells a peer only that the stream was broken.
  EXPECT_THAT(link->Read(Later()),
              AnyOf(StatusIs(absl::StatusCode::kDeadlineExceeded), StatusIs(absl::StatusCode::kUnavailable)));
}

TEST_P(LinkContract, CancelWakesBothEnds) {
  Completion<std::string> seen;
  std::unique_ptr<Link> link = Dial([seen](LinkKind, const PeerIdentity&, Link* link) mutable {
    EXPECT_THAT(link->Read(Later()), IsOk());
    EXPECT_THAT(link->Write(DataAt(1), {}, Later()), IsOk());
    absl::Status status = link->Read(Later()).status();
    seen.Set(absl::StatusCodeToString(status.code()));
    return status;
  });
  ASSERT_THAT(link->Write(DataAt(0), {}, Later()), IsOk());
  ASSERT_THAT(link->Read(Later()), IsOk());
  Completion<int> reading;
  std::thread reader([&] {
    reading.Set(1);
    EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kCancelled, "enough"));
  });
  ASSERT_THAT(reading.Await(RealClock(), Later(), "the reader"), IsOk());
  link->Cancel("enough");
  reader.join();
  EXPECT_THAT(link->Write(DataAt(0), {}, Later()), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(link->CloseWrite(), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(link->Finish(Later()), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(seen.Await(RealClock(), Later(), "the handler"), IsOkAndHolds("UNAVAILABLE"));
}

TEST_P(LinkContract, DroppedLinkReachesTheHandler) {
  Completion<std::string> seen;
  std::unique_ptr<Link> link = Dial([seen](LinkKind, const PeerIdentity&, Link* link) mutable {
    EXPECT_THAT(link->Read(Later()), IsOk());
    EXPECT_THAT(link->Write(DataAt(1), {}, Later()), IsOk());
    absl::Status status = link->Read(Later()).status();
    seen.Set(absl::StatusCodeToString(status.code()));
    return status;
  });
  ASSERT_THAT(link->Write(DataAt(0), {}, Later()), IsOk());
  ASSERT_THAT(link->Read(Later()), IsOk());
  link = nullptr;
  EXPECT_THAT(seen.Await(RealClock(), Later(), "the handler"), IsOkAndHolds("UNAVAILABLE"));
}

TEST_P(LinkContract, HandlersCancelIsABreakForTheDialer) {
  std::unique_ptr<Link> link = Dial([](LinkKind, const PeerIdentity&, Link* link) {
    EXPECT_THAT(link->Read(Later()), IsOk());
    link->Cancel("going away");
    return link->Read(Later()).status();
  });
  ASSERT_THAT(link->Write(DataAt(0), {}, Later()), IsOk());
  EXPECT_THAT(link->Read(Later()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(LinkContract, NobodyThereIsUnavailable) {
  std::unique_ptr<Link> link = Dial(Echo);
  link = nullptr;
  transport_->GoAway();
  // A transport may notice at once or with the first frame.
  absl::StatusOr<std::unique_ptr<Link>> late = transport_->dialer()->Dial(LinkKind::kPull, Later());
  absl::Status status = late.status();
  if (status.ok()) {
    (*late)->Write(DataAt(0), {}, Later()).IgnoreError();
    status = (*late)->Read(Later()).status();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
}

INSTANTIATE_TEST_SUITE_P(
    All, LinkContract,
    ::testing::Values(Implementation{"Fake", [](LinkHandler* h) { return std::make_unique<FakeTransport>(h); }},
                      Implementation{"Grpc", [](LinkHandler* h) { return std::make_unique<GrpcTransport>(h); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace causeway::dataplane
