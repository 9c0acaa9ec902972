#include "jobspec/job_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "jobspec/yaml_reader.h"

namespace causeway::jobspec {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 50;  // Of a job, in rounds or samples.
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxBatch = 1 << 20;
constexpr int64_t kMaxCheckpoints = 1'000'000'000;
constexpr NumberRange kAboveZero = {.min = 0, .min_excluded = true};
constexpr NumberRange kAtLeastZero = {.min = 0};

void CheckName(YamlMap& map, absl::string_view key, absl::string_view what, absl::string_view name) {
  absl::Status status = ValidateName(what, name);
  if (!status.ok()) map.AddError(key, status.message());
}

void CheckDataPath(YamlMap& map, absl::string_view key, const std::string& path) {
  bool leaves = path.empty() || path[0] == '/';
  for (absl::string_view part : absl::StrSplit(path, '/')) leaves = leaves || part == "..";
  if (map.Has(key) && leaves) {
    map.AddError(key, absl::StrCat("found \"", path,
                                   "\"; allowed: a path below the coordinator's data_root (relative, without \"..\")"));
  }
}

void ReadModel(YamlMap map, v1::ModelSpec* model) {
  for (absl::string_view key : {"torchscript", "plugin", "init"}) map.Unsupported(key, "null");
  model->set_builtin(map.Choice("builtin", std::nullopt, {"mlp", "lenet", "resnet18"},
                                {"resnet50", "wide_resnet101", "gpt2", "llama2"}));
  model->set_classes(map.Int("classes", 10, 2, 1000000));
}

void ReadDataSource(YamlMap map, v1::DataSource* source) {
  source->set_format(map.Choice("format", std::nullopt, {"idx"}, {"cifar", "tokens", "webdataset", "npy"}));
  source->set_images(map.String("images"));
  source->set_labels(map.String("labels"));
  CheckDataPath(map, "images", source->images());
  CheckDataPath(map, "labels", source->labels());
  YamlMap normalize = map.Map("normalize");
  std::vector<double> mean = normalize.Doubles("mean", {});
  std::vector<double> std = normalize.Doubles("std", kAboveZero);
  if (!mean.empty() && !std.empty() && mean.size() != std.size()) {
    normalize.AddError("std", absl::StrCat("found ", std.size(), " numbers for ", mean.size(),
                                           " of mean; allowed: one per channel in both"));
  }
  source->mutable_mean()->Assign(mean.begin(), mean.end());
  source->mutable_std()->Assign(std.begin(), std.end());
}

void ReadData(YamlMap map, v1::DataSpec* data) {
  ReadDataSource(map.RequiredMap("train"), data->mutable_train());
  YamlMap test = map.RequiredMap("test");
  ReadDataSource(test, data->mutable_test());
  if (!test.Has("normalize")) {
    *data->mutable_test()->mutable_mean() = data->train().mean();
    *data->mutable_test()->mutable_std() = data->train().std();
  }
}

void ReadBatch(YamlMap map, v1::BatchSpec* batch) {
  if (map.String("per_worker", "auto") != "auto") {
    batch->set_per_worker(map.Int("per_worker", std::nullopt, 1, kMaxBatch));
  }
  batch->set_max(map.Int("max", std::max<int64_t>(128, batch->per_worker()), 1, kMaxBatch));
  if (batch->per_worker() > batch->max()) {
    map.AddError("per_worker", absl::StrCat("found ", batch->per_worker(), "; allowed: auto, or at most batch.max (",
                                            batch->max(), ")"));
  }
}

void ReadOptimizer(YamlMap map, v1::OptimizerSpec* optimizer) {
  optimizer->set_name(map.Choice("name", "sgd", {"sgd"}, {"adam", "adamw"}));
  optimizer->set_learning_rate(map.Double("learning_rate", 0.05, kAboveZero));
  optimizer->set_momentum(map.Double("momentum", 0.9, {.min = 0, .max = 0.999999}));
  optimizer->set_weight_decay(map.Double("weight_decay", 0, kAtLeastZero));
  map.Unsupported("clip_norm", "null");
  YamlMap schedule = map.Map("schedule");
  v1::ScheduleSpec* spec = optimizer->mutable_schedule();
  spec->set_name(schedule.Choice("name", "constant", {"constant", "step", "cosine"}));
  spec->set_warmup_samples(schedule.Int("warmup_samples", 0, 0, kMaxInt));
  if (spec->name() == "step") {
    spec->set_step_samples(schedule.Int("step_samples", std::nullopt, 1, kMaxInt));
    spec->set_gamma(schedule.Double("gamma", 0.1, {.min = 0, .max = 1, .min_excluded = true}));
  } else {
    for (absl::string_view key : {"step_samples", "gamma"}) {
      schedule.Ignore(key);
      if (schedule.Has(key))
        schedule.AddError(key, absl::StrCat("has no effect with schedule ", spec->name(), "; allowed: with step"));
    }
  }
}

void ReadEnd(YamlMap map, v1::EndSpec* end) {
  if (map.Has("epochs"))
    end->set_epochs(map.Double("epochs", std::nullopt, {.min = 0, .max = 1e6, .min_excluded = true}));
  if (map.Has("rounds")) end->set_rounds(map.Int("rounds", std::nullopt, 1, kMaxLength));
  if (map.Has("samples")) end->set_samples(map.Int("samples", std::nullopt, 1, kMaxLength));
  for (absl::string_view key : {"epochs", "rounds", "samples", "target"}) map.Ignore(key);
  map.Unsupported("steps", "null");
  if (map.Has("target")) {
    YamlMap target = map.Map("target");
    bool accuracy = target.Choice("metric", "accuracy", {"accuracy", "loss"}) == "accuracy";
    end->set_target_metric(accuracy ? v1::METRIC_ACCURACY : v1::METRIC_LOSS);
    end->set_target_value(target.Double("value", std::nullopt,
                                        accuracy ? NumberRange{.min = 0, .max = 1, .min_excluded = true} : kAboveZero));
  }
  bool any = map.Has("epochs") || map.Has("rounds") || map.Has("samples") || map.Has("target");
  if (map.present() && !any) map.AddError("", "found no end; allowed: at least one of epochs, rounds, samples, target");
}

void ReadRounds(YamlMap map, v1::RoundsSpec* rounds) {
  rounds->set_per_epoch(1);
  if (map.IsMap("every")) {
    YamlMap every = map.Map("every");
    every.Unsupported("steps", "null");
    if (every.Has("per_epoch") || !every.Has("steps"))
      rounds->set_per_epoch(every.Int("per_epoch", std::nullopt, 1, 100000));
    every.Ignore("per_epoch");
  } else if (std::string every = map.String("every", "epoch"); every != "epoch") {
    map.AddError("every", absl::StrCat("found \"", every, "\"; allowed: epoch, {per_epoch: N}"));
  }
  rounds->set_quorum(map.Double("quorum", 0.67, {.min = 0, .max = 1, .min_excluded = true}));
  if (map.String("deadline", "auto") != "auto") {
    rounds->set_deadline_s(
        absl::ToDoubleSeconds(map.Duration("deadline", std::nullopt, absl::Seconds(1), absl::Hours(240))));
  }
  rounds->set_replan_after_s(
      absl::ToDoubleSeconds(map.Duration("replan_after", absl::Seconds(60), absl::Seconds(1), absl::Hours(240))));
  rounds->set_max_change(map.Double("max_change", 10, kAboveZero));
  YamlMap outer = map.Map("outer");
  outer.Unsupported("name", "average");
  outer.Unsupported("learning_rate", "1");
  outer.Unsupported("momentum", "0");
  YamlMap codec = map.Map("codec");
  codec.Unsupported("up", "fp32");
  codec.Unsupported("down", "fp32");
  map.Unsupported("normalize", "none");
  map.Unsupported("fragments", "1");
  map.Unsupported("delay", "0");
}

void ReadSiteSync(YamlMap map, v1::SiteSyncSpec* site_sync) {
  site_sync->set_method(
      map.Choice("method", "none", {"none"}, {"ssgd", "wfbp", "flsgd", "plsgd_enp", "dreamddp", "fsdp", "hsdp"}));
  map.Unsupported("period", "5");
  map.Unsupported("scheduler", "exact");
  map.Unsupported("fill", "end");
  map.Unsupported("order", "average_then_step");
}

}  // namespace

absl::StatusOr<v1::JobSpec> ParseJobYaml(absl::string_view text, absl::string_view file_name) {
  ASSIGN_OR_RETURN(std::unique_ptr<YamlDocument> document, YamlDocument::Parse(text, file_name));
  YamlMap root = document->root();
  v1::JobSpec spec;
  spec.set_name(root.String("name"));
  if (root.Has("name")) CheckName(root, "name", "job name", spec.name());
  std::set<std::string> sites;
  for (const std::string& site : root.Strings("sites")) {
    CheckName(root, "sites", "site name", site);
    if (!sites.insert(site).second) root.AddError("sites", absl::StrCat("found ", site, " twice; allowed: once"));
    spec.add_sites(site);
  }
  if (root.Has("sites") && sites.empty())
    root.AddError("sites", "found no site; allowed: at least one, or leave the key out for all");
  ReadModel(root.RequiredMap("model"), spec.mutable_model());
  ReadData(root.RequiredMap("data"), spec.mutable_data());
  ReadBatch(root.Map("batch"), spec.mutable_batch());
  ReadOptimizer(root.Map("optimizer"), spec.mutable_optimizer());
  ReadEnd(root.RequiredMap("end"), spec.mutable_end());
  YamlMap allocation = root.Map("allocation");
  spec.mutable_allocation()->set_method(
      allocation.Choice("method", "exact", {"exact", "auglag", "uniform", "proportional"}));
  spec.mutable_allocation()->set_objective(
      allocation.Choice("objective", "barrier", {"barrier", "separable", "pipelined"}));
  ReadSiteSync(root.Map("site_sync"), spec.mutable_site_sync());
  ReadRounds(root.Map("rounds"), spec.mutable_rounds());
  YamlMap limits = root.Map("limits");
  limits.Unsupported("up", "null");
  limits.Unsupported("down", "null");
  root.Unsupported("accumulate", "1");
  root.Unsupported("precision", "fp32");
  root.Unsupported("replan_threshold", "0.25");
  spec.set_orphan_timeout_s(absl::ToDoubleSeconds(
      root.Duration("orphan_timeout", absl::Minutes(10), absl::Seconds(1), absl::Hours(24 * 365))));
  YamlMap checkpoint = root.Map("checkpoint");
  spec.mutable_checkpoint()->set_every_rounds(checkpoint.Int("every_rounds", 1, 1, kMaxCheckpoints));
  spec.mutable_checkpoint()->set_keep(checkpoint.Int("keep", 3, 1, kMaxCheckpoints));
  spec.set_seed(root.Int("seed", 1, 0, kMaxInt));

  const v1::EndSpec& end = spec.end();
  if (spec.optimizer().schedule().name() == "cosine" && end.target_value() > 0 && end.epochs() == 0 &&
      end.rounds() == 0 && end.samples() == 0) {
    root.AddError("optimizer",
                  "found schedule cosine with an end that has no length; allowed: cosine with epochs, rounds or "
                  "samples in `end`");
  }
  RETURN_IF_ERROR(document->Finish());
  return spec;
}

int64_t SamplesToTrain(const v1::JobSpec& spec, int64_t dataset_samples) {
  const auto d = static_cast<double>(dataset_samples);
  double samples = 0;
  const auto bound = [&](double value) {
    if (value > 0) samples = samples > 0 ? std::min(samples, value) : value;
  };
  bound(spec.end().epochs() * d);
  bound(static_cast<double>(spec.end().samples()));
  bound(static_cast<double>(spec.end().rounds()) * d / static_cast<double>(spec.rounds().per_epoch()));
  return std::llround(samples);
}

absl::StatusOr<v1::Plan> ParsePinnedPlan(absl::string_view text, absl::string_view file_name) {
  ASSIGN_OR_RETURN(std::unique_ptr<YamlDocument> document, YamlDocument::Parse(text, file_name));
  YamlMap root = document->root();
  root.Choice("schema", std::nullopt, {"causeway.plan/1"});
  // A comparison of methods pins nothing.
  root.Ignore("methods");
  root.Ignore("allocation_methods");
  root.Ignore("group_methods");
  // Training otherwise than the plan says would be no pinning.
  for (absl::string_view key : {"schedule", "schedules", "groups"}) {
    root.Ignore(key);
    if (root.IsNull(key)) continue;
    root.AddError(key, absl::StrCat("a job cannot follow ", key == "groups" ? "groups" : "a layer schedule",
                                    " yet (site_sync.method is none); allowed: null, or leave ", key,
                                    " out to pin the allocation alone"));
  }
  YamlMap allocation = root.RequiredMap("allocation");
  for (absl::string_view key : {"total_s", "lower_bound_s", "gap_s", "binding"}) allocation.Ignore(key);

  v1::Plan plan;
  plan.set_pinned(true);
  plan.set_method(allocation.String("method", ""));
  plan.set_objective(allocation.String("objective", ""));
  std::vector<v1::WorkerPlan> workers;
  std::set<std::string> names;
  int64_t samples = 0;
  for (YamlMap map : allocation.Maps("workers")) {
    for (absl::string_view key : {"steps_per_epoch", "send_s", "compute_s", "comm_s", "total_s"}) map.Ignore(key);
    v1::WorkerPlan& worker = workers.emplace_back();
    worker.set_worker(map.String("name"));
    if (map.Has("name")) CheckName(map, "name", "worker name", worker.worker());
    if (!names.insert(worker.worker()).second)
      map.AddError("name", absl::StrCat("found ", worker.worker(), " twice; allowed: once"));
    // The bound keeps the sum of all workers in 63 bits.
    worker.set_samples(map.Int("samples", std::nullopt, 0, int64_t{1} << 42));
    worker.set_batch_size(map.Int("batch_size", worker.samples() > 0 ? std::nullopt : std::optional<int64_t>(0),
                                  worker.samples() > 0 ? 1 : 0, kMaxBatch));
    samples += worker.samples();
  }
  if (allocation.present() && samples == 0) {
    allocation.AddError("workers", "found no worker with samples; allowed: at least one");
  }
  RETURN_IF_ERROR(document->Finish());
  std::sort(workers.begin(), workers.end(),
            [](const v1::WorkerPlan& a, const v1::WorkerPlan& b) { return a.worker() < b.worker(); });
  for (v1::WorkerPlan& worker : workers) *plan.add_workers() = std::move(worker);
  plan.set_samples(samples);
  return plan;
}

}  // namespace causeway::jobspec
