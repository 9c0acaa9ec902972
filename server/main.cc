// causeway-coordinator: flags, signals, exit codes; everything else is in server.cc.

#include <sys/resource.h>

#include <csignal>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/protocol_version.h"
#include "jobspec/config.h"
#include "server/server.h"

namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kRefused = 4;

int ExitCode(const absl::Status& status) {
  if (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) return kUsage;
  if (absl::IsFailedPrecondition(status) || absl::IsPermissionDenied(status)) return kRefused;
  return kFailed;
}

int Fail(const absl::Status& status) {
  std::cerr << "causeway-coordinator: " << status.message() << "\n";
  return ExitCode(status);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace causeway;  // NOLINT
  dataplane::ConfigureGrpcProcess();
  dataplane::TuneMalloc();
  // Each worker has two connections, each transfer files: what the system allows at most is not too much.
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  // Blocked before any thread starts, so that only sigwait below sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  CLI::App app{
      "Causeway's coordinator: owns the data and the global model.\n\nExample:\n  causeway-coordinator --config "
      "coordinator.yaml"};
  std::string config_path = "coordinator.yaml";
  std::string log_format;
  std::string log_level;
  app.add_option("--config", config_path, "Configuration, as `causeway init` writes it")->capture_default_str();
  app.add_option("--log-format", log_format, "text or json, instead of the configured one");
  app.add_option("--log-level", log_level, "debug, info, warning or error, instead of the configured one");
  app.set_version_flag("--version", dataplane::kBuildVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kDone : kUsage;
  }
  absl::StatusOr<jobspec::CoordinatorConfig> config = jobspec::LoadCoordinatorConfig(config_path);
  if (!config.ok()) return Fail(config.status());
  log::Options log_options{
      .level = config->log.level, .format = config->log.format, .file = config->log.file, .component = "coordinator"};
  if (!log_format.empty()) {
    absl::StatusOr<log::Format> format = log::ParseFormat(log_format);
    if (!format.ok()) return Fail(format.status());
    log_options.format = *format;
  }
  if (!log_level.empty()) {
    absl::StatusOr<log::Level> level = log::ParseLevel(log_level);
    if (!level.ok()) return Fail(level.status());
    log_options.level = *level;
  }
  if (absl::Status logging = log::Configure(log_options); !logging.ok()) return Fail(logging);

  absl::StatusOr<std::unique_ptr<server::Server>> server = server::Server::Start(*config);
  if (!server.ok()) return Fail(server.status());
  int signal = 0;
  sigwait(&signals, &signal);
  log::Info("signal received", {{"signal", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
  (*server)->Stop();
  return kDone;
}
