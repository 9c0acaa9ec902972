#include "scheduler/allocate.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;

// What binds differs by method, so no two methods can be mistaken for each other.
AllocationProblem Problem() {
  return MakeProblem({{1, 8, 2, 4}, {5, 2, 3, 2}, {2, 1, 7, 9}}, 40, 2, AllocationObjective::kBarrier);
}

TEST(AllocateTest, DispatchesByMethod) {
  EXPECT_THAT(Allocate(AllocationMethod::kUniform, Problem())->samples, ElementsAre(14, 13, 13));
  EXPECT_THAT(Allocate(AllocationMethod::kProportional, Problem())->samples, ElementsAre(33, 6, 1));
  EXPECT_NEAR(Evaluate(Problem(), *Allocate(AllocationMethod::kExact, Problem()))->total_s, 62, 1e-9);
  const double auglag = Evaluate(Problem(), *Allocate(AllocationMethod::kAuglag, Problem()))->total_s;
  EXPECT_GE(auglag, 62 - 1e-9);
  EXPECT_LT(auglag, 80);  // uniform: 265, proportional: 76
}

TEST(AllocateTest, NamesReadBack) {
  for (AllocationMethod method : {AllocationMethod::kExact, AllocationMethod::kAuglag, AllocationMethod::kUniform,
                                  AllocationMethod::kProportional}) {
    EXPECT_EQ(*AllocationMethodFromName(AllocationMethodName(method)), method);
  }
  for (AllocationObjective objective :
       {AllocationObjective::kSeparable, AllocationObjective::kBarrier, AllocationObjective::kPipelined}) {
    EXPECT_EQ(*AllocationObjectiveFromName(AllocationObjectiveName(objective)), objective);
  }
  EXPECT_EQ(AllocationMethodFromName("Exact").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AllocationObjectiveFromName("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AllocateTest, MethodNames) {
  EXPECT_EQ(AllocationMethodName(AllocationMethod::kExact), "exact");
  EXPECT_EQ(AllocationMethodName(AllocationMethod::kAuglag), "auglag");
  EXPECT_EQ(AllocationMethodName(AllocationMethod::kUniform), "uniform");
  EXPECT_EQ(AllocationMethodName(AllocationMethod::kProportional), "proportional");
  EXPECT_EQ(AllocationObjectiveName(AllocationObjective::kBarrier), "barrier");
  EXPECT_EQ(AllocationObjectiveName(AllocationObjective::kSeparable), "separable");
  EXPECT_EQ(AllocationObjectiveName(AllocationObjective::kPipelined), "pipelined");
}

TEST(PlanAllocationTest, EvaluatesTheMethodAndTheEvenSplit) {
  const absl::StatusOr<AllocationPlan> plan = PlanAllocation(AllocationMethod::kExact, Problem());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->method, AllocationMethod::kExact);
  EXPECT_NEAR(plan->evaluation.total_s, 62, 1e-9);
  EXPECT_NEAR(plan->even_split_total_s, 65 + 2 * (13 * 7 + 9), 1e-9);  // 14, 13, 13
  EXPECT_LT(plan->lower_bound_s, 62);
  EXPECT_GT(plan->lower_bound_s, 50);
}

TEST(EvaluatePlanTest, TakesAPinnedAllocation) {
  const absl::StatusOr<AllocationPlan> plan = EvaluatePlan(AllocationMethod::kExact, Problem(), {{30, 10, 0}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->allocation.samples, ElementsAre(30, 10, 0));
  EXPECT_NEAR(plan->evaluation.total_s, 50 + 2 * (15 + 2), 1e-9);
  EXPECT_EQ(EvaluatePlan(AllocationMethod::kExact, Problem(), {{30, 11, 0}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// No method beats the exact one or the bound, whatever the problem has: one evaluator judges all.
TEST(PlanAllocationTest, ExactIsTheBestOfAllMethodsAndTheBoundBelowIt) {
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    for (AllocationObjective objective :
         {AllocationObjective::kSeparable, AllocationObjective::kBarrier, AllocationObjective::kPipelined}) {
      AllocationProblem problem = MakeLargeProblem(6, 3000, objective, seed);
      if (seed % 2 == 0) problem.egress_bytes_per_s = 1e7;
      if (seed % 3 == 0) problem.devices[seed % 6].reads_data_locally = true;
      if (seed % 4 == 0) problem.devices[1].capacity_samples = 40;
      const AllocationPlan exact = *PlanAllocation(AllocationMethod::kExact, problem);
      EXPECT_GE(exact.evaluation.total_s, exact.lower_bound_s * (1 - 1e-12));
      for (AllocationMethod method :
           {AllocationMethod::kAuglag, AllocationMethod::kUniform, AllocationMethod::kProportional}) {
        const AllocationPlan plan = *PlanAllocation(method, problem);
        EXPECT_GE(plan.evaluation.total_s, exact.evaluation.total_s * (1 - 1e-12))
            << AllocationObjectiveName(objective) << " " << AllocationMethodName(method) << " seed " << seed;
        EXPECT_EQ(plan.lower_bound_s, exact.lower_bound_s);
      }
    }
  }
}

TEST(PlanAllocationTest, RefusesAnInvalidProblem) {
  EXPECT_EQ(PlanAllocation(AllocationMethod::kExact, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace causeway::scheduler
