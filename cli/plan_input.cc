#include "cli/plan_input.h"

#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "jobspec/yaml_reader.h"
#include "scheduler/batch_choice.h"
#include "scheduler/layer_schedule.h"
#include "scheduler/site_batches.h"

namespace causeway::cli {
namespace {

using jobspec::NumberRange;
using jobspec::YamlDocument;
using jobspec::YamlMap;

constexpr int kMaxValues = 250000;  // Enough for kMaxPlanWorkers and scheduler::kMaxLayers.
constexpr int64_t kMaxBatch = 1 << 30;
constexpr int64_t kMaxRoundsPerEpoch = 1000000000;
constexpr double kMaxJitter = 0.999;
constexpr NumberRange kAboveZero = {.min = 0, .min_excluded = true};
constexpr NumberRange kAtLeastZero = {.min = 0};
constexpr NumberRange kLayerSeconds = {.min = 0, .max = scheduler::kMaxModelSeconds};

// The value that `from_name` gives a word which is one of `allowed`.
template <typename FromName>
auto ReadChoice(YamlMap& map, absl::string_view key, const char* fallback, const std::vector<std::string>& allowed,
                FromName from_name) {
  return from_name(map.Choice(key, fallback, allowed)).value();
}

bool HasAny(const YamlMap& map, std::initializer_list<absl::string_view> keys) {
  for (absl::string_view key : keys) {
    if (map.Has(key)) return true;
  }
  return false;
}

// Takes `name`, found at `key` of `map`, into `names`.
void CheckUnique(YamlMap& map, absl::string_view key, const std::string& name, std::set<std::string>* names) {
  if (!names->insert(name).second) map.AddError(key, absl::StrCat("found ", name, " twice; allowed: once"));
}

struct WorkerEntry {
  scheduler::DeviceProfile device;
  std::vector<scheduler::BatchMeasurement>
      batch_times;  // Without that of the device's own batch size, but for repetitions.
};

WorkerEntry ReadWorker(YamlMap map, std::set<std::string>* names) {
  WorkerEntry entry;
  scheduler::DeviceProfile& device = entry.device;
  device.name = map.String("name");
  if (map.Has("name")) {
    if (absl::Status status = ValidateName("worker name", device.name); !status.ok()) {
      map.AddError("name", status.message());
    } else {
      CheckUnique(map, "name", device.name, names);
    }
  }
  device.site = map.String("site", "");
  if (map.Has("site")) {
    if (absl::Status status = ValidateName("site name", device.site); !status.ok()) {
      map.AddError("site", status.message());
    }
  }
  device.bandwidth_bytes_per_s = map.Double("bandwidth_bytes_per_s", std::nullopt, kAboveZero);
  device.uplink_bytes_per_s = map.OptionalDouble("uplink_bytes_per_s", kAboveZero);
  device.batch_time_s = map.Double("batch_time_s", std::nullopt, kAboveZero);
  device.batch_size = map.Int("batch_size", std::nullopt, 1, kMaxBatch);
  device.max_parallel = map.OptionalInt("max_parallel", 1, kMaxBatch).value_or(device.batch_size);
  if (device.batch_size > device.max_parallel) {
    map.AddError("batch_size", absl::StrCat("found ", device.batch_size, "; allowed: at most max_parallel (",
                                            device.max_parallel, ")"));
  }
  device.capacity_samples = map.OptionalInt("capacity_samples", 0, scheduler::kMaxSamples);
  std::set<int64_t> sizes = {device.batch_size};
  for (YamlMap time : map.Maps("batch_times")) {
    scheduler::BatchMeasurement& measurement = entry.batch_times.emplace_back();
    measurement.batch_size = time.Int("batch_size", std::nullopt, 1, kMaxBatch);
    measurement.batch_time_s = time.Double("batch_time_s", std::nullopt, kAboveZero);
    if (!sizes.insert(measurement.batch_size).second) {
      time.AddError("batch_size", absl::StrCat("found ", measurement.batch_size,
                                               ", which is there already; allowed: each size once"));
    }
  }
  return entry;
}

// Gives the members of each site the shares of the site's batch, which is that of all of them, that take them equally long.
absl::Status ChooseBatches(const std::vector<WorkerEntry>& workers, scheduler::AllocationProblem* problem) {
  std::map<std::string, std::vector<size_t>> sites;
  for (size_t i = 0; i < workers.size(); ++i) sites[workers[i].device.site].push_back(i);
  for (const auto& [site, members] : sites) {
    std::vector<scheduler::SiteMember> site_members;
    int64_t site_batch = 0;
    for (size_t i : members) {
      const scheduler::DeviceProfile& device = workers[i].device;
      scheduler::SiteMember& member = site_members.emplace_back();
      member.max_parallel = device.max_parallel;
      member.measurements = workers[i].batch_times;
      member.measurements.push_back({.batch_size = device.batch_size, .batch_time_s = device.batch_time_s});
      site_batch += device.batch_size;
    }
    ASSIGN_OR_RETURN(const std::vector<scheduler::BatchMeasurement> batches,
                     scheduler::ChooseSiteBatches(site_members, site_batch), absl::StrCat("site ", site));
    for (size_t k = 0; k < members.size(); ++k) {
      problem->devices[members[k]].batch_size = batches[k].batch_size;
      problem->devices[members[k]].batch_time_s = batches[k].batch_time_s;
    }
  }
  return absl::OkStatus();
}

PlanInput::AllocationPart ReadAllocation(YamlMap& root, const YamlDocument* document) {
  PlanInput::AllocationPart part;
  scheduler::AllocationProblem& problem = part.problem;
  problem.samples = root.Int("samples", std::nullopt, 1, scheduler::kMaxSamples);
  problem.sample_bytes = root.Double("sample_bytes", std::nullopt, kAtLeastZero);
  problem.model_bytes = root.Double("model_bytes", std::nullopt, kAtLeastZero);
  problem.epochs = root.Double("epochs", 1, kAboveZero);
  problem.egress_bytes_per_s = root.OptionalDouble("egress_bytes_per_s", kAboveZero);
  problem.rounds_per_epoch = root.Int("rounds_per_epoch", 1, 1, kMaxRoundsPerEpoch);

  YamlMap allocation = root.Map("allocation");
  part.method = ReadChoice(allocation, "method", "exact", {"exact", "auglag", "uniform", "proportional"},
                           scheduler::AllocationMethodFromName);
  problem.objective = ReadChoice(allocation, "objective", "barrier", {"barrier", "separable", "pipelined"},
                                 scheduler::AllocationObjectiveFromName);
  problem.lock_step_sites = allocation.Bool("lock_step_sites", false);

  std::set<std::string> names;
  std::vector<WorkerEntry> workers;
  int64_t capacity = 0;
  for (YamlMap map : root.Maps("workers")) {
    workers.push_back(ReadWorker(map, &names));
    problem.devices.push_back(workers.back().device);
    if (problem.lock_step_sites && workers.back().device.site.empty()) {
      map.AddError("site", "missing; allowed: a name, which lock_step_sites needs");
    }
    if (!problem.lock_step_sites && map.Has("batch_times")) {
      map.AddError("batch_times", "has no effect without allocation.lock_step_sites; allowed: with it");
    }
    // At most kMaxSamples each: the sum of so many fits.
    const int64_t limit = problem.devices.back().capacity_samples.value_or(scheduler::kMaxSamples);
    capacity = capacity > scheduler::kMaxSamples ? capacity : capacity + limit;
  }
  const auto count = static_cast<int64_t>(workers.size());
  if (count < 1 || count > kMaxPlanWorkers) {
    root.AddError("workers", absl::StrCat("found ", count, "; allowed: 1 to ", kMaxPlanWorkers));
  } else if (capacity < problem.samples) {
    root.AddError("samples", absl::StrCat("found ", problem.samples, "; allowed: at most ", capacity,
                                          ", which is what capacity_samples of all workers come to"));
  }
  if (problem.lock_step_sites && document->ok()) {
    if (absl::Status status = ChooseBatches(workers, &problem); !status.ok()) {
      root.AddError("workers", status.message());
    }
  }
  return part;
}

PlanInput::SchedulePart ReadSchedule(YamlMap& root) {
  PlanInput::SchedulePart part;
  std::set<std::string> names;
  for (YamlMap map : root.Maps("layers")) {
    scheduler::LayerProfile& layer = part.layers.emplace_back();
    layer.name = map.String("name");
    if (map.Has("name")) {
      if (layer.name.empty()) map.AddError("name", "found nothing; allowed: a text");
      CheckUnique(map, "name", layer.name, &names);
    }
    layer.t_fp_s = map.Double("t_fp_s", std::nullopt, kLayerSeconds);
    layer.t_bp_s = map.Double("t_bp_s", std::nullopt, kLayerSeconds);
    layer.t_comm_s = map.Double("t_comm_s", std::nullopt, kLayerSeconds);
  }
  if (part.layers.empty() || part.layers.size() > scheduler::kMaxLayers) {
    root.AddError("layers", absl::StrCat("found ", part.layers.size(), "; allowed: 1 to ", scheduler::kMaxLayers));
  }
  YamlMap site_sync = root.Map("site_sync");
  part.method = ReadChoice(site_sync, "method", "dreamddp", {"ssgd", "wfbp", "flsgd", "plsgd_enp", "dreamddp"},
                           scheduler::SyncMethodFromName);
  part.options.period = static_cast<int>(site_sync.Int("period", 5, 1, scheduler::kMaxPeriod));
  part.options.scheduler = ReadChoice(site_sync, "scheduler", "exact", {"equal", "dreamddp", "brute", "exact", "free"},
                                      scheduler::LayerSchedulerFromName);
  part.options.startup_s = site_sync.Double("startup_s", 0, kLayerSeconds);
  part.fill = ReadChoice(site_sync, "fill", "end", {"none", "end", "before"}, scheduler::FillRuleFromName);
  return part;
}

PlanInput::GroupsPart ReadGroups(YamlMap map) {
  PlanInput::GroupsPart part;
  part.model.parameter_bytes = map.Double("parameter_bytes", std::nullopt, kAboveZero);
  part.layout.sites = map.Int("sites", 1, 1, scheduler::kMaxGroupWorkers);
  part.layout.workers_per_site = map.Int("workers_per_site", std::nullopt, 1, scheduler::kMaxGroupWorkers);
  part.layout.shards = map.Int("shards", part.layout.workers_per_site, 1, scheduler::kMaxGroupWorkers);
  part.layout.period = map.Int("period", 1, 1, scheduler::kMaxGroupPeriod);
  if (part.layout.workers() > scheduler::kMaxGroupWorkers) {
    map.AddError("sites", absl::StrCat("found ", part.layout.sites, " of ", part.layout.workers_per_site,
                                       " workers; allowed: ", scheduler::kMaxGroupWorkers, " workers in all"));
  }
  if (part.layout.workers_per_site % part.layout.shards != 0) {
    map.AddError("shards", absl::StrCat("found ", part.layout.shards, "; allowed: a divisor of workers_per_site (",
                                        part.layout.workers_per_site, ")"));
  }
  part.exchange = ReadChoice(map, "exchange", "all_reduce", {"all_reduce", "split_all_reduce", "server"},
                             scheduler::SiteExchangeFromName);
  part.model.layers = map.Int("messages", 1, 1, scheduler::kMaxLayers);
  std::set<std::string> names;
  for (YamlMap tier_map : map.Maps("tiers")) {
    scheduler::LinkTier& tier = part.network.tiers.emplace_back();
    tier.name = tier_map.String("name");
    if (tier_map.Has("name")) CheckUnique(tier_map, "name", tier.name, &names);
    tier.unit_workers = tier_map.Int("unit_workers", std::nullopt, 1, scheduler::kMaxGroupWorkers);
    tier.bandwidth_bytes_per_s = tier_map.Double("bandwidth_bytes_per_s", std::nullopt, kAboveZero);
    tier.latency_s = tier_map.Double("latency_s", 0, kLayerSeconds);
  }
  if (part.network.tiers.empty()) map.AddError("tiers", "found none; allowed: at least one, from the inside out");
  part.device_memory_bytes = map.OptionalDouble("device_memory_bytes", kAboveZero);
  if (part.device_memory_bytes.has_value()) {
    part.model.state_bytes = map.Double("state_bytes", 0, kAtLeastZero);
    part.model.largest_layer_bytes = map.Double("largest_layer_bytes", 0, kAtLeastZero);
    part.model.activation_bytes = map.Double("activation_bytes", 0, kAtLeastZero);
    part.max_period = map.Int("max_period", 1, 1, scheduler::kMaxGroupPeriod);
    part.compute_s = map.Double("compute_s", 0, kLayerSeconds);
  }
  return part;
}

PlanInput::SimulationPart::Change ReadChange(YamlMap map, const std::set<std::string>& workers,
                                             const std::set<std::string>& sites) {
  using What = scheduler::SimulatedChange::What;
  struct Kind {
    const char* name;
    What what;
    const char* of;  // The key that names whose it is.
  };
  constexpr Kind kKinds[] = {{"compute", What::kCompute, "worker"},
                             {"downlink", What::kDownlink, "worker"},
                             {"uplink", What::kUplink, "worker"},
                             {"site_collective", What::kSiteCollective, "site"},
                             {"site_downlink", What::kSiteDownlink, "site"},
                             {"site_uplink", What::kSiteUplink, "site"},
                             {"egress", What::kCoordinatorEgress, ""},
                             {"ingress", What::kCoordinatorIngress, ""}};
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.push_back(kind.name);
  const std::string name = map.Choice("what", std::nullopt, names);
  PlanInput::SimulationPart::Change change;
  for (const Kind& kind : kKinds) {
    if (name != kind.name) continue;
    change.what = kind.what;
    if (kind.of[0] == '\0') continue;
    change.name = map.String(kind.of);
    const std::set<std::string>& known = kind.of == std::string("worker") ? workers : sites;
    if (map.Has(kind.of) && known.count(change.name) == 0) {
      map.AddError(kind.of, absl::StrCat("found ", change.name, "; allowed: one of those of `workers`"));
    }
  }
  change.time_s = map.Double("at_s", std::nullopt, kAtLeastZero);
  change.factor = map.Double("factor", std::nullopt, kAboveZero);
  return change;
}

PlanInput::SimulationPart ReadSimulation(YamlMap map, const scheduler::AllocationProblem& problem) {
  PlanInput::SimulationPart part;
  std::set<std::string> workers;
  std::set<std::string> sites;
  for (const scheduler::DeviceProfile& device : problem.devices) {
    workers.insert(device.name);
    sites.insert(device.site);
  }
  part.quorum = map.Double("quorum", 1, {.min = 0, .max = 1, .min_excluded = true});
  part.deadline_s = map.OptionalDouble("deadline_s", kAboveZero).value_or(scheduler::kNever);
  part.late_grace_s = map.Double("late_grace_s", 0, kAtLeastZero);
  part.replan_after_s = map.OptionalDouble("replan_after_s", kAtLeastZero).value_or(scheduler::kNever);
  part.fragments = static_cast<int>(map.Int("fragments", 1, 1, scheduler::kMaxLayers));
  part.delay = map.Int("delay", 0, 0, scheduler::kMaxSamples);
  part.reform_s = map.Double("reform_s", 0, kAtLeastZero);
  part.compute_jitter = map.Double("compute_jitter", 0, {.min = 0, .max = kMaxJitter});
  part.collective_jitter = map.Double("collective_jitter", 0, {.min = 0, .max = kMaxJitter});
  part.seed = static_cast<uint64_t>(map.Int("seed", 0, 0, std::numeric_limits<int64_t>::max()));
  for (YamlMap change : map.Maps("changes")) part.changes.push_back(ReadChange(change, workers, sites));
  for (YamlMap absence_map : map.Maps("absences")) {
    PlanInput::SimulationPart::Absence& absence = part.absences.emplace_back();
    absence.worker = absence_map.String("worker");
    if (absence_map.Has("worker") && workers.count(absence.worker) == 0) {
      absence_map.AddError("worker", absl::StrCat("found ", absence.worker, "; allowed: one of those of `workers`"));
    }
    absence.stop_s = absence_map.Double("stop_s", std::nullopt, kAtLeastZero);
    absence.return_s = absence_map.OptionalDouble("return_s", {.min = absence.stop_s, .min_excluded = true})
                           .value_or(scheduler::kNever);
  }
  return part;
}

}  // namespace

absl::StatusOr<PlanInput> ParsePlanInput(absl::string_view text, absl::string_view file_name) {
  ASSIGN_OR_RETURN(std::unique_ptr<YamlDocument> document,
                   YamlDocument::Parse(text, file_name, {.max_bytes = kMaxPlanInputBytes, .max_values = kMaxValues}));
  YamlMap root = document->root();
  root.Choice("schema", std::nullopt, {"causeway.plan-input/1"});
  const bool has_allocation = HasAny(root, {"workers", "samples", "sample_bytes", "model_bytes", "epochs",
                                            "rounds_per_epoch", "egress_bytes_per_s", "allocation"});
  const bool has_schedule = HasAny(root, {"layers", "site_sync"});
  PlanInput input;
  if (has_allocation) input.allocation = ReadAllocation(root, document.get());
  if (has_schedule) input.schedule = ReadSchedule(root);
  YamlMap groups = root.Map("groups");  // Named before it is looked for, so that errors know the key.
  YamlMap simulation = root.Map("simulation");
  if (root.Has("groups")) input.groups = ReadGroups(std::move(groups));
  if (!has_allocation && !has_schedule && !input.groups.has_value()) {
    root.AddError("", "found nothing to plan; allowed: samples and workers, layers, groups, or several of them");
  }
  if (root.Has("simulation")) {
    input.simulation = ReadSimulation(std::move(simulation),
                                      has_allocation ? input.allocation->problem : scheduler::AllocationProblem());
  }
  RETURN_IF_ERROR(document->Finish());
  // What no field alone is to blame for, such as times whose sum is too large for a double.
  if (has_allocation) RETURN_IF_ERROR(scheduler::Validate(input.allocation->problem), absl::StrCat(file_name));
  if (has_schedule) {
    RETURN_IF_ERROR(scheduler::LayerTimes::Create(input.schedule->layers).status(),
                    absl::StrCat(file_name, ": layers"));
  }
  if (input.groups.has_value()) {
    RETURN_IF_ERROR(scheduler::Validate(input.groups->layout), absl::StrCat(file_name, ": groups"));
    RETURN_IF_ERROR(scheduler::Validate(input.groups->network), absl::StrCat(file_name, ": groups.tiers"));
  }
  return input;
}

}  // namespace causeway::cli
