#ifndef CAUSEWAY_CLI_PERIOD_H_
#define CAUSEWAY_CLI_PERIOD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/plan_input.h"
#include "scheduler/simulator.h"
#include "scheduler/sync_costs.h"

namespace causeway::cli {

// One period of a method on the input's layers, simulated undisturbed.
struct SimulatedPeriod {
  scheduler::SyncMethod method = scheduler::SyncMethod::kDreamDdp;
  scheduler::SyncCost planned;  // By the closed formula.
  int iterations = 1;
  double iteration_s = 0;              // The mean.
  std::vector<scheduler::Span> spans;  // If asked for; of very long periods the first ones.
};

// Errors: InvalidArgument (too much work for the scheduler).
absl::StatusOr<SimulatedPeriod> SimulatePeriod(const PlanInput::SchedulePart& input, scheduler::SyncMethod method,
                                               bool with_spans);

// The period for people: of each of the first iterations one row for computing and one for the link, which all begin at the
// same place. `columns` wide.
std::string PeriodGantt(const SimulatedPeriod& period, int columns);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_PERIOD_H_
