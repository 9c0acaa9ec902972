#ifndef CAUSEWAY_SERVER_PEER_GUARD_H_
#define CAUSEWAY_SERVER_PEER_GUARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "dataplane/link.h"
#include "server/log_budget.h"
#include "server/metrics.h"

namespace causeway::server {

// Bounds how fast one worker, or all strangers together, may make calls and connections, so that a broken or hostile one costs the others nothing, and tells of what
// was refused: every refusal is counted by reason, and logged for each peer and reason once a period, with how often it was.
//
// Thread-safe; does not block. Peers are told apart by the names in their certificates, so that there are as many as the authority has named;
// all without a certificate are one. Operators are not bounded.
class PeerGuard {
 public:
  struct Options {
    // An honest worker makes some ten calls a round, and a connection when one breaks. What is stored durably (a registration, a
    // certificate) counts as twenty calls.
    double calls_per_s = 50;
    double call_burst = 200;
    double connections_per_s = 0.1;
    double connection_burst = 32;
    // Of all who come without a certificate, to join.
    double anonymous_connections_per_s = 20;
    double anonymous_connection_burst = 256;
    // Refusing has its price, too. Who is refused so many calls within `refusal_period` is cut off: its connections are broken, and it gets none
    // until `cut_off_for` is over.
    int64_t refusals_to_cut_off = 1000;
    absl::Duration refusal_period = absl::Seconds(10);
    absl::Duration cut_off_for = absl::Seconds(10);
    // Breaks a peer's connections. Called on gRPC's threads; must not block. May be null.
    std::function<void(const dataplane::PeerIdentity& peer)> break_connections;
    absl::Duration log_period = absl::Minutes(1);
    // Not owned; outlive this.
    Clock* clock = nullptr;
    Metrics* metrics = nullptr;
  };
  explicit PeerGuard(const Options& options)
      : options_(options), lines_({.at_once = 1, .period = options.log_period}) {}

  // Errors: Unavailable (too many; an honest worker tries again).
  absl::Status AdmitCall(const dataplane::PeerIdentity& peer, absl::string_view method) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AdmitConnection(const dataplane::PeerIdentity& peer) ABSL_LOCKS_EXCLUDED(mu_);

  // Connections of those who have shown no certificate were broken: too many, too old, or with too much to say.
  void StrangersBroken(int connections) ABSL_LOCKS_EXCLUDED(mu_);

  // A call was refused by the table of rights.
  void CallRefused(const dataplane::PeerIdentity& peer, absl::string_view method, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A call that was let in has ended with an error.
  void CallFailed(const dataplane::PeerIdentity& peer, absl::string_view method, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Bucket {
    double tokens = -1;  // -1: full.
    absl::Time filled;   // Steady.
  };
  struct Peer {
    Bucket calls;
    Bucket connections;
    int64_t refusals = 0;                              // Since the next.
    absl::Time refusals_since = absl::InfinitePast();  // Steady, as is the next.
    absl::Time cut_off_until = absl::InfinitePast();
  };

  bool TakeLocked(Bucket* bucket, double cost, double per_s, double burst) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts a refused call, and cuts its peer off if it is one too many.
  void Refused(const dataplane::PeerIdentity& peer, const std::string& reason, absl::string_view method,
               const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void Log(const dataplane::PeerIdentity& peer, absl::string_view event, const std::string& reason,
           absl::string_view method, const absl::Status& why);

  const Options options_;
  LogBudget lines_;  // By peer, event and reason.
  Mutex mu_;
  std::map<std::pair<dataplane::PeerIdentity::Role, std::string>, Peer> peers_ ABSL_GUARDED_BY(mu_);
};

// "permission_denied"
std::string CodeLabel(absl::StatusCode code);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_PEER_GUARD_H_
