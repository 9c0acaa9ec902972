#include "scheduler/plan_proto.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

AllocationPlan MakePlan() {
  AllocationProblem problem{.samples = 1000,
                            .sample_bytes = 785,
                            .model_bytes = 250000,
                            .epochs = 2.5,
                            .rounds_per_epoch = 3,
                            .objective = AllocationObjective::kBarrier};
  problem.devices.push_back({.name = "b1",
                             .site = "b",
                             .bandwidth_bytes_per_s = 2e5,
                             .uplink_bytes_per_s = 1e5,
                             .batch_time_s = 0.5,
                             .batch_size = 16,
                             .max_parallel = 16});
  problem.devices.push_back({.name = "a1",
                             .site = "a",
                             .bandwidth_bytes_per_s = 1e6,
                             .batch_time_s = 0.25,
                             .batch_size = 32,
                             .max_parallel = 64});
  return *PlanAllocation(AllocationMethod::kExact, problem);
}

v1::DeviceProfile MakeProfile(const std::vector<std::pair<int64_t, double>>& batch_times) {
  v1::DeviceProfile profile;
  profile.set_max_parallel(64);
  profile.set_down_bytes_per_s(1e6);
  profile.set_up_bytes_per_s(5e5);
  for (const auto& [batch_size, batch_time_s] : batch_times) {
    v1::DeviceProfile::BatchTime& time = *profile.add_batch_times();
    time.set_batch_size(batch_size);
    time.set_batch_time_s(batch_time_s);
  }
  return profile;
}

TEST(PlanProtoTest, SaysWhatThePlanSays) {
  const AllocationPlan plan = MakePlan();
  const v1::Plan proto = PlanToProto(plan);
  EXPECT_EQ(proto.method(), "exact");
  EXPECT_EQ(proto.objective(), "barrier");
  EXPECT_EQ(proto.samples(), 1000);
  EXPECT_EQ(proto.sample_bytes(), 785);
  EXPECT_EQ(proto.model_bytes(), 250000);
  EXPECT_EQ(proto.epochs(), 2.5);
  EXPECT_EQ(proto.rounds_per_epoch(), 3);
  EXPECT_EQ(proto.predicted_total_s(), plan.evaluation.total_s);
  EXPECT_EQ(proto.lower_bound_s(), plan.lower_bound_s);
  EXPECT_EQ(proto.even_split_total_s(), plan.even_split_total_s);
  EXPECT_EQ(proto.binding(), "compute");
  ASSERT_EQ(proto.workers_size(), 2);
  const v1::WorkerPlan& a1 = proto.workers(0);  // By name.
  EXPECT_EQ(a1.worker(), "a1");
  EXPECT_EQ(a1.site(), "a");
  EXPECT_EQ(a1.samples(), plan.allocation.samples[1]);
  EXPECT_EQ(a1.batch_size(), 32);
  EXPECT_EQ(a1.batch_time_s(), 0.25);
  EXPECT_EQ(a1.down_bytes_per_s(), 1e6);
  EXPECT_EQ(a1.up_bytes_per_s(), 1e6);  // No uplink of its own.
  EXPECT_EQ(a1.steps_per_epoch(), plan.evaluation.devices[1].steps_per_epoch);
  EXPECT_EQ(a1.send_s(), plan.evaluation.devices[1].send_s);
  EXPECT_EQ(a1.compute_s(), plan.evaluation.devices[1].compute_s);
  EXPECT_EQ(a1.comm_s(), plan.evaluation.devices[1].comm_s);
  EXPECT_EQ(a1.total_s(), plan.evaluation.devices[1].total_s);
  EXPECT_EQ(proto.workers(1).up_bytes_per_s(), 1e5);
}

TEST(PlanProtoTest, ReadsBackTheSame) {
  for (AllocationMethod method : {AllocationMethod::kExact, AllocationMethod::kAuglag}) {
    for (AllocationObjective objective :
         {AllocationObjective::kSeparable, AllocationObjective::kBarrier, AllocationObjective::kPipelined}) {
      AllocationProblem problem = MakePlan().problem;
      problem.objective = objective;
      const v1::Plan proto = PlanToProto(*PlanAllocation(method, problem));
      const absl::StatusOr<AllocationPlan> plan = PlanFromProto(proto);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->method, method);
      EXPECT_EQ(plan->problem.objective, objective);
      EXPECT_TRUE(MessageDifferencer::Equals(PlanToProto(*plan), proto));
    }
  }
}

TEST(PlanProtoTest, PipelinedSaysWhatItCostsWithoutOverlap) {
  EXPECT_EQ(PlanToProto(MakePlan()).barrier_total_s(), 0);
  AllocationProblem problem = MakePlan().problem;
  problem.objective = AllocationObjective::kPipelined;
  const AllocationPlan plan = *PlanAllocation(AllocationMethod::kExact, problem);
  problem.objective = AllocationObjective::kBarrier;
  const v1::Plan proto = PlanToProto(plan);
  EXPECT_EQ(proto.predicted_total_s(), plan.evaluation.total_s);
  EXPECT_EQ(proto.barrier_total_s(), Evaluate(problem, plan.allocation)->total_s);
  EXPECT_GE(proto.barrier_total_s(), proto.predicted_total_s());
}

TEST(PlanProtoTest, PredictionsAreComputedNotBelieved) {
  v1::Plan proto = PlanToProto(MakePlan());
  const double total_s = proto.predicted_total_s();
  proto.set_predicted_total_s(1);
  proto.mutable_workers(0)->set_compute_s(1);
  EXPECT_EQ(PlanFromProto(proto)->evaluation.total_s, total_s);
}

TEST(PlanProtoTest, RefusesWhatIsNoPlan) {
  const auto error_after = [](auto change) {
    v1::Plan proto = PlanToProto(MakePlan());
    change(proto);
    const absl::Status status = PlanFromProto(proto).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error_after([](v1::Plan& p) { p.set_method("best"); }), HasSubstr("method \"best\""));
  EXPECT_THAT(error_after([](v1::Plan& p) { p.clear_objective(); }), HasSubstr("objective \"\""));
  EXPECT_THAT(error_after([](v1::Plan& p) { p.mutable_workers(0)->set_samples(1); }), HasSubstr("sums to"));
  EXPECT_THAT(error_after([](v1::Plan& p) { p.mutable_workers(0)->set_up_bytes_per_s(0); }), HasSubstr("uplink"));
  EXPECT_THAT(error_after([](v1::Plan& p) { p.clear_workers(); }), HasSubstr("devices"));
}

TEST(DeviceFromProtoTest, ChoosesTheBatchUnderBothLimits) {
  const v1::DeviceProfile profile = MakeProfile({{8, 0.08}, {32, 0.2}, {64, 0.3}, {128, 0.1}});
  const absl::StatusOr<DeviceProfile> device = DeviceFromProto("w", "s", profile, {.max = 256});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->name, "w");
  EXPECT_EQ(device->site, "s");
  EXPECT_EQ(device->bandwidth_bytes_per_s, 1e6);
  EXPECT_EQ(device->uplink_bytes_per_s, 5e5);
  EXPECT_EQ(device->max_parallel, 64);
  EXPECT_EQ(device->batch_size, 64);
  EXPECT_EQ(device->batch_time_s, 0.3);
  EXPECT_EQ(DeviceFromProto("w", "s", profile, {.max = 63})->batch_size, 32);
}

TEST(DeviceFromProtoTest, TakesAGivenBatch) {
  const v1::DeviceProfile profile = MakeProfile({{8, 0.1}, {32, 0.3}});
  const absl::StatusOr<DeviceProfile> device = DeviceFromProto("w", "s", profile, {.per_worker = 20, .max = 16});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->batch_size, 20);
  EXPECT_DOUBLE_EQ(device->batch_time_s, 0.2);
}

TEST(DeviceFromProtoTest, RefusesByName) {
  const v1::DeviceProfile profile = MakeProfile({{8, 0.1}});
  EXPECT_THAT(std::string(DeviceFromProto("w", "s", profile, {.per_worker = 65}).status().message()),
              HasSubstr("worker \"w\": batch size 65 is above max_parallel 64"));
  EXPECT_THAT(std::string(DeviceFromProto("w", "s", profile, {.max = 4}).status().message()),
              HasSubstr("worker \"w\": no batch"));
  EXPECT_EQ(DeviceFromProto("w", "s", MakeProfile({}), {.per_worker = 4}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace causeway::scheduler
