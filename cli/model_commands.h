#ifndef CAUSEWAY_CLI_MODEL_COMMANDS_H_
#define CAUSEWAY_CLI_MODEL_COMMANDS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cli/session.h"

// `causeway model ...`. Errors of all: those of Session::Client and OperatorClient.
namespace causeway::cli {

absl::Status ModelList(Session& session, const std::string& job);

struct FetchOptions {
  std::string job;
  std::string out;       // A safetensors file; replaced when the model is there as a whole.
  int64_t version = -1;  // -1: the final one, or the newest of a job that runs.
};
// Errors: also those of the file system; then no part of a file is left.
absl::Status ModelFetch(Session& session, const FetchOptions& options);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_MODEL_COMMANDS_H_
