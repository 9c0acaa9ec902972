#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "cli/app.h"
#include "cli/grpc_client.h"
#include "dataplane/grpc_channel.h"

namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int TerminalColumns() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

int main(int argc, char** argv) {
  causeway::dataplane::TuneMalloc();
  causeway::dataplane::ConfigureGrpcProcess();
  causeway::cli::Environment environment;
  environment.in = &std::cin;
  environment.out = &std::cout;
  environment.err = &std::cerr;
  environment.out_is_terminal = isatty(STDOUT_FILENO) != 0 && FromEnvironment("TERM") != "dumb";
  environment.columns = TerminalColumns();
  environment.clock = causeway::RealClock();
  environment.files = causeway::RealFileSystem();
  environment.config_home = causeway::cli::ConfigHome(FromEnvironment("XDG_CONFIG_HOME"), FromEnvironment("HOME"));
  environment.connect = causeway::cli::MakeGrpcOperatorClient;
  return causeway::cli::RunCli(std::vector<std::string>(argv + 1, argv + argc), environment);
}
