#include "cli/plan_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// As docs/planning.md shows it.
constexpr char kExample[] = R"({"schema": "causeway.plan-input/1",
 "samples": 60000, "sample_bytes": 785, "model_bytes": 1000000, "epochs": 10, "egress_bytes_per_s": null,
 "workers": [{"name": "w1", "site": "a", "bandwidth_bytes_per_s": 1e6, "uplink_bytes_per_s": null, "batch_time_s": 0.02,
              "batch_size": 32, "max_parallel": 64, "capacity_samples": null}],
 "allocation": {"method": "exact", "objective": "barrier", "lock_step_sites": false},
 "layers": [{"name": "conv1", "t_fp_s": 0.001, "t_bp_s": 0.002, "t_comm_s": 0.003}],
 "rounds_per_epoch": 1,
 "site_sync": {"method": "dreamddp", "scheduler": "exact", "period": 5, "fill": "end"}})";

constexpr char kYaml[] =
    "schema: causeway.plan-input/1\n"
    "samples: 100\n"
    "sample_bytes: 0\n"
    "model_bytes: 0.5\n"
    "workers:\n"
    "- {name: w1, bandwidth_bytes_per_s: 1, batch_time_s: 2, batch_size: 3}\n"
    "- {name: w2, bandwidth_bytes_per_s: 1, batch_time_s: 2, batch_size: 3, capacity_samples: 50}\n";

constexpr char kLayers[] =
    "schema: causeway.plan-input/1\n"
    "layers:\n"
    "- {name: a, t_fp_s: 0, t_bp_s: 1, t_comm_s: 2}\n";

TEST(PlanInputTest, ReadsTheExample) {
  absl::StatusOr<PlanInput> input = ParsePlanInput(kExample, "plan.json");
  ASSERT_THAT(input, IsOk());
  ASSERT_TRUE(input->allocation.has_value());
  EXPECT_EQ(input->allocation->method, scheduler::AllocationMethod::kExact);
  const scheduler::AllocationProblem& problem = input->allocation->problem;
  EXPECT_EQ(problem.samples, 60000);
  EXPECT_EQ(problem.sample_bytes, 785);
  EXPECT_EQ(problem.model_bytes, 1e6);
  EXPECT_EQ(problem.epochs, 10);
  EXPECT_EQ(problem.rounds_per_epoch, 1);
  EXPECT_EQ(problem.objective, scheduler::AllocationObjective::kBarrier);
  EXPECT_EQ(problem.egress_bytes_per_s, std::nullopt);
  EXPECT_FALSE(problem.lock_step_sites);
  ASSERT_EQ(problem.devices.size(), 1u);
  const scheduler::DeviceProfile& device = problem.devices[0];
  EXPECT_EQ(device.name, "w1");
  EXPECT_EQ(device.site, "a");
  EXPECT_EQ(device.bandwidth_bytes_per_s, 1e6);
  EXPECT_EQ(device.uplink_bytes_per_s, std::nullopt);
  EXPECT_EQ(device.batch_time_s, 0.02);
  EXPECT_EQ(device.batch_size, 32);
  EXPECT_EQ(device.max_parallel, 64);
  EXPECT_EQ(device.capacity_samples, std::nullopt);
  ASSERT_TRUE(input->schedule.has_value());
  ASSERT_EQ(input->schedule->layers.size(), 1u);
  EXPECT_EQ(input->schedule->layers[0].name, "conv1");
  EXPECT_EQ(input->schedule->layers[0].t_fp_s, 0.001);
  EXPECT_EQ(input->schedule->layers[0].t_bp_s, 0.002);
  EXPECT_EQ(input->schedule->layers[0].t_comm_s, 0.003);
  EXPECT_EQ(input->schedule->method, scheduler::SyncMethod::kDreamDdp);
  EXPECT_EQ(input->schedule->options.scheduler, scheduler::LayerScheduler::kExact);
  EXPECT_EQ(input->schedule->options.period, 5);
  EXPECT_EQ(input->schedule->fill, scheduler::FillRule::kEnd);
}

TEST(PlanInputTest, EitherHalfAloneAndDefaults) {
  absl::StatusOr<PlanInput> allocation = ParsePlanInput(kYaml, "plan.yaml");
  ASSERT_THAT(allocation, IsOk());
  EXPECT_FALSE(allocation->schedule.has_value());
  EXPECT_EQ(allocation->allocation->problem.epochs, 1);
  EXPECT_EQ(allocation->allocation->problem.model_bytes, 0.5);
  EXPECT_EQ(allocation->allocation->problem.devices[0].max_parallel, 3);
  EXPECT_EQ(allocation->allocation->problem.devices[1].capacity_samples, 50);
  absl::StatusOr<PlanInput> schedule = ParsePlanInput(kLayers, "plan.yaml");
  ASSERT_THAT(schedule, IsOk());
  EXPECT_FALSE(schedule->allocation.has_value());
  EXPECT_EQ(schedule->schedule->method, scheduler::SyncMethod::kDreamDdp);
  EXPECT_EQ(schedule->schedule->options.period, 5);
}

TEST(PlanInputTest, EveryNameOfAMethodIsKnown) {
  for (const char* method : {"exact", "auglag", "uniform", "proportional"}) {
    for (const char* objective : {"separable", "barrier", "pipelined"}) {
      EXPECT_THAT(
          ParsePlanInput(absl::StrCat(kYaml, "allocation: {method: ", method, ", objective: ", objective, "}\n"), "f"),
          IsOk());
    }
  }
  for (const char* method : {"ssgd", "wfbp", "flsgd", "plsgd_enp", "dreamddp"}) {
    for (const char* scheduler : {"equal", "dreamddp", "brute", "exact", "free"}) {
      for (const char* fill : {"none", "end", "before"}) {
        EXPECT_THAT(ParsePlanInput(absl::StrCat(kLayers, "site_sync: {method: ", method, ", scheduler: ", scheduler,
                                                ", fill: ", fill, ", startup_s: 1e-4, period: 2}\n"),
                                   "f"),
                    IsOk());
      }
    }
  }
}

struct BadCase {
  std::string from;  // Replaced in `base`.
  std::string to;
  std::string message;
};

TEST(PlanInputTest, BadValuesAreNamed) {
  for (const BadCase& c : std::vector<BadCase>{
           {"plan-input/1", "plan-input/2", "1: schema: found \"causeway.plan-input/2\""},
           {"samples: 100\n", "samples: 0\n", "2: samples: found \"0\"; allowed: a whole number from 1 to"},
           {"samples: 100\n", "samples: 1.5\n", "2: samples: found \"1.5\""},
           {"samples: 100\n", "samples: 1125899906842625\n", "samples: found \"1125899906842625\""},
           {"samples: 100\n", "samples: 100\nsample: 1\n", "3: sample: unknown key; did you mean samples?"},
           {"samples: 100\n", "", "samples: missing"},
           {"sample_bytes: 0", "sample_bytes: -1", "3: sample_bytes: found \"-1\"; allowed: a number of at least 0"},
           {"model_bytes: 0.5", "model_bytes: .nan", "4: model_bytes: found \".nan\""},
           {"model_bytes: 0.5", "model_bytes: NaN", "4: model_bytes: found \"NaN\""},
           {"model_bytes: 0.5", "model_bytes: 1e999", "4: model_bytes: found \"1e999\""},
           {"model_bytes: 0.5", "model_bytes: 1\nepochs: 0", "5: epochs: found \"0\"; allowed: a number above 0"},
           {"model_bytes: 0.5", "model_bytes: 1\nrounds_per_epoch: 0", "5: rounds_per_epoch: found \"0\""},
           {"model_bytes: 0.5", "model_bytes: 1\negress_bytes_per_s: 0", "5: egress_bytes_per_s: found \"0\""},
           {"_per_s: 1,", "_per_s: 0,", "6: workers[0].bandwidth_bytes_per_s: found \"0\"; allowed: a number above 0"},
           {"_per_s: 1,", "_per_s: -1,", "workers[0].bandwidth_bytes_per_s: found \"-1\""},
           {"_per_s: 1,", "_per_s: nan,", "workers[0].bandwidth_bytes_per_s: found \"nan\""},
           {"_per_s: 1,", "_per_s: inf,", "workers[0].bandwidth_bytes_per_s: found \"inf\""},
           {"_per_s: 1,", "_per_s: 1, uplink_bytes_per_s: 0,", "workers[0].uplink_bytes_per_s: found \"0\""},
           {"batch_time_s: 2,", "batch_time_s: 0,", "workers[0].batch_time_s: found \"0\""},
           {"batch_time_s: 2,", "", "workers[0].batch_time_s: missing; allowed: a number above 0"},
           {"batch_size: 3}", "batch_size: 0}", "workers[0].batch_size: found \"0\""},
           {"batch_size: 3}", "batch_size: 3, max_parallel: 2}",
            "workers[0].batch_size: found 3; allowed: at most max_parallel (2)"},
           {"name: w1", "name: w2", "7: workers[1].name: found w2 twice; allowed: once"},
           {"name: w1", "name: W 1", "6: workers[0].name: worker name \"W 1\""},
           {"name: w1", "name: w1, site: A", "6: workers[0].site: site name \"A\""},
           {"name: w1", "name: w1, speed: 1", "6: workers[0].speed: unknown key"},
           {"capacity_samples: 50", "capacity_samples: -1", "7: workers[1].capacity_samples: found \"-1\""},
           {"name: w1", "name: w1, capacity_samples: 49",
            "2: samples: found 100; allowed: at most 99, which is what capacity_samples of all workers come to"},
           {"workers:\n", "workers: []\nold:\n", "5: workers: found 0; allowed: 1 to 10000"},
           {"workers:\n", "allocation: {method: best}\nworkers:\n",
            "5: allocation.method: found \"best\"; allowed: exact"},
           {"workers:\n", "allocation: {objective: 1}\nworkers:\n", "5: allocation.objective: found \"1\""},
           {"workers:\n", "allocation: {lock_step_sites: 1}\nworkers:\n", "allocation.lock_step_sites: found \"1\""},
           {"workers:\n", "site_sync: {}\nworkers:\n", "layers: found 0; allowed: 1 to 4096"},
           {"model_bytes: 0.5", "model_bytes: 1.7e308",
            "f: device \"w1\": the time for all samples is too large for a double"},
       }) {
    const std::string text = absl::StrReplaceAll(kYaml, {{c.from, c.to}});
    ASSERT_NE(text, kYaml) << c.from;
    EXPECT_THAT(ParsePlanInput(text, "f"), StatusIs(kInvalid, AllOf(HasSubstr("f:"), HasSubstr(c.message)))) << c.to;
  }
}

TEST(PlanInputTest, BadLayersAreNamed) {
  for (const BadCase& c : std::vector<BadCase>{
           {"t_fp_s: 0", "t_fp_s: -1", "3: layers[0].t_fp_s: found \"-1\"; allowed: a number of at least 0"},
           {"t_bp_s: 1", "t_bp_s: nan", "layers[0].t_bp_s: found \"nan\""},
           {"t_comm_s: 2", "t_comm_s: 1e7", "layers[0].t_comm_s: found \"1e7\""},
           {"t_comm_s: 2", "t_comm_s: 1000000", "f: layers: "},
           {"t_comm_s: 2", "", "layers[0].t_comm_s: missing"},
           {"name: a", "name: ''", "layers[0].name: found nothing"},
           {"name: a,", "", "layers[0].name: missing"},
           {"layers:\n", "layers:\n- {name: a, t_fp_s: 0, t_bp_s: 1, t_comm_s: 2}\n",
            "4: layers[1].name: found a twice"},
           {"layers:\n", "layers: []\nold:\n", "layers: found 0; allowed: 1 to 4096"},
           {"layers:\n", "site_sync: {period: 0}\nlayers:\n",
            "2: site_sync.period: found \"0\"; allowed: a whole number from 1"},
           {"layers:\n", "site_sync: {period: 4097}\nlayers:\n", "site_sync.period: found \"4097\""},
           {"layers:\n", "site_sync: {fill: all}\nlayers:\n",
            "site_sync.fill: found \"all\"; allowed: none, end, before"},
           {"layers:\n", "site_sync: {method: fsdp}\nlayers:\n", "site_sync.method: found \"fsdp\""},
           {"layers:\n", "site_sync: {scheduler: x}\nlayers:\n", "site_sync.scheduler: found \"x\""},
           {"layers:\n", "site_sync: {startup_s: -1}\nlayers:\n", "site_sync.startup_s: found \"-1\""},
           {"layers:\n", "epochs: 1\nlayers:\n", "samples: missing"},
       }) {
    const std::string text = absl::StrReplaceAll(kLayers, {{c.from, c.to}});
    ASSERT_NE(text, kLayers) << c.from;
    EXPECT_THAT(ParsePlanInput(text, "f"), StatusIs(kInvalid, AllOf(HasSubstr("f:"), HasSubstr(c.message)))) << c.to;
  }
  EXPECT_THAT(ParsePlanInput("schema: causeway.plan-input/1\n", "f"), StatusIs(kInvalid, HasSubstr("nothing to plan")));
}

constexpr char kGroups[] =
    "schema: causeway.plan-input/1\n"
    "groups:\n"
    "  parameter_bytes: 16e9\n"
    "  sites: 8\n"
    "  workers_per_site: 64\n"
    "  shards: 4\n"
    "  period: 4\n"
    "  tiers: [{name: gpu, unit_workers: 1, bandwidth_bytes_per_s: 3e11, latency_s: 1e-6},\n"
    "          {name: node, unit_workers: 4, bandwidth_bytes_per_s: 1e11, latency_s: 1e-5}]\n";

TEST(PlanInputTest, Groups) {
  absl::StatusOr<PlanInput> input = ParsePlanInput(kGroups, "f");
  ASSERT_THAT(input, IsOk());
  ASSERT_TRUE(input->groups.has_value());
  EXPECT_EQ(input->groups->layout,
            (scheduler::GroupLayout{.sites = 8, .workers_per_site = 64, .shards = 4, .period = 4}));
  EXPECT_EQ(input->groups->model.parameter_bytes, 16e9);
  ASSERT_EQ(input->groups->network.tiers.size(), 2u);
  EXPECT_EQ(input->groups->network.tiers[1].name, "node");
  EXPECT_EQ(input->groups->network.tiers[1].unit_workers, 4);
  EXPECT_EQ(input->groups->network.tiers[1].bandwidth_bytes_per_s, 1e11);
  EXPECT_EQ(input->groups->network.tiers[1].latency_s, 1e-5);
  EXPECT_FALSE(input->groups->device_memory_bytes.has_value());
  input = ParsePlanInput(absl::StrReplaceAll(kGroups, {{"  shards: 4\n",
                                                        "  device_memory_bytes: 8e10\n  state_bytes: 1e11\n"
                                                        "  max_period: 16\n  exchange: server\n"}}),
                         "f");
  ASSERT_THAT(input, IsOk());
  EXPECT_EQ(input->groups->layout.shards, 64);
  EXPECT_EQ(input->groups->device_memory_bytes, 8e10);
  EXPECT_EQ(input->groups->model.state_bytes, 1e11);
  EXPECT_EQ(input->groups->max_period, 16);
  EXPECT_EQ(input->groups->exchange, scheduler::SiteExchange::kServer);
  for (const BadCase& c : std::vector<BadCase>{
           {"  parameter_bytes: 16e9\n", "", "groups.parameter_bytes: missing"},
           {"16e9", "0", "3: groups.parameter_bytes: found \"0\""},
           {"sites: 8", "sites: 0", "groups.sites: found \"0\""},
           {"sites: 8", "sites: 65536", "groups.sites: found 65536 of 64 workers; allowed: 65536 workers in all"},
           {"shards: 4", "shards: 5", "groups.shards: found 5; allowed: a divisor of workers_per_site (64)"},
           {"period: 4", "period: 0", "groups.period: found \"0\""},
           {"name: node", "name: gpu", "9: groups.tiers[1].name: found gpu twice"},
           {"unit_workers: 4", "unit_workers: 1", "f: groups.tiers: "},
           {"1e11", "0", "groups.tiers[1].bandwidth_bytes_per_s: found \"0\""},
           {"1e-5", "-1", "groups.tiers[1].latency_s: found \"-1\""},
           {"  tiers:", "  tiers: []\n  old:", "groups.tiers: found none"},
           {"period: 4", "periods: 4", "groups.periods: unknown key; did you mean period?"},
       }) {
    const std::string text = absl::StrReplaceAll(kGroups, {{c.from, c.to}});
    ASSERT_NE(text, kGroups) << c.from;
    EXPECT_THAT(ParsePlanInput(text, "f"), StatusIs(kInvalid, AllOf(HasSubstr("f:"), HasSubstr(c.message)))) << c.to;
  }
}

TEST(PlanInputTest, BatchesOfASiteInLockStepAreChosen) {
  // w1 is three times as fast: of the site's 8 it gets 6.
  const std::string site =
      "schema: causeway.plan-input/1\nsamples: 100\nsample_bytes: 0\nmodel_bytes: 0\nallocation: {lock_step_sites: "
      "true}\n"
      "workers:\n"
      "- {name: w1, site: a, bandwidth_bytes_per_s: 1, batch_time_s: 1, batch_size: 4, max_parallel: 8}\n"
      "- {name: w2, site: a, bandwidth_bytes_per_s: 1, batch_time_s: 3, batch_size: 4, max_parallel: 8,\n"
      "   batch_times: [{batch_size: 2, batch_time_s: 1.5}, {batch_size: 8, batch_time_s: 6}]}\n";
  absl::StatusOr<PlanInput> input = ParsePlanInput(site, "f");
  ASSERT_THAT(input, IsOk());
  EXPECT_EQ(input->allocation->problem.devices[0].batch_size, 6);
  EXPECT_EQ(input->allocation->problem.devices[0].batch_time_s, 1.5);
  EXPECT_EQ(input->allocation->problem.devices[1].batch_size, 2);
  EXPECT_EQ(input->allocation->problem.devices[1].batch_time_s, 1.5);
  for (const BadCase& c : std::vector<BadCase>{
           {"w1, site: a", "w1", "7: workers[0].site: missing; allowed: a name, which lock_step_sites needs"},
           {"lock_step_sites: true", "lock_step_sites: false",
            "batch_times: has no effect without allocation.lock_step_sites"},
           {"[{batch_size: 2", "[{batch_size: 4", "batch_times[0].batch_size: found 4, which is there already"},
           {"batch_time_s: 1.5", "batch_time_s: 0", "workers[1].batch_times[0].batch_time_s: found \"0\""},
       }) {
    EXPECT_THAT(ParsePlanInput(absl::StrReplaceAll(site, {{c.from, c.to}}), "f"),
                StatusIs(kInvalid, HasSubstr(c.message)));
  }
}

TEST(PlanInputTest, Simulation) {
  const std::string more =
      "simulation: {quorum: 0.5, deadline_s: 9, late_grace_s: 2, replan_after_s: 3, fragments: 2, delay: 1, reform_s: "
      "0.5, "
      "compute_jitter: 0.1,\n"
      "  collective_jitter: 0.2, seed: 7, changes: [{what: uplink, worker: w2, at_s: 4, factor: 0.5}, {what: ingress, "
      "at_s: 1, "
      "factor: 2}],\n"
      "  absences: [{worker: w1, stop_s: 1}, {worker: w2, stop_s: 1, return_s: 2}]}\n";
  absl::StatusOr<PlanInput> input = ParsePlanInput(absl::StrCat(kYaml, more), "f");
  ASSERT_THAT(input, IsOk());
  const PlanInput::SimulationPart& simulation = input->simulation;
  EXPECT_EQ(simulation.quorum, 0.5);
  EXPECT_EQ(simulation.deadline_s, 9);
  EXPECT_EQ(simulation.late_grace_s, 2);
  EXPECT_EQ(simulation.replan_after_s, 3);
  EXPECT_EQ(simulation.fragments, 2);
  EXPECT_EQ(simulation.delay, 1);
  EXPECT_EQ(simulation.reform_s, 0.5);
  EXPECT_EQ(simulation.compute_jitter, 0.1);
  EXPECT_EQ(simulation.collective_jitter, 0.2);
  EXPECT_EQ(simulation.seed, 7u);
  ASSERT_EQ(simulation.changes.size(), 2u);
  EXPECT_EQ(simulation.changes[0].what, scheduler::SimulatedChange::What::kUplink);
  EXPECT_EQ(simulation.changes[0].name, "w2");
  EXPECT_EQ(simulation.changes[0].time_s, 4);
  EXPECT_EQ(simulation.changes[0].factor, 0.5);
  EXPECT_EQ(simulation.changes[1].what, scheduler::SimulatedChange::What::kCoordinatorIngress);
  ASSERT_EQ(simulation.absences.size(), 2u);
  EXPECT_EQ(simulation.absences[0].return_s, scheduler::kNever);
  EXPECT_EQ(simulation.absences[1].return_s, 2);
  for (const BadCase& c : std::vector<BadCase>{
           {"quorum: 0.5", "quorum: 0", "simulation.quorum: found \"0\""},
           {"fragments: 2", "fragments: 0", "simulation.fragments: found \"0\""},
           {"delay: 1", "delay: -1", "simulation.delay: found \"-1\""},
           {"compute_jitter: 0.1", "compute_jitter: 1", "simulation.compute_jitter: found \"1\""},
           {"what: uplink", "what: weather", "simulation.changes[0].what: found \"weather\"; allowed: compute"},
           {"worker: w2, at_s", "worker: w9, at_s", "simulation.changes[0].worker: found w9; allowed: one of those"},
           {"worker: w2, at_s", "at_s", "simulation.changes[0].worker: missing"},
           {"what: ingress,", "what: ingress, site: a,", "simulation.changes[1].site: unknown key"},
           {"factor: 0.5", "factor: 0", "simulation.changes[0].factor: found \"0\""},
           {"worker: w1, stop_s", "worker: w9, stop_s", "simulation.absences[0].worker: found w9"},
           {"return_s: 2", "return_s: 1", "simulation.absences[1].return_s: found \"1\"; allowed: a number above 1"},
       }) {
    const std::string text = absl::StrReplaceAll(absl::StrCat(kYaml, more), {{c.from, c.to}});
    EXPECT_THAT(ParsePlanInput(text, "f"), StatusIs(kInvalid, HasSubstr(c.message))) << c.to;
  }
}

TEST(PlanInputTest, AllErrorsOfAFileTogether) {
  EXPECT_THAT(
      ParsePlanInput("schema: causeway.plan-input/1\nlayers: [{}, {name: a, t_fp_s: x}]\n", "f"),
      StatusIs(kInvalid, AllOf(HasSubstr("f:2: layers[0].name: missing"), HasSubstr("layers[1].t_fp_s: found \"x\""),
                               HasSubstr("layers[1].t_bp_s: missing"))));
}

TEST(PlanInputTest, TooManyAreNamed) {
  std::string layers = R"({"schema": "causeway.plan-input/1", "layers": [)";
  for (int i = 0; i < 4097; ++i) {
    absl::StrAppend(&layers, i == 0 ? "" : ",", R"({"name":"l)", i, R"(","t_fp_s":0,"t_bp_s":0,"t_comm_s":0})");
  }
  EXPECT_THAT(ParsePlanInput(layers + "]}", "f"), StatusIs(kInvalid, "f:1: layers: found 4097; allowed: 1 to 4096"));
  // A million: read no further than it takes to know.
  std::string many = R"({"schema": "causeway.plan-input/1", "layers": [{})";
  for (int i = 1; i < 1000000; ++i) many += ",{}";
  EXPECT_THAT(ParsePlanInput(many + "]}", "f"),
              StatusIs(kInvalid, HasSubstr("layers[249995]: found more than 250000 values")));
}

}  // namespace
}  // namespace causeway::cli
