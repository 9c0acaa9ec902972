#include "cli/grpc_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completion.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_link.h"
#include "dataplane/grpc_status.h"
#include "dataplane/identity_file.h"
#include "dataplane/pki.h"
#include "proto/operator.grpc.pb.h"

namespace causeway::cli {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20;

// Guards this machine's memory against a coordinator that announces nonsense.
constexpr int64_t kMaxModelBytes = int64_t{64} << 30;

constexpr absl::Duration kReconnectTime = absl::Seconds(10);  // For one try.

void SetTimeout(grpc::ClientContext* context, absl::Duration timeout) {
  if (timeout != absl::InfiniteDuration()) context->set_deadline(absl::ToChronoTime(RealClock()->WallNow() + timeout));
}

class GrpcOperatorClient : public OperatorClient {
 public:
  GrpcOperatorClient(std::shared_ptr<grpc::Channel> control, std::shared_ptr<grpc::Channel> bulk)
      : channel_(control),
        stub_(v1::Operator::NewStub(control)),
        dialer_(dataplane::MakeGrpcLinkDialer(std::move(bulk))) {}

#define CAUSEWAY_CLI_CALL(Method)                                                                                    \
  absl::StatusOr<v1::Method##Response> Method(const v1::Method##Request& request, absl::Duration timeout) override { \
    return Call(&v1::Operator::Stub::Method, request, timeout);                                                      \
  }
  CAUSEWAY_CLI_CALL(GetVersion)
  CAUSEWAY_CLI_CALL(SubmitJob)
  CAUSEWAY_CLI_CALL(ListJobs)
  CAUSEWAY_CLI_CALL(GetJob)
  CAUSEWAY_CLI_CALL(AbortJob)
  CAUSEWAY_CLI_CALL(PauseJob)
  CAUSEWAY_CLI_CALL(ResumeJob)
  CAUSEWAY_CLI_CALL(DrainWorker)
  CAUSEWAY_CLI_CALL(ListWorkers)
  CAUSEWAY_CLI_CALL(RemoveWorker)
  CAUSEWAY_CLI_CALL(AddSite)
  CAUSEWAY_CLI_CALL(ListSites)
  CAUSEWAY_CLI_CALL(RemoveSite)
  CAUSEWAY_CLI_CALL(ListTokens)
  CAUSEWAY_CLI_CALL(RevokeToken)
  CAUSEWAY_CLI_CALL(ListModels)
  CAUSEWAY_CLI_CALL(ListCertificates)
  CAUSEWAY_CLI_CALL(RequestRenewal)
#undef CAUSEWAY_CLI_CALL
  absl::StatusOr<v1::RenewCertificateResponse> RenewOperatorCertificate(const v1::RenewCertificateRequest& request,
                                                                        absl::Duration timeout) override {
    return Call(&v1::Operator::Stub::RenewOperatorCertificate, request, timeout);
  }

  absl::Status WatchJob(const v1::GetJobRequest& request, absl::Duration timeout,
                        const std::function<void(const v1::GetJobResponse&)>& on_status) override {
    // After a break: gRPC goes on with a handshake only while somebody waits for it.
    if (watched_) {
      channel_->WaitForConnected(absl::ToChronoTime(RealClock()->WallNow() + std::min(timeout, kReconnectTime)));
    }
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    std::unique_ptr<grpc::ClientReader<v1::GetJobResponse>> reader = stub_->WatchJob(&context, request);
    v1::GetJobResponse response;
    while (reader->Read(&response)) {
      watched_ = true;
      on_status(response);
    }
    return dataplane::FromGrpc(reader->Finish());
  }

  absl::StatusOr<dataplane::PulledModel> PullModel(const std::string& job, int64_t version,
                                                   absl::Duration timeout) override {
    dataplane::Cancellation cancellation;
    dataplane::TransferOptions options;
    options.dialer = dialer_.get();
    options.clock = RealClock();
    options.cancellation = &cancellation;
    Completion<bool> done;
    std::thread watchdog([&] {
      if (!done.Await(RealClock(), RealClock()->Now() + timeout, "the model").ok()) cancellation.Cancel("time is up");
    });
    absl::StatusOr<dataplane::PulledModel> model = dataplane::PullModel(options, job, version, kMaxModelBytes);
    done.Set(true);
    watchdog.join();
    if (absl::IsCancelled(model.status()))
      return absl::DeadlineExceededError(absl::StrCat("the model of ", job, " was not there in time"));
    return model;
  }

 private:
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Operator::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                           Response*),
                                const Request& request, absl::Duration timeout) {
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    Response response;
    RETURN_IF_ERROR(dataplane::FromGrpc((stub_.get()->*method)(&context, request, &response)));
    return response;
  }

  const std::shared_ptr<grpc::Channel> channel_;  // Control.
  const std::unique_ptr<v1::Operator::Stub> stub_;
  const std::unique_ptr<dataplane::LinkDialer> dialer_;
  bool watched_ = false;  // A watch has been answered: the coordinator was there.
};

}  // namespace

absl::StatusOr<std::unique_ptr<OperatorClient>> MakeGrpcOperatorClient(const Context& context) {
  // A server says nothing to a certificate that has expired, it just closes the connection.
  ASSIGN_OR_RETURN(const std::string certificate, RealFileSystem()->ReadFile(context.certificate_path(), kMaxPemBytes));
  ASSIGN_OR_RETURN(const dataplane::PeerIdentity identity, dataplane::ParseCertificate(certificate),
                   context.certificate_path());
  if (identity.not_after <= RealClock()->WallNow()) {
    return absl::FailedPreconditionError(absl::StrCat(
        context.certificate_path(), " has expired at ", absl::FormatTime(identity.not_after, absl::UTCTimeZone()),
        ": `causeway cert renew operator --dir DIR` makes a new one, on the coordinator's machine, with DIR ",
        "its data directory"));
  }
  const std::string key = dataplane::HoldsKey(certificate) ? context.certificate_path() : context.key_path();
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                   dataplane::MakeClientCredentials(
                       {.certificate = context.certificate_path(), .key = key, .ca = context.ca_path()}));
  std::string address = context.coordinator.ToString();
  return std::make_unique<GrpcOperatorClient>(
      dataplane::MakeChannel(dataplane::ChannelKind::kControl, address, credentials),
      dataplane::MakeChannel(dataplane::ChannelKind::kBulk, address, credentials));
}

}  // namespace causeway::cli
