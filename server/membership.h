#ifndef CAUSEWAY_SERVER_MEMBERSHIP_H_
#define CAUSEWAY_SERVER_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "proto/membership.pb.h"

namespace causeway::server {

struct Token {
  std::string id;
  SiteId site;
  std::string secret_hash;  // SHA-256, 32 raw bytes
  int32_t uses = 0;
  int32_t uses_left = 0;
  absl::Time expires;  // wall
  bool revoked = false;
  std::string request_id;  // Of the call that made it; empty: none.
};

struct Site {
  SiteId name;
  Generation generation{1};
};

struct Worker {
  WorkerId name;
  SiteId site;
  std::string certificate_serial;
  absl::Time certificate_expires;  // wall
  std::string previous_serial;     // Of the certificate that the newest was asked for with; empty: it came by joining.
  bool removed = false;
  std::string key_sha256;  // Of the newest certificate's public key, 32 raw bytes.

  // Of the current connection.
  bool live = false;
  Incarnation incarnation;                  // 0: never registered
  absl::Time last_heard;                    // steady
  std::optional<absl::Time> stream_broken;  // steady; empty while a heartbeat stream is open
  v1::RegisterRequest registration;
  v1::HeartbeatRequest heartbeat;  // The newest.
  double clock_offset_s = 0;       // The worker's clock minus ours.
  bool draining = false;           // Until another incarnation registers.
  std::string address;
};

// Who belongs to the fleet and who of them is there: sites, workers, leases, join tokens.
//
// Pure state: takes `now` (steady) or `wall_now` and says what has changed; the caller stores and announces. Not
// thread-safe. A worker is live from Register until its lease has run out without a heartbeat, its heartbeat stream has
// been broken for longer than the grace, it leaves, or it is removed. A site's generation grows whenever it loses a
// member.
class Membership {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(10);
    absl::Duration broken_stream_grace = absl::Seconds(1);
  };
  explicit Membership(const Options& options) : options_(options) {}

  // Puts back what was stored. Not live; AwaitReturn says who is given a lease to come back in.
  void Restore(const Site& site) { sites_[site.name] = site; }
  void Restore(const Worker& worker) { workers_[worker.name] = worker; }
  void Restore(const Token& token) { tokens_[token.id] = token; }

  // Errors: InvalidArgument (name). Adding a site that is there is OK and returns false.
  absl::StatusOr<bool> AddSite(const SiteId& name);
  // Errors: NotFound; FailedPrecondition (it has workers that are not removed). Its tokens go with it.
  absl::Status RemoveSite(const SiteId& name);

  void AddToken(const Token& token) { tokens_[token.id] = token; }
  absl::Status RevokeToken(const std::string& id);  // NotFound

  // The token that such a call made for the site before; null if there is none, or the id is empty.
  const Token* FindToken(const SiteId& site, absl::string_view request_id) const;

  // Uses the token once and admits a worker with this key under `name` (empty: SITE-1, SITE-2, ...). A repetition, for
  // whoever has lost the answer, is told by its key: the site's worker of that key and, if one is given, that name is
  // returned again. It takes no use and so needs none to be left.
  // Errors: PermissionDenied (token unknown, wrong secret, revoked, expired or used up; the message says which),
  // AlreadyExists (the name is taken, by a removed worker too), InvalidArgument (name).
  absl::StatusOr<Worker> Join(const std::string& token_id, absl::string_view secret_hash, const std::string& name,
                              absl::string_view key_sha256, absl::Time wall_now);
  // The certificate that was made for a worker that has just joined; an earlier one of its counts no more.
  void SetCertificate(const WorkerId& name, const std::string& serial, absl::Time expires);

  // A certificate that the worker has asked for with the one of `presented`, which counts on until it expires: the worker's open
  // connections have it, and the answer may be lost.
  void RenewCertificate(const WorkerId& name, const std::string& presented, const std::string& serial,
                        absl::Time expires, absl::string_view key_sha256);

  // Whether this certificate still counts; its dates are not looked at. Errors: PermissionDenied (unknown or removed worker, replaced
  // certificate).
  absl::Status CheckCertificate(const WorkerId& name, const SiteId& site, const std::string& serial) const;
  absl::Status RemoveWorker(const WorkerId& name);  // NotFound

  struct Registered {
    bool restarted = false;  // A new incarnation of a worker that was known: what it was doing is gone.
    bool returned = false;   // It was not live.
  };
  // Errors: PermissionDenied (unknown or removed), Aborted (older than the incarnation that is registered, or another
  // process of the same one, which is live).
  absl::StatusOr<Registered> Register(const WorkerId& name, const v1::RegisterRequest& request, absl::Time now);

  void SetAddress(const WorkerId& name, const std::string& address) { workers_.at(name).address = address; }

  // The worker's heartbeat stream of this incarnation has opened. Errors: Aborted (another incarnation),
  // FailedPrecondition (not registered).
  absl::Status StreamOpened(const WorkerId& name, Incarnation incarnation, absl::Time now);
  void StreamBroken(const WorkerId& name, Incarnation incarnation, absl::Time now);
  // Errors: Aborted, FailedPrecondition as above: the worker is to register again.
  absl::Status Heard(const WorkerId& name, const v1::HeartbeatRequest& heartbeat, absl::Time now, absl::Time wall_now);
  void Leave(const WorkerId& name, Incarnation incarnation);
  // Asked to by an operator or of its own will. Errors: NotFound, FailedPrecondition (not live).
  absl::Status Drain(const WorkerId& name);

  struct Lost {
    WorkerId worker;
    std::string reason;  // "lease expired", "connection broken", "left", "removed"
    bool in_order;       // the last two: it is not expected back
  };
  // Those that were lost since the last call, each once, their sites' generations raised.
  std::vector<Lost> TakeLost(absl::Time now);

  const Worker* Find(const WorkerId& name) const;
  const Site* Find(const SiteId& name) const;
  const std::map<WorkerId, Worker>& workers() const { return workers_; }
  const std::map<SiteId, Site>& sites() const { return sites_; }
  const std::map<std::string, Token>& tokens() const { return tokens_; }

 private:
  void Drop(Worker* worker, absl::string_view reason, bool in_order);

  Options options_;
  std::map<SiteId, Site> sites_;
  std::map<WorkerId, Worker> workers_;
  std::map<std::string, Token> tokens_;
  std::vector<Lost> lost_;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_MEMBERSHIP_H_
