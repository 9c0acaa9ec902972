#include "server/membership.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/authz.h"

namespace causeway::server {

absl::StatusOr<bool> Membership::AddSite(const SiteId& name) {
  RETURN_IF_ERROR(ValidateName("site", name.value()));
  return sites_.try_emplace(name, Site{.name = name}).second;
}

absl::Status Membership::RemoveSite(const SiteId& name) {
  if (!sites_.contains(name)) return absl::NotFoundError(absl::StrCat("no site ", name.value()));
  for (const auto& [id, worker] : workers_) {
    if (worker.site == name && !worker.removed) {
      return absl::FailedPreconditionError(absl::StrCat("site ", name.value(), " still has worker ", id.value(),
                                                        "; remove it first: causeway worker remove ", id.value()));
    }
  }
  sites_.erase(name);
  std::erase_if(tokens_, [&](const auto& entry) { return entry.second.site == name; });
  std::erase_if(workers_, [&](const auto& entry) { return entry.second.site == name; });
  return absl::OkStatus();
}

absl::Status Membership::RevokeToken(const std::string& id) {
  auto it = tokens_.find(id);
  if (it == tokens_.end()) return absl::NotFoundError(absl::StrCat("no token ", id));
  it->second.revoked = true;
  return absl::OkStatus();
}

const Token* Membership::FindToken(const SiteId& site, absl::string_view request_id) const {
  if (request_id.empty()) return nullptr;
  for (const auto& [id, token] : tokens_) {
    if (token.site == site && token.request_id == request_id) return &token;
  }
  return nullptr;
}

absl::StatusOr<Worker> Membership::Join(const std::string& token_id, absl::string_view secret_hash,
                                        const std::string& name, absl::string_view key_sha256, absl::Time wall_now) {
  auto it = tokens_.find(token_id);
  // One message for both, so that nobody learns which tokens exist.
  if (it == tokens_.end() || !SameHash(it->second.secret_hash, secret_hash)) {
    return absl::PermissionDeniedError("the join token is unknown; get one with: causeway site add SITE");
  }
  Token& token = it->second;
  if (token.revoked) return absl::PermissionDeniedError(absl::StrCat("join token ", token_id, " was revoked"));
  if (token.expires <= wall_now) {
    return absl::PermissionDeniedError(
        absl::StrCat("join token ", token_id, " expired at ", absl::FormatTime(token.expires, absl::UTCTimeZone())));
  }
  for (const auto& [id, worker] : workers_) {
    if (worker.site == token.site && !worker.removed && worker.key_sha256 == key_sha256 &&
        (name.empty() || id.value() == name)) {
      return worker;
    }
  }
  if (token.uses_left <= 0) {
    return absl::PermissionDeniedError(absl::StrCat("join token ", token_id, " is used up (", token.uses, " uses)"));
  }
  Worker worker;
  worker.site = token.site;
  worker.key_sha256 = std::string(key_sha256);
  if (name.empty()) {
    for (int n = 1; worker.name.value().empty() || workers_.contains(worker.name); ++n) {
      worker.name = WorkerId(absl::StrCat(token.site.value(), "-", n));
    }
  } else {
    RETURN_IF_ERROR(ValidateName("worker", name));
    worker.name = WorkerId(name);
    if (workers_.contains(worker.name)) {
      return absl::AlreadyExistsError(
          absl::StrCat("there is a worker ", name, " already; choose another name (--name)"));
    }
  }
  --token.uses_left;
  workers_[worker.name] = worker;
  return worker;
}

void Membership::SetCertificate(const WorkerId& name, const std::string& serial, absl::Time expires) {
  Worker& worker = workers_.at(name);
  worker.certificate_serial = serial;
  worker.certificate_expires = expires;
  worker.previous_serial.clear();
}

void Membership::RenewCertificate(const WorkerId& name, const std::string& presented, const std::string& serial,
                                  absl::Time expires, absl::string_view key_sha256) {
  SetCertificate(name, serial, expires);
  Worker& worker = workers_.at(name);
  worker.previous_serial = presented;
  worker.key_sha256 = std::string(key_sha256);
}

absl::Status Membership::CheckCertificate(const WorkerId& name, const SiteId& site, const std::string& serial) const {
  const Worker* worker = Find(name);
  if (worker == nullptr)
    return absl::PermissionDeniedError(absl::StrCat("no worker ", name.value(), " is known here; join again"));
  if (worker->removed) return absl::PermissionDeniedError(absl::StrCat("worker ", name.value(), " was removed"));
  const bool counts = serial == worker->certificate_serial || (!serial.empty() && serial == worker->previous_serial);
  if (worker->site != site || !counts) {
    return absl::PermissionDeniedError(absl::StrCat("this certificate of worker ", name.value(), " was replaced"));
  }
  return absl::OkStatus();
}

absl::Status Membership::RemoveWorker(const WorkerId& name) {
  auto it = workers_.find(name);
  if (it == workers_.end()) return absl::NotFoundError(absl::StrCat("no worker ", name.value()));
  it->second.removed = true;
  if (it->second.live) Drop(&it->second, "removed", /*in_order=*/true);
  return absl::OkStatus();
}

absl::StatusOr<Membership::Registered> Membership::Register(const WorkerId& name, const v1::RegisterRequest& request,
                                                            absl::Time now) {
  auto it = workers_.find(name);
  if (it == workers_.end() || it->second.removed) {
    return absl::PermissionDeniedError(absl::StrCat("worker ", name.value(), " is unknown or was removed"));
  }
  Worker& worker = it->second;
  const Incarnation incarnation(request.incarnation());
  if (incarnation < worker.incarnation) {
    return absl::AbortedError(absl::StrCat("worker ", name.value(), " incarnation ", incarnation.value(),
                                           " was replaced by ", worker.incarnation.value(),
                                           "; is a second copy of it running?"));
  }
  if (incarnation == worker.incarnation && worker.live && worker.registration.process() != request.process() &&
      worker.registration.process() != 0) {
    return absl::AbortedError(absl::StrCat("another process is registered as worker ", name.value(), " incarnation ",
                                           incarnation.value(), "; is its folder copied?"));
  }
  Registered result;
  result.returned = !worker.live;
  result.restarted = worker.incarnation.value() != 0 && incarnation != worker.incarnation;
  if (worker.incarnation != incarnation) worker.draining = false;
  worker.incarnation = incarnation;
  worker.registration = request;
  worker.heartbeat.Clear();
  worker.live = true;
  worker.last_heard = now;
  worker.stream_broken = now;  // Until its heartbeat stream opens.
  return result;
}

absl::Status Membership::StreamOpened(const WorkerId& name, Incarnation incarnation, absl::Time now) {
  auto it = workers_.find(name);
  if (it == workers_.end() || !it->second.live) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", name.value(), " is not registered"));
  }
  if (it->second.incarnation != incarnation) return absl::AbortedError("another incarnation is registered");
  it->second.stream_broken.reset();
  it->second.last_heard = now;
  return absl::OkStatus();
}

void Membership::StreamBroken(const WorkerId& name, Incarnation incarnation, absl::Time now) {
  auto it = workers_.find(name);
  if (it == workers_.end() || !it->second.live || it->second.incarnation != incarnation) return;
  it->second.stream_broken = now;
}

absl::Status Membership::Heard(const WorkerId& name, const v1::HeartbeatRequest& heartbeat, absl::Time now,
                               absl::Time wall_now) {
  auto it = workers_.find(name);
  if (it == workers_.end() || !it->second.live) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", name.value(), " is not registered"));
  }
  Worker& worker = it->second;
  if (worker.incarnation != Incarnation(heartbeat.incarnation()))
    return absl::AbortedError("another incarnation is registered");
  worker.last_heard = now;
  worker.heartbeat = heartbeat;
  worker.draining |= heartbeat.draining();
  worker.clock_offset_s = absl::ToDoubleSeconds(absl::FromUnixMillis(heartbeat.wall_time_ms()) - wall_now);
  return absl::OkStatus();
}

void Membership::Leave(const WorkerId& name, Incarnation incarnation) {
  auto it = workers_.find(name);
  if (it == workers_.end() || !it->second.live || it->second.incarnation != incarnation) return;
  Drop(&it->second, "left", /*in_order=*/true);
}

absl::Status Membership::Drain(const WorkerId& name) {
  auto it = workers_.find(name);
  if (it == workers_.end() || it->second.removed) return absl::NotFoundError(absl::StrCat("no worker ", name.value()));
  if (!it->second.live) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", name.value(), " is not running: nothing to drain"));
  }
  it->second.draining = true;
  return absl::OkStatus();
}

void Membership::Drop(Worker* worker, absl::string_view reason, bool in_order) {
  worker->live = false;
  worker->stream_broken.reset();
  if (auto site = sites_.find(worker->site); site != sites_.end()) {
    site->second.generation = Generation(site->second.generation.value() + 1);
  }
  lost_.push_back({worker->name, std::string(reason), in_order});
}

std::vector<Membership::Lost> Membership::TakeLost(absl::Time now) {
  for (auto& [name, worker] : workers_) {
    if (!worker.live) continue;
    if (now - worker.last_heard > options_.lease) {
      Drop(&worker, "lease expired", /*in_order=*/false);
    } else if (worker.stream_broken.has_value() && now - *worker.stream_broken > options_.broken_stream_grace) {
      Drop(&worker, "connection broken", /*in_order=*/false);
    }
  }
  return std::exchange(lost_, {});
}

const Worker* Membership::Find(const WorkerId& name) const {
  auto it = workers_.find(name);
  return it == workers_.end() ? nullptr : &it->second;
}

const Site* Membership::Find(const SiteId& name) const {
  auto it = sites_.find(name);
  return it == sites_.end() ? nullptr : &it->second;
}

}  // namespace causeway::server
