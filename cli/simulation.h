#ifndef CAUSEWAY_CLI_SIMULATION_H_
#define CAUSEWAY_CLI_SIMULATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/output.h"
#include "cli/period.h"
#include "cli/plan_input.h"
#include "scheduler/allocate.h"
#include "scheduler/simulator.h"

namespace causeway::cli {

// The whole job of the input's allocation part. With lock_step_sites its steps are those of the input's layers, if it has
// any; otherwise every worker trains alone, and a step is one batch.
struct SimulatedRun {
  scheduler::AllocationMethod method = scheduler::AllocationMethod::kExact;
  double planned_s =
      0;  // What the closed formulas say of the undisturbed job; nothing that happens within a site's step.
  scheduler::SimulatedJob job;
  scheduler::SimulationResult result;
};

struct SimulationOutcome {
  std::vector<SimulatedRun> runs;        // The input's own first; to compare, all methods of allocation.
  std::vector<SimulatedPeriod> periods;  // The same of site_sync.
};

struct SimulateOptions {
  bool compare = false;
  int64_t max_spans = 0;  // Of the input's own run.
};

// Errors: InvalidArgument (what MakePlanResult and the simulator refuse; nothing to simulate; a job of too many steps).
absl::StatusOr<SimulationOutcome> SimulateInput(const PlanInput& input, const SimulateOptions& options);

// The fields of schema causeway.simulation/1.
Json SimulationToJson(const SimulationOutcome& outcome);
// Tables, and a Gantt of one period, `columns` wide.
std::string SimulationText(const SimulationOutcome& outcome, int columns);
// The spans as a Chrome trace, which Perfetto reads too: a process per site, four threads per worker.
Json TraceJson(const SimulatedRun& run);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_SIMULATION_H_
