#ifndef CAUSEWAY_CLI_PLAN_COMMANDS_H_
#define CAUSEWAY_CLI_PLAN_COMMANDS_H_

#include <string>

#include "absl/status/status.h"
#include "cli/session.h"

namespace causeway::cli {

// What `causeway plan` and `causeway simulate` are asked about: exactly one of the two files.
struct PlanOptions {
  std::string file;      // causeway.plan-input/1, or "-".
  std::string job_file;  // job.yaml, or "-": the profiles that a running coordinator knows.
  bool compare = false;  // By all methods.
  std::string timeline;  // Of `simulate`: the Chrome trace to write; empty: none.
};

// Errors of both: InvalidArgument (the file; both or none given), those of MeasuredPlanInput and Session::Client.
absl::Status Plan(Session& session, const PlanOptions& options);
absl::Status Simulate(Session& session, const PlanOptions& options);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_PLAN_COMMANDS_H_
