#include "server/peer_guard.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace causeway::server {
namespace {

using Role = dataplane::PeerIdentity::Role;

// Messages quote what the peer has sent.
constexpr size_t kMaxShownBytes = 200;

std::string Shown(absl::string_view text) {
  std::string shown(text.substr(0, kMaxShownBytes));
  for (char& c : shown) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return shown;
}

// Operators, and coordinators, of whom there is no other, are trusted.
bool Bounded(const dataplane::PeerIdentity& peer) {
  return peer.role == Role::kWorker || peer.role == Role::kAnonymous;
}

std::string Who(const dataplane::PeerIdentity& peer) {
  return peer.role == Role::kWorker ? absl::StrCat("worker ", peer.name) : "who comes without a certificate";
}

double CostOf(absl::string_view method) {
  return absl::EndsWith(method, "/Register") || absl::EndsWith(method, "/RenewCertificate") ? 20 : 1;
}

// What happens between honest peers too, and is dealt with by them.
bool Usual(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition: return true;
    default: return false;
  }
}

}  // namespace

std::string CodeLabel(absl::StatusCode code) { return absl::AsciiStrToLower(absl::StatusCodeToString(code)); }

bool PeerGuard::TakeLocked(Bucket* bucket, double cost, double per_s, double burst) {
  const absl::Time now = options_.clock->Now();
  if (bucket->tokens < 0) {
    bucket->tokens = burst;
  } else {
    bucket->tokens = std::min(burst, bucket->tokens + absl::ToDoubleSeconds(now - bucket->filled) * per_s);
  }
  bucket->filled = now;
  if (bucket->tokens < cost) return false;
  bucket->tokens -= cost;
  return true;
}

absl::Status PeerGuard::AdmitCall(const dataplane::PeerIdentity& peer, absl::string_view method) {
  if (!Bounded(peer)) return absl::OkStatus();
  {
    MutexLock lock(&mu_);
    if (TakeLocked(&peers_[{peer.role, peer.name}].calls, CostOf(method), options_.calls_per_s, options_.call_burst))
      return absl::OkStatus();
  }
  const absl::Status refused =
      absl::UnavailableError(absl::StrCat(Who(peer), " makes more than ", options_.calls_per_s, " calls a second"));
  Refused(peer, "too_many_calls", method, refused);
  return refused;
}

absl::Status PeerGuard::AdmitConnection(const dataplane::PeerIdentity& peer) {
  if (!Bounded(peer)) return absl::OkStatus();
  bool cut_off;
  {
    MutexLock lock(&mu_);
    Peer& known = peers_[{peer.role, peer.name}];
    cut_off = options_.clock->Now() < known.cut_off_until;
    const bool worker = peer.role == Role::kWorker;
    if (!cut_off &&
        TakeLocked(&known.connections, 1, worker ? options_.connections_per_s : options_.anonymous_connections_per_s,
                   worker ? options_.connection_burst : options_.anonymous_connection_burst))
      return absl::OkStatus();
  }
  const std::string reason = cut_off ? "cut_off" : "too_many_connections";
  const absl::Status refused = absl::UnavailableError(
      absl::StrCat(Who(peer), cut_off ? " is cut off: it made too many calls" : " connects too often"));
  options_.metrics->CountRefusedConnection(reason);
  Log(peer, "connections refused", reason, "", refused);
  return refused;
}

void PeerGuard::StrangersBroken(int connections) {
  for (int i = 0; i < connections; ++i) options_.metrics->CountRefusedConnection("stranger");
  Log({}, "connections refused", "stranger", "",
      absl::UnavailableError("without a certificate: too many connections, too long, or with too much to say"));
}

void PeerGuard::CallRefused(const dataplane::PeerIdentity& peer, absl::string_view method, const absl::Status& why) {
  Refused(peer, CodeLabel(why.code()), method, why);
}

void PeerGuard::Refused(const dataplane::PeerIdentity& peer, const std::string& reason, absl::string_view method,
                        const absl::Status& why) {
  options_.metrics->CountRefusedCall(reason);
  Log(peer, "calls refused", reason, method, why);
  if (!Bounded(peer)) return;
  {
    MutexLock lock(&mu_);
    Peer& known = peers_[{peer.role, peer.name}];
    const absl::Time now = options_.clock->Now();
    if (now < known.cut_off_until) return;  // Already; what is under way still comes in.
    if (now >= known.refusals_since + options_.refusal_period) {
      known.refusals_since = now;
      known.refusals = 0;
    }
    if (++known.refusals < options_.refusals_to_cut_off) return;
    known.refusals = 0;
    known.cut_off_until = now + options_.cut_off_for;
  }
  options_.metrics->CountCutOff();
  Log(peer, "peer cut off", reason, method, why);
  if (options_.break_connections) options_.break_connections(peer);
}

void PeerGuard::CallFailed(const dataplane::PeerIdentity& peer, absl::string_view method, const absl::Status& why) {
  options_.metrics->CountFailedCall(CodeLabel(why.code()));
  // What an operator did wrong is said on the operator's terminal.
  if (peer.role == Role::kOperator || Usual(why.code())) return;
  Log(peer, "calls failed", CodeLabel(why.code()), method, why);
}

void PeerGuard::Log(const dataplane::PeerIdentity& peer, absl::string_view event, const std::string& reason,
                    absl::string_view method, const absl::Status& why) {
  const int64_t times = lines_.Take(absl::StrCat(static_cast<int>(peer.role), " ", peer.name, " ", event, " ", reason),
                                    options_.clock->Now());
  if (times == 0) return;
  log::Warning(event, {{"peer", peer.name.empty() ? "none" : peer.name},
                       {"reason", reason},
                       {"times", times},
                       {"method", Shown(method)},
                       {"message", Shown(why.message())}});
}

}  // namespace causeway::server
