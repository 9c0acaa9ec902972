#include "scheduler/allocation.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/allocation_bound.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

using ::testing::HasSubstr;

AllocationProblem First(AllocationObjective objective) {
  return MakeProblem({{2, 4, 3, 5}, {1, 2, 4, 1}}, 20, 3, objective);
}
AllocationProblem Second(AllocationObjective objective) {
  return MakeProblem({{1, 8, 2, 4}, {5, 2, 3, 2}, {2, 1, 7, 9}}, 40, 2, objective);
}

TEST(EvaluateTest, GoldenVectorsOfBothObjectives) {
  EXPECT_NEAR(Evaluate(First(AllocationObjective::kSeparable), {{14, 6}})->total_s, 79, 1e-9);
  EXPECT_NEAR(Evaluate(First(AllocationObjective::kBarrier), {{12, 8}})->total_s, 75, 1e-9);
  EXPECT_NEAR(Evaluate(Second(AllocationObjective::kSeparable), {{33, 6, 1}})->total_s, 71, 1e-9);
  EXPECT_NEAR(Evaluate(Second(AllocationObjective::kBarrier), {{34, 6, 0}})->total_s, 62, 1e-9);
}

TEST(EvaluateTest, TellsEachDevicesPartsAndWhatBinds) {
  const Evaluation evaluation = *Evaluate(First(AllocationObjective::kBarrier), {{12, 8}});
  ASSERT_EQ(evaluation.devices.size(), 2);
  EXPECT_EQ(evaluation.devices[0].samples, 12);
  EXPECT_EQ(evaluation.devices[0].steps_per_epoch, 3);
  EXPECT_NEAR(evaluation.devices[0].send_s, 24, 1e-9);
  EXPECT_NEAR(evaluation.devices[0].compute_s, 9, 1e-9);
  EXPECT_NEAR(evaluation.devices[0].comm_s, 5, 1e-9);
  EXPECT_NEAR(evaluation.devices[0].total_s, 24 + 3 * 14, 1e-9);
  EXPECT_EQ(evaluation.devices[1].steps_per_epoch, 4);
  EXPECT_NEAR(evaluation.devices[1].total_s, 8 + 3 * 17, 1e-9);
  EXPECT_NEAR(evaluation.send_s, 24, 1e-9);
  EXPECT_NEAR(evaluation.epoch_s, 17, 1e-9);
  EXPECT_EQ(evaluation.binding, Binding::kCompute);  // 3 * 16 of device 1, against 24 and 3 * 1.

  AllocationProblem problem = First(AllocationObjective::kBarrier);
  problem.epochs = 1;
  EXPECT_EQ(Evaluate(problem, {{12, 8}})->binding, Binding::kSend);
  problem.epochs = 3;
  problem.rounds_per_epoch = 20;
  EXPECT_EQ(Evaluate(problem, {{12, 8}})->binding, Binding::kCommunication);
}

TEST(EvaluateTest, DeviceWithoutSamplesPaysOnlyUnderSeparable) {
  const Evaluation barrier = *Evaluate(Second(AllocationObjective::kBarrier), {{34, 6, 0}});
  EXPECT_EQ(barrier.devices[2].total_s, 0);
  const Evaluation separable = *Evaluate(Second(AllocationObjective::kSeparable), {{34, 6, 0}});
  EXPECT_NEAR(separable.devices[2].comm_s, 9, 1e-9);
  EXPECT_NEAR(separable.total_s, 34 + 2 * (10 + 9), 1e-9);  // The constant counts the idle device's 9.
}

TEST(EvaluateTest, BandwidthScalesSendAndCommunicationOnly) {
  AllocationProblem problem = Second(AllocationObjective::kSeparable);
  const Evaluation before = *Evaluate(problem, {{33, 6, 1}});
  for (DeviceProfile& device : problem.devices) {
    device.bandwidth_bytes_per_s *= 2;
    *device.uplink_bytes_per_s *= 2;
  }
  const Evaluation after = *Evaluate(problem, {{33, 6, 1}});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(after.devices[i].send_s, before.devices[i].send_s / 2, 1e-9);
    EXPECT_NEAR(after.devices[i].comm_s, before.devices[i].comm_s / 2, 1e-9);
    EXPECT_EQ(after.devices[i].compute_s, before.devices[i].compute_s);
  }
}

TEST(EvaluateTest, UplinkRoundsAndLocalData) {
  AllocationProblem problem{
      .devices = {{.name = "w", .bandwidth_bytes_per_s = 100, .batch_time_s = 1, .batch_size = 10, .max_parallel = 10}},
      .samples = 25,
      .sample_bytes = 8,
      .model_bytes = 1000,
      .epochs = 2,
      .rounds_per_epoch = 3};
  // Without an uplink the model goes back at the same rate.
  EXPECT_DOUBLE_EQ(Evaluate(problem, {{25}})->total_s, 2 + 2 * (3 + 3 * 20));
  problem.devices[0].uplink_bytes_per_s = 50;
  EXPECT_DOUBLE_EQ(Evaluate(problem, {{25}})->total_s, 2 + 2 * (3 + 3 * 30));
  problem.devices[0].reads_data_locally = true;
  EXPECT_DOUBLE_EQ(Evaluate(problem, {{25}})->total_s, 2 * (3 + 3 * 30));
}

TEST(EvaluateTest, PipelinedIsTheLongestDevice) {
  const AllocationProblem problem = First(AllocationObjective::kPipelined);
  const Evaluation evaluation = *Evaluate(problem, {{12, 8}});
  EXPECT_NEAR(evaluation.devices[0].total_s, 24 + 3 * (9 + 5), 1e-9);
  EXPECT_NEAR(evaluation.devices[1].total_s, 8 + 3 * (16 + 1), 1e-9);
  EXPECT_NEAR(evaluation.total_s, 66, 1e-9);
  EXPECT_NEAR(evaluation.send_s, 24, 1e-9);
  EXPECT_NEAR(evaluation.epoch_s, 14, 1e-9);
  EXPECT_EQ(evaluation.binding, Binding::kCompute);  // 27 of 66
  // A device without samples costs nothing.
  EXPECT_NEAR(Evaluate(Second(AllocationObjective::kPipelined), {{40, 0, 0}})->total_s, 40 + 2 * (10 + 4), 1e-9);
}

// The three objectives of one allocation: a barrier less each time.
TEST(EvaluateTest, PipelinedIsNoMoreThanBarrierNorThatThanSeparable) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    AllocationProblem problem = MakeLargeProblem(5, 100, AllocationObjective::kSeparable, seed);
    if (seed % 2 == 0) problem.egress_bytes_per_s = 1e6;
    const Allocation allocation{{20, 10, 0, 40, 30}};
    const double separable = Evaluate(problem, allocation)->total_s;
    problem.objective = AllocationObjective::kBarrier;
    const double barrier = Evaluate(problem, allocation)->total_s;
    problem.objective = AllocationObjective::kPipelined;
    const double pipelined = Evaluate(problem, allocation)->total_s;
    EXPECT_LE(pipelined, barrier * (1 + 1e-12));
    EXPECT_LE(barrier, separable * (1 + 1e-12));
  }
}

TEST(EvaluateTest, EgressIsSharedByAllThatAreSentTo) {
  AllocationProblem problem{.samples = 30,
                            .sample_bytes = 10,
                            .model_bytes = 100,
                            .epochs = 2,
                            .rounds_per_epoch = 3,
                            .objective = AllocationObjective::kBarrier,
                            .egress_bytes_per_s = 50};
  for (const char* name : {"a", "b", "c"}) {
    problem.devices.push_back(
        {.name = name, .bandwidth_bytes_per_s = 100, .batch_time_s = 1, .batch_size = 10, .max_parallel = 10});
  }
  // 300 bytes in 6 s; three models of 100 bytes in 6 s each way, three times an epoch.
  Evaluation evaluation = *Evaluate(problem, {{10, 10, 10}});
  EXPECT_DOUBLE_EQ(evaluation.total_s, 6 + 2 * (1 + 3 * 12));
  for (const DeviceEvaluation& device : evaluation.devices) {
    EXPECT_DOUBLE_EQ(device.send_s, 6);
    EXPECT_DOUBLE_EQ(device.comm_s, 36);
  }
  // Who takes no part shares nothing, except under kSeparable, where all take part.
  EXPECT_DOUBLE_EQ(Evaluate(problem, {{30, 0, 0}})->total_s, 6 + 2 * (3 + 3 * 4));
  problem.objective = AllocationObjective::kSeparable;
  EXPECT_DOUBLE_EQ(Evaluate(problem, {{30, 0, 0}})->total_s, 6 + 2 * (3 + 3 * 12));
  problem.objective = AllocationObjective::kPipelined;
  EXPECT_DOUBLE_EQ(Evaluate(problem, {{20, 10, 0}})->total_s, 6 + 2 * (2 + 3 * 8));
  // What is read locally is not sent.
  problem.devices[0].reads_data_locally = true;
  evaluation = *Evaluate(problem, {{20, 10, 0}});
  EXPECT_DOUBLE_EQ(evaluation.devices[0].send_s, 0);
  EXPECT_DOUBLE_EQ(evaluation.devices[1].send_s, 2);
  // A link slower than the shared one binds by itself.
  problem.devices[1].bandwidth_bytes_per_s = 5;
  EXPECT_DOUBLE_EQ(Evaluate(problem, {{20, 10, 0}})->devices[1].send_s, 20);
}

AllocationProblem LockStep() {
  AllocationProblem problem{.samples = 130,
                            .sample_bytes = 1,
                            .model_bytes = 100,
                            .epochs = 2,
                            .rounds_per_epoch = 1,
                            .objective = AllocationObjective::kBarrier,
                            .lock_step_sites = true};
  problem.devices = {
      {.name = "a1", .site = "a", .bandwidth_bytes_per_s = 10, .batch_time_s = 1, .batch_size = 6, .max_parallel = 6},
      {.name = "a2", .site = "a", .bandwidth_bytes_per_s = 5, .batch_time_s = 2, .batch_size = 4, .max_parallel = 4},
      {.name = "b1", .site = "b", .bandwidth_bytes_per_s = 20, .batch_time_s = 3, .batch_size = 3, .max_parallel = 3}};
  return problem;
}

TEST(EvaluateTest, MembersOfASiteStepTogether) {
  const AllocationProblem problem = LockStep();
  const Evaluation evaluation = *Evaluate(problem, {{60, 40, 30}});
  for (int member : {0, 1}) {
    EXPECT_EQ(evaluation.devices[member].steps_per_epoch, 10);
    EXPECT_DOUBLE_EQ(evaluation.devices[member].compute_s, 20);  // The slower one's time.
    EXPECT_DOUBLE_EQ(evaluation.devices[member].comm_s, 20);     // Half the model each, over the slower link.
  }
  EXPECT_DOUBLE_EQ(evaluation.devices[0].send_s, 6);
  EXPECT_DOUBLE_EQ(evaluation.devices[1].send_s, 8);
  EXPECT_DOUBLE_EQ(evaluation.devices[2].compute_s, 30);
  EXPECT_DOUBLE_EQ(evaluation.devices[2].comm_s, 10);
  EXPECT_DOUBLE_EQ(evaluation.total_s, 8 + 2 * 40);
}

TEST(EvaluateTest, TheMemberWithTheMostStepsSetsTheSites) {
  const AllocationProblem problem = LockStep();
  // a1 has run out after five steps and joins with weight 0.
  const Evaluation uneven = *Evaluate(problem, {{30, 70, 30}});
  EXPECT_EQ(uneven.devices[0].steps_per_epoch, 18);
  EXPECT_EQ(uneven.devices[1].steps_per_epoch, 18);
  // A member without samples steps along; a site without samples takes no part.
  const Evaluation one = *Evaluate(problem, {{0, 130, 0}});
  EXPECT_DOUBLE_EQ(one.devices[0].compute_s, 66);
  EXPECT_DOUBLE_EQ(one.devices[0].comm_s, 20);
  EXPECT_EQ(one.devices[0].send_s, 0);
  EXPECT_EQ(one.devices[2].total_s, 0);
}

TEST(EvaluateTest, ASiteIsOneParticipantOfTheSharedLink) {
  AllocationProblem problem = LockStep();
  problem.egress_bytes_per_s = 5;
  // 130 bytes in 26 s; two models of 100 bytes in 40 s each way.
  const Evaluation evaluation = *Evaluate(problem, {{60, 40, 30}});
  EXPECT_DOUBLE_EQ(evaluation.send_s, 26);
  EXPECT_DOUBLE_EQ(evaluation.devices[0].comm_s, 80);
  EXPECT_DOUBLE_EQ(evaluation.devices[2].comm_s, 80);
}

TEST(EvaluateTest, RefusesWhatIsNoAllocation) {
  AllocationProblem problem = First(AllocationObjective::kBarrier);
  problem.devices[1].capacity_samples = 7;
  EXPECT_TRUE(Evaluate(problem, {{13, 7}}).ok());
  for (const std::vector<int64_t>& samples : std::vector<std::vector<int64_t>>{
           {20}, {13, 7, 0}, {12, 7}, {14, 7}, {21, -1}, {12, 8}, {std::numeric_limits<int64_t>::max(), 7}}) {
    EXPECT_EQ(Evaluate(problem, {samples}).status().code(), absl::StatusCode::kInvalidArgument)
        << ::testing::PrintToString(samples);
  }
}

TEST(ValidateTest, NamesTheFieldThatIsWrong) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const auto error_after = [](auto change) {
    AllocationProblem problem = First(AllocationObjective::kBarrier);
    change(problem, problem.devices[1]);
    const absl::Status status = Validate(problem);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    // Every function that takes a problem checks it.
    EXPECT_EQ(Evaluate(problem, {{12, 8}}).status(), status);
    EXPECT_EQ(LowerBound(problem).status(), status);
    return std::string(status.message());
  };
  using P = AllocationProblem;
  using D = DeviceProfile;
  EXPECT_EQ(Validate(First(AllocationObjective::kBarrier)), absl::OkStatus());
  EXPECT_THAT(error_after([](P& p, D&) { p.devices.clear(); }), HasSubstr("devices"));
  EXPECT_THAT(error_after([](P& p, D&) { p.samples = 0; }), HasSubstr("samples is 0"));
  EXPECT_THAT(error_after([](P& p, D&) { p.samples = kMaxSamples + 1; }), HasSubstr("samples"));
  EXPECT_THAT(error_after([](P& p, D&) { p.sample_bytes = -1; }), HasSubstr("sample_bytes is -1"));
  EXPECT_THAT(error_after([&](P& p, D&) { p.model_bytes = nan; }), HasSubstr("model_bytes"));
  EXPECT_THAT(error_after([](P& p, D&) { p.epochs = 0; }), HasSubstr("epochs is 0"));
  EXPECT_THAT(error_after([](P& p, D&) { p.rounds_per_epoch = 0; }), HasSubstr("rounds_per_epoch"));
  EXPECT_THAT(error_after([](P&, D& d) { d.name = ""; }), HasSubstr("device 1: name"));
  EXPECT_THAT(error_after([](P&, D& d) { d.name = "w0"; }), HasSubstr("\"w0\": name is used twice"));
  EXPECT_THAT(error_after([](P&, D& d) { d.bandwidth_bytes_per_s = 0; }),
              HasSubstr("\"w1\": bandwidth_bytes_per_s is 0"));
  EXPECT_THAT(error_after([&](P&, D& d) { d.bandwidth_bytes_per_s = inf; }), HasSubstr("bandwidth_bytes_per_s"));
  EXPECT_THAT(error_after([](P&, D& d) { d.uplink_bytes_per_s = -3; }), HasSubstr("uplink_bytes_per_s is -3"));
  EXPECT_THAT(error_after([&](P&, D& d) { d.batch_time_s = nan; }), HasSubstr("batch_time_s"));
  EXPECT_THAT(error_after([](P&, D& d) { d.batch_size = 0; }), HasSubstr("batch_size is 0"));
  EXPECT_THAT(error_after([](P&, D& d) { d.batch_size = 3; }), HasSubstr("batch_size 3 is above max_parallel 2"));
  EXPECT_THAT(error_after([](P&, D& d) { d.capacity_samples = -1; }), HasSubstr("capacity_samples is -1"));
  EXPECT_THAT(error_after([](P& p, D& d) { p.devices[0].capacity_samples = d.capacity_samples = 9; }),
              HasSubstr("can store 18 of 20"));
  EXPECT_THAT(error_after([](P&, D& d) { d.batch_time_s = 1e308; }), HasSubstr("too large"));
  EXPECT_THAT(error_after([](P& p, D&) { p.egress_bytes_per_s = 0; }), HasSubstr("egress_bytes_per_s is 0"));
  EXPECT_THAT(error_after([&](P& p, D&) { p.egress_bytes_per_s = inf; }), HasSubstr("egress_bytes_per_s is inf"));
  EXPECT_THAT(error_after([](P& p, D&) { p.egress_bytes_per_s = 1e-308; }), HasSubstr("too large"));
  const auto lock_step_error_after = [&](auto change) {
    return error_after([&](P& p, D& d) {
      p.lock_step_sites = true;
      change(p, d);
    });
  };
  EXPECT_THAT(lock_step_error_after([](P&, D& d) { d.site = ""; }), HasSubstr("\"w1\": site is empty"));
  EXPECT_THAT(lock_step_error_after([](P&, D& d) { d.reads_data_locally = true; }),
              HasSubstr("reads_data_locally: site \"a\""));
  // w1 is full before the first step, so the second is w0's alone, and there is no third.
  EXPECT_THAT(lock_step_error_after([](P&, D& d) { d.capacity_samples = 0; }), HasSubstr("can store 4 of 20"));
}

}  // namespace
}  // namespace causeway::scheduler
