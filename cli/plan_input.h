#ifndef CAUSEWAY_CLI_PLAN_INPUT_H_
#define CAUSEWAY_CLI_PLAN_INPUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/allocate.h"
#include "scheduler/bubble_fill.h"
#include "scheduler/group_planner.h"
#include "scheduler/model.h"
#include "scheduler/simulated_job.h"
#include "scheduler/sync_costs.h"

namespace causeway::cli {

// The question of `causeway plan` and `causeway simulate`, schema causeway.plan-input/1 (docs/planning.md). A part is
// there if the file has it; one at least is.
struct PlanInput {
  struct AllocationPart {
    scheduler::AllocationMethod method = scheduler::AllocationMethod::kExact;
    scheduler::AllocationProblem problem;  // With lock_step_sites the batch sizes are those chosen for the sites.
  };
  struct SchedulePart {
    std::vector<scheduler::LayerProfile> layers;
    scheduler::SyncMethod method = scheduler::SyncMethod::kDreamDdp;
    scheduler::SyncOptions options;
    scheduler::FillRule fill = scheduler::FillRule::kEnd;
  };
  struct GroupsPart {
    scheduler::GroupLayout layout;
    scheduler::GroupModel model;
    scheduler::Network network;
    scheduler::SiteExchange exchange = scheduler::SiteExchange::kAllReduce;
    // What the planner is told besides, to find better groups of the same workers: only with a memory.
    std::optional<double> device_memory_bytes;
    int64_t max_period = 1;
    double compute_s = 0;
  };
  // How the course of the job differs from what is planned, for the simulator. Its workers and sites are named by the
  // allocation part.
  struct SimulationPart {
    struct Change {
      scheduler::SimulatedChange::What what = scheduler::SimulatedChange::What::kCompute;
      std::string name;  // Of the worker or site; empty for the coordinator's links.
      double time_s = 0;
      double factor = 1;
    };
    struct Absence {
      std::string worker;
      double stop_s = 0;
      double return_s = scheduler::kNever;
    };
    double quorum = 1;
    double deadline_s = scheduler::kNever;
    double late_grace_s = 0;
    double replan_after_s = scheduler::kNever;
    int fragments = 1;
    int64_t delay = 0;
    double reform_s = 0;
    double compute_jitter = 0;
    double collective_jitter = 0;
    uint64_t seed = 0;
    std::vector<Change> changes;
    std::vector<Absence> absences;
  };
  std::optional<AllocationPart> allocation;
  std::optional<SchedulePart> schedule;
  std::optional<GroupsPart> groups;
  SimulationPart simulation;  // The default where the file has none.
};

// What a file may have at most. A larger one is refused by the field that is too long: it is read as far as that.
inline constexpr int64_t kMaxPlanInputBytes = int64_t{128} << 20;
inline constexpr int64_t kMaxPlanWorkers = 10000;

// JSON or YAML. The result is valid for scheduler/: nothing in it is refused there any more.
// Errors: InvalidArgument, one line per error: "plan.json:7: workers[2].batch_size: found ...; allowed: ...".
absl::StatusOr<PlanInput> ParsePlanInput(absl::string_view text, absl::string_view file_name);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_PLAN_INPUT_H_
