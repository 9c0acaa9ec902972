// Who may call what, over real connections to a whole coordinator: every role, every method of every service, the unknown ones included.

#include <openssl/ssl.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_status.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "jobspec/config.h"
#include "proto/data.grpc.pb.h"
#include "proto/membership.grpc.pb.h"
#include "proto/operator.grpc.pb.h"
#include "proto/parameters.grpc.pb.h"
#include "server/server.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Must come before gRPC's first use, as in a main.
const bool kConfigured = (dataplane::ConfigureGrpcProcess(), true);

constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kHealthWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

// The paths of all methods of our services.
std::vector<std::string> OurMethods() {
  std::vector<std::string> methods = {"/causeway.v1.Data/Fetch", "/causeway.v1.Data/Probe",
                                      "/causeway.v1.Parameters/Pull", "/causeway.v1.Parameters/Push"};
  for (const google::protobuf::FileDescriptor* file :
       {v1::RegisterRequest::descriptor()->file(), v1::GetVersionRequest::descriptor()->file()}) {
    const google::protobuf::ServiceDescriptor* service = file->service(0);
    for (int m = 0; m < service->method_count(); ++m) {
      methods.push_back(absl::StrCat("/", service->full_name(), "/", service->method(m)->name()));
    }
  }
  return methods;
}

struct Rights {
  bool anonymous = false;
  bool worker = false;
  bool operator_ = false;
};

// The rules as docs/security.md states them, said here a second time.
Rights Expected(const std::string& method) {
  if (method == "/causeway.v1.Membership/Join") return {.anonymous = true};
  if (method == "/causeway.v1.Parameters/Pull") return {.worker = true, .operator_ = true};
  if (method == kHealthCheck || method == kHealthWatch) return {.worker = true, .operator_ = true};
  if (method == kReflection) return {.operator_ = true};
  if (absl::StrContains(method, "/Nothing")) return {};
  if (absl::StartsWith(method, "/causeway.v1.Operator/")) return {.operator_ = true};
  for (const char* service : {"/causeway.v1.Membership/", "/causeway.v1.Data/", "/causeway.v1.Parameters/"}) {
    if (absl::StartsWith(method, service)) return {.worker = true};
  }
  return {};
}

grpc::ByteBuffer Bytes(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

using Channel = std::shared_ptr<grpc::Channel>;

class IdentityTest : public ::testing::Test {
 protected:
  IdentityTest() {
    const TestPki::Files files = pki_.Coordinator();
    FileSystem* fs = RealFileSystem();
    const jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(dir_.Join("coordinator"));
    EXPECT_OK(fs->MakeDirs(dir_.Join("coordinator/tls")));
    EXPECT_OK(fs->MakeDirs(dir_.Join("coordinator/data")));
    EXPECT_OK(fs->WriteFileAtomically(tls.ca, pki_.ca_pem()));
    EXPECT_OK(fs->WriteFileAtomically(tls.ca_key, pki_.ca_key_pem(), 0600));
    for (const auto& [from, to] : {std::pair(files.certificate, tls.certificate), std::pair(files.key, tls.key)}) {
      EXPECT_OK(fs->WriteFileAtomically(to, *fs->ReadFile(from, 1 << 20), 0600));
    }
    jobspec::CoordinatorConfig config;
    config.dir = dir_.Join("coordinator");
    config.data_root = dir_.Join("coordinator/data");
    config.listen = {"127.0.0.1", 0};
    config.advertise = {"127.0.0.1", 7443};
    config.http_listen = {"127.0.0.1", 0};
    absl::StatusOr<std::unique_ptr<server::Server>> server = server::Server::Start(config);
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
    operator_ = ChannelOf(pki_.Operator("admin"));
    anonymous_ = MakeChannel(dataplane::MakeAnonymousCredentials(pki_.ca_pem()));
  }

  Channel MakeChannel(absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials) {
    EXPECT_THAT(credentials, IsOk());
    return dataplane::MakeChannel(dataplane::ChannelKind::kControl, absl::StrCat("127.0.0.1:", server_->port()),
                                  *credentials);
  }
  Channel ChannelOf(const TestPki::Files& files) {
    return MakeChannel(
        dataplane::MakeClientCredentials({.certificate = files.certificate, .key = files.key, .ca = files.ca}));
  }

  static void SetDeadline(grpc::ClientContext* context, int seconds = 20) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
  }

  // Any method, known to the server or not, with one message: an empty one unless told.
  static absl::StatusOr<std::string> Call(const Channel& channel, const std::string& method,
                                          const std::string& request = "", int seconds = 20) {
    grpc::ClientContext context;
    SetDeadline(&context, seconds);
    grpc::ByteBuffer response;
    const grpc::Status status = grpc::internal::BlockingUnaryCall(
        channel.get(), grpc::internal::RpcMethod(method.c_str(), grpc::internal::RpcMethod::NORMAL_RPC), &context,
        Bytes(request), &response);
    if (!status.ok()) return dataplane::FromGrpc(status);
    return Text(response);
  }

  v1::AddSiteResponse AddSite(const std::string& site) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::AddSiteRequest request;
    request.set_site(site);
    v1::AddSiteResponse response;
    EXPECT_OK(dataplane::FromGrpc(v1::Operator::NewStub(operator_)->AddSite(&context, request, &response)));
    return response;
  }

  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::JoinResponse response;
    const grpc::Status status = v1::Membership::NewStub(anonymous_)->Join(&context, request, &response);
    if (!status.ok()) return dataplane::FromGrpc(status);
    return response;
  }

  // Joins as a worker does.
  Channel Worker(const std::string& name) {
    v1::JoinRequest request;
    *request.mutable_version() = dataplane::OurVersion();
    request.set_token(AddSite("lab").token());
    request.set_worker_name(name);
    const std::string key = *dataplane::GenerateKeyPem();
    request.set_csr_pem(*dataplane::CreateCsr(key));
    absl::StatusOr<v1::JoinResponse> joined = Join(request);
    EXPECT_THAT(joined, IsOk());
    const TestPki::Files files = {
        .certificate = dir_.Join(name + ".pem"), .key = dir_.Join(name + ".key"), .ca = pki_.Operator("admin").ca};
    EXPECT_OK(RealFileSystem()->WriteFileAtomically(files.key, key, 0600));
    EXPECT_OK(RealFileSystem()->WriteFileAtomically(files.certificate, joined->certificate_pem()));
    return ChannelOf(files);
  }

  absl::StatusOr<v1::RegisterResponse> Register(const Channel& channel, const v1::ProtocolVersion& version) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::RegisterRequest request;
    *request.mutable_version() = version;
    request.set_incarnation(1);
    v1::RegisterResponse response;
    const grpc::Status status = v1::Membership::NewStub(channel)->Register(&context, request, &response);
    if (!status.ok()) return dataplane::FromGrpc(status);
    return response;
  }

  std::vector<std::string> AllMethods() {
    std::vector<std::string> methods = OurMethods();
    methods.insert(methods.end(),
                   {kHealthCheck, kHealthWatch, kReflection, "/causeway.v1.Membership/Nothing",
                    "/causeway.v1.Operator/Nothing", "/causeway.v1.Data/Nothing", "/causeway.v9.Membership/Join",
                    "/grpc.channelz.v1.Channelz/GetServers", "/Nothing"});
    return methods;
  }

  TempDir dir_;
  TestPki pki_{dir_.path()};
  std::unique_ptr<server::Server> server_;
  Channel operator_;
  Channel anonymous_;
};

TEST_F(IdentityTest, WholeMatrix) {
  const Channel worker = Worker("a1");
  const std::vector<std::string> methods = AllMethods();
  ASSERT_EQ(methods.size(), 10u + 20u + 4u + 9u) << "a method was added: say here who may call it";
  const auto check = [](const Channel& channel, const std::string& method, bool allowed, const char* role,
                        const absl::Status& refusal) {
    // Watch never ends by itself.
    const absl::Status status = Call(channel, method, "", allowed && method == kHealthWatch ? 2 : 20).status();
    if (allowed) {
      EXPECT_NE(status.code(), absl::StatusCode::kUnauthenticated) << role << " " << method << " " << status;
      EXPECT_NE(status.code(), absl::StatusCode::kPermissionDenied) << role << " " << method << " " << status;
      EXPECT_NE(status.code(), absl::StatusCode::kUnavailable) << role << " " << method << " " << status;
    } else {
      EXPECT_THAT(status, StatusIs(refusal.code(), HasSubstr(std::string(refusal.message())))) << role << " " << method;
    }
  };
  for (const std::string& method : methods) {
    const Rights rights = Expected(method);
    check(anonymous_, method, rights.anonymous, "anonymous", absl::UnauthenticatedError("needs a client certificate"));
    check(worker, method, rights.worker, "worker", absl::PermissionDeniedError("a worker may not call " + method));
    check(operator_, method, rights.operator_, "operator",
          absl::PermissionDeniedError("an operator may not call " + method));
  }
}

TEST_F(IdentityTest, ARemovedWorkerIsRefusedAtEveryCall) {
  const Channel worker = Worker("a1");
  const Channel other = Worker("a2");
  ASSERT_THAT(Register(worker, dataplane::OurVersion()), IsOk());
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::RemoveWorkerRequest request;
  request.set_worker("a1");
  v1::RemoveWorkerResponse response;
  ASSERT_OK(dataplane::FromGrpc(v1::Operator::NewStub(operator_)->RemoveWorker(&context, request, &response)));
  for (const std::string& method : AllMethods()) {
    EXPECT_THAT(Call(worker, method), StatusIs(absl::StatusCode::kPermissionDenied)) << method;
    if (Expected(method).worker) {
      EXPECT_THAT(Call(worker, method), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("was removed")))
          << method;
    }
  }
  EXPECT_THAT(Register(other, dataplane::OurVersion()), IsOk());
}

TEST_F(IdentityTest, TheStreamsOfARemovedWorkerEndWithinASecond) {
  using Frames = grpc::ClientReaderWriter<v1::Frame, v1::Frame>;
  struct Open {
    grpc::ClientContext context;
    std::unique_ptr<Frames> frames;
  };
  const Channel removed = Worker("a1");
  const Channel other = Worker("a2");
  const auto open = [](const Channel& channel, std::vector<std::unique_ptr<Open>>* into) {
    for (const bool data : {true, false}) {
      auto stream = std::make_unique<Open>();
      SetDeadline(&stream->context);
      stream->frames = data ? v1::Data::NewStub(channel)->Probe(&stream->context)
                            : v1::Parameters::NewStub(channel)->Push(&stream->context);
      into->push_back(std::move(stream));
    }
  };
  std::vector<std::unique_ptr<Open>> ending, staying;
  open(removed, &ending);
  open(other, &staying);
  ASSERT_THAT(Register(removed, dataplane::OurVersion()), IsOk());
  grpc::ClientContext beating;
  SetDeadline(&beating);
  auto heartbeat = v1::Membership::NewStub(removed)->Heartbeat(&beating);
  v1::HeartbeatRequest beat;
  beat.set_incarnation(1);
  beat.set_sequence(1);
  v1::HeartbeatResponse answer;
  ASSERT_TRUE(heartbeat->Write(beat));
  ASSERT_TRUE(heartbeat->Read(&answer));
  // A stream is known to the server once its headers have come; the answers to later calls of the same connection say so.
  ASSERT_THAT(Register(other, dataplane::OurVersion()), IsOk());

  grpc::ClientContext context;
  SetDeadline(&context);
  v1::RemoveWorkerRequest request;
  request.set_worker("a1");
  v1::RemoveWorkerResponse response;
  const absl::Time begin = RealClock()->Now();
  ASSERT_OK(dataplane::FromGrpc(v1::Operator::NewStub(operator_)->RemoveWorker(&context, request, &response)));
  while (heartbeat->Read(&answer)) {
  }
  EXPECT_THAT(dataplane::FromGrpc(heartbeat->Finish()),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("was removed")));
  v1::Frame frame;
  for (auto& stream : ending) {
    EXPECT_FALSE(stream->frames->Read(&frame));
    EXPECT_FALSE(stream->frames->Finish().ok());
  }
  EXPECT_LT(RealClock()->Now() - begin, absl::Seconds(1));
  // The other's are still there: a wrong first frame is answered.
  for (auto& stream : staying) {
    frame.mutable_data()->set_offset(1);
    EXPECT_TRUE(stream->frames->Write(frame));
    EXPECT_FALSE(stream->frames->Read(&frame));
    EXPECT_THAT(dataplane::FromGrpc(stream->frames->Finish()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("begins with its request")));
  }
}

TEST_F(IdentityTest, CertificatesThatDoNotCount) {
  // Of a foreign authority (it trusts this coordinator), expired, and of this authority but for a worker that has never joined.
  const TestPki foreign(dir_.path(), "foreign");
  TestPki::Files foreign_operator = foreign.Operator("admin");
  foreign_operator.ca = pki_.Operator("admin").ca;
  const Channel of_foreign = ChannelOf(foreign_operator);
  const Channel expired = ChannelOf(pki_.Operator("late", TestPki::Expired()));
  const Channel expired_worker = ChannelOf(pki_.Worker("lab", "late", TestPki::Expired()));
  const Channel stranger = ChannelOf(pki_.Worker("lab", "stranger"));
  for (const std::string& method : AllMethods()) {
    EXPECT_THAT(Call(of_foreign, method), StatusIs(absl::StatusCode::kUnavailable)) << method;
    EXPECT_THAT(Call(expired, method), StatusIs(absl::StatusCode::kUnavailable)) << method;
    EXPECT_THAT(Call(expired_worker, method), StatusIs(absl::StatusCode::kUnavailable)) << method;
    EXPECT_THAT(Call(stranger, method), StatusIs(absl::StatusCode::kPermissionDenied)) << method;
  }
  EXPECT_THAT(Call(stranger, "/causeway.v1.Data/Fetch"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("no worker stranger is known")));
}

TEST_F(IdentityTest, OnlyTls13IsSpoken) {
  const TestPki::Files files = pki_.Operator("admin");
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    ASSERT_EQ(SSL_CTX_use_certificate_file(context.get(), files.certificate.c_str(), SSL_FILETYPE_PEM), 1);
    ASSERT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM), 1);
    ASSERT_EQ(SSL_CTX_set_max_proto_version(context.get(), version), 1);
    std::unique_ptr<BIO, void (*)(BIO*)> bio(BIO_new_ssl_connect(context.get()), BIO_free_all);
    BIO_set_conn_hostname(bio.get(), absl::StrCat("127.0.0.1:", server_->port()).c_str());
    const bool connected = BIO_do_connect(bio.get()) == 1 && BIO_do_handshake(bio.get()) == 1;
    EXPECT_EQ(connected, version == TLS1_3_VERSION);
  }
}

TEST_F(IdentityTest, HealthAndReflection) {
  // HealthCheckResponse{status: SERVING}
  EXPECT_THAT(Call(operator_, kHealthCheck), IsOkAndHolds(std::string("\x08\x01")));
  // ServerReflectionRequest{list_services: "*"}
  const absl::StatusOr<std::string> services = Call(operator_, kReflection, "\x3a\x01*");
  ASSERT_THAT(services, IsOk());
  for (const char* service : {"causeway.v1.Membership", "causeway.v1.Operator", "causeway.v1.Data",
                              "causeway.v1.Parameters", "grpc.health.v1.Health"}) {
    EXPECT_THAT(*services, HasSubstr(service));
  }
}

TEST_F(IdentityTest, AnIncompatibleVersionIsToldBoth) {
  const Channel worker = Worker("a1");
  v1::ProtocolVersion other;
  other.set_major(dataplane::kProtocolMajor + 8);
  other.set_minor(7);
  other.set_build("9.9.9");
  const auto told = StatusIs(
      absl::StatusCode::kFailedPrecondition,
      AllOf(HasSubstr(dataplane::VersionText(other)), HasSubstr(dataplane::VersionText(dataplane::OurVersion()))));
  EXPECT_THAT(Register(worker, other), told);
  v1::JoinRequest join;
  *join.mutable_version() = other;
  join.set_token(AddSite("lab").token());
  join.set_csr_pem(*dataplane::CreateCsr(*dataplane::GenerateKeyPem()));
  EXPECT_THAT(Join(join), told);
  v1::GetVersionRequest request;
  *request.mutable_version() = other;
  EXPECT_THAT(Call(operator_, "/causeway.v1.Operator/GetVersion", request.SerializeAsString()), told);
  // A newer minor only adds.
  other.set_major(dataplane::kProtocolMajor);
  EXPECT_THAT(Register(worker, other), IsOk());
  *join.mutable_version() = other;
  EXPECT_THAT(Join(join), IsOk());
}

}  // namespace
}  // namespace causeway
