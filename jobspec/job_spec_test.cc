#include "jobspec/job_spec.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kData[] =
    "data:\n"
    "  train: {format: idx, images: train.gz, labels: train-labels.gz, normalize: {mean: [0.286], std: [0.353]}}\n"
    "  test: {format: idx, images: test.gz, labels: test-labels.gz}\n";

// The shortest job, with further lines behind it.
std::string Job(absl::string_view more = "") {
  return absl::StrCat("name: fashion\nmodel: {builtin: lenet}\n", kData, "end: {epochs: 10}\n", more);
}

std::string Text(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

TEST(JobSpecTest, Defaults) {
  absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(Job(), "job.yaml");
  ASSERT_THAT(spec, IsOk());
  v1::JobSpec expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "fashion"
        model { builtin: "lenet" classes: 10 }
        data {
          train { format: "idx" images: "train.gz" labels: "train-labels.gz" mean: 0.286 std: 0.353 }
          test { format: "idx" images: "test.gz" labels: "test-labels.gz" mean: 0.286 std: 0.353 }
        }
        batch { per_worker: 0 max: 128 }
        optimizer {
          name: "sgd"
          learning_rate: 0.05
          momentum: 0.9
          schedule { name: "constant" }
        }
        end { epochs: 10 }
        allocation { method: "exact" objective: "barrier" }
        site_sync { method: "none" }
        rounds { per_epoch: 1 quorum: 0.67 replan_after_s: 60 max_change: 10 }
        checkpoint { every_rounds: 1 keep: 3 }
        seed: 1
        orphan_timeout_s: 600
      )pb",
      &expected));
  EXPECT_EQ(Text(*spec), Text(expected));
}

TEST(JobSpecTest, EveryLiveKey) {
  absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(
      R"(name: big-job
sites: [eu-west, lab]
model: {builtin: resnet18, classes: 100}
data:
  train: {format: idx, images: a/train.gz, labels: a/labels.gz, normalize: {mean: [0.1, 0.2, 0.3], std: [1, 2, 3]}}
  test: {format: idx, images: t.gz, labels: l.gz, normalize: {mean: [0.5]}}
batch: {per_worker: 256}
optimizer: {name: sgd, learning_rate: 0.1, momentum: 0, weight_decay: 5e-4,
            schedule: {name: step, warmup_samples: 100, step_samples: 60000, gamma: 0.5}}
end: {rounds: 7, samples: 100000, target: {metric: loss, value: 1.5}}
allocation: {method: proportional, objective: separable}
site_sync: {method: none}
rounds: {every: {per_epoch: 4}, quorum: 1, deadline: 2m, replan_after: 90s, max_change: 2.5}
checkpoint: {every_rounds: 5, keep: 1}
seed: 0
)",
      "job.yaml");
  ASSERT_THAT(spec, IsOk());
  v1::JobSpec expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "big-job"
        sites: [ "eu-west", "lab" ]
        model { builtin: "resnet18" classes: 100 }
        data {
          train {
            format: "idx"
            images: "a/train.gz"
            labels: "a/labels.gz"
            mean: [ 0.1, 0.2, 0.3 ]
            std: [ 1, 2, 3 ]
          }
          test { format: "idx" images: "t.gz" labels: "l.gz" mean: 0.5 }
        }
        batch { per_worker: 256 max: 256 }
        optimizer {
          name: "sgd"
          learning_rate: 0.1
          weight_decay: 5e-4
          schedule { name: "step" warmup_samples: 100 step_samples: 60000 gamma: 0.5 }
        }
        end { rounds: 7 samples: 100000 target_metric: METRIC_LOSS target_value: 1.5 }
        allocation { method: "proportional" objective: "separable" }
        site_sync { method: "none" }
        rounds { per_epoch: 4 quorum: 1 deadline_s: 120 replan_after_s: 90 max_change: 2.5 }
        checkpoint { every_rounds: 5 keep: 1 }
        seed: 0
        orphan_timeout_s: 600
      )pb",
      &expected));
  EXPECT_EQ(Text(*spec), Text(expected));
}

// The normative schema (with the methods of this version): every key is known, every default is taken.
TEST(JobSpecTest, TheWholeSchemaAtItsDefaults) {
  EXPECT_THAT(ParseJobYaml(
                  R"(name: fashion
sites: [eu-west, lab]                           # default: all
model: {builtin: resnet18, classes: 10, torchscript: null, plugin: null, init: null}
data:
  train: {format: idx, images: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz, normalize: {mean: [0.286], std: [0.353]}}
  test:  {format: idx, images: t10k-images-idx3-ubyte.gz, labels: t10k-labels-idx1-ubyte.gz}
batch: {per_worker: auto, max: 128}             # auto: the allocator chooses; or a number
optimizer: {name: sgd, learning_rate: 0.05, momentum: 0.9, weight_decay: 0, clip_norm: null,
            schedule: {name: cosine, warmup_samples: 20000}}   # schedules count global samples
end: {epochs: 10, steps: null}
allocation: {method: exact, objective: barrier}
site_sync: {method: none, period: 5, scheduler: exact, fill: end, order: average_then_step}
rounds: {every: epoch,
         quorum: 0.67, deadline: auto, replan_after: 60s, outer: {name: average, learning_rate: 1.0, momentum: 0.0},
         normalize: none, codec: {up: fp32, down: fp32}, max_change: 10.0, fragments: 1, delay: 0}
limits: {up: null, down: null}                  # bytes per second for this job
accumulate: 1                                   # micro-steps per step
precision: fp32                                 # or bf16 on devices that have it
replan_threshold: 0.25
orphan_timeout: 10m
checkpoint: {every_rounds: 1, keep: 3}
seed: 1
)",
                  "job.yaml"),
              IsOk());
}

struct BadCase {
  std::string yaml;
  std::string message;
};

TEST(JobSpecTest, KeysAndValuesNotSupportedYetAreRefusedByName) {
  for (const BadCase& c : {
           BadCase{Job("site_sync: {method: dreamddp}"),
                   "site_sync.method: found dreamddp, which is not supported yet; allowed: none"},
           BadCase{Job("site_sync: {period: 7}"), "site_sync.period is not supported yet"},
           BadCase{Job("optimizer: {name: adam}"), "found adam, which is not supported yet"},
           BadCase{Job("optimizer: {clip_norm: 1}"), "optimizer.clip_norm is not supported yet"},
           BadCase{Job("rounds: {every: {steps: 50}}"), "rounds.every.steps is not supported yet"},
           BadCase{Job("rounds: {outer: {name: nesterov}}"), "rounds.outer.name is not supported yet"},
           BadCase{Job("rounds: {outer: {momentum: 0.9}}"), "rounds.outer.momentum is not supported yet"},
           BadCase{Job("rounds: {codec: {up: int8}}"), "rounds.codec.up is not supported yet"},
           BadCase{Job("rounds: {normalize: l2}"), "rounds.normalize is not supported yet"},
           BadCase{Job("rounds: {fragments: 2}"), "rounds.fragments is not supported yet"},
           BadCase{Job("rounds: {delay: 1}"), "rounds.delay is not supported yet"},
           BadCase{Job("limits: {up: 1MB/s}"), "limits.up is not supported yet"},
           BadCase{Job("accumulate: 2"), "accumulate is not supported yet"},
           BadCase{Job("precision: bf16"), "precision is not supported yet"},
           BadCase{Job("replan_threshold: 0.5"), "replan_threshold is not supported yet"},
           BadCase{Job("orphan_timeout: 0s"), "orphan_timeout"},
           BadCase{absl::StrReplaceAll(Job(), {{"epochs: 10", "epochs: 10, steps: 5"}}),
                   "end.steps is not supported yet"},
           BadCase{absl::StrReplaceAll(Job(), {{"lenet", "gpt2"}}), "found gpt2, which is not supported yet"},
           BadCase{absl::StrReplaceAll(Job(), {{"builtin: lenet", "torchscript: m.pt"}}),
                   "model.torchscript is not supported yet"},
           BadCase{absl::StrReplaceAll(Job(), {{"builtin: lenet", "builtin: lenet, init: w.safetensors"}}),
                   "model.init is not supported yet"},
           BadCase{absl::StrReplaceAll(Job(), {{"format: idx", "format: npy"}}),
                   "found npy, which is not supported yet"},
       }) {
    EXPECT_THAT(ParseJobYaml(c.yaml, "job.yaml"),
                StatusIs(kInvalid, AllOf(HasSubstr(c.message), HasSubstr("job.yaml:"))))
        << c.yaml;
  }
}

TEST(JobSpecTest, EveryAllocationMethodAndObjective) {
  for (const char* method : {"exact", "auglag", "uniform", "proportional"}) {
    for (const char* objective : {"barrier", "separable", "pipelined"}) {
      const absl::StatusOr<v1::JobSpec> spec =
          ParseJobYaml(Job(absl::StrCat("allocation: {method: ", method, ", objective: ", objective, "}")), "job.yaml");
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(spec->allocation().method(), method);
      EXPECT_EQ(spec->allocation().objective(), objective);
    }
  }
}

TEST(JobSpecTest, ImpossibleValues) {
  for (const BadCase& c : {
           BadCase{absl::StrReplaceAll(Job(), {{"fashion", "Fashion"}}),
                   "job.yaml:1: name: job name \"Fashion\" does not match"},
           BadCase{absl::StrReplaceAll(Job(), {{"fashion", "../x"}}), "name: job name \"../x\""},
           BadCase{Job("sites: [A]"), "sites: site name \"A\""},
           BadCase{Job("sites: [a, a]"), "found a twice"},
           BadCase{Job("sites: []"), "found no site"},
           BadCase{absl::StrReplaceAll(Job(), {{"name: fashion\n", ""}}), "name: missing"},
           BadCase{absl::StrReplaceAll(Job(), {{"model: {builtin: lenet}\n", ""}}), "model: missing"},
           BadCase{absl::StrReplaceAll(Job(), {{"builtin: lenet", "classes: 10"}}), "model.builtin: missing"},
           BadCase{absl::StrReplaceAll(Job(), {{kData, ""}}), "data: missing"},
           BadCase{absl::StrReplaceAll(Job(), {{"end: {epochs: 10}", ""}}), "end: missing"},
           BadCase{absl::StrReplaceAll(Job(), {{"{epochs: 10}", "{}"}}), "end: found no end; allowed: at least one of"},
           BadCase{absl::StrReplaceAll(Job(), {{"epochs: 10", "epochs: 0"}}), "end.epochs: found \"0\""},
           BadCase{absl::StrReplaceAll(Job(), {{"epochs: 10", "rounds: 1.5"}}), "end.rounds: found \"1.5\""},
           BadCase{absl::StrReplaceAll(Job(), {{"epochs: 10", "target: {metric: accuracy, value: 90}"}}),
                   "end.target.value: found \"90\"; allowed: a number above 0 and at most 1"},
           BadCase{absl::StrReplaceAll(Job(), {{"epochs: 10", "target: {metric: f1, value: 1}"}}),
                   "end.target.metric: found \"f1\""},
           BadCase{absl::StrReplaceAll(Job(), {{"epochs: 10", "target: {}"}}), "end.target.value: missing"},
           BadCase{absl::StrReplaceAll(Job("optimizer: {schedule: {name: cosine}}"),
                                       {{"epochs: 10", "target: {value: 0.9}"}}),
                   "cosine with an end that has no length"},
           BadCase{absl::StrReplaceAll(Job(), {{"images: train.gz", "images: /etc/passwd"}}),
                   "data.train.images: found \"/etc/passwd\""},
           BadCase{absl::StrReplaceAll(Job(), {{"labels: test-labels.gz", "labels: a/../../b"}}),
                   "data.test.labels: found \"a/../../b\""},
           BadCase{absl::StrReplaceAll(Job(), {{"std: [0.353]", "std: [0]"}}), "data.train.normalize.std: found \"0\""},
           BadCase{absl::StrReplaceAll(Job(), {{"std: [0.353]", "std: [1, 2]"}}), "found 2 numbers for 1 of mean"},
           BadCase{Job("batch: {per_worker: 64, max: 32}"),
                   "batch.per_worker: found 64; allowed: auto, or at most batch.max (32)"},
           BadCase{Job("batch: {per_worker: some}"), "batch.per_worker: found \"some\""},
           BadCase{Job("batch: {max: 0}"), "batch.max: found \"0\""},
           BadCase{Job("optimizer: {learning_rate: 0}"), "optimizer.learning_rate: found \"0\""},
           BadCase{Job("optimizer: {momentum: 1}"), "optimizer.momentum: found \"1\""},
           BadCase{Job("optimizer: {weight_decay: -1}"), "optimizer.weight_decay: found \"-1\""},
           BadCase{Job("optimizer: {schedule: {name: step}}"), "optimizer.schedule.step_samples: missing"},
           BadCase{Job("optimizer: {schedule: {gamma: 0.5}}"),
                   "optimizer.schedule.gamma: has no effect with schedule constant"},
           BadCase{Job("rounds: {every: week}"), "rounds.every: found \"week\"; allowed: epoch, {per_epoch: N}"},
           BadCase{Job("rounds: {every: {}}"), "rounds.every.per_epoch: missing"},
           BadCase{Job("rounds: {every: {per_epoch: 0}}"), "rounds.every.per_epoch: found \"0\""},
           BadCase{Job("rounds: {quorum: 0}"), "rounds.quorum: found \"0\""},
           BadCase{Job("rounds: {quorum: 1.1}"), "rounds.quorum: found \"1.1\""},
           BadCase{Job("rounds: {deadline: 60}"), "rounds.deadline: found \"60\"; allowed: a duration"},
           BadCase{Job("rounds: {replan_after: -1s}"), "rounds.replan_after: found \"-1s\""},
           BadCase{Job("checkpoint: {keep: 0}"), "checkpoint.keep: found \"0\""},
           BadCase{Job("checkpoint: {keep: 1000000001}"), "checkpoint.keep: found \"1000000001\""},
           BadCase{Job("checkpoint: {every_rounds: 1000000001}"), "checkpoint.every_rounds: found \"1000000001\""},
           BadCase{Job("seed: -1"), "seed: found \"-1\""},
           BadCase{Job("epochs: 3"), "job.yaml:7: epochs: unknown key"},
           BadCase{Job("optimiser: {}"), "unknown key; did you mean optimizer?"},
           BadCase{Job("optimizer: {lr: 1}"), "optimizer.lr: unknown key"},
       }) {
    EXPECT_THAT(ParseJobYaml(c.yaml, "job.yaml"), StatusIs(kInvalid, HasSubstr(c.message))) << c.yaml;
  }
}

TEST(JobSpecTest, EveryErrorIsReportedOnce) {
  absl::StatusOr<v1::JobSpec> spec =
      ParseJobYaml("name: x\nmodel: {builtin: lenet}\nend: {epochs: -1}\nseed: z\n", "job.yaml");
  EXPECT_THAT(spec, StatusIs(kInvalid,
                             "job.yaml:1: data: missing; allowed: a map of keys and values\n"
                             "job.yaml:3: end.epochs: found \"-1\"; allowed: a number above 0 and at most 1e+06\n"
                             "job.yaml:4: seed: found \"z\"; allowed: a whole number of at least 0"));
}

TEST(JobSpecTest, ATargetAloneIsAnEnd) {
  EXPECT_THAT(
      ParseJobYaml(absl::StrReplaceAll(Job(), {{"epochs: 10", "target: {metric: accuracy, value: 0.9}"}}), "job.yaml"),
      IsOk());
}

TEST(JobSpecTest, SamplesUntilTheFirstEnd) {
  const auto samples = [](const std::string& end) {
    absl::StatusOr<v1::JobSpec> spec =
        ParseJobYaml(absl::StrCat("name: fashion\nmodel: {builtin: lenet}\n", kData,
                                  "rounds: {every: {per_epoch: 4}}\n", "end: {", end, "}\n"),
                     "job.yaml");
    EXPECT_THAT(spec, IsOk());
    return spec.ok() ? SamplesToTrain(*spec, 1000) : -1;
  };
  EXPECT_EQ(samples("epochs: 2.5"), 2500);
  EXPECT_EQ(samples("rounds: 2"), 500);
  EXPECT_EQ(samples("samples: 700"), 700);
  EXPECT_EQ(samples("epochs: 2.5, rounds: 3, samples: 800"), 750);
  EXPECT_EQ(samples("target: {value: 0.5}"), 0);
}

TEST(PinnedPlanTest, TakesWhatCausewayPlanWrites) {
  absl::StatusOr<v1::Plan> plan = ParsePinnedPlan(
      R"({"schema": "causeway.plan/1",
 "allocation": {"method": "exact", "objective": "barrier", "total_s": 1.0, "lower_bound_s": 1.0, "gap_s": 0.0, "binding": "compute",
   "workers": [{"name": "w2", "samples": 40000, "batch_size": 32, "steps_per_epoch": 1250, "send_s": 1.0, "compute_s": 1.0,
                "comm_s": 1.0, "total_s": 1.0},
               {"name": "w1", "samples": 20000, "batch_size": 16},
               {"name": "w3", "samples": 0}]},
 "allocation_methods": [{"method": "uniform", "total_s": 3.0}], "schedule": null, "methods": [{"method": "ssgd", "iteration_s": 1.0}]})",
      "plan.json");
  ASSERT_THAT(plan, IsOk());
  v1::Plan expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        method: "exact"
        objective: "barrier"
        samples: 60000
        workers { worker: "w1" samples: 20000 batch_size: 16 }
        workers { worker: "w2" samples: 40000 batch_size: 32 }
        workers { worker: "w3" }
        pinned: true
      )pb",
      &expected));
  EXPECT_EQ(Text(*plan), Text(expected));
}

TEST(PinnedPlanTest, BadPlans) {
  auto plan = [](absl::string_view workers) {
    return absl::StrCat("schema: causeway.plan/1\nallocation:\n  workers: [", workers, "]\n");
  };
  for (const BadCase& c : {
           BadCase{"schema: causeway.plan/2\nallocation: {workers: [{name: a, samples: 1, batch_size: 1}]}",
                   "schema: found \"causeway.plan/2\""},
           BadCase{"allocation: {workers: [{name: a, samples: 1, batch_size: 1}]}", "schema: missing"},
           BadCase{"schema: causeway.plan/1", "allocation: missing"},
           BadCase{plan(""), "found no worker with samples"},
           BadCase{plan("{name: a, samples: 0, batch_size: 1}"), "found no worker with samples"},
           BadCase{plan("{name: a, samples: 1, batch_size: 1}, {name: a, samples: 1, batch_size: 1}"), "found a twice"},
           BadCase{plan("{name: A, samples: 1, batch_size: 1}"), "worker name \"A\""},
           BadCase{plan("{samples: 1, batch_size: 1}"), "allocation.workers[0].name: missing"},
           BadCase{plan("{name: a, samples: 1}"), "allocation.workers[0].batch_size: missing"},
           BadCase{plan("{name: a, samples: 1, batch_size: 0}"), "batch_size: found \"0\""},
           BadCase{plan("{name: a, samples: -1, batch_size: 1}"), "samples: found \"-1\""},
           BadCase{plan("{name: a, samples: 1, batch: 1, batch_size: 1}"), "batch: unknown key"},
           BadCase{plan("{name: a, samples: 1, batch_size: 1}") + "schedule: {period: 5}\n",
                   "schedule: a job cannot follow a layer schedule yet (site_sync.method is none)"},
           BadCase{plan("{name: a, samples: 1, batch_size: 1}") + "schedules: [{period: 5}]\n",
                   "schedules: a job cannot follow a layer schedule yet"},
           BadCase{plan("{name: a, samples: 1, batch_size: 1}") + "groups: {period: 5}\n",
                   "groups: a job cannot follow groups yet"},
       }) {
    EXPECT_THAT(ParsePinnedPlan(c.yaml, "plan.yaml"),
                StatusIs(kInvalid, AllOf(HasSubstr(c.message), HasSubstr("plan.yaml:"))))
        << c.yaml;
  }
}

}  // namespace
}  // namespace causeway::jobspec
