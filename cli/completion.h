#ifndef CAUSEWAY_CLI_COMPLETION_H_
#define CAUSEWAY_CLI_COMPLETION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway::cli {

// A command with what may follow it.
struct CommandWords {
  std::string path;                // "causeway job submit"
  std::vector<std::string> words;  // Subcommands and flags.
};

// A script that completes commands and flags, and file names elsewhere. `shell`: bash, zsh or fish.
// Errors: InvalidArgument (another shell).
absl::StatusOr<std::string> CompletionScript(absl::string_view shell, const std::vector<CommandWords>& commands);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_COMPLETION_H_
