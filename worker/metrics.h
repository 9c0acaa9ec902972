#ifndef CAUSEWAY_WORKER_METRICS_H_
#define CAUSEWAY_WORKER_METRICS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "proto/membership.pb.h"

namespace causeway::worker {

// How bytes move between this worker and the coordinator.
enum class Transfer { kFetch, kPull, kPush };

// Every metric of a worker: names, help and labels. Thread-safe.
class WorkerMetrics {
 public:
  struct Options {
    MetricRegistry* registry = nullptr;  // Not owned; outlives this, which outlives its last exposition.
    Clock* clock = nullptr;              // Not owned.
    std::string site;
    std::string worker;
    std::string version;  // Of the program.
    std::string torch_version;
    absl::Time certificate_expires;  // Wall time; until SetCertificateExpiry tells another.
    // What is read at each exposition; empty ones are left out.
    std::function<int64_t()> cache_used_bytes;
    std::function<int64_t()> disk_free_bytes;
    std::function<v1::WorkerPhase()> phase;
    int64_t cache_limit_bytes = 0;
  };
  explicit WorkerMetrics(const Options& options);

  void SetConnected(bool connected) ABSL_LOCKS_EXCLUDED(mu_);
  void SetCertificateExpiry(absl::Time expires) ABSL_LOCKS_EXCLUDED(mu_);
  void HeartbeatAnswered(double clock_offset_s) ABSL_LOCKS_EXCLUDED(mu_);

  // These five are for one thread, the computing one. SetJob comes first; the series of the job before are dropped.
  void SetJob(const std::string& job);
  void StepDone(int64_t samples, double train_loss, absl::Duration duration);
  void RoundTrained(int64_t round);
  void Evaluated(double accuracy, double loss);
  void ContributionAnswered(absl::string_view outcome);

  void Transferred(Transfer transfer, int64_t bytes, double seconds);
  void CorruptChunks(int64_t chunks);
  void TaskFailed(absl::string_view task);

 private:
  void Collect() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  Gauge* const connected_;
  Gauge* const heartbeat_age_;
  Gauge* const clock_offset_;
  Gauge* const certificate_expiry_;
  Gauge* const cache_bytes_;
  Gauge* const disk_free_bytes_;
  Counter* const reconnects_;
  Counter* const corrupt_chunks_;
  std::map<v1::WorkerPhase, Gauge*> phases_;
  struct Direction {
    Counter* bytes;
    Counter* seconds;
  };
  std::array<Direction, 3> transfers_;
  MetricLabels job_labels_;

  Mutex mu_;
  bool was_connected_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time last_answer_ ABSL_GUARDED_BY(mu_);
  absl::Time certificate_expires_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_METRICS_H_
