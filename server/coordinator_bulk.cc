// Coordinator, the steps of pushing, pulling and fetching between which others move the bytes.
#include "server/coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace causeway::server {

absl::StatusOr<Coordinator::PushTicket> Coordinator::BeginPush(const dataplane::PeerIdentity& peer,
                                                               const v1::PushRequest& request) {
  const WorkerId name(peer.name);
  const Worker* worker = membership_.Find(name);
  if (worker == nullptr || !worker->live)
    return absl::FailedPreconditionError(absl::StrCat("worker ", peer.name, " is not registered"));
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", request.fence().job()));
  PushTicket ticket;
  ASSIGN_OR_RETURN(ticket.result, entry->job->CheckPush(name, worker->incarnation, request, options_.clock->Now()));
  if (ticket.result.has_value()) {
    if (ticket.result->outcome() != v1::PushResult::OUTCOME_COUNTED)
      metrics_->CountContribution(entry->row.name, ticket.result->reason());
    Pump();
    return ticket;
  }
  ticket.key = {.job = entry->row.name,
                .fragment = 0,
                .round = request.initial() ? -1 : request.fence().round(),
                .attempt = request.initial() ? 0 : request.attempt(),
                .worker = peer.name};
  ticket.layout = *entry->job->layout();
  ticket.max_change = entry->job->spec().rounds().max_change();
  ticket.store = entry->store;
  if (ticket.store == nullptr) return absl::UnavailableError("the job's layout is being stored");
  if (!request.initial()) {
    ticket.sum = entry->sum;
    if (ticket.sum == nullptr) return absl::UnavailableError("the round is being opened");
    ticket.committed = entry->store->newest().packed;
    ticket.rank = entry->job->book()->Find(name)->participant.rank;
  }
  return ticket;
}

absl::StatusOr<v1::PushResult> Coordinator::RejectPush(const dataplane::PeerIdentity& peer,
                                                       const v1::PushRequest& request, const std::string& reason,
                                                       const std::string& message) {
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr) return absl::NotFoundError("the job is gone");
  v1::PushResult result =
      entry->job->RejectContribution(WorkerId(peer.name), request, reason, message, options_.clock->Now());
  metrics_->CountContribution(entry->row.name, reason);
  Pump();
  return result;
}

absl::Status Coordinator::JournalPush(const dataplane::PeerIdentity& peer, const v1::PushRequest& request,
                                      const std::string& path, const v1::StoredContribution& info) {
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr || !entry->job->BeginAdding(WorkerId(peer.name), request))
    return absl::AbortedError("its round has passed");
  absl::Status added = journal_->AddContribution({.job = entry->row.name,
                                                  .fragment = 0,
                                                  .round = request.fence().round(),
                                                  .attempt = request.attempt(),
                                                  .worker = peer.name,
                                                  .generation = request.fence().site_generation(),
                                                  .incarnation = request.fence().incarnation(),
                                                  .samples = request.samples(),
                                                  .sha256 = request.sha256(),
                                                  .path = path,
                                                  .info = info.SerializeAsString()});
  if (!added.ok()) entry->job->CancelAdding(WorkerId(peer.name));
  return added;
}

absl::StatusOr<v1::PushResult> Coordinator::FinishPush(const dataplane::PeerIdentity& peer,
                                                       const v1::PushRequest& request, const absl::Status& added,
                                                       const v1::StoredContribution& info) {
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr) return absl::NotFoundError("the job is gone");
  if (!added.ok()) {
    log::Error("sum void", {{"job", entry->row.name}, {"worker", peer.name}, {"status", added}});
    entry->job->DropOpenRound(absl::StrCat("a contribution could not be added: ", added.message()));
    Pump();
    return added;
  }
  entry->job->OnAdded(WorkerId(peer.name), request, info, options_.clock->Now());
  GoOn(entry);
  metrics_->CountContribution(entry->row.name, "counted");
  metrics_->CountPhases(entry->row.name, peer.site, peer.name, info);
  v1::PushResult result;
  result.set_outcome(v1::PushResult::OUTCOME_COUNTED);
  Pump();
  return result;
}

void Coordinator::NoRoomForPush(const std::string& job, const absl::Status& status) {
  JobEntry* entry = FindJob(job);
  if (entry == nullptr || !entry->job->active()) return;
  if (entry->stands_still.empty()) log::Error("no room for push", {{"job", job}, {"status", status}});
  entry->stands_still = absl::StrCat("stands still until this succeeds: ", status.message());
  entry->job->OnNoRoom(options_.clock->Now());
}

absl::StatusOr<v1::PushResult> Coordinator::CommitInitial(const v1::PushRequest& request,
                                                          const ParameterStore::Checkpoint& checkpoint,
                                                          PackedModel packed) {
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr) return absl::NotFoundError("the job is gone");
  v1::PushResult result;
  result.set_outcome(v1::PushResult::OUTCOME_COUNTED);
  if (entry->job->version().value() >= 0) return result;
  CommitRow row{.job = entry->row.name,
                .fragment = 0,
                .round = -1,
                .version = 0,
                .sha256 = checkpoint.sha256,
                .path = checkpoint.path,
                .samples = 0,
                .committed_ms = absl::ToUnixMillis(options_.clock->WallNow()),
                .record = ""};
  RETURN_IF_ERROR(journal_->CommitRound(row));
  entry->commits.push_back(row);
  entry->store->Publish(Version(0), std::move(packed), checkpoint.sha256);
  GoOn(entry);
  entry->job->OnInitialCommitted(options_.clock->Now());
  log::Info("initial model committed", {{"job", entry->row.name}, {"bytes", entry->job->layout()->total_bytes()}});
  Pump();
  return result;
}

absl::StatusOr<Coordinator::PullTicket> Coordinator::BeginPull(const v1::PullRequest& request) const {
  const JobEntry* entry = FindJob(request.job());
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", request.job()));
  if (request.fragment() != 0) return absl::InvalidArgumentError("this version knows one fragment, 0");
  if (request.has_elements() && (request.elements().begin() != 0 || !entry->job->layout().has_value() ||
                                 request.elements().end() != entry->job->layout()->total_elements())) {
    return absl::InvalidArgumentError("this version serves the whole range of elements");
  }
  if (entry->store == nullptr || entry->commits.empty()) {
    return absl::NotFoundError(absl::StrCat("job ", request.job(), " has no committed model yet"));
  }
  Version version(request.version());
  if (request.version() < 0) version = entry->job->final_version().value_or(Version(entry->commits.back().version));
  return PullTicket{.layout = *entry->job->layout(), .store = entry->store, .version = version};
}

absl::Status Coordinator::CheckFetch(const dataplane::PeerIdentity& peer, const std::string& job) const {
  const JobEntry* entry = FindJob(job);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job));
  if (!entry->job->active()) return absl::FailedPreconditionError(absl::StrCat("job ", job, " is not running"));
  if (!entry->job->Eligible(SiteId(peer.site))) {
    return absl::PermissionDeniedError(absl::StrCat("site ", peer.site, " takes no part in job ", job));
  }
  return absl::OkStatus();
}

}  // namespace causeway::server
