#include "dataplane/credentials.h"

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_status.h"
#include "dataplane/pki.h"
#include "proto/membership.grpc.pb.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::dataplane {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Must come before gRPC's first use, as in a main.
const bool kConfigured = (ConfigureGrpcProcess(), true);

constexpr char kJoin[] = "/causeway.v1.Membership/Join";

TlsFiles Tls(const TestPki::Files& files) {
  return {.certificate = files.certificate, .key = files.key, .ca = files.ca};
}

// Answers Join and Register with who called.
class WhoService : public v1::Membership::Service {
 public:
  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest*, v1::JoinResponse* response) override {
    absl::StatusOr<PeerIdentity> peer = GetPeer(*context);
    if (!peer.ok()) return ToGrpc(peer.status());
    response->set_site(peer->site);
    response->set_worker(peer->name);
    return grpc::Status::OK;
  }
  grpc::Status Register(grpc::ServerContext* context, const v1::RegisterRequest*,
                        v1::RegisterResponse* response) override {
    absl::StatusOr<PeerIdentity> peer = GetPeer(*context);
    if (!peer.ok()) return ToGrpc(peer.status());
    response->set_site(peer->site);
    response->set_worker(peer->name);
    return grpc::Status::OK;
  }
};

class CredentialsTest : public ::testing::Test {
 protected:
  ~CredentialsTest() override { StopServer(); }

  void StartServer(const TlsFiles& files) {
    absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials =
        MakeServerCredentials(files, [this](const PeerIdentity& peer, absl::string_view method) {
          MutexLock lock(&mu_);
          calls_.push_back(absl::StrCat(IdentityUri(peer), " ", absl::string_view(method)));
          if (peer.role == PeerIdentity::Role::kAnonymous && method != kJoin)
            return absl::PermissionDeniedError("join first");
          return absl::OkStatus();
        });
    ASSERT_THAT(credentials, IsOk());
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    ApplyServerArgs(&builder);
    builder.AddListeningPort("127.0.0.1:0", *credentials, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void StopServer() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_ = nullptr;
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  std::shared_ptr<grpc::Channel> Channel(absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials) {
    EXPECT_THAT(credentials, IsOk());
    return MakeChannel(ChannelKind::kControl, address(), *credentials);
  }
  std::shared_ptr<grpc::Channel> Anonymous() { return Channel(MakeAnonymousCredentials(pki_.ca_pem())); }
  std::shared_ptr<grpc::Channel> Worker() { return Channel(MakeClientCredentials(Tls(pki_.Worker("lab", "a1")))); }

  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  }

  static absl::StatusOr<std::string> CallRegister(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::RegisterResponse response;
    grpc::Status status = v1::Membership::NewStub(channel)->Register(&context, {}, &response);
    if (!status.ok()) return FromGrpc(status);
    return absl::StrCat(response.site(), "/", response.worker());
  }

  static absl::Status CallJoin(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::JoinResponse response;
    return FromGrpc(v1::Membership::NewStub(channel)->Join(&context, {}, &response));
  }

  // Any method, known to the server or not.
  static absl::Status CallMethod(const std::shared_ptr<grpc::Channel>& channel, const char* path) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::LeaveResponse response;
    return FromGrpc(grpc::internal::BlockingUnaryCall(
        channel.get(), grpc::internal::RpcMethod(path, grpc::internal::RpcMethod::NORMAL_RPC), &context,
        v1::LeaveRequest(), &response));
  }

  std::vector<std::string> calls() {
    MutexLock lock(&mu_);
    return calls_;
  }

  TempDir dir_;
  TestPki pki_{dir_.path()};
  WhoService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mu_;
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mu_);
};

TEST_F(CredentialsTest, IdentityComesFromTheCertificate) {
  StartServer(Tls(pki_.Coordinator()));
  EXPECT_THAT(CallRegister(Worker()), IsOkAndHolds("lab/a1"));
  EXPECT_THAT(calls(), UnorderedElementsAre("causeway://worker/lab/a1 /causeway.v1.Membership/Register"));
}

TEST_F(CredentialsTest, ClientWithoutCertificateIsAnonymous) {
  StartServer(Tls(pki_.Coordinator()));
  EXPECT_THAT(CallJoin(Anonymous()), IsOk());
  EXPECT_THAT(CallRegister(Anonymous()), StatusIs(absl::StatusCode::kPermissionDenied, "join first"));
  EXPECT_THAT(calls(), UnorderedElementsAre(" /causeway.v1.Membership/Join", " /causeway.v1.Membership/Register"));
}

TEST_F(CredentialsTest, EveryMethodIsAuthorized) {
  StartServer(Tls(pki_.Coordinator()));
  for (const char* path :
       {"/causeway.v1.Membership/Nothing", "/causeway.v9.Other/Thing", "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    EXPECT_THAT(CallMethod(Anonymous(), path), StatusIs(absl::StatusCode::kPermissionDenied, "join first")) << path;
    EXPECT_THAT(calls(), Contains(absl::StrCat(" ", path)));
  }
  EXPECT_THAT(CallMethod(Worker(), "/causeway.v9.Other/Thing"), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(CallMethod(Worker(), "/grpc.health.v1.Health/Check"), IsOk());
}

TEST_F(CredentialsTest, ForeignClientGetsNoConnection) {
  StartServer(Tls(pki_.Coordinator()));
  const TestPki foreign(dir_.path(), "foreign");
  TestPki::Files files = foreign.Worker("lab", "a1");
  files.ca = pki_.Coordinator().ca;  // It trusts us; we do not trust it.
  EXPECT_THAT(CallRegister(Channel(MakeClientCredentials(Tls(files)))), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(CredentialsTest, ExpiredClientGetsNoConnection) {
  StartServer(Tls(pki_.Coordinator()));
  EXPECT_THAT(CallRegister(Channel(MakeClientCredentials(Tls(pki_.Worker("lab", "a1", TestPki::Expired()))))),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(CredentialsTest, ClientRefusesForeignServer) {
  const TestPki foreign(dir_.path(), "foreign");
  StartServer(Tls(foreign.Coordinator()));
  EXPECT_THAT(CallRegister(Worker()), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(CallJoin(Anonymous()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CredentialsTest, ClientRefusesExpiredServer) {
  StartServer(Tls(pki_.Coordinator({}, TestPki::Expired())));
  EXPECT_THAT(CallRegister(Worker()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CredentialsTest, ClientRefusesWorkerThatPosesAsServer) {
  StartServer(Tls(pki_.Worker("lab", "evil")));
  EXPECT_THAT(CallRegister(Worker()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CredentialsTest, CertificateOfTheCoordinatorIsNoClients) {
  StartServer(Tls(pki_.Coordinator()));
  EXPECT_THAT(CallRegister(Channel(MakeClientCredentials(Tls(pki_.Coordinator())))),
              StatusIs(absl::StatusCode::kUnavailable));
}

// A bare OpenSSL client, so that the version can be chosen.
absl::StatusOr<std::string> NegotiatedVersion(int port, int max_version) {
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_max_proto_version(context.get(), max_version);
  std::unique_ptr<BIO, void (*)(BIO*)> bio(BIO_new_ssl_connect(context.get()), BIO_free_all);
  BIO_set_conn_hostname(bio.get(), absl::StrCat("127.0.0.1:", port).c_str());
  if (BIO_do_connect(bio.get()) != 1 || BIO_do_handshake(bio.get()) != 1) return absl::UnavailableError("refused");
  SSL* ssl = nullptr;
  BIO_get_ssl(bio.get(), &ssl);
  return std::string(SSL_get_version(ssl));
}

// Those that a server sends within what it says first, which is where gRPC's end of a connection begins.
absl::StatusOr<int> SessionTickets(int port) {
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  int tickets = 0;
  SSL_CTX_set_ex_data(context.get(), 0, &tickets);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
  SSL_CTX_sess_set_new_cb(context.get(), [](SSL* ssl, SSL_SESSION*) {
    ++*static_cast<int*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), 0));
    return 0;
  });
  const unsigned char h2[] = "\x02h2";
  SSL_CTX_set_alpn_protos(context.get(), h2, 3);
  std::unique_ptr<BIO, void (*)(BIO*)> bio(BIO_new_ssl_connect(context.get()), BIO_free_all);
  BIO_set_conn_hostname(bio.get(), absl::StrCat("127.0.0.1:", port).c_str());
  if (BIO_do_connect(bio.get()) != 1 || BIO_do_handshake(bio.get()) != 1) return absl::UnavailableError("refused");
  char byte;
  if (BIO_read(bio.get(), &byte, 1) != 1) return absl::UnavailableError("nothing said");
  return tickets;
}

TEST_F(CredentialsTest, NoTicketsAreMade) {
  StartServer(Tls(pki_.Coordinator()));
  EXPECT_THAT(SessionTickets(port_), IsOkAndHolds(0));
}

TEST_F(CredentialsTest, OnlyTls13IsSpoken) {
  StartServer(Tls(pki_.Coordinator()));
  EXPECT_THAT(NegotiatedVersion(port_, TLS1_3_VERSION), IsOkAndHolds("TLSv1.3"));
  EXPECT_THAT(NegotiatedVersion(port_, TLS1_2_VERSION), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CredentialsTest, JoiningClientSeesLeafAndCa) {
  StartServer(Tls(pki_.Coordinator()));
  absl::StatusOr<std::vector<std::string>> chain =
      FetchServerChain("localhost", port_, RealClock()->Now() + absl::Seconds(10));
  ASSERT_THAT(chain, IsOk());
  ASSERT_EQ(chain->size(), 2);
  absl::StatusOr<std::string> pin = CaPin(pki_.ca_pem());
  ASSERT_THAT(pin, IsOk());
  const absl::Time now = RealClock()->WallNow();
  EXPECT_THAT(VerifyChainAgainstPin(*chain, *pin, now), IsOkAndHolds(pki_.ca_pem()));
  pin->back() = pin->back() == '0' ? '1' : '0';
  EXPECT_THAT(VerifyChainAgainstPin(*chain, *pin, now),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("pin")));
}

TEST_F(CredentialsTest, ReplacedCertificateIsUsedByNewConnections) {
  TestPki::Files files = pki_.Coordinator({}, TestPki::Expired());
  StartServer(Tls(files));
  EXPECT_THAT(CallRegister(Worker()), StatusIs(absl::StatusCode::kUnavailable));
  pki_.Coordinator();  // Written over the expired one.
  absl::Status status;
  for (const absl::Time end = RealClock()->Now() + absl::Seconds(20); RealClock()->Now() < end;) {
    status = CallRegister(Worker()).status();
    if (status.ok()) break;
  }
  EXPECT_THAT(status, IsOk());
}

TEST_F(CredentialsTest, SecondServerOnAPortFails) {
  StartServer(Tls(pki_.Coordinator()));
  grpc::ServerBuilder builder;
  ApplyServerArgs(&builder);
  int port = -1;
  builder.AddListeningPort(address(), *MakeServerCredentials(Tls(pki_.Coordinator()), nullptr), &port);
  WhoService service;
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> second = builder.BuildAndStart();
  EXPECT_TRUE(second == nullptr || port == 0);
}

TEST_F(CredentialsTest, BadFilesAreNamed) {
  TestPki::Files files = pki_.Coordinator();
  TlsFiles mixed = Tls(files);
  mixed.key = pki_.Worker("lab", "a1").key;
  EXPECT_THAT(MakeServerCredentials(mixed, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not belong")));
  TlsFiles missing = Tls(files);
  missing.ca = dir_.Join("nothing.pem");
  EXPECT_THAT(MakeServerCredentials(missing, nullptr), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing.pem")));
  EXPECT_THAT(MakeClientCredentials(missing), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing.pem")));
  EXPECT_THAT(MakeAnonymousCredentials("no certificate"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::dataplane
