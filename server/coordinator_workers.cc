// Coordinator, the part that workers talk to: who may do what, joining, registering, heartbeats, reports.
#include "server/coordinator.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "server/authz.h"

namespace causeway::server {
namespace {

// Text from outside, fit to be shown: at most 200 characters, none of which controls a terminal.
std::string Printable(absl::string_view text) {
  std::string printable(text.substr(0, 200));
  for (char& c : printable) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return printable;
}

WorkerRow WorkerRowOf(const Worker& worker) {
  return {.name = worker.name.value(),
          .site = worker.site.value(),
          .serial = worker.certificate_serial,
          .cert_expires_ms = absl::ToUnixMillis(worker.certificate_expires),
          .removed = worker.removed,
          .incarnation = worker.incarnation.value(),
          .key_sha256 = worker.key_sha256,
          .previous_serial = worker.previous_serial};
}

TokenRow TokenRowOf(const Token& token) {
  return {.id = token.id,
          .site = token.site.value(),
          .sha256 = token.secret_hash,
          .uses = token.uses,
          .uses_left = token.uses_left,
          .expires_ms = absl::ToUnixMillis(token.expires),
          .revoked = token.revoked,
          .request_id = token.request_id};
}

}  // namespace

// ---- Rights

void Coordinator::UpdateRoster() {
  Membership roster = membership_;
  MutexLock lock(&roster_mu_);
  roster_ = std::move(roster);
}

absl::Status Coordinator::Authorize(const dataplane::PeerIdentity& peer, absl::string_view method) const {
  absl::Status status = server::Authorize(peer, method, options_.clock->WallNow());
  if (status.ok() && peer.role == dataplane::PeerIdentity::Role::kWorker) {
    MutexLock lock(&roster_mu_);
    status = roster_.CheckCertificate(WorkerId(peer.name), SiteId(peer.site), peer.serial);
  }
  if (!status.ok()) {
    guard_->CallRefused(AccountOf(peer), method, status);
    return status;
  }
  return guard_->AdmitCall(peer, method);
}

dataplane::PeerIdentity Coordinator::AccountOf(const dataplane::PeerIdentity& peer) const {
  dataplane::PeerIdentity account = peer;
  if (peer.role != dataplane::PeerIdentity::Role::kWorker) return account;
  MutexLock lock(&roster_mu_);
  if (!roster_.CheckCertificate(WorkerId(peer.name), SiteId(peer.site), peer.serial).ok())
    absl::StrAppend(&account.name, " (old certificate)");  // No valid name has a space.
  return account;
}

// ---- Workers

absl::Status Coordinator::PutWorker(const Worker& worker) { return journal_->PutWorker(WorkerRowOf(worker)); }

absl::Status Coordinator::PutToken(const Token& token) { return journal_->PutToken(TokenRowOf(token)); }

absl::StatusOr<v1::JoinResponse> Coordinator::Join(const v1::JoinRequest& request) {
  RETURN_IF_ERROR(dataplane::CheckCompatible(request.version(), "the worker"));
  ASSIGN_OR_RETURN(const JoinToken token, ParseJoinToken(request.token()));
  const absl::Time wall_now = options_.clock->WallNow();
  ASSIGN_OR_RETURN(const std::string key_sha256, dataplane::CsrKeySha256(request.csr_pem()));
  // The certificate is made first, so that a bad request does not use the token up. Membership admits a copy until all is stored.
  Membership trial = membership_;
  ASSIGN_OR_RETURN(const Worker worker,
                   trial.Join(token.id, HashTokenSecret(token.secret), request.worker_name(), key_sha256, wall_now));
  dataplane::PeerIdentity holder;
  holder.role = dataplane::PeerIdentity::Role::kWorker;
  holder.name = worker.name.value();
  holder.site = worker.site.value();
  ASSIGN_OR_RETURN(const std::string certificate, SignFor(holder, request.csr_pem()));
  ASSIGN_OR_RETURN(const dataplane::PeerIdentity identity, dataplane::ParseCertificate(certificate));
  trial.SetCertificate(worker.name, identity.serial, identity.not_after);
  RETURN_IF_ERROR(
      journal_->AdmitWorker(WorkerRowOf(*trial.Find(worker.name)), TokenRowOf(trial.tokens().at(token.id))));
  const bool repeated = membership_.Find(worker.name) != nullptr;
  membership_ = std::move(trial);
  UpdateRoster();
  log::Info(
      "worker joined",
      {{"worker", worker.name.value()}, {"site", worker.site.value()}, {"token", token.id}, {"repeated", repeated}});
  v1::JoinResponse response;
  response.set_site(worker.site.value());
  response.set_worker(worker.name.value());
  response.set_certificate_pem(certificate);
  response.set_ca_pem(options_.ca_pem);
  return response;
}

absl::StatusOr<v1::RegisterResponse> Coordinator::Register(const dataplane::PeerIdentity& peer,
                                                           const v1::RegisterRequest& request,
                                                           const std::string& address) {
  RETURN_IF_ERROR(dataplane::CheckCompatible(request.version(), absl::StrCat("worker ", peer.name)));
  if (request.incarnation() <= 0) return absl::InvalidArgumentError("an incarnation is a positive number");
  // What a worker says of itself is shown to operators.
  v1::RegisterRequest shown = request;
  for (std::string* text :
       {shown.mutable_device()->mutable_kind(), shown.mutable_device()->mutable_name(),
        shown.mutable_device()->mutable_torch_version(), shown.mutable_version()->mutable_build()}) {
    *text = Printable(*text);
  }
  const WorkerId name(peer.name);
  if (unstored_sites_.contains(SiteId(peer.site)))
    return absl::UnavailableError(absl::StrCat("the generation of site ", peer.site, " could not be stored yet"));
  ASSIGN_OR_RETURN(const Membership::Registered registered, membership_.Register(name, shown, options_.clock->Now()));
  membership_.SetAddress(name, address);
  const Worker& worker = *membership_.Find(name);
  RETURN_IF_ERROR(PutWorker(worker));
  // The grace until its heartbeat stream opens begins now, however long storing took.
  const absl::Time now = options_.clock->Now();
  membership_.StreamBroken(name, worker.incarnation, now);
  if (const int64_t times = lines_.Take(absl::StrCat("registered ", peer.name), now); times > 0) {
    log::Info("worker registered", {{"worker", peer.name},
                                    {"site", peer.site},
                                    {"generation", membership_.Find(worker.site)->generation.value()},
                                    {"incarnation", request.incarnation()},
                                    {"restarted", registered.restarted},
                                    {"returned", registered.returned},
                                    {"emulated", request.has_emulation()},
                                    {"device", shown.device().name()},
                                    {"times", times}});
  }
  for (auto& entry : jobs_) PresentTo(entry.get(), worker, now);
  v1::RegisterResponse response;
  *response.mutable_version() = dataplane::OurVersion();
  response.set_site(worker.site.value());
  response.set_worker(peer.name);
  response.set_site_generation(membership_.Find(worker.site)->generation.value());
  response.set_coordinator_incarnation(incarnation_.value());
  response.set_heartbeat_interval_ms(absl::ToInt64Milliseconds(options_.heartbeat));
  response.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  v1::EndpointRange* endpoint = response.add_endpoints();
  endpoint->set_address(options_.advertise);
  Pump();
  return response;
}

absl::StatusOr<int64_t> Coordinator::OpenHeartbeat(const dataplane::PeerIdentity& peer, Incarnation incarnation,
                                                   HeartbeatStream stream) {
  const WorkerId name(peer.name);
  RETURN_IF_ERROR(membership_.StreamOpened(name, incarnation, options_.clock->Now()));
  if (auto old = streams_.find(name); old != streams_.end()) {
    old->second.stream.close(absl::AbortedError("replaced by a newer heartbeat stream"));
  }
  Stream& entry = streams_[name];
  entry = Stream{.id = next_stream_++, .stream = std::move(stream), .incarnation = incarnation};
  const int64_t id = entry.id;
  Pump();
  return id;
}

absl::Status Coordinator::Heartbeat(int64_t stream, const v1::HeartbeatRequest& request) {
  for (auto& [name, entry] : streams_) {
    if (entry.id != stream) continue;
    const absl::Time now = options_.clock->Now();
    const absl::Time wall_now = options_.clock->WallNow();
    RETURN_IF_ERROR(membership_.Heard(name, request, now, wall_now));
    for (auto& job : jobs_) {
      if (!job->job->active()) continue;
      job->job->OnProgress(name, request.progress(), now);
      if (request.draining()) job->job->SetDraining(name, now);
    }
    v1::HeartbeatResponse response;
    response.set_sequence(request.sequence());
    response.set_wall_time_ms(absl::ToUnixMillis(wall_now));
    response.set_renew_certificate(renewal_asked_.contains(name));
    entry.stream.send(response);
    return absl::OkStatus();
  }
  return absl::AbortedError("this heartbeat stream was replaced");
}

void Coordinator::HeartbeatClosed(int64_t stream) {
  for (auto it = streams_.begin(); it != streams_.end(); ++it) {
    if (it->second.id != stream) continue;
    membership_.StreamBroken(it->first, it->second.incarnation, options_.clock->Now());
    streams_.erase(it);
    return;
  }
}

Coordinator::JobEntry* Coordinator::FindJob(const std::string& job) {
  for (auto& entry : jobs_) {
    if (entry->row.name == job) return entry.get();
  }
  return nullptr;
}

const Coordinator::JobEntry* Coordinator::FindJob(const std::string& job) const {
  return const_cast<Coordinator*>(this)->FindJob(job);
}

// The job that a mutation is for, if its sender may change anything in it.
Coordinator::JobEntry* Coordinator::JobOf(const dataplane::PeerIdentity& peer, const v1::Fence& fence,
                                          absl::Status* error) {
  const Worker* worker = membership_.Find(WorkerId(peer.name));
  JobEntry* entry = FindJob(fence.job());
  if (entry == nullptr) {
    *error = absl::NotFoundError(absl::StrCat("no job ", fence.job()));
  } else if (worker == nullptr || !worker->live) {
    *error = absl::FailedPreconditionError(absl::StrCat("worker ", peer.name, " is not registered"));
  } else if (worker->incarnation.value() != fence.incarnation()) {
    *error = absl::AbortedError(
        absl::StrCat("incarnation ", fence.incarnation(), " is not the registered one, ", worker->incarnation.value()));
  } else if (fence.fragment() != 0) {
    *error = absl::InvalidArgumentError("this version knows one fragment, 0");
  } else {
    return entry;
  }
  return nullptr;
}

absl::Status Coordinator::ReportModel(const dataplane::PeerIdentity& peer, const v1::ReportModelRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  ASSIGN_OR_RETURN(const dataplane::Layout layout, dataplane::Layout::FromProto(request.layout()));
  if (layout.hash() != request.layout_sha256())
    return absl::DataLossError("the layout does not have the hash that was sent with it");
  absl::Status status =
      entry->job->OnModel(WorkerId(peer.name), layout, request.has_optimizer_state(), options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::ReportProfile(const dataplane::PeerIdentity& peer, const v1::ReportProfileRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  absl::Status status = entry->job->OnProfile(WorkerId(peer.name), request, options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::ReportData(const dataplane::PeerIdentity& peer, const v1::ReportDataRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  absl::Status status = entry->job->OnData(WorkerId(peer.name), request, options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::ReportEvaluation(const dataplane::PeerIdentity& peer,
                                           const v1::ReportEvaluationRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  absl::Status status = entry->job->OnEvaluation(WorkerId(peer.name), request, options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::ReportFailure(const dataplane::PeerIdentity& peer, const v1::ReportFailureRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  v1::ReportFailureRequest shown = request;
  shown.set_task(Printable(request.task()));
  shown.set_message(Printable(request.message()));
  absl::Status status = entry->job->OnFailure(WorkerId(peer.name), shown, options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::Leave(const dataplane::PeerIdentity& peer, const v1::LeaveRequest& request) {
  membership_.Leave(WorkerId(peer.name), Incarnation(request.incarnation()));
  Pump();
  return absl::OkStatus();
}

}  // namespace causeway::server
