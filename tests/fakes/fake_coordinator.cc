#include "tests/fakes/fake_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/bandwidth.h"
#include "dataplane/digest.h"
#include "dataplane/model_stream.h"
#include "dataplane/protocol_version.h"
#include "dataplane/sample_stream.h"

namespace causeway {
namespace {

class ModelSource : public dataplane::PullSource {
 public:
  ModelSource(int64_t version, const dataplane::Layout& layout, std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
    info_.set_version(version);
    *info_.mutable_layout() = layout.ToProto();
    info_.set_layout_sha256(layout.hash());
    info_.set_total_bytes(static_cast<int64_t>(bytes_.size()));
    info_.set_sha256(dataplane::Sha256Of(absl::MakeConstSpan(bytes_)));
  }
  const v1::PullResponse& info() const override { return info_; }
  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    std::copy_n(bytes_.begin() + offset, out.size(), out.begin());
    return absl::OkStatus();
  }

 private:
  v1::PullResponse info_;
  const std::vector<uint8_t> bytes_;
};

}  // namespace

// A stream whose callbacks come one at a time and stop once it is closed.
struct FakeCoordinator::StreamState {
  HeartbeatEvents events;
  Mutex calls;  // Held around each callback.
  bool closed ABSL_GUARDED_BY(calls) = false;

  void Respond(const v1::HeartbeatResponse& response) {
    MutexLock lock(&calls);
    if (!closed) events.on_response(response);
  }
  void Close(const absl::Status& status) {
    MutexLock lock(&calls);
    if (!std::exchange(closed, true)) events.on_closed(status);
  }
};

class FakeCoordinator::Stream : public HeartbeatStream {
 public:
  Stream(FakeCoordinator* coordinator, std::shared_ptr<StreamState> state)
      : coordinator_(coordinator), state_(std::move(state)) {}
  ~Stream() override { Cancel(); }
  absl::Status Send(const v1::HeartbeatRequest& request) override {
    coordinator_->OnHeartbeat(state_, request);
    return absl::OkStatus();
  }
  void Cancel() override { state_->Close(absl::CancelledError("cancelled")); }

 private:
  FakeCoordinator* const coordinator_;
  const std::shared_ptr<StreamState> state_;
};

class FakeCoordinator::Chunks : public dataplane::ChunkSource {
 public:
  explicit Chunks(FakeCoordinator* coordinator) : coordinator_(coordinator) {}
  absl::StatusOr<int64_t> Size(absl::string_view sha256) const override {
    MutexLock lock(&coordinator_->mu_);
    auto it = coordinator_->chunks_.find(std::string(sha256.data(), sha256.size()));
    if (it == coordinator_->chunks_.end()) return absl::NotFoundError("no such chunk");
    ++coordinator_->served_chunks_;
    return static_cast<int64_t>(it->second.size());
  }
  absl::Status Read(absl::string_view sha256, int64_t offset, absl::Span<uint8_t> out) const override {
    MutexLock lock(&coordinator_->mu_);
    const std::vector<uint8_t>& chunk = coordinator_->chunks_.at(std::string(sha256.data(), sha256.size()));
    std::copy_n(chunk.begin() + offset, out.size(), out.begin());
    return absl::OkStatus();
  }

 private:
  FakeCoordinator* const coordinator_;
};

class FakeCoordinator::Sink : public dataplane::PushSink {
 public:
  explicit Sink(FakeCoordinator* coordinator) : coordinator_(coordinator) {}
  absl::StatusOr<Start> Begin(const dataplane::PeerIdentity& peer, const v1::PushRequest& request) override {
    push_.request = request;
    return Start{};
  }
  absl::Status Append(int64_t offset, absl::Span<const uint8_t> bytes) override {
    push_.bytes.insert(push_.bytes.end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Sync() override { return static_cast<int64_t>(push_.bytes.size()); }
  absl::StatusOr<v1::PushResult> Finish() override {
    CAUSEWAY_CHECK(dataplane::Sha256Of(absl::MakeConstSpan(push_.bytes)) == push_.request.sha256());
    v1::PushResult result;
    {
      MutexLock lock(&coordinator_->mu_);
      result.set_outcome(coordinator_->push_outcome_);
      coordinator_->pushes_.push_back(push_);
    }
    coordinator_->Changed();
    MutexLock lock(&coordinator_->mu_);
    while (coordinator_->hold_push_answers_) coordinator_->changed_.Wait(&coordinator_->mu_);
    return result;
  }
  void Abandon(const absl::Status& status) override {}

 private:
  FakeCoordinator* const coordinator_;
  Push push_;
};

FakeCoordinator::FakeCoordinator(Clock* clock) : clock_(clock), protocol_major_(dataplane::kProtocolMajor) {}

void FakeCoordinator::Changed() {
  MutexLock lock(&mu_);
  changed_.SignalAll();
}

void FakeCoordinator::Assign(v1::Assignment assignment) {
  std::shared_ptr<StreamState> stream;
  v1::HeartbeatResponse response;
  {
    MutexLock lock(&mu_);
    assignment.set_sequence(assignment_.sequence() + 1);
    assignment_ = std::move(assignment);
    *response.mutable_assignment() = assignment_;
    stream = stream_;
  }
  if (stream != nullptr) stream->Respond(response);
}

void FakeCoordinator::BreakStream(const absl::Status& status) {
  std::shared_ptr<StreamState> stream;
  {
    MutexLock lock(&mu_);
    stream = std::exchange(stream_, nullptr);
  }
  if (stream != nullptr) stream->Close(status);
}

void FakeCoordinator::Restart() {
  {
    MutexLock lock(&mu_);
    ++incarnation_;
    assignment_.set_sequence(1);  // Its counting starts again.
  }
  BreakStream(absl::UnavailableError("the coordinator is restarted"));
}

void FakeCoordinator::FailCalls(const std::string& name, int count, const absl::Status& status) {
  MutexLock lock(&mu_);
  failures_to_come_[name] = {count, status.code(), std::string(status.message())};
}

void FakeCoordinator::AskForRenewal(bool ask) {
  MutexLock lock(&mu_);
  ask_for_renewal_ = ask;
}

void FakeCoordinator::SignCertificates(std::function<absl::StatusOr<std::string>(const std::string&)> sign) {
  MutexLock lock(&mu_);
  sign_ = std::move(sign);
}

void FakeCoordinator::Mute() {
  MutexLock lock(&mu_);
  mute_ = true;
}

void FakeCoordinator::SetProtocolMajor(uint32_t major) {
  MutexLock lock(&mu_);
  protocol_major_ = major;
}

void FakeCoordinator::SetEndpoint(const std::string& address) {
  MutexLock lock(&mu_);
  endpoint_ = address;
}

void FakeCoordinator::SetModel(int64_t version, const dataplane::Layout& layout, std::vector<uint8_t> bytes) {
  MutexLock lock(&mu_);
  served_models_[version] = {layout, std::move(bytes)};
}

v1::DatasetInfo FakeCoordinator::AddDataset(const std::vector<uint8_t>& records, std::vector<int64_t> sample_shape,
                                            int64_t records_per_chunk) {
  v1::DatasetInfo info;
  int64_t record_bytes = 1;
  for (int64_t n : sample_shape) {
    record_bytes *= n;
    info.add_sample_shape(n);
  }
  ++record_bytes;  // The label.
  info.set_record_bytes(record_bytes);
  info.set_label_bytes(1);
  info.set_samples(static_cast<int64_t>(records.size()) / record_bytes);
  info.set_records_per_chunk(records_per_chunk);
  MutexLock lock(&mu_);
  std::string manifest;
  const int64_t chunk_bytes = records_per_chunk * record_bytes;
  for (int64_t at = 0; at < static_cast<int64_t>(records.size()); at += chunk_bytes) {
    const int64_t end = std::min(at + chunk_bytes, static_cast<int64_t>(records.size()));
    std::vector<uint8_t> chunk(records.begin() + at, records.begin() + end);
    const std::string sha256 = dataplane::Sha256Of(absl::MakeConstSpan(chunk));
    manifest += sha256;
    chunks_[sha256] = std::move(chunk);
  }
  info.set_manifest_sha256(dataplane::Sha256Of(manifest));
  chunks_[info.manifest_sha256()] = {manifest.begin(), manifest.end()};
  return info;
}

void FakeCoordinator::SetPushOutcome(v1::PushResult::Outcome outcome) {
  MutexLock lock(&mu_);
  push_outcome_ = outcome;
}

void FakeCoordinator::HoldPushAnswers(bool hold) {
  MutexLock lock(&mu_);
  hold_push_answers_ = hold;
  changed_.SignalAll();
}

std::vector<FakeCoordinator::Push> FakeCoordinator::pushes() const {
  MutexLock lock(&mu_);
  return pushes_;
}
std::vector<v1::RegisterRequest> FakeCoordinator::registrations() const {
  MutexLock lock(&mu_);
  return registrations_;
}
std::vector<v1::HeartbeatRequest> FakeCoordinator::heartbeats() const {
  MutexLock lock(&mu_);
  return heartbeats_;
}
std::vector<v1::ReportModelRequest> FakeCoordinator::models() const {
  MutexLock lock(&mu_);
  return models_;
}
std::vector<v1::ReportProfileRequest> FakeCoordinator::profiles() const {
  MutexLock lock(&mu_);
  return profiles_;
}
std::vector<v1::ReportDataRequest> FakeCoordinator::data() const {
  MutexLock lock(&mu_);
  return data_;
}
std::vector<v1::ReportEvaluationRequest> FakeCoordinator::evaluations() const {
  MutexLock lock(&mu_);
  return evaluations_;
}
std::vector<v1::ReportFailureRequest> FakeCoordinator::failures() const {
  MutexLock lock(&mu_);
  return failures_;
}
int FakeCoordinator::leaves() const {
  MutexLock lock(&mu_);
  return leaves_;
}
int64_t FakeCoordinator::served_chunks() const {
  MutexLock lock(&mu_);
  return served_chunks_;
}

bool FakeCoordinator::Await(const std::function<bool()>& condition) const {
  const absl::Time deadline = RealClock()->Now() + absl::Seconds(10);
  for (;;) {
    if (condition()) return true;
    MutexLock lock(&mu_);
    // Short, since what is told between the check and the wait gives no signal.
    changed_.WaitFor(&mu_, absl::Milliseconds(5));
    if (RealClock()->Now() > deadline) return false;
  }
}

absl::Status FakeCoordinator::TakeFailure(const std::string& name) {
  MutexLock lock(&mu_);
  auto it = failures_to_come_.find(name);
  if (it == failures_to_come_.end() || it->second.count == 0) return absl::OkStatus();
  --it->second.count;
  return absl::Status(it->second.code, it->second.message);
}

template <typename Request>
absl::Status FakeCoordinator::Record(const std::string& name, const Request& request, std::vector<Request>* into) {
  RETURN_IF_ERROR(TakeFailure(name));
  {
    MutexLock lock(&mu_);
    into->push_back(request);
  }
  Changed();
  return absl::OkStatus();
}

absl::StatusOr<v1::RegisterResponse> FakeCoordinator::Register(const v1::RegisterRequest& request,
                                                               absl::Time deadline) {
  RETURN_IF_ERROR(Record("Register", request, &registrations_));
  v1::RegisterResponse response;
  MutexLock lock(&mu_);
  *response.mutable_version() = dataplane::OurVersion();
  response.mutable_version()->set_major(protocol_major_);
  response.set_site("lab");
  response.set_worker("lab-1");
  response.set_site_generation(1);
  response.set_coordinator_incarnation(incarnation_);
  response.set_heartbeat_interval_ms(20);
  response.set_lease_ms(1000);
  if (!endpoint_.empty()) response.add_endpoints()->set_address(endpoint_);
  return response;
}

absl::StatusOr<std::unique_ptr<worker::CoordinatorClient::HeartbeatStream>> FakeCoordinator::OpenHeartbeat(
    HeartbeatEvents events) {
  RETURN_IF_ERROR(TakeFailure("OpenHeartbeat"));
  auto state = std::make_shared<StreamState>();
  state->events = std::move(events);
  {
    MutexLock lock(&mu_);
    stream_ = state;
  }
  return std::make_unique<Stream>(this, std::move(state));
}

void FakeCoordinator::OnHeartbeat(const std::shared_ptr<StreamState>& stream, const v1::HeartbeatRequest& request) {
  v1::HeartbeatResponse response;
  {
    MutexLock lock(&mu_);
    heartbeats_.push_back(request);
    if (mute_) return;
    response.set_sequence(request.sequence());
    response.set_renew_certificate(ask_for_renewal_);
    response.set_wall_time_ms(absl::ToUnixMillis(clock_->WallNow()));
    if (request.assignment_sequence() != assignment_.sequence() && assignment_.sequence() > 0)
      *response.mutable_assignment() = assignment_;
  }
  Changed();
  stream->Respond(response);
}

absl::Status FakeCoordinator::ReportModel(const v1::ReportModelRequest& request, absl::Time deadline) {
  return Record("ReportModel", request, &models_);
}
absl::Status FakeCoordinator::ReportProfile(const v1::ReportProfileRequest& request, absl::Time deadline) {
  return Record("ReportProfile", request, &profiles_);
}
absl::Status FakeCoordinator::ReportData(const v1::ReportDataRequest& request, absl::Time deadline) {
  return Record("ReportData", request, &data_);
}
absl::Status FakeCoordinator::ReportEvaluation(const v1::ReportEvaluationRequest& request, absl::Time deadline) {
  return Record("ReportEvaluation", request, &evaluations_);
}
absl::Status FakeCoordinator::ReportFailure(const v1::ReportFailureRequest& request, absl::Time deadline) {
  return Record("ReportFailure", request, &failures_);
}
absl::StatusOr<v1::RenewCertificateResponse> FakeCoordinator::RenewCertificate(
    const v1::RenewCertificateRequest& request, absl::Time deadline) {
  RETURN_IF_ERROR(TakeFailure("RenewCertificate"));
  std::function<absl::StatusOr<std::string>(const std::string&)> sign;
  {
    MutexLock lock(&mu_);
    sign = sign_;
  }
  if (!sign) return absl::FailedPreconditionError("this coordinator signs nothing");
  v1::RenewCertificateResponse response;
  ASSIGN_OR_RETURN(*response.mutable_certificate_pem(), sign(request.csr_pem()));
  return response;
}

absl::Status FakeCoordinator::Leave(const v1::LeaveRequest& request, absl::Time deadline) {
  {
    MutexLock lock(&mu_);
    ++leaves_;
  }
  Changed();
  return absl::OkStatus();
}

absl::Status FakeCoordinator::Serve(dataplane::LinkKind kind, const dataplane::PeerIdentity& peer,
                                    dataplane::Link* link) {
  const dataplane::ServeOptions options{clock_};
  ASSIGN_OR_RETURN(const v1::Frame frame, link->Read(clock_->Now() + absl::Seconds(30)));
  switch (kind) {
    case dataplane::LinkKind::kFetch: return dataplane::ServeFetch(link, frame.fetch_request(), Chunks(this), options);
    case dataplane::LinkKind::kProbe: return dataplane::ServeProbe(link, frame.probe_request(), options);
    case dataplane::LinkKind::kPull: {
      Model model;
      {
        MutexLock lock(&mu_);
        auto it = served_models_.find(frame.pull_request().version());
        if (it == served_models_.end()) return absl::NotFoundError("no such version");
        model = it->second;
      }
      return dataplane::ServePull(link, frame.pull_request(),
                                  ModelSource(frame.pull_request().version(), model.layout, model.bytes), options);
    }
    case dataplane::LinkKind::kPush: {
      RETURN_IF_ERROR(TakeFailure("Push"));
      Sink sink(this);
      return dataplane::ServePush(link, peer, frame.push_request(), &sink, options);
    }
  }
  return absl::UnimplementedError("unknown kind of link");
}

}  // namespace causeway
