#include "worker/grpc_coordinator_client.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_status.h"
#include "proto/membership.grpc.pb.h"

namespace causeway::worker {
namespace {

gpr_timespec GrpcDeadline(Clock* clock, absl::Time deadline) {
  const absl::Duration left = std::max(absl::ZeroDuration(), deadline - clock->Now());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(absl::ToInt64Milliseconds(left), GPR_TIMESPAN));
}

void SetDeadline(grpc::ClientContext* context, Clock* clock, absl::Time deadline) {
  context->set_deadline(GrpcDeadline(clock, deadline));
}

// One heartbeat stream. gRPC's threads call the On... methods; the destructor waits until they are through.
class GrpcHeartbeatStream : public CoordinatorClient::HeartbeatStream,
                            public grpc::ClientBidiReactor<v1::HeartbeatRequest, v1::HeartbeatResponse> {
 public:
  explicit GrpcHeartbeatStream(CoordinatorClient::HeartbeatEvents events) : events_(std::move(events)) {}

  void Open(v1::Membership::Stub* stub) {
    stub->async()->Heartbeat(&context_, this);
    AddHold();  // Sends come from outside of reactions.
    StartRead(&response_);
    StartCall();
  }

  ~GrpcHeartbeatStream() override {
    context_.TryCancel();
    MutexLock lock(&mu_);
    while (!done_) changed_.Wait(&mu_);
  }

  absl::Status Send(const v1::HeartbeatRequest& request) override {
    MutexLock lock(&mu_);
    if (closed_) return absl::UnavailableError("the heartbeat stream is closed");
    if (writing_) {
      waiting_ = request;  // A newer heartbeat says all that an unsent one would.
      return absl::OkStatus();
    }
    writing_ = true;
    request_ = request;
    StartWrite(&request_);
    return absl::OkStatus();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok || closed_ || !waiting_.has_value()) return;
    request_ = *std::exchange(waiting_, std::nullopt);
    writing_ = true;
    StartWrite(&request_);
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      events_.on_response(response_);
      StartRead(&response_);
      return;
    }
    {
      MutexLock lock(&mu_);
      closed_ = true;
    }
    context_.TryCancel();
    RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    events_.on_closed(status.ok() ? absl::UnavailableError("the coordinator closed the heartbeat stream")
                                  : dataplane::FromGrpc(status));
    MutexLock lock(&mu_);
    done_ = true;
    changed_.SignalAll();
  }

 private:
  const CoordinatorClient::HeartbeatEvents events_;
  grpc::ClientContext context_;
  v1::HeartbeatResponse response_;
  Mutex mu_;
  CondVar changed_;
  v1::HeartbeatRequest request_;  // In use by gRPC while writing_.
  std::optional<v1::HeartbeatRequest> waiting_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

class GrpcCoordinatorClientImpl : public GrpcCoordinatorClient {
 public:
  GrpcCoordinatorClientImpl(std::shared_ptr<grpc::Channel> channel, Clock* clock) : clock_(clock) {
    UseChannel(std::move(channel));
  }

  void UseChannel(std::shared_ptr<grpc::Channel> channel) override {
    std::shared_ptr<v1::Membership::Stub> stub = v1::Membership::NewStub(channel);
    MutexLock lock(&mu_);
    channel_ = std::move(channel);
    stub_ = std::move(stub);
  }

  absl::StatusOr<v1::RegisterResponse> Register(const v1::RegisterRequest& request, absl::Time deadline) override {
    // A channel connects only while somebody waits on it. A call does not when the last try has failed (it fails at once, saying why), and
    // then the handshake takes so long that its pings go unanswered, again and again. Half of the time is left to the call.
    const absl::Time now = clock_->Now();
    Channel()->WaitForConnected(GrpcDeadline(clock_, now + (deadline - now) / 2));
    return Call<v1::RegisterResponse>(&v1::Membership::Stub::Register, request, deadline);
  }
  absl::StatusOr<std::unique_ptr<HeartbeatStream>> OpenHeartbeat(HeartbeatEvents events) override {
    auto stream = std::make_unique<GrpcHeartbeatStream>(std::move(events));
    stream->Open(Stub().get());
    return stream;
  }
  absl::Status ReportModel(const v1::ReportModelRequest& request, absl::Time deadline) override {
    return Call<v1::ReportModelResponse>(&v1::Membership::Stub::ReportModel, request, deadline).status();
  }
  absl::Status ReportProfile(const v1::ReportProfileRequest& request, absl::Time deadline) override {
    return Call<v1::ReportProfileResponse>(&v1::Membership::Stub::ReportProfile, request, deadline).status();
  }
  absl::Status ReportData(const v1::ReportDataRequest& request, absl::Time deadline) override {
    return Call<v1::ReportDataResponse>(&v1::Membership::Stub::ReportData, request, deadline).status();
  }
  absl::Status ReportEvaluation(const v1::ReportEvaluationRequest& request, absl::Time deadline) override {
    return Call<v1::ReportEvaluationResponse>(&v1::Membership::Stub::ReportEvaluation, request, deadline).status();
  }
  absl::Status ReportFailure(const v1::ReportFailureRequest& request, absl::Time deadline) override {
    return Call<v1::ReportFailureResponse>(&v1::Membership::Stub::ReportFailure, request, deadline).status();
  }
  absl::Status Leave(const v1::LeaveRequest& request, absl::Time deadline) override {
    return Call<v1::LeaveResponse>(&v1::Membership::Stub::Leave, request, deadline).status();
  }
  absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(const v1::RenewCertificateRequest& request,
                                                                absl::Time deadline) override {
    return Call<v1::RenewCertificateResponse>(&v1::Membership::Stub::RenewCertificate, request, deadline);
  }

 private:
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(grpc::Status (v1::Membership::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                             Response*),
                                const Request& request, absl::Time deadline) {
    grpc::ClientContext context;
    SetDeadline(&context, clock_, deadline);
    Response response;
    RETURN_IF_ERROR(dataplane::FromGrpc((Stub().get()->*method)(&context, request, &response)));
    return response;
  }

  std::shared_ptr<grpc::Channel> Channel() {
    MutexLock lock(&mu_);
    return channel_;
  }
  std::shared_ptr<v1::Membership::Stub> Stub() {
    MutexLock lock(&mu_);
    return stub_;
  }

  Clock* const clock_;
  Mutex mu_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<v1::Membership::Stub> stub_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<GrpcCoordinatorClient> MakeGrpcCoordinatorClient(std::shared_ptr<grpc::Channel> channel, Clock* clock) {
  return std::make_unique<GrpcCoordinatorClientImpl>(std::move(channel), clock);
}

absl::StatusOr<v1::JoinResponse> CallJoin(const std::string& address, const std::string& ca_pem,
                                          const v1::JoinRequest& request, Clock* clock, absl::Time deadline) {
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials, dataplane::MakeAnonymousCredentials(ca_pem));
  const auto stub =
      v1::Membership::NewStub(dataplane::MakeChannel(dataplane::ChannelKind::kControl, address, credentials));
  grpc::ClientContext context;
  SetDeadline(&context, clock, deadline);
  v1::JoinResponse response;
  RETURN_IF_ERROR(dataplane::FromGrpc(stub->Join(&context, request, &response)));
  return response;
}

}  // namespace causeway::worker
