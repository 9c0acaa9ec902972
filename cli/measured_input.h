#ifndef CAUSEWAY_CLI_MEASURED_INPUT_H_
#define CAUSEWAY_CLI_MEASURED_INPUT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/operator_client.h"
#include "cli/plan_input.h"
#include "proto/job.pb.h"

namespace causeway::cli {

struct MeasuredInput {
  PlanInput input;                   // The allocation part only: workers measure no single layers yet.
  std::vector<std::string> remarks;  // Whose profile is missing, where the figures are from.
};

// What `spec` would be planned from now: the live workers of its sites, each with the newest profile that it measured for
// a job with the same model and training set, whose sizes are taken too. Asks; starts nothing.
// Errors: FailedPrecondition (no live worker has such a profile), InvalidArgument (a batch size that a worker's profile does not
// allow), those of OperatorClient.
absl::StatusOr<MeasuredInput> MeasuredPlanInput(const v1::JobSpec& spec, OperatorClient* client,
                                                absl::Duration timeout);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_MEASURED_INPUT_H_
