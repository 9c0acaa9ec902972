#ifndef CAUSEWAY_SERVER_METRICS_H_
#define CAUSEWAY_SERVER_METRICS_H_

#include <string>

#include "absl/time/time.h"
#include "base/metrics.h"
#include "proto/journal.pb.h"
#include "proto/operator.pb.h"
#include "server/membership.h"

namespace causeway::server {

// Every metric of the coordinator, its name and its labels (docs/operations.md lists them). Labels are bounded: job, site, worker, state, reason,
// direction, kind. Thread-safe.
class Metrics {
 public:
  // `registry` is not owned and outlives this.
  explicit Metrics(MetricRegistry* registry);

  void SetWorkers(const Membership& membership, absl::Time now, absl::Time wall_now);
  void SetJob(const v1::GetJobResponse& status);
  void ForgetWorker(const std::string& worker);
  void SetDisk(double free_bytes, double spool_bytes);
  void SetCertificateExpiry(absl::Duration left);

  void CountRound(const std::string& job, const v1::RoundRecord& record, absl::Duration commit);
  void CountDroppedRound(const std::string& job);
  // `outcome`: counted, or the reason of a refusal.
  void CountContribution(const std::string& job, const std::string& outcome);
  // What a counted contribution's round cost its worker, and how far it moved the model.
  void CountPhases(const std::string& job, const std::string& site, const std::string& worker,
                   const v1::StoredContribution& info);
  // `direction`: in or out; `kind`: fetch, probe, pull, push.
  void CountTransfer(const std::string& direction, const std::string& kind, double bytes, absl::Duration took);
  // A call by the reason why it was not let in; one that was, by the code it failed with.
  void CountRefusedCall(const std::string& reason);
  void CountRefusedConnection(const std::string& reason);
  void CountCutOff();
  void CountFailedCall(const std::string& code);

 private:
  MetricRegistry* const registry_;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_METRICS_H_
