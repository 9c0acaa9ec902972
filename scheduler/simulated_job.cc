#include "scheduler/simulated_job.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace causeway::scheduler {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 30;  // Of rounds, of steps in a round and in an epoch.
constexpr size_t kMaxWorkers = size_t{1} << 16;

// What fields have in common: a range, and a message that names field and value.
class FieldCheck {
 public:
  explicit FieldCheck(std::string where) : where_(std::move(where)) {}

  void Rate(absl::string_view field, double value) { Require(value > 0, field, value, "above 0"); }
  void Seconds(absl::string_view field, double value) { Require(IsAmount(value), field, value, kAmount); }
  void Bytes(absl::string_view field, double value) { Require(IsAmount(value), field, value, kAmount); }
  void Within(absl::string_view field, int64_t value, int64_t least, int64_t most) {
    Require(value >= least && value <= most, field, value, absl::StrCat(least, " to ", most));
  }
  template <typename Value>
  void Require(bool holds, absl::string_view field, Value value, absl::string_view wanted) {
    if (holds || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(where_, field, " is ", value, ", must be ", wanted));
  }
  absl::Status status() const { return status_; }

 private:
  static constexpr absl::string_view kAmount = "a finite number, at least 0";
  static bool IsAmount(double value) { return value >= 0 && std::isfinite(value); }

  std::string where_;
  absl::Status status_;
};

absl::Status CheckSites(const SimulatedJob& job) {
  if (job.sites.empty()) return absl::InvalidArgumentError("there are no sites");
  std::set<std::string> names;
  for (const SimulatedSite& site : job.sites) {
    const std::string where = absl::StrCat("site \"", site.name, "\": ");
    if (site.name.empty() || !names.insert(site.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, "name is empty or used twice"));
    }
    if (absl::Status status = Validate(site.program); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(where, status.message()));
    }
    FieldCheck check(where);
    check.Rate("downlink_bytes_per_s", site.downlink_bytes_per_s);
    check.Rate("uplink_bytes_per_s", site.uplink_bytes_per_s);
    check.Seconds("round_scatter_s", site.round_scatter_s);
    check.Seconds("round_gather_s", site.round_gather_s);
    if (!check.status().ok()) return check.status();
    if (site.lock_step) continue;
    for (const std::vector<ProgramCollective>& collectives : site.program.iterations) {
      if (!collectives.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, "its program has collectives, which need workers in lock step"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWorkers(const SimulatedJob& job) {
  if (job.workers.empty() || job.workers.size() > kMaxWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", job.workers.size(), " workers, must be 1 to ", kMaxWorkers));
  }
  std::set<std::string> names;
  std::vector<bool> has_worker(job.sites.size(), false);
  for (const SimulatedWorker& worker : job.workers) {
    const std::string where = absl::StrCat("worker \"", worker.name, "\": ");
    if (worker.name.empty() || !names.insert(worker.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, "name is empty or used twice"));
    }
    FieldCheck check(where);
    check.Within("site", worker.site, 0, static_cast<int64_t>(job.sites.size()) - 1);
    check.Rate("downlink_bytes_per_s", worker.downlink_bytes_per_s);
    check.Rate("uplink_bytes_per_s", worker.uplink_bytes_per_s);
    check.Require(worker.slowdown > 0 && std::isfinite(worker.slowdown), "slowdown", worker.slowdown,
                  "a finite number above 0");
    check.Within("samples", worker.samples, 0, kMaxSamples);
    check.Within("batch_size", worker.batch_size, 1, kMaxSamples);
    if (!check.status().ok()) return check.status();
    has_worker[static_cast<size_t>(worker.site)] = true;
    const int64_t steps = worker.samples / worker.batch_size;
    check.Require(job.rounds.steps > 0 || steps <= kMaxCount, "samples", worker.samples,
                  absl::StrCat("fewer than would make more than ", kMaxCount, " steps an epoch"));
    if (!check.status().ok()) return check.status();
  }
  for (size_t i = 0; i < job.sites.size(); ++i) {
    if (!has_worker[i]) {
      return absl::InvalidArgumentError(absl::StrCat("site \"", job.sites[i].name, "\": has no workers"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRounds(const SimulatedJob& job) {
  const SimulatedRounds& rounds = job.rounds;
  FieldCheck check("rounds: ");
  check.Within("rounds", rounds.rounds, 1, kMaxCount);
  check.Within("steps", rounds.steps, 0, kMaxCount);
  check.Within("per_epoch", rounds.per_epoch, 1, kMaxCount);
  check.Within("fragments", static_cast<int64_t>(rounds.fragment_bytes.size()), 1, kMaxLayers);
  for (const double bytes : rounds.fragment_bytes) check.Bytes("fragment_bytes", bytes);
  check.Require(rounds.quorum > 0 && rounds.quorum <= 1, "quorum", rounds.quorum, "above 0 and at most 1");
  check.Require(rounds.deadline_s > 0, "deadline_s", rounds.deadline_s, "above 0");
  check.Require(rounds.replan_after_s >= 0, "replan_after_s", rounds.replan_after_s, "at least 0");
  check.Seconds("late_grace_s", rounds.late_grace_s);
  if (rounds.all_reduce_s) check.Seconds("all_reduce_s", *rounds.all_reduce_s);
  if (!check.status().ok()) return check.status();

  int64_t fewest = kMaxCount;
  for (const std::vector<int>& participant : ParticipantsOf(job)) {
    fewest = std::min(fewest, rounds.steps > 0 ? rounds.steps : EpochSteps(job, participant) / rounds.per_epoch);
  }
  check.Within("delay", rounds.delay, 0, fewest);
  return check.status();
}

absl::Status CheckEvents(const SimulatedJob& job) {
  const auto workers = static_cast<int64_t>(job.workers.size());
  for (size_t i = 0; i < job.changes.size(); ++i) {
    const SimulatedChange& change = job.changes[i];
    FieldCheck check(absl::StrCat("changes[", i, "]: "));
    using What = SimulatedChange::What;
    const bool of_worker =
        change.what == What::kCompute || change.what == What::kDownlink || change.what == What::kUplink;
    const bool of_coordinator = change.what == What::kCoordinatorEgress || change.what == What::kCoordinatorIngress;
    const int64_t things = of_worker ? workers : static_cast<int64_t>(job.sites.size());
    if (!of_coordinator) check.Within("index", change.index, 0, things - 1);
    check.Seconds("time_s", change.time_s);
    check.Require(change.factor > 0 && std::isfinite(change.factor), "factor", change.factor,
                  "a finite number above 0");
    if (!check.status().ok()) return check.status();
  }
  std::map<int, std::vector<std::pair<double, double>>> absences;
  for (size_t i = 0; i < job.absences.size(); ++i) {
    const SimulatedAbsence& absence = job.absences[i];
    FieldCheck check(absl::StrCat("absences[", i, "]: "));
    check.Within("worker", absence.worker, 0, workers - 1);
    check.Seconds("stop_s", absence.stop_s);
    check.Require(absence.return_s > absence.stop_s, "return_s", absence.return_s, "above stop_s");
    if (!check.status().ok()) return check.status();
    absences[absence.worker].emplace_back(absence.stop_s, absence.return_s);
  }
  for (auto& [worker, spans] : absences) {
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i) {
      if (spans[i].first <= spans[i - 1].second) {
        return absl::InvalidArgumentError(
            absl::StrCat("worker \"", job.workers[static_cast<size_t>(worker)].name, "\": its absences overlap"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t EpochSteps(const SimulatedJob& job, const std::vector<int>& participant) {
  int64_t steps = 0;
  for (const int w : participant) {
    const SimulatedWorker& worker = job.workers[static_cast<size_t>(w)];
    steps = std::max(steps, worker.samples / worker.batch_size + (worker.samples % worker.batch_size != 0));
  }
  return steps;
}

std::vector<std::vector<int>> ParticipantsOf(const SimulatedJob& job) {
  std::vector<std::vector<int>> participants;
  std::vector<int> of_site(job.sites.size(), -1);
  for (size_t w = 0; w < job.workers.size(); ++w) {
    const auto site = static_cast<size_t>(job.workers[w].site);
    if (job.sites[site].lock_step && of_site[site] >= 0) {
      participants[static_cast<size_t>(of_site[site])].push_back(static_cast<int>(w));
    } else {
      of_site[site] = static_cast<int>(participants.size());
      participants.push_back({static_cast<int>(w)});
    }
  }
  if (job.rounds.steps == 0) {
    std::erase_if(participants, [&](const std::vector<int>& p) { return EpochSteps(job, p) == 0; });
  }
  return participants;
}

absl::Status Validate(const SimulatedJob& job) {
  if (absl::Status status = CheckSites(job); !status.ok()) return status;
  if (absl::Status status = CheckWorkers(job); !status.ok()) return status;
  FieldCheck check("");
  check.Bytes("sample_bytes", job.sample_bytes);
  check.Rate("egress_bytes_per_s", job.egress_bytes_per_s);
  check.Rate("ingress_bytes_per_s", job.ingress_bytes_per_s);
  check.Seconds("reform_s", job.reform_s);
  check.Require(job.compute_jitter >= 0 && job.compute_jitter < 1, "compute_jitter", job.compute_jitter,
                "at least 0 and below 1");
  check.Require(job.collective_jitter >= 0 && job.collective_jitter < 1, "collective_jitter", job.collective_jitter,
                "at least 0 and below 1");
  if (!check.status().ok()) return check.status();
  if (ParticipantsOf(job).empty()) return absl::InvalidArgumentError("no worker has samples");
  if (absl::Status status = CheckRounds(job); !status.ok()) return status;
  return CheckEvents(job);
}

absl::StatusOr<SimulatedJob> JobOfAllocation(const AllocationProblem& problem, const Allocation& allocation) {
  const absl::StatusOr<Evaluation> evaluation = Evaluate(problem, allocation);
  if (!evaluation.ok()) return evaluation.status();
  SimulatedJob job;
  std::map<std::string, int> sites;
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    const DeviceProfile& device = problem.devices[i];
    const auto [found, added] = sites.emplace(device.site, static_cast<int>(job.sites.size()));
    if (added) {
      job.sites.push_back({.name = device.site.empty() ? "-" : device.site,
                           .program = {.forward_s = {0}, .backward_s = {1}, .iterations = {{}}},
                           .lock_step = problem.lock_step_sites});
    }
    job.workers.push_back({.name = device.name,
                           .site = found->second,
                           .downlink_bytes_per_s = device.bandwidth_bytes_per_s,
                           .uplink_bytes_per_s = device.uplink_bytes_per_s.value_or(device.bandwidth_bytes_per_s),
                           .slowdown = device.batch_time_s,
                           .samples = allocation.samples[i],
                           .batch_size = device.batch_size,
                           .reads_data_locally = device.reads_data_locally});
  }
  job.sample_bytes = problem.sample_bytes;
  job.wait_for_all_data = problem.objective != AllocationObjective::kPipelined;
  const double rounds = std::ceil(problem.epochs * static_cast<double>(problem.rounds_per_epoch));
  if (!(rounds <= static_cast<double>(kMaxCount))) {
    return absl::InvalidArgumentError(
        absl::StrCat("epochs times rounds_per_epoch is ", rounds, ", must be at most ", kMaxCount));
  }
  job.rounds.rounds = static_cast<int64_t>(rounds);
  job.rounds.per_epoch = problem.rounds_per_epoch;
  job.rounds.fragment_bytes = {problem.model_bytes};
  job.egress_bytes_per_s = problem.egress_bytes_per_s.value_or(kNoLimit);
  job.ingress_bytes_per_s = job.egress_bytes_per_s;
  if (absl::Status status = Validate(job); !status.ok()) return status;
  return job;
}

}  // namespace causeway::scheduler
