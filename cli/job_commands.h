#ifndef CAUSEWAY_CLI_JOB_COMMANDS_H_
#define CAUSEWAY_CLI_JOB_COMMANDS_H_

#include <string>

#include "absl/status/status.h"
#include "cli/session.h"

// `causeway job ...`. Errors of all: those of Session::Client and OperatorClient.
namespace causeway::cli {

struct SubmitOptions {
  std::string file;  // job.yaml, or "-".
  std::string request_id;
  std::string plan_file;  // Empty: the coordinator plans.
  bool watch = false;
};
// Errors: also InvalidArgument (the job or the plan; found before anything is sent), and those of JobWatch.
absl::Status JobSubmit(Session& session, const SubmitOptions& options);
absl::Status JobList(Session& session);
absl::Status JobShow(Session& session, const std::string& job);
// Shows the job until it has ended, over restarts of the coordinator. An empty name: the job that runs, else the newest.
// Errors: also Aborted (the job FAILED or was ABORTED), DeadlineExceeded (--timeout passed; the job goes on).
absl::Status JobWatch(Session& session, std::string job);
absl::Status JobAbort(Session& session, const std::string& job, const std::string& reason);
absl::Status JobPause(Session& session, const std::string& job);
absl::Status JobResume(Session& session, const std::string& job);
// Needs no coordinator. Errors: InvalidArgument.
absl::Status JobValidate(Session& session, const std::string& file);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_JOB_COMMANDS_H_
