#include "server/control_service.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_status.h"
#include "dataplane/protocol_version.h"
#include "google/protobuf/util/message_differencer.h"
#include "proto/membership.grpc.pb.h"
#include "proto/operator.grpc.pb.h"

namespace causeway::server {
namespace {

using dataplane::FromGrpc;
using dataplane::GetPeer;
using dataplane::PeerIdentity;
using dataplane::ToGrpc;

constexpr absl::Duration kWatchInterval = absl::Milliseconds(200);
constexpr size_t kMaxQueuedWrites = 1000;                      // A worker that does not read is let go of.
constexpr absl::Duration kFirstHeartbeat = absl::Seconds(10);  // A stream that says nothing is ended after so long.
// Heartbeats come once a second. More are read so often at most: a flood waits in its sender.
constexpr absl::Duration kHeartbeatSpacing = absl::Milliseconds(20);
constexpr int kHeartbeatBurst = 50;
// Of one worker. The newest one counts; an older one ends when the newest speaks.
constexpr int kMaxHeartbeatStreams = 4;

// A stream whose end can be asked for from outside.
class Closable {
 public:
  virtual ~Closable() = default;
  virtual void Close(const absl::Status& status) = 0;
};

// The open streams. Thread-safe.
class StreamSet {
 public:
  // `worker`: whose heartbeats it carries; empty: nobody's. Errors: Unavailable (closing already, or too many of this worker).
  absl::Status Add(const std::shared_ptr<Closable>& stream, const std::string& worker) {
    MutexLock lock(&mu_);
    if (closed_) return absl::UnavailableError("the coordinator is shutting down");
    const auto same = [&](const auto& entry) { return entry.second == worker; };
    if (!worker.empty() && std::count_if(streams_.begin(), streams_.end(), same) >= kMaxHeartbeatStreams) {
      return absl::UnavailableError(absl::StrCat("worker ", worker, " has too many heartbeat streams open"));
    }
    streams_.emplace(stream, worker);
    return absl::OkStatus();
  }
  void Remove(const std::shared_ptr<Closable>& stream) {
    MutexLock lock(&mu_);
    streams_.erase(stream);
  }
  void CloseAll() {
    std::map<std::shared_ptr<Closable>, std::string> streams;
    {
      MutexLock lock(&mu_);
      closed_ = true;
      streams = streams_;
    }
    for (const auto& [stream, worker] : streams)
      stream->Close(absl::UnavailableError("the coordinator is shutting down"));
  }

 private:
  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::shared_ptr<Closable>, std::string> streams_ ABSL_GUARDED_BY(mu_);
};

// One worker's heartbeat stream. gRPC's share in the reactor is self_, until OnDone.
class HeartbeatReactor : public grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::HeartbeatResponse>,
                         public Closable,
                         public std::enable_shared_from_this<HeartbeatReactor> {
 public:
  static grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::HeartbeatResponse>* Start(
      Coordinator* coordinator, Executor* executor, StreamSet* streams, absl::StatusOr<PeerIdentity> peer) {
    std::shared_ptr<HeartbeatReactor> reactor(new HeartbeatReactor(coordinator, executor, streams));
    reactor->self_ = reactor;
    if (!peer.ok()) {
      reactor->Close(peer.status());
    } else if (absl::Status added = streams->Add(reactor, peer->name); !added.ok()) {
      reactor->Close(added);
    } else {
      reactor->peer_ = *std::move(peer);
      executor->AddAt(coordinator->options().clock->Now() + kFirstHeartbeat, [weak = reactor->weak_from_this()] {
        if (auto self = weak.lock(); self != nullptr && self->stream_ == 0)
          self->Close(absl::DeadlineExceededError("no heartbeat came"));
      });
      reactor->ReadNext();
    }
    return reactor.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close(absl::OkStatus());
      return;
    }
    // The next one is read when this one has been dealt with: a flood waits in its sender.
    executor_->Add([self = shared_from_this()] {
      self->Handle(self->request_);
      const absl::Time now = self->coordinator_->options().clock->Now();
      self->paid_until_ = std::max(self->paid_until_, now) + kHeartbeatSpacing;
      const absl::Time read_at = self->paid_until_ - kHeartbeatBurst * kHeartbeatSpacing;
      if (read_at <= now) return self->ReadNext();
      self->executor_->AddAt(read_at, [self] { self->ReadNext(); });
    });
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) queue_.clear();
    WriteNextLocked();
  }

  void OnCancel() override { Close(absl::CancelledError("the worker's connection broke")); }

  void OnDone() override {
    streams_->Remove(self_);
    executor_->Add([self = shared_from_this()] {
      if (self->stream_ != 0) self->coordinator_->HeartbeatClosed(self->stream_);
    });
    std::shared_ptr<HeartbeatReactor> last = std::move(self_);
  }

  void Send(const v1::HeartbeatResponse& response) {
    bool overflow = false;
    {
      MutexLock lock(&mu_);
      if (finished_) return;
      overflow = queue_.size() >= kMaxQueuedWrites;
      if (!overflow) queue_.push_back(response);
      WriteNextLocked();
    }
    if (overflow) Close(absl::ResourceExhaustedError("the worker does not read its assignments"));
  }

  void Close(const absl::Status& status) override {
    {
      MutexLock lock(&mu_);
      if (finished_) return;
      finished_ = true;
    }
    Finish(ToGrpc(status));
  }

 private:
  HeartbeatReactor(Coordinator* coordinator, Executor* executor, StreamSet* streams)
      : coordinator_(coordinator), executor_(executor), streams_(streams) {}

  // On the executor.
  void Handle(const v1::HeartbeatRequest& request) {
    absl::Status status;
    if (stream_ == 0) {
      absl::StatusOr<int64_t> stream =
          coordinator_->OpenHeartbeat(peer_, Incarnation(request.incarnation()),
                                      {.send =
                                           [weak = weak_from_this()](const v1::HeartbeatResponse& r) {
                                             if (auto self = weak.lock()) self->Send(r);
                                           },
                                       .close =
                                           [weak = weak_from_this()](const absl::Status& s) {
                                             if (auto self = weak.lock()) self->Close(s);
                                           }});
      status = stream.status();
      if (stream.ok()) stream_ = *stream;
    }
    if (status.ok()) status = coordinator_->Heartbeat(stream_, request);
    if (!status.ok()) Close(status);
  }

  void ReadNext() {
    MutexLock lock(&mu_);
    if (!finished_) StartRead(&request_);
  }

  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || queue_.empty() || finished_) return;
    writing_ = true;
    current_ = std::move(queue_.front());
    queue_.pop_front();
    StartWrite(&current_);
  }

  Coordinator* const coordinator_;
  Executor* const executor_;
  StreamSet* const streams_;
  std::shared_ptr<HeartbeatReactor> self_;
  PeerIdentity peer_;
  v1::HeartbeatRequest request_;
  // Executor only.
  int64_t stream_ = 0;
  absl::Time paid_until_ = absl::InfinitePast();  // Each heartbeat costs kHeartbeatSpacing.

  Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::HeartbeatResponse> queue_ ABSL_GUARDED_BY(mu_);
  v1::HeartbeatResponse current_;  // Being written.
};

// One operator's watch of one job: the status whenever it has changed, until the job has ended.
class WatchReactor : public grpc::ServerWriteReactor<v1::GetJobResponse>,
                     public Closable,
                     public std::enable_shared_from_this<WatchReactor> {
 public:
  static grpc::ServerWriteReactor<v1::GetJobResponse>* Start(Coordinator* coordinator, Executor* executor, Clock* clock,
                                                             StreamSet* streams, const std::string& job) {
    std::shared_ptr<WatchReactor> reactor(new WatchReactor(coordinator, executor, clock, streams, job));
    reactor->self_ = reactor;
    if (absl::Status added = streams->Add(reactor, ""); !added.ok()) {
      reactor->Close(added);
    } else {
      executor->Add([reactor] { reactor->Look(); });
    }
    return reactor.get();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Close(absl::CancelledError("the watcher is gone"));
    } else if (last_) {
      Close(absl::OkStatus());
    } else {
      LookLater();
    }
  }
  void OnCancel() override { Close(absl::CancelledError("the watcher is gone")); }
  void OnDone() override {
    streams_->Remove(self_);
    std::shared_ptr<WatchReactor> last = std::move(self_);
  }
  void Close(const absl::Status& status) override {
    {
      MutexLock lock(&mu_);
      if (finished_) return;
      finished_ = true;
    }
    Finish(ToGrpc(status));
  }

 private:
  WatchReactor(Coordinator* coordinator, Executor* executor, Clock* clock, StreamSet* streams, std::string job)
      : coordinator_(coordinator), executor_(executor), clock_(clock), streams_(streams), job_(std::move(job)) {}

  void LookLater() {
    executor_->AddAt(clock_->Now() + kWatchInterval, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Look();
    });
  }

  // On the executor.
  void Look() {
    absl::StatusOr<v1::GetJobResponse> status = coordinator_->GetJob(job_);
    if (!status.ok()) {
      Close(status.status());
      return;
    }
    // Clocks alone are no news.
    v1::GetJobResponse news = *status;
    news.set_round_elapsed_s(0);
    news.set_train_seconds(0);
    news.set_seconds_left(0);
    std::string bytes = news.SerializeAsString();
    if (bytes == seen_) {
      LookLater();
      return;
    }
    seen_ = std::move(bytes);
    const v1::JobState state = status->summary().state();
    MutexLock lock(&mu_);
    if (finished_) return;
    last_ = state == v1::JOB_STATE_FINISHED || state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_ABORTED;
    current_ = *std::move(status);
    StartWrite(&current_);
  }

  Coordinator* const coordinator_;
  Executor* const executor_;
  Clock* const clock_;
  StreamSet* const streams_;
  const std::string job_;
  std::shared_ptr<WatchReactor> self_;
  std::string seen_;  // Executor only.
  v1::GetJobResponse current_;
  bool last_ = false;
  Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

// Calls `work` on the executor and finishes the call with what it returns.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* Unary(Executor* executor, grpc::CallbackServerContext* context, Response* response,
                                Work work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  executor->Add([reactor, response, work = std::move(work)]() mutable {
    absl::StatusOr<Response> result = work();
    if (result.ok()) *response = *std::move(result);
    reactor->Finish(ToGrpc(result.status()));
  });
  return reactor;
}

// As Unary, for work that depends on who calls.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* ForPeer(Executor* executor, grpc::CallbackServerContext* context, Response* response,
                                  Work work) {
  return Unary(executor, context, response,
               [peer = GetPeer(*context), work = std::move(work)]() -> absl::StatusOr<Response> {
                 if (!peer.ok()) return peer.status();
                 return work(*peer);
               });
}

template <typename Response>
absl::StatusOr<Response> Empty(const absl::Status& status) {
  if (!status.ok()) return status;
  return Response();
}

class MembershipService : public v1::Membership::CallbackService {
 public:
  MembershipService(Coordinator* coordinator, Executor* executor, StreamSet* streams)
      : coordinator_(coordinator), executor_(executor), streams_(streams) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context, const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    return Unary(executor_, context, response, [this, request] { return coordinator_->Join(*request); });
  }
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override {
    return ForWorker(context, response, [this, request, address = context->peer()](const PeerIdentity& peer) {
      return coordinator_->Register(peer, *request, address);
    });
  }
  grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::HeartbeatResponse>* Heartbeat(
      grpc::CallbackServerContext* context) override {
    return HeartbeatReactor::Start(coordinator_, executor_, streams_, GetPeer(*context));
  }
  grpc::ServerUnaryReactor* ReportModel(grpc::CallbackServerContext* context, const v1::ReportModelRequest* request,
                                        v1::ReportModelResponse* response) override {
    return ForWorker(context, response, [this, request](const PeerIdentity& peer) {
      return Empty<v1::ReportModelResponse>(coordinator_->ReportModel(peer, *request));
    });
  }
  grpc::ServerUnaryReactor* ReportProfile(grpc::CallbackServerContext* context, const v1::ReportProfileRequest* request,
                                          v1::ReportProfileResponse* response) override {
    return ForWorker(context, response, [this, request](const PeerIdentity& peer) {
      return Empty<v1::ReportProfileResponse>(coordinator_->ReportProfile(peer, *request));
    });
  }
  grpc::ServerUnaryReactor* ReportData(grpc::CallbackServerContext* context, const v1::ReportDataRequest* request,
                                       v1::ReportDataResponse* response) override {
    return ForWorker(context, response, [this, request](const PeerIdentity& peer) {
      return Empty<v1::ReportDataResponse>(coordinator_->ReportData(peer, *request));
    });
  }
  grpc::ServerUnaryReactor* ReportEvaluation(grpc::CallbackServerContext* context,
                                             const v1::ReportEvaluationRequest* request,
                                             v1::ReportEvaluationResponse* response) override {
    return ForWorker(context, response, [this, request](const PeerIdentity& peer) {
      return Empty<v1::ReportEvaluationResponse>(coordinator_->ReportEvaluation(peer, *request));
    });
  }
  grpc::ServerUnaryReactor* ReportFailure(grpc::CallbackServerContext* context, const v1::ReportFailureRequest* request,
                                          v1::ReportFailureResponse* response) override {
    return ForWorker(context, response, [this, request](const PeerIdentity& peer) {
      return Empty<v1::ReportFailureResponse>(coordinator_->ReportFailure(peer, *request));
    });
  }
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const v1::LeaveRequest* request,
                                  v1::LeaveResponse* response) override {
    return ForWorker(context, response, [this, request](const PeerIdentity& peer) {
      return Empty<v1::LeaveResponse>(coordinator_->Leave(peer, *request));
    });
  }
  grpc::ServerUnaryReactor* RenewCertificate(grpc::CallbackServerContext* context,
                                             const v1::RenewCertificateRequest* request,
                                             v1::RenewCertificateResponse* response) override {
    return ForWorker(context, response, [this, request](const PeerIdentity& peer) {
      return coordinator_->RenewCertificate(peer, *request);
    });
  }

 private:
  template <typename Response, typename Work>
  grpc::ServerUnaryReactor* ForWorker(grpc::CallbackServerContext* context, Response* response, Work work) {
    return ForPeer(executor_, context, response, std::move(work));
  }

  Coordinator* const coordinator_;
  Executor* const executor_;
  StreamSet* const streams_;
};

class OperatorService : public v1::Operator::CallbackService {
 public:
  OperatorService(Coordinator* coordinator, Executor* executor, Clock* clock, StreamSet* streams)
      : coordinator_(coordinator), executor_(executor), clock_(clock), streams_(streams) {}

  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context, const v1::GetVersionRequest* request,
                                       v1::GetVersionResponse* response) override {
    return Unary(executor_, context, response, [this, request]() -> absl::StatusOr<v1::GetVersionResponse> {
      RETURN_IF_ERROR(dataplane::CheckCompatible(request->version(), "the command line"));
      v1::GetVersionResponse r;
      *r.mutable_version() = dataplane::OurVersion();
      r.set_coordinator_incarnation(coordinator_->incarnation().value());
      return r;
    });
  }
  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context, const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    executor_->Add([this, request, response, reactor] {
      coordinator_->SubmitJob(*request, [response, reactor](absl::StatusOr<v1::SubmitJobResponse> result) {
        if (result.ok()) *response = *std::move(result);
        reactor->Finish(ToGrpc(result.status()));
      });
    });
    return reactor;
  }
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest*,
                                     v1::ListJobsResponse* response) override {
    return Unary(executor_, context, response,
                 [this]() -> absl::StatusOr<v1::ListJobsResponse> { return coordinator_->ListJobs(); });
  }
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override {
    return Unary(executor_, context, response, [this, request] { return coordinator_->GetJob(request->job()); });
  }
  grpc::ServerWriteReactor<v1::GetJobResponse>* WatchJob(grpc::CallbackServerContext*,
                                                         const v1::GetJobRequest* request) override {
    return WatchReactor::Start(coordinator_, executor_, clock_, streams_, request->job());
  }
  grpc::ServerUnaryReactor* AbortJob(grpc::CallbackServerContext* context, const v1::AbortJobRequest* request,
                                     v1::AbortJobResponse* response) override {
    return Unary(executor_, context, response,
                 [this, request] { return Empty<v1::AbortJobResponse>(coordinator_->AbortJob(*request)); });
  }
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context, const v1::PauseJobRequest* request,
                                     v1::PauseJobResponse* response) override {
    return Unary(executor_, context, response,
                 [this, request] { return Empty<v1::PauseJobResponse>(coordinator_->PauseJob(request->job())); });
  }
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context, const v1::ResumeJobRequest* request,
                                      v1::ResumeJobResponse* response) override {
    return Unary(executor_, context, response,
                 [this, request] { return Empty<v1::ResumeJobResponse>(coordinator_->ResumeJob(request->job())); });
  }
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context, const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse* response) override {
    return Unary(executor_, context, response, [this, request] {
      return Empty<v1::DrainWorkerResponse>(coordinator_->DrainWorker(request->worker()));
    });
  }
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context, const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override {
    return Unary(executor_, context, response, [this, request] { return coordinator_->ListWorkers(*request); });
  }
  grpc::ServerUnaryReactor* RemoveWorker(grpc::CallbackServerContext* context, const v1::RemoveWorkerRequest* request,
                                         v1::RemoveWorkerResponse* response) override {
    return Unary(executor_, context, response, [this, request] {
      return Empty<v1::RemoveWorkerResponse>(coordinator_->RemoveWorker(request->worker()));
    });
  }
  grpc::ServerUnaryReactor* AddSite(grpc::CallbackServerContext* context, const v1::AddSiteRequest* request,
                                    v1::AddSiteResponse* response) override {
    return Unary(executor_, context, response, [this, request] { return coordinator_->AddSite(*request); });
  }
  grpc::ServerUnaryReactor* ListSites(grpc::CallbackServerContext* context, const v1::ListSitesRequest*,
                                      v1::ListSitesResponse* response) override {
    return Unary(executor_, context, response,
                 [this]() -> absl::StatusOr<v1::ListSitesResponse> { return coordinator_->ListSites(); });
  }
  grpc::ServerUnaryReactor* RemoveSite(grpc::CallbackServerContext* context, const v1::RemoveSiteRequest* request,
                                       v1::RemoveSiteResponse* response) override {
    return Unary(executor_, context, response,
                 [this, request] { return Empty<v1::RemoveSiteResponse>(coordinator_->RemoveSite(request->site())); });
  }
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context, const v1::ListTokensRequest*,
                                       v1::ListTokensResponse* response) override {
    return Unary(executor_, context, response,
                 [this]() -> absl::StatusOr<v1::ListTokensResponse> { return coordinator_->ListTokens(); });
  }
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context, const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenResponse* response) override {
    return Unary(executor_, context, response, [this, request] {
      return Empty<v1::RevokeTokenResponse>(coordinator_->RevokeToken(request->token_id()));
    });
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override {
    return Unary(executor_, context, response, [this, request] { return coordinator_->ListModels(request->job()); });
  }
  grpc::ServerUnaryReactor* ListCertificates(grpc::CallbackServerContext* context, const v1::ListCertificatesRequest*,
                                             v1::ListCertificatesResponse* response) override {
    return ForPeer(executor_, context, response,
                   [this](const PeerIdentity& peer) { return coordinator_->ListCertificates(peer); });
  }
  grpc::ServerUnaryReactor* RequestRenewal(grpc::CallbackServerContext* context,
                                           const v1::RequestRenewalRequest* request,
                                           v1::RequestRenewalResponse* response) override {
    return Unary(executor_, context, response, [this, request] { return coordinator_->RequestRenewal(*request); });
  }
  grpc::ServerUnaryReactor* RenewOperatorCertificate(grpc::CallbackServerContext* context,
                                                     const v1::RenewCertificateRequest* request,
                                                     v1::RenewCertificateResponse* response) override {
    return ForPeer(executor_, context, response, [this, request](const PeerIdentity& peer) {
      return coordinator_->RenewOperatorCertificate(peer, *request);
    });
  }

 private:
  Coordinator* const coordinator_;
  Executor* const executor_;
  Clock* const clock_;
  StreamSet* const streams_;
};

class ControlServiceImpl : public ControlService {
 public:
  ControlServiceImpl(Coordinator* coordinator, Executor* executor, Clock* clock)
      : membership_(coordinator, executor, &streams_), operator_(coordinator, executor, clock, &streams_) {}
  void Register(grpc::ServerBuilder* builder) override {
    builder->RegisterService(&membership_);
    builder->RegisterService(&operator_);
  }
  void CloseStreams() override { streams_.CloseAll(); }

 private:
  StreamSet streams_;
  MembershipService membership_;
  OperatorService operator_;
};

}  // namespace

std::unique_ptr<ControlService> ControlService::Create(Coordinator* coordinator, Executor* executor, Clock* clock) {
  return std::make_unique<ControlServiceImpl>(coordinator, executor, clock);
}

}  // namespace causeway::server
