#include "cli/grpc_client.h"

#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/completion.h"
#include "cli/init.h"
#include "dataplane/credentials.h"
#include "dataplane/digest.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_link.h"
#include "dataplane/model_stream.h"
#include "proto/operator.grpc.pb.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::cli {
namespace {

using dataplane::PeerIdentity;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Answers a few calls with what shows that the call has come through.
class EchoService : public v1::Operator::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override {
    absl::StatusOr<PeerIdentity> peer = dataplane::GetPeer(*context);
    response->mutable_summary()->set_job(request->job());
    if (peer.ok() && peer->role == PeerIdentity::Role::kOperator)
      response->mutable_summary()->set_reason("called by " + peer->name);
    return grpc::Status::OK;
  }
  grpc::Status AbortJob(grpc::ServerContext*, const v1::AbortJobRequest*, v1::AbortJobResponse*) override {
    return {grpc::StatusCode::FAILED_PRECONDITION, "it has ended"};
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::GetJobRequest*,
                        grpc::ServerWriter<v1::GetJobResponse>* writer) override {
    v1::GetJobResponse response;
    for (int64_t round = 0; round < 3; ++round) {
      response.mutable_summary()->set_round(round);
      writer->Write(response);
    }
    return grpc::Status::OK;
  }
};

class FixedSource : public dataplane::PullSource {
 public:
  explicit FixedSource(const dataplane::Layout& layout, std::string bytes) : bytes_(std::move(bytes)) {
    info_.set_version(3);
    *info_.mutable_layout() = layout.ToProto();
    info_.set_layout_sha256(layout.hash());
    info_.set_total_bytes(static_cast<int64_t>(bytes_.size()));
    info_.set_sha256(dataplane::Sha256Of(bytes_));
  }
  const v1::PullResponse& info() const override { return info_; }
  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  const std::string bytes_;
  v1::PullResponse info_;
};

// Serves a model to pulls of job "fashion"; to others it says nothing until Release.
class PullHandler : public dataplane::LinkHandler {
 public:
  explicit PullHandler(const FixedSource* source) : source_(source) {}
  void Release() { release_.Set(true); }
  absl::Status Serve(dataplane::LinkKind, const PeerIdentity&, dataplane::Link* link) override {
    absl::StatusOr<v1::Frame> first = link->Read(RealClock()->Now() + absl::Seconds(10));
    if (!first.ok()) return first.status();
    if (first->pull_request().job() != "fashion")
      return release_.Await(RealClock(), RealClock()->Now() + absl::Seconds(30), "release").status();
    return dataplane::ServePull(link, first->pull_request(), *source_, {.clock = RealClock()});
  }

 private:
  const FixedSource* const source_;
  Completion<bool> release_;
};

class GrpcClientTest : public testing::Test {
 protected:
  GrpcClientTest()
      : layout_(*dataplane::Layout::Create({{.name = "w", .shape = {2}}})),
        source_(layout_, "12345678"),
        handler_(&source_) {
    dataplane::ConfigureGrpcProcess();
    context_ = Init("coordinator");
  }
  ~GrpcClientTest() override {
    handler_.Release();
    bulk_->CancelAll("the test ends");
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // A coordinator's credentials, as `causeway init` makes them, and a server that uses them.
  Context Init(const std::string& name, absl::Duration ago = absl::ZeroDuration()) {
    InitOptions options;
    options.address = {"127.0.0.1", 7443};
    options.dir = dir_.Join(name);
    options.context_dir = dir_.Join(name + "-context");
    options.wall_now = RealClock()->WallNow() - ago;
    absl::StatusOr<InitResult> init = InitCoordinator(options, RealFileSystem());
    EXPECT_THAT(init, IsOk());
    if (server_ == nullptr) {
      jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(options.dir);
      auto credentials =
          dataplane::MakeServerCredentials({.certificate = tls.certificate, .key = tls.key, .ca = tls.ca},
                                           [](const PeerIdentity& peer, absl::string_view) -> absl::Status {
                                             if (peer.role == PeerIdentity::Role::kOperator) return absl::OkStatus();
                                             return absl::PermissionDeniedError("operators only");
                                           });
      EXPECT_THAT(credentials, IsOk());
      grpc::ServerBuilder builder;
      dataplane::ApplyServerArgs(&builder);
      builder.AddListeningPort("127.0.0.1:0", *credentials, &port_);
      builder.RegisterService(&service_);
      bulk_ = dataplane::GrpcBulkServices::Create(&handler_);
      bulk_->Register(&builder);
      server_ = builder.BuildAndStart();
    }
    Context context = init->context;
    context.coordinator.port = port_;
    return context;
  }

  TempDir dir_;
  dataplane::Layout layout_;
  FixedSource source_;
  PullHandler handler_;
  EchoService service_;
  std::unique_ptr<dataplane::GrpcBulkServices> bulk_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  Context context_;
};

TEST_F(GrpcClientTest, CallsAsTheOperatorOfItsCertificate) {
  absl::StatusOr<std::unique_ptr<OperatorClient>> client = MakeGrpcOperatorClient(context_);
  ASSERT_THAT(client, IsOk());
  v1::GetJobRequest request;
  request.set_job("fashion");
  absl::StatusOr<v1::GetJobResponse> response = (*client)->GetJob(request, absl::Seconds(10));
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->summary().job(), "fashion");
  EXPECT_EQ(response->summary().reason(), "called by admin");

  EXPECT_THAT((*client)->AbortJob({}, absl::Seconds(10)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("it has ended")));
  EXPECT_THAT((*client)->ListSites({}, absl::Seconds(10)), StatusIs(absl::StatusCode::kUnimplemented));

  std::vector<int64_t> rounds;
  EXPECT_THAT(
      (*client)->WatchJob(request, absl::InfiniteDuration(),
                          [&](const v1::GetJobResponse& status) { rounds.push_back(status.summary().round()); }),
      IsOk());
  EXPECT_THAT(rounds, ElementsAre(0, 1, 2));
}

TEST_F(GrpcClientTest, PullsAModel) {
  absl::StatusOr<std::unique_ptr<OperatorClient>> client = MakeGrpcOperatorClient(context_);
  ASSERT_THAT(client, IsOk());
  absl::StatusOr<dataplane::PulledModel> model = (*client)->PullModel("fashion", -1, absl::InfiniteDuration());
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->version, 3);
  EXPECT_EQ(std::string(model->bytes.begin(), model->bytes.end()), "12345678");
  EXPECT_THAT((*client)->PullModel("silent", -1, absl::Milliseconds(200)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("the model of silent")));
}

TEST_F(GrpcClientTest, NobodyThereIsUnavailable) {
  Context context = context_;
  context.coordinator.port = 1;
  absl::StatusOr<std::unique_ptr<OperatorClient>> client = MakeGrpcOperatorClient(context);
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT((*client)->GetJob({}, absl::Seconds(10)), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(GrpcClientTest, ACoordinatorOfAnotherAuthorityIsNotTalkedTo) {
  Context foreign = Init("other");
  absl::StatusOr<std::unique_ptr<OperatorClient>> client = MakeGrpcOperatorClient(foreign);
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT((*client)->GetJob({}, absl::Seconds(10)), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(GrpcClientTest, AnExpiredCertificateIsSaidToBeAndHowToGetAnother) {
  const Context context = Init("old", absl::Hours(24 * 366));
  EXPECT_THAT(MakeGrpcOperatorClient(context),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::AllOf(HasSubstr("has expired at"), HasSubstr("cert renew operator --dir DIR"))));
}

TEST_F(GrpcClientTest, CredentialsThatAreNotThere) {
  Context context = context_;
  context.dir = dir_.Join("gone");
  EXPECT_THAT(MakeGrpcOperatorClient(context), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace causeway::cli
