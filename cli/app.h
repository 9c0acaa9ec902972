#ifndef CAUSEWAY_CLI_APP_H_
#define CAUSEWAY_CLI_APP_H_

#include <string>
#include <vector>

#include "cli/session.h"

namespace causeway::cli {

// Parses `arguments` (without the program's name), runs the command and returns the exit code (see ExitCode). Results go to
// environment.out, errors and remarks to environment.err.
int RunCli(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_APP_H_
