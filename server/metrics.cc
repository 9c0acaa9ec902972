#include "server/metrics.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dataplane/protocol_version.h"
#include "server/job.h"

namespace causeway::server {
namespace {

const std::vector<double>& SecondsBuckets() {
  static const auto& buckets = *new std::vector<double>{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000};
  return buckets;
}

constexpr v1::JobState kStates[] = {v1::JOB_STATE_SUBMITTED,    v1::JOB_STATE_PROFILING, v1::JOB_STATE_PLANNED,
                                    v1::JOB_STATE_DISTRIBUTING, v1::JOB_STATE_TRAINING,  v1::JOB_STATE_FINISHED,
                                    v1::JOB_STATE_FAILED,       v1::JOB_STATE_ABORTED,   v1::JOB_STATE_PAUSED};

std::string StateLabel(v1::JobState state) {
  std::string name = v1::JobState_Name(state).substr(sizeof("JOB_STATE_") - 1);
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  return name;
}

}  // namespace

Metrics::Metrics(MetricRegistry* registry) : registry_(registry) {
  registry_
      ->GetGauge("causeway_build_info", "The program's version, as a label; always 1.",
                 {{"version", dataplane::kBuildVersion}})
      ->Set(1);
}

void Metrics::SetWorkers(const Membership& membership, absl::Time now, absl::Time wall_now) {
  std::map<SiteId, std::pair<int, int>> live_and_lost;
  for (const auto& [name, site] : membership.sites()) {
    live_and_lost[name];
    registry_->GetGauge("causeway_site_generation", "Number of the site's membership.", {{"site", name.value()}})
        ->Set(static_cast<double>(site.generation.value()));
  }
  for (const auto& [name, worker] : membership.workers()) {
    if (worker.removed) continue;
    ++(worker.live ? live_and_lost[worker.site].first : live_and_lost[worker.site].second);
    const MetricLabels labels = {{"site", worker.site.value()}, {"worker", name.value()}};
    registry_->GetGauge("causeway_worker_up", "Whether the worker holds a lease: 1 or 0.", labels)->Set(worker.live);
    registry_
        ->GetGauge("causeway_worker_certificate_expiry_seconds", "Seconds until the worker's certificate expires.",
                   labels)
        ->Set(absl::ToDoubleSeconds(worker.certificate_expires - wall_now));
    if (!worker.live) continue;
    registry_->GetGauge("causeway_worker_heartbeat_age_seconds", "Seconds since the worker was last heard.", labels)
        ->Set(absl::ToDoubleSeconds(now - worker.last_heard));
    registry_
        ->GetGauge("causeway_worker_clock_offset_seconds",
                   "The worker's clock minus the coordinator's, half a round trip included.", labels)
        ->Set(worker.clock_offset_s);
  }
  for (const auto& [site, counts] : live_and_lost) {
    registry_
        ->GetGauge("causeway_workers", "Workers of the site by state.", {{"site", site.value()}, {"state", "live"}})
        ->Set(counts.first);
    registry_
        ->GetGauge("causeway_workers", "Workers of the site by state.", {{"site", site.value()}, {"state", "lost"}})
        ->Set(counts.second);
  }
}

void Metrics::ForgetWorker(const std::string& worker) { registry_->RemoveWhere("worker", worker); }

void Metrics::SetJob(const v1::GetJobResponse& status) {
  const v1::JobSummary& summary = status.summary();
  const MetricLabels job = {{"job", summary.job()}};
  for (v1::JobState state : kStates) {
    registry_
        ->GetGauge("causeway_job_state", "1 for the state the job is in, else 0.",
                   {{"job", summary.job()}, {"state", StateLabel(state)}})
        ->Set(summary.state() == state);
  }
  registry_->GetGauge("causeway_job_round", "The open or next round.", job)->Set(static_cast<double>(summary.round()));
  registry_->GetGauge("causeway_job_version", "The newest committed version of the model; -1 before the first.", job)
      ->Set(static_cast<double>(summary.version()));
  registry_->GetGauge("causeway_job_epochs", "Epochs done: committed samples over the training set's.", job)
      ->Set(summary.epochs_done());
  registry_->GetGauge("causeway_job_waiting_for_workers", "Workers that the open round or phase waits for.", job)
      ->Set(status.waiting_for_size());
  if (summary.has_evaluation()) {
    registry_->GetGauge("causeway_job_accuracy_ratio", "Accuracy on the test set of the newest evaluated version.", job)
        ->Set(summary.evaluation().accuracy());
    registry_->GetGauge("causeway_job_loss", "Mean cross entropy on the test set of the newest evaluated version.", job)
        ->Set(summary.evaluation().loss());
  }
  if (status.rounds_size() > 0) {
    registry_->GetGauge("causeway_job_train_loss", "Mean training loss of the newest committed round.", job)
        ->Set(status.rounds(status.rounds_size() - 1).train_loss());
  }
  const double per_epoch = static_cast<double>(std::max<int64_t>(1, status.plan().rounds_per_epoch()));
  for (const v1::WorkerInJob& worker : status.workers()) {
    if (worker.excluded() == kRemoved) continue;  // Its series are gone for good.
    const MetricLabels labels = {{"job", summary.job()}, {"site", worker.site()}, {"worker", worker.worker()}};
    registry_
        ->GetGauge("causeway_shard_samples", "Samples of the training set that the plan gives to the worker.", labels)
        ->Set(static_cast<double>(worker.plan().samples()));
    registry_
        ->GetGauge("causeway_epoch_predicted_seconds", "Predicted computing and model traffic of one epoch.", labels)
        ->Set(worker.plan().compute_s() + worker.plan().comm_s());
    if (worker.rounds() > 0) {
      registry_
          ->GetGauge("causeway_epoch_measured_seconds",
                     "Measured computing and model traffic of one epoch, mean under the plan in force.", labels)
          ->Set((worker.compute_s() + worker.pull_s() + worker.push_s()) / static_cast<double>(worker.rounds()) *
                per_epoch);
    }
  }
}

void Metrics::SetDisk(double free_bytes, double spool_bytes) {
  registry_->GetGauge("causeway_disk_free_bytes", "Free bytes where the data directory is.")->Set(free_bytes);
  registry_->GetGauge("causeway_spool_bytes", "Bytes admitted to the spool of contributions.")->Set(spool_bytes);
}

void Metrics::SetCertificateExpiry(absl::Duration left) {
  registry_->GetGauge("causeway_certificate_expiry_seconds", "Seconds until the coordinator's own certificate expires.")
      ->Set(absl::ToDoubleSeconds(left));
}

void Metrics::CountRound(const std::string& job, const v1::RoundRecord& record, absl::Duration commit) {
  const MetricLabels labels = {{"job", job}};
  registry_->GetCounter("causeway_rounds_total", "Rounds by outcome.", {{"job", job}, {"outcome", "committed"}})
      ->Increment();
  registry_->GetCounter("causeway_samples_total", "Samples of committed contributions.", labels)
      ->Increment(static_cast<double>(record.samples()));
  registry_->GetHistogram("causeway_round_seconds", "From a round's opening to its commit.", SecondsBuckets(), labels)
      ->Observe(record.seconds());
  registry_
      ->GetHistogram("causeway_commit_seconds", "From the last contribution to the durable checkpoint and journal row.",
                     SecondsBuckets(), labels)
      ->Observe(absl::ToDoubleSeconds(commit));
}

void Metrics::CountDroppedRound(const std::string& job) {
  registry_->GetCounter("causeway_rounds_total", "Rounds by outcome.", {{"job", job}, {"outcome", "dropped"}})
      ->Increment();
}

void Metrics::CountContribution(const std::string& job, const std::string& outcome) {
  registry_
      ->GetCounter("causeway_contributions_total", "Contributions by outcome: counted, or why not.",
                   {{"job", job}, {"outcome", outcome}})
      ->Increment();
}

void Metrics::CountPhases(const std::string& job, const std::string& site, const std::string& worker,
                          const v1::StoredContribution& info) {
  const std::pair<const char*, double> phases[] = {
      {"pull", info.pull_s()}, {"evaluate", info.evaluate_s()}, {"compute", info.compute_s()}, {"push", info.push_s()}};
  for (const auto& [phase, seconds] : phases) {
    registry_
        ->GetCounter("causeway_round_phase_seconds_total",
                     "Seconds of counted rounds by worker and phase: pull, evaluate, compute, push.",
                     {{"job", job}, {"site", site}, {"worker", worker}, {"phase", phase}})
        ->Increment(std::max(0.0, seconds));
  }
  registry_
      ->GetGauge("causeway_contribution_change_ratio",
                 "L2 of the newest contribution's change over that of the model it started from (at least 1).",
                 {{"job", job}, {"site", site}, {"worker", worker}})
      ->Set(info.change_ratio());
}

void Metrics::CountTransfer(const std::string& direction, const std::string& kind, double bytes, absl::Duration took) {
  const MetricLabels labels = {{"direction", direction}, {"kind", kind}};
  registry_
      ->GetCounter("causeway_transfer_bytes_total", "Payload bytes of bulk transfers, in and out of the coordinator.",
                   labels)
      ->Increment(bytes);
  registry_->GetCounter("causeway_transfer_seconds_total", "Seconds of bulk transfers.", labels)
      ->Increment(absl::ToDoubleSeconds(took));
}

void Metrics::CountRefusedCall(const std::string& reason) {
  registry_
      ->GetCounter("causeway_refused_calls_total", "Calls refused before they were looked at.", {{"reason", reason}})
      ->Increment();
}

void Metrics::CountRefusedConnection(const std::string& reason) {
  registry_
      ->GetCounter("causeway_refused_connections_total", "Connections refused after the TLS handshake.",
                   {{"reason", reason}})
      ->Increment();
}

void Metrics::CountCutOff() {
  registry_
      ->GetCounter("causeway_peers_cut_off_total",
                   "Workers whose connections were broken because they made too many calls.")
      ->Increment();
}

void Metrics::CountFailedCall(const std::string& code) {
  registry_->GetCounter("causeway_failed_calls_total", "Calls that ended with an error, by its code.", {{"code", code}})
      ->Increment();
}

}  // namespace causeway::server
