#include "worker/metrics.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace causeway::worker {
namespace {

// "WORKER_PHASE_TRAINING" -> "training"
std::string PhaseLabel(v1::WorkerPhase phase) {
  return absl::AsciiStrToLower(absl::string_view(v1::WorkerPhase_Name(phase)).substr(sizeof("WORKER_PHASE_") - 1));
}

std::vector<double> StepBounds() { return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}; }

std::string Text(absl::string_view text) { return std::string(text.data(), text.size()); }

}  // namespace

WorkerMetrics::WorkerMetrics(const Options& options)
    : options_(options),
      connected_(options.registry->GetGauge("causeway_worker_connected",
                                            "1 while the worker's heartbeats are answered by its coordinator")),
      heartbeat_age_(options.registry->GetGauge("causeway_heartbeat_age_seconds",
                                                "Time since the coordinator last answered a heartbeat")),
      clock_offset_(
          options.registry->GetGauge("causeway_clock_offset_seconds", "This worker's clock minus the coordinator's")),
      certificate_expiry_(options.registry->GetGauge("causeway_certificate_expiry_seconds",
                                                     "Time until the worker's certificate expires")),
      cache_bytes_(options.registry->GetGauge("causeway_worker_cache_bytes",
                                              "Size of the chunk cache, room for chunks under way included")),
      disk_free_bytes_(
          options.registry->GetGauge("causeway_worker_disk_free_bytes", "Free space where the worker keeps its state")),
      reconnects_(options.registry->GetCounter("causeway_worker_connections_total",
                                               "Times the worker has connected to its coordinator")),
      corrupt_chunks_(options.registry->GetCounter("causeway_worker_corrupt_chunks_total",
                                                   "Chunks found damaged and fetched again")) {
  for (int i = v1::WORKER_PHASE_UNSPECIFIED + 1; i < v1::WorkerPhase_ARRAYSIZE; ++i) {
    const v1::WorkerPhase phase = static_cast<v1::WorkerPhase>(i);
    phases_[phase] = options.registry->GetGauge(
        "causeway_worker_phase", "1 for what the worker is doing, 0 for the rest", {{"phase", PhaseLabel(phase)}});
  }
  const MetricLabels labels[] = {{{"direction", "down"}, {"kind", "fetch"}},
                                 {{"direction", "down"}, {"kind", "pull"}},
                                 {{"direction", "up"}, {"kind", "push"}}};
  for (size_t i = 0; i < transfers_.size(); ++i) {
    transfers_[i] = {options.registry->GetCounter("causeway_worker_transfer_bytes_total",
                                                  "Payload exchanged with the coordinator", labels[i]),
                     options.registry->GetCounter("causeway_worker_transfer_seconds_total",
                                                  "Time that transfers have taken", labels[i])};
  }
  options.registry->GetGauge("causeway_worker_cache_limit_bytes", "What the chunk cache may hold")
      ->Set(static_cast<double>(options.cache_limit_bytes));
  options.registry
      ->GetGauge("causeway_worker_build_info", "Always 1; the labels say what runs",
                 {{"version", options.version},
                  {"torch", options.torch_version},
                  {"site", options.site},
                  {"worker", options.worker}})
      ->Set(1);
  {
    MutexLock lock(&mu_);
    last_answer_ = options.clock->Now();
    certificate_expires_ = options.certificate_expires;
  }
  options.registry->AddCollector([this] { Collect(); });
}

void WorkerMetrics::Collect() {
  if (options_.cache_used_bytes) cache_bytes_->Set(static_cast<double>(options_.cache_used_bytes()));
  if (options_.phase) {
    const v1::WorkerPhase phase = options_.phase();
    for (const auto& [each, gauge] : phases_) gauge->Set(each == phase ? 1 : 0);
  }
  if (options_.disk_free_bytes) disk_free_bytes_->Set(static_cast<double>(options_.disk_free_bytes()));
  MutexLock lock(&mu_);
  certificate_expiry_->Set(absl::ToDoubleSeconds(certificate_expires_ - options_.clock->WallNow()));
  heartbeat_age_->Set(absl::ToDoubleSeconds(options_.clock->Now() - last_answer_));
}

void WorkerMetrics::SetConnected(bool connected) {
  connected_->Set(connected ? 1 : 0);
  MutexLock lock(&mu_);
  if (connected && !was_connected_) reconnects_->Increment();
  was_connected_ = connected;
}

void WorkerMetrics::SetCertificateExpiry(absl::Time expires) {
  MutexLock lock(&mu_);
  certificate_expires_ = expires;
}

void WorkerMetrics::HeartbeatAnswered(double clock_offset_s) {
  clock_offset_->Set(clock_offset_s);
  MutexLock lock(&mu_);
  last_answer_ = options_.clock->Now();
}

void WorkerMetrics::SetJob(const std::string& job) {
  MetricLabels labels = {{"job", job}};
  if (labels == job_labels_) return;
  if (!job_labels_.empty()) options_.registry->RemoveWhere("job", job_labels_["job"]);
  job_labels_ = std::move(labels);
}

void WorkerMetrics::StepDone(int64_t samples, double train_loss, absl::Duration duration) {
  MetricRegistry* const registry = options_.registry;
  registry->GetCounter("causeway_worker_steps_total", "Optimizer steps done", job_labels_)->Increment();
  registry->GetCounter("causeway_worker_samples_total", "Samples trained on", job_labels_)
      ->Increment(static_cast<double>(samples));
  registry->GetGauge("causeway_worker_train_loss", "Mean training loss over the round so far", job_labels_)
      ->Set(train_loss);
  registry
      ->GetHistogram("causeway_worker_step_seconds", "Time of a step: loading, forward, backward, optimizer",
                     StepBounds(), job_labels_)
      ->Observe(absl::ToDoubleSeconds(duration));
}

void WorkerMetrics::RoundTrained(int64_t round) {
  options_.registry->GetGauge("causeway_worker_round", "The newest round trained", job_labels_)
      ->Set(static_cast<double>(round));
}

void WorkerMetrics::Evaluated(double accuracy, double loss) {
  options_.registry
      ->GetGauge("causeway_worker_evaluation_accuracy",
                 "Of the newest evaluated version, on this worker's part of the test set", job_labels_)
      ->Set(accuracy);
  options_.registry
      ->GetGauge("causeway_worker_evaluation_loss",
                 "Of the newest evaluated version, on this worker's part of the test set", job_labels_)
      ->Set(loss);
}

void WorkerMetrics::ContributionAnswered(absl::string_view outcome) {
  MetricLabels labels = job_labels_;
  labels["outcome"] = Text(outcome);
  options_.registry
      ->GetCounter("causeway_worker_contributions_total", "Contributions offered, by the coordinator's answer", labels)
      ->Increment();
}

void WorkerMetrics::Transferred(Transfer transfer, int64_t bytes, double seconds) {
  Direction& direction = transfers_[static_cast<size_t>(transfer)];
  direction.bytes->Increment(static_cast<double>(bytes));
  direction.seconds->Increment(seconds);
}

void WorkerMetrics::CorruptChunks(int64_t chunks) { corrupt_chunks_->Increment(static_cast<double>(chunks)); }

void WorkerMetrics::TaskFailed(absl::string_view task) {
  options_.registry
      ->GetCounter("causeway_worker_task_failures_total", "Tasks that failed for good", {{"task", Text(task)}})
      ->Increment();
}

}  // namespace causeway::worker
