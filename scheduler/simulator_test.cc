#include "scheduler/simulator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/allocate.h"
#include "scheduler/group_planner.h"
#include "scheduler/test_layers.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::SizeIs;
using What = SimulatedChange::What;

SimulationResult Simulated(const SimulatedJob& job, const SimulationOptions& options = {}) {
  const absl::StatusOr<SimulationResult> result = Simulate(job, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : SimulationResult();
}

void ExpectEqual(double simulated, double closed) { EXPECT_NEAR(simulated, closed, 1e-9 * closed); }

// Sites of `per_site` workers each; a step takes 1 s of forward and 2 s of backward and needs nobody.
SimulatedJob PlainJob(int sites, int per_site = 1) {
  SimulatedJob job;
  for (int s = 0; s < sites; ++s) {
    job.sites.push_back(
        {.name = absl::StrCat("s", s), .program = {.forward_s = {1}, .backward_s = {2}, .iterations = {{}}}});
    for (int k = 0; k < per_site; ++k) job.workers.push_back({.name = absl::StrCat("s", s, "w", k), .site = s});
  }
  job.rounds = {.rounds = 3, .steps = 2};
  return job;
}

// --- The closed formulas -------------------------------------------------------------------------------------------------

// One site that trains `steps` steps.
SimulatedJob SiteJob(const SiteProgram& program, int64_t steps, int workers = 3) {
  SimulatedJob job;
  job.sites = {{.name = "s", .program = program}};
  for (int k = 0; k < workers; ++k) job.workers.push_back({.name = absl::StrCat("w", k)});
  job.rounds = {.rounds = 1, .steps = steps};
  return job;
}

std::vector<LayerProfile> RandomProfiles(std::mt19937& random) {
  const auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  std::vector<LayerProfile> layers;
  const int count = 1 + static_cast<int>(random() % 12);
  for (int l = 0; l < count; ++l) {
    layers.push_back({absl::StrCat("l", l), uniform(0, 0.01), uniform(0, 0.02), uniform(0, 0.04)});
  }
  return layers;
}

TEST(SimulatorClosedFormTest, EveryMethodOnRandomProfiles) {
  std::mt19937 random(17);
  for (int round = 0; round < 40; ++round) {
    const LayerTimes times = MakeTimes(RandomProfiles(random));
    const SyncOptions options{.period = 1 + static_cast<int>(random() % 6),
                              .scheduler = round % 2 ? LayerScheduler::kExact : LayerScheduler::kFree,
                              .startup_s = round % 3 * 0.004};
    for (const SyncMethod method :
         {SyncMethod::kSsgd, SyncMethod::kWfbp, SyncMethod::kFlsgd, SyncMethod::kPlsgdEnp, SyncMethod::kDreamDdp}) {
      const SyncCost cost = *CostOf(method, times, options);
      const bool fill = method == SyncMethod::kDreamDdp && round % 4 < 2;
      const SiteProgram program = *ProgramOf(method, times, options, fill ? FillRule::kEnd : FillRule::kNone);
      const int64_t steps = 4 * options.period;
      const SimulationResult result = Simulated(SiteJob(program, steps));
      EXPECT_TRUE(result.completed);
      ExpectEqual(result.total_s, cost.iteration_s * steps);
      ExpectEqual(result.sites[0].iteration_s, cost.iteration_s);
      EXPECT_NEAR(result.workers[1].exposed_s, cost.exposed_s * steps, 1e-9 * result.total_s);
    }
  }
}

// The seconds of an allocation's objective where rounds and objective mean the same: one round an epoch with `barrier`,
// one round in all with `pipelined`; with an egress cap too, since equal shares of the model end together.
TEST(SimulatorClosedFormTest, AllocationsOfRandomProblems) {
  std::mt19937 random(23);
  for (int round = 0; round < 60; ++round) {
    const bool pipelined = round % 3 == 2;
    AllocationProblem problem =
        MakeLargeProblem(2 + random() % 6, 500 + random() % 2000,
                         pipelined ? AllocationObjective::kPipelined : AllocationObjective::kBarrier, random());
    problem.rounds_per_epoch = 1;
    problem.epochs = pipelined ? 1 : 1 + static_cast<double>(random() % 4);
    if (round % 3 == 1) {
      // Uniform links, or transfers would leave room for each other that the bound does not know.
      for (DeviceProfile& device : problem.devices) device.bandwidth_bytes_per_s = 2e6;
      for (DeviceProfile& device : problem.devices) device.uplink_bytes_per_s = 1e6;
      for (DeviceProfile& device : problem.devices) device.batch_time_s = 0.01, device.batch_size = 10;
      problem.egress_bytes_per_s = 1.5e6;
    }
    const AllocationMethod method = round % 3 == 1 || round % 2 ? AllocationMethod::kUniform : AllocationMethod::kExact;
    if (round % 3 == 1) problem.samples = 100 * static_cast<int64_t>(problem.devices.size());
    const AllocationPlan plan = *PlanAllocation(method, problem);
    const SimulationResult result = Simulated(*JobOfAllocation(problem, plan.allocation));
    EXPECT_TRUE(result.completed);
    ExpectEqual(result.total_s, plan.evaluation.total_s);
  }
}

TEST(SimulatorClosedFormTest, SeparableWhereOneDeviceIsSlowestInAll) {
  const AllocationProblem problem =
      MakeProblem({{2, 4, 8, 9}, {1, 4, 2, 3}, {0.5, 4, 1, 3}}, 36, 5, AllocationObjective::kSeparable);
  const Allocation allocation{.samples = {12, 12, 12}};
  ExpectEqual(Simulated(*JobOfAllocation(problem, allocation)).total_s, Evaluate(problem, allocation)->total_s);
}

TEST(SimulatorClosedFormTest, SitesInLockStep) {
  AllocationProblem problem =
      MakeProblem({{2, 4, 3, 5}, {2, 2, 4, 5}, {1, 8, 2, 3}}, 60, 4, AllocationObjective::kBarrier);
  problem.devices[2].site = "b";
  problem.lock_step_sites = true;
  const Allocation allocation{.samples = {16, 8, 36}};
  const Evaluation evaluation = *Evaluate(problem, allocation);
  const SimulationResult result = Simulated(*JobOfAllocation(problem, allocation));
  ExpectEqual(result.total_s, evaluation.total_s);
  EXPECT_EQ(result.workers[0].steps, 4 * evaluation.devices[0].steps_per_epoch);
}

// FSDP, HSDP, FL+FSDP and FL+HSDP, layer by layer, against the formulas of the whole model.
TEST(SimulatorClosedFormTest, ShardedGroups) {
  const Network network{{{.name = "gpu", .unit_workers = 1, .bandwidth_bytes_per_s = 1e9, .latency_s = 1e-6},
                         {.name = "node", .unit_workers = 4, .bandwidth_bytes_per_s = 1e8, .latency_s = 1e-5}}};
  const std::vector<double> bytes = {4e6, 1e6, 7e6};
  std::vector<LayerProfile> profiles = MakeProfiles({0, 0, 0}, {0, 0, 0});
  for (size_t l = 0; l < 3; ++l) profiles[l].t_fp_s = 0.01 + 0.001 * l, profiles[l].t_bp_s = 0.02 + 0.003 * l;
  const LayerTimes times = MakeTimes(profiles);
  for (const GroupLayout& layout : {GroupLayout{.sites = 1, .workers_per_site = 16, .shards = 16},
                                    GroupLayout{.sites = 1, .workers_per_site = 16, .shards = 4},
                                    GroupLayout{.sites = 4, .workers_per_site = 4, .shards = 4, .period = 3},
                                    GroupLayout{.sites = 2, .workers_per_site = 8, .shards = 4, .period = 5}}) {
    std::vector<ShardedLayer> sharded;
    for (const double layer_bytes : bytes) {
      const GroupCost cost = *CostOfGroups(layout, {.parameter_bytes = layer_bytes}, network);
      sharded.push_back({cost.gather.seconds, cost.scatter.seconds, cost.replicate.seconds, layer_bytes});
    }
    const GroupCost cost = *CostOfGroups(layout, {.parameter_bytes = 12e6, .layers = 3}, network);
    SimulatedJob job;
    for (int g = 0; g < layout.sites; ++g) {
      job.sites.push_back({.name = absl::StrCat("s", g), .program = *ProgramSharded(times, sharded)});
      for (int k = 0; k < layout.workers_per_site; ++k) {
        job.workers.push_back({.name = absl::StrCat("s", g, "w", k), .site = g});
      }
    }
    job.rounds = {.rounds = 6, .steps = layout.period, .all_reduce_s = cost.inter_s};
    const double compute_s = ToSeconds(times.total_forward_ns() + times.total_backward_ns());
    const SimulationResult result = Simulated(job);
    ExpectEqual(result.total_s, 6.0 * layout.period * (compute_s + cost.step_s));
    ExpectEqual(result.sites[0].iteration_s, compute_s + cost.intra_s);
  }
}

// --- Rounds --------------------------------------------------------------------------------------------------------------

TEST(SimulatorTest, ABlockingRound) {
  SimulatedJob job = PlainJob(2);
  job.rounds.fragment_bytes = {10};
  job.workers[0].downlink_bytes_per_s = 10;
  job.workers[0].uplink_bytes_per_s = 5;
  job.workers[1].downlink_bytes_per_s = 2;
  const SimulationResult result = Simulated(job, {.max_spans = 1000});
  // Pulls of 1 and 5 s, six seconds of two steps, pushes of 2 and 0 s: 11 s a round.
  EXPECT_TRUE(result.completed);
  EXPECT_DOUBLE_EQ(result.total_s, 33);
  ASSERT_THAT(result.rounds, SizeIs(3));
  EXPECT_EQ(result.rounds[1].opened_s, 11);
  EXPECT_EQ(result.rounds[1].closed_s, 22);
  EXPECT_EQ(result.rounds[1].contributors, 2);
  EXPECT_DOUBLE_EQ(result.workers[0].wait_s, 3 * (1 + 2 + 2));
  EXPECT_DOUBLE_EQ(result.workers[0].compute_s, 18);
  EXPECT_EQ(result.workers[0].steps, 6);
  EXPECT_DOUBLE_EQ(result.workers[0].pull_s, 3);
  EXPECT_DOUBLE_EQ(result.workers[0].push_s, 6);
  EXPECT_DOUBLE_EQ(result.workers[0].received_bytes, 30);
  EXPECT_DOUBLE_EQ(result.workers[1].sent_bytes, 30);
  std::vector<Span> pushes;
  for (const Span& span : result.spans) {
    if (span.kind == SpanKind::kPush) pushes.push_back(span);
  }
  ASSERT_THAT(pushes, SizeIs(3));
  EXPECT_EQ(pushes[1],
            (Span{.kind = SpanKind::kPush, .fragment = 0, .round = 1, .bytes = 10, .start_s = 18, .duration_s = 2}));
}

TEST(SimulatorTest, ASitesWorkersDivideTheModelAndItsLink) {
  SimulatedJob job = PlainJob(1, 4);
  job.rounds = {.rounds = 1, .steps = 1, .fragment_bytes = {100}};
  for (SimulatedWorker& worker : job.workers) worker.uplink_bytes_per_s = 5;
  job.sites[0].downlink_bytes_per_s = 20;
  job.sites[0].round_scatter_s = 7;
  job.sites[0].round_gather_s = 0.5;
  // 100 bytes over a shared 20, gathered, a step, averaged, 25 bytes over 5.
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 5 + 0.5 + 3 + 7 + 5);
}

TEST(SimulatorTest, DataFirstThenTraining) {
  SimulatedJob job = PlainJob(2);
  job.sample_bytes = 1;
  job.rounds = {.rounds = 1, .steps = 1};
  job.workers[0].samples = 100;
  job.workers[0].downlink_bytes_per_s = 10;
  job.workers[1].samples = 40;
  job.workers[1].downlink_bytes_per_s = 20;
  job.workers[1].slowdown = 4;
  SimulationResult result = Simulated(job);
  EXPECT_DOUBLE_EQ(result.total_s, 10 + 12);
  EXPECT_EQ(result.training_start_s, 10);
  EXPECT_EQ(result.workers[1].send_s, 2);
  job.wait_for_all_data = false;
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 2 + 12);
  job.workers[0].reads_data_locally = true;
  job.wait_for_all_data = true;
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 2 + 12);
}

TEST(SimulatorTest, AnEpochsStepsAreDividedAmongItsRounds) {
  SimulatedJob job = PlainJob(2);
  job.workers[0].samples = 10;  // Ten steps: 3, 3, 4.
  job.workers[1].samples = 2;   // Two: 0, 1, 1.
  job.rounds = {.rounds = 6, .per_epoch = 3};
  const SimulationResult result = Simulated(job);
  EXPECT_DOUBLE_EQ(result.total_s, 60);
  EXPECT_EQ(result.workers[1].steps, 4);
  ASSERT_THAT(result.rounds, SizeIs(6));
  EXPECT_EQ(result.rounds[3].contributors, 1);
  EXPECT_EQ(result.rounds[3].planned_samples, 3);
  EXPECT_EQ(result.rounds[4].contributors, 2);
  EXPECT_EQ(result.rounds[4].samples, 4);
  // More rounds than steps: some have nothing to do, and pass.
  job.rounds = {.rounds = 20, .per_epoch = 20};
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 30);
}

TEST(SimulatorTest, WhoIsLateIsLeftOut) {
  SimulatedJob job = PlainJob(4);
  job.workers[3].slowdown = 10;  // 60 s for a round of 6 s.
  job.rounds.deadline_s = 20;
  job.rounds.quorum = 0.75;
  SimulationResult result = Simulated(job);
  EXPECT_TRUE(result.completed);
  // The late one hears at the end of its step, at 30, that the first round was committed at 20; the second is committed at
  // 40, while it is at its first step of it, which ends at 60, with the third.
  EXPECT_DOUBLE_EQ(result.total_s, 60);
  for (const SimulatedRound& round : result.rounds) EXPECT_EQ(round.contributors, 3);
  // Without the late one the quorum does not hold, and the round waits.
  job.rounds.quorum = 0.8;
  result = Simulated(job);
  EXPECT_DOUBLE_EQ(result.total_s, 180);
  for (const SimulatedRound& round : result.rounds) EXPECT_EQ(round.contributors, 4);
}

TEST(SimulatorTest, WhoWasLateIsInTimeAgain) {
  SimulatedJob job = PlainJob(4);
  job.workers[3].slowdown = 10;
  job.changes = {{What::kCompute, 3, 21, 10}};
  job.rounds.deadline_s = 20;
  const SimulationResult result = Simulated(job);
  // The first round is committed at 20, without the late one. It ends its first step at 21.9, leaves out the second, and does
  // the next round with the others.
  EXPECT_DOUBLE_EQ(result.rounds[0].closed_s, 20);
  EXPECT_DOUBLE_EQ(result.rounds[1].closed_s, 27.9);
  EXPECT_EQ(result.rounds[1].contributors, 4);
  EXPECT_DOUBLE_EQ(result.total_s, 33.9);
  EXPECT_EQ(result.workers[3].steps, 5);
}

TEST(SimulatorTest, WhoIsLateSendsWhatItHasIfThereIsAGrace) {
  SimulatedJob job = PlainJob(3);
  for (SimulatedWorker& worker : job.workers) worker.batch_size = 5;
  job.workers[2].slowdown = 4;  // 24 s for a round of 6 s, a step of 12 s.
  job.rounds = {.rounds = 2, .steps = 2, .fragment_bytes = {1}, .deadline_s = 10, .late_grace_s = 4};
  job.workers[2].uplink_bytes_per_s = 1;
  SimulationResult result = Simulated(job);
  // Its first step ends at 12, its part is there at 13; it has done half of the round.
  EXPECT_DOUBLE_EQ(result.rounds[0].closed_s, 13);
  EXPECT_EQ(result.rounds[0].contributors, 3);
  EXPECT_EQ(result.rounds[0].samples, 25);
  EXPECT_EQ(result.rounds[0].planned_samples, 30);
  EXPECT_DOUBLE_EQ(result.total_s, 26);
  EXPECT_EQ(result.workers[2].steps, 2);
  // For the quorum it counts as all.
  job.rounds.quorum = 1;
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 26);
  // The grace is too short: it is left out.
  job.rounds.quorum = 0.6;
  job.rounds.late_grace_s = 1;
  result = Simulated(job);
  EXPECT_DOUBLE_EQ(result.rounds[0].closed_s, 11);
  EXPECT_EQ(result.rounds[0].contributors, 2);
}

TEST(SimulatorTest, ARoundWithoutQuorumIsDroppedAndRepeatedByThoseWhoAreThere) {
  SimulatedJob job = PlainJob(2);
  job.absences = {{.worker = 1, .stop_s = 4}};
  job.rounds = {.rounds = 2, .steps = 2, .quorum = 0.8, .deadline_s = 10, .replan_after_s = 5};
  const SimulationResult result = Simulated(job);
  EXPECT_TRUE(result.completed);
  ASSERT_THAT(result.rounds, SizeIs(3));
  EXPECT_FALSE(result.rounds[0].committed);
  EXPECT_EQ(result.rounds[0].closed_s, 15);
  EXPECT_TRUE(result.rounds[1].committed);
  EXPECT_EQ(result.rounds[1].round, 0);
  EXPECT_EQ(result.rounds[1].closed_s, 21);
  EXPECT_DOUBLE_EQ(result.total_s, 27);
  EXPECT_EQ(result.workers[0].steps, 6);
  EXPECT_DOUBLE_EQ(result.workers[1].absent_s, 23);
}

TEST(SimulatorTest, WithoutAReplanItWaitsForEver) {
  SimulatedJob job = PlainJob(2);
  job.absences = {{.worker = 1, .stop_s = 4}};
  job.rounds.quorum = 0.8;
  const SimulationResult result = Simulated(job);
  EXPECT_FALSE(result.completed);
}

TEST(SimulatorTest, RoundsThatAreAlwaysDroppedEnd) {
  SimulatedJob job = PlainJob(2);
  job.rounds.deadline_s = 1;
  job.rounds.replan_after_s = 1;
  const SimulationResult result = Simulated(job);
  EXPECT_FALSE(result.completed);
  EXPECT_THAT(result.rounds, SizeIs(10));
}

TEST(SimulatorTest, AWorkerAloneReturnsIntoTheOpenRound) {
  SimulatedJob job = PlainJob(2);
  job.rounds.quorum = 0.8;
  job.rounds.fragment_bytes = {1};
  job.workers[1].downlink_bytes_per_s = 1;
  job.absences = {{.worker = 1, .stop_s = 3.5, .return_s = 10}};
  const SimulationResult result = Simulated(job);
  EXPECT_TRUE(result.completed);
  // At 10 it pulls the model (1 s) and does its two steps; then rounds of 1 + 6 s.
  EXPECT_DOUBLE_EQ(result.rounds[0].closed_s, 17);
  EXPECT_DOUBLE_EQ(result.total_s, 17 + 14);
  EXPECT_EQ(result.workers[1].steps, 6);
  EXPECT_EQ(result.workers[1].absent_s, 6.5);
}

TEST(SimulatorTest, IfAllAreGoneTheJobGoesOnWhenOneReturns) {
  SimulatedJob job = PlainJob(2);
  job.rounds = {.rounds = 1, .steps = 2, .deadline_s = 10, .replan_after_s = 0};
  job.absences = {{.worker = 0, .stop_s = 4, .return_s = 100}, {.worker = 1, .stop_s = 4}};
  const SimulationResult result = Simulated(job);
  EXPECT_TRUE(result.completed);
  EXPECT_DOUBLE_EQ(result.total_s, 106);
}

TEST(SimulatorTest, ASiteReformsWithoutItsLostWorkerAndTakesItInAgain) {
  SimulatedJob job = PlainJob(1, 2);
  job.rounds = {.rounds = 3, .steps = 2, .fragment_bytes = {8}};
  job.reform_s = 1;
  for (SimulatedWorker& worker : job.workers) worker.uplink_bytes_per_s = 4;
  job.absences = {{.worker = 1, .stop_s = 4, .return_s = 5}};
  job.rounds.quorum = 0.5;
  const SimulationResult result = Simulated(job, {.max_spans = 1000});
  // Step 1 ends at 3; the second breaks off at 4, and goes on alone at 5, to 8; 8 bytes alone until 10. Then two again, after
  // another second: 11 to 17, 4 bytes each until 18, and 25.
  EXPECT_DOUBLE_EQ(result.rounds[0].closed_s, 10);
  EXPECT_DOUBLE_EQ(result.rounds[0].samples, 2);
  EXPECT_DOUBLE_EQ(result.rounds[1].closed_s, 18);
  EXPECT_DOUBLE_EQ(result.total_s, 25);
  EXPECT_EQ(result.workers[0].steps, 6);
  EXPECT_EQ(result.workers[1].steps, 5);
  for (const Span& span : result.spans) {
    if (span.worker == 1 && span.start_s < 5) {
      EXPECT_LE(span.start_s + span.duration_s, 4);
    }
  }
}

TEST(SimulatorTest, APushIsBegunAgainByThoseWhoAreLeft) {
  SimulatedJob job = PlainJob(1, 2);
  job.rounds = {.rounds = 1, .steps = 1, .fragment_bytes = {20}, .quorum = 0.5};
  job.reform_s = 0.5;
  for (SimulatedWorker& worker : job.workers) worker.uplink_bytes_per_s = 2;
  job.absences = {{.worker = 0, .stop_s = 5}};
  // Pushing 10 bytes each from 3 on; from 5.5 on 20 bytes alone.
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 15.5);
}

TEST(SimulatorTest, SpeedsAndRatesChange) {
  SimulatedJob job = PlainJob(1);
  job.rounds = {.rounds = 2, .steps = 1, .fragment_bytes = {10}};
  job.workers[0].downlink_bytes_per_s = 10;
  job.workers[0].uplink_bytes_per_s = 10;
  // Pull 0-1, step 1-4, push 4-5; pull 5-9 at a quarter, step at half speed 9-15, push at 15 at the coordinator's rate of 2.5.
  job.ingress_bytes_per_s = 10;
  job.changes = {{What::kDownlink, 0, 5, 0.25}, {What::kCompute, 0, 8, 0.5}, {What::kCoordinatorIngress, 0, 6, 0.25}};
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 19);
}

// --- Fragments and delay -------------------------------------------------------------------------------------------------

TEST(SimulatorTest, AnExchangeUnderTrainingCostsNothing) {
  SimulatedJob job = PlainJob(2);
  job.rounds = {.rounds = 10, .steps = 4, .fragment_bytes = {8, 8}};
  for (SimulatedWorker& worker : job.workers) worker.uplink_bytes_per_s = worker.downlink_bytes_per_s = 4;
  // Blocking: each fragment 2 s up and 2 s down, in the way; the model's first pull takes 4 s, and after the last step but
  // the last push nothing follows.
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 4 + 10 * 12 + 20 * 4 - 2);
  // Up and down take 4 s, two steps 6 s: hidden but for the first pull and the last push.
  job.rounds.delay = 2;
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 4 + 10 * 12 + 2);
  // One step is too short by a second, each time; after the last fragment nobody waits.
  job.rounds.delay = 1;
  EXPECT_DOUBLE_EQ(Simulated(job).total_s, 4 + 10 * 12 + 19 * 1 + 2);
}

TEST(SimulatorTest, FragmentsTakeTurnsWithinARound) {
  SimulatedJob job = PlainJob(1);
  job.rounds = {.rounds = 2, .steps = 6, .fragment_bytes = {1, 1, 1}, .delay = 1};
  const SimulationResult result = Simulated(job);
  std::vector<double> closed;
  for (const SimulatedRound& round : result.rounds) closed.push_back(round.closed_s);
  EXPECT_THAT(closed, ElementsAre(6, 12, 18, 24, 30, 36));
  EXPECT_EQ(result.rounds[4].fragment, 1);
  EXPECT_EQ(result.rounds[4].round, 1);
}

TEST(SimulatorTest, AFragmentsDroppedRoundIsNotRepeated) {
  SimulatedJob job = PlainJob(2);
  job.rounds = {.rounds = 3, .steps = 2, .fragment_bytes = {1, 1}, .quorum = 1, .deadline_s = 7, .replan_after_s = 0};
  job.absences = {{.worker = 1, .stop_s = 4, .return_s = 13}};
  const SimulationResult result = Simulated(job);
  EXPECT_TRUE(result.completed);
  const auto dropped =
      std::count_if(result.rounds.begin(), result.rounds.end(), [](const auto& r) { return !r.committed; });
  EXPECT_GE(dropped, 1);
  EXPECT_THAT(result.rounds, SizeIs(6));
}

// --- The whole -----------------------------------------------------------------------------------------------------------

SimulatedJob EverythingAtOnce(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); };
  SimulatedJob job;
  const LayerTimes times = MakeTimes(RandomProfiles(random));
  for (int s = 0; s < 3; ++s) {
    job.sites.push_back({.name = absl::StrCat("s", s),
                         .program = s == 2 ? *ProgramNone(times)
                                           : *ProgramOf(SyncMethod::kDreamDdp, times, {.period = 3}, FillRule::kEnd),
                         .lock_step = s != 2,
                         .uplink_bytes_per_s = 50,
                         .round_scatter_s = 0.01,
                         .round_gather_s = 0.02});
    for (int k = 0; k < 3; ++k) {
      job.workers.push_back({.name = absl::StrCat("s", s, "w", k),
                             .site = s,
                             .downlink_bytes_per_s = uniform(20, 100),
                             .uplink_bytes_per_s = uniform(20, 100),
                             .slowdown = uniform(1, 2),
                             .samples = static_cast<int64_t>(random() % 50) + 20,
                             .batch_size = 2});
    }
  }
  job.sample_bytes = 0.2;
  job.rounds = {.rounds = 8,
                .per_epoch = 2,
                .fragment_bytes = {4, 2},
                .delay = static_cast<int64_t>(seed % 3),
                .quorum = 0.5,
                .deadline_s = 8,
                .replan_after_s = 2};
  if (seed % 3 == 0) job.rounds.late_grace_s = 1, job.rounds.deadline_s = 4;
  if (seed % 4 == 0) job.rounds.fragment_bytes = {6};
  if (seed % 5 == 0) job.rounds.all_reduce_s = 0.1;
  job.egress_bytes_per_s = job.ingress_bytes_per_s = 120;
  for (int i = 0; i < 4; ++i) {
    job.changes.push_back(
        {i % 2 ? What::kCompute : What::kUplink, static_cast<int>(random() % 9), uniform(0, 10), uniform(0.3, 2)});
    const double stop_s = uniform(0, 10);
    job.absences.push_back({2 * i, stop_s, i == 0 ? kNever : stop_s + uniform(0.1, 4)});
  }
  job.reform_s = 0.1;
  job.compute_jitter = 0.2;
  job.collective_jitter = 0.3;
  job.seed = seed;
  return job;
}

TEST(SimulatorTest, DeterministicAndOfASeed) {
  SimulatedJob job = EverythingAtOnce(7);
  const SimulationResult a = Simulated(job, {.max_spans = 100000});
  const SimulationResult b = Simulated(job, {.max_spans = 100000});
  EXPECT_EQ(a.total_s, b.total_s);
  EXPECT_EQ(a.spans, b.spans);
  EXPECT_EQ(Simulated(job).total_s, a.total_s);  // Whether recorded or not.
  job.seed = 8;
  EXPECT_NE(Simulated(job).total_s, a.total_s);
}

// Whatever happens: the job ends, spans of a lane do not overlap, nobody does anything while it is absent, and each
// worker's time is accounted for.
TEST(SimulatorTest, WhateverHappensTheTimelineIsSound) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const SimulatedJob job = EverythingAtOnce(seed);
    const SimulationResult result = Simulated(job, {.max_spans = 1000000});
    EXPECT_TRUE(result.completed) << "seed " << seed;
    EXPECT_EQ(result.spans_left_out, 0);
    std::map<std::pair<int, SpanLane>, double> lane_end;
    for (const Span& span : result.spans) {
      double& end = lane_end[{span.worker, LaneOf(span.kind)}];
      EXPECT_GE(span.start_s, end - 1e-9)
          << "seed " << seed << ": " << SpanKindName(span.kind) << " of " << span.worker;
      EXPECT_GT(span.duration_s, 0);
      end = span.start_s + span.duration_s;
      EXPECT_LE(end, result.total_s * (1 + 1e-12));
      for (const SimulatedAbsence& absence : job.absences) {
        if (absence.worker != span.worker) continue;
        EXPECT_TRUE(end <= absence.stop_s + 1e-9 || span.start_s >= absence.return_s - 1e-9)
            << "seed " << seed << ": " << SpanKindName(span.kind) << " of " << span.worker << " at " << span.start_s;
      }
    }
    for (const WorkerTotals& totals : result.workers) {
      EXPECT_GE(totals.compute_s, 0);
      EXPECT_GE(totals.exposed_s, 0);
    }
    int64_t closed = 0;
    for (const SimulatedRound& round : result.rounds) closed += round.committed;
    EXPECT_LE(closed, 8 * static_cast<int64_t>(job.rounds.fragment_bytes.size()));
  }
}

TEST(SimulatorTest, SpansOfAWindow) {
  SimulatedJob job = PlainJob(2);
  const SimulationResult result =
      Simulated(job, {.max_spans = 3, .spans_from_s = 3, .spans_until_s = 9, .span_workers = 1});
  EXPECT_THAT(result.spans, ElementsAre(Field(&Span::start_s, 3), Field(&Span::start_s, 4), Field(&Span::start_s, 6)));
  EXPECT_EQ(result.spans_left_out, 1);
  EXPECT_EQ(Simulate(job, {.max_spans = -1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Simulate(job, {.max_events = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  job.workers.clear();
  EXPECT_EQ(Simulate(job).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace causeway::scheduler
