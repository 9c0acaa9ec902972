#include <pthread.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completion.h"
#include "base/executor.h"
#include "base/file.h"
#include "base/log.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "jobspec/config.h"
#include "jobspec/yaml_reader.h"
#include "worker/grpc_coordinator_client.h"
#include "worker/join.h"
#include "worker/torch_models.h"
#include "worker/worker.h"

namespace {

using namespace causeway;

// docs/reference.md, "Exit codes".
constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kTimedOut = 3;
constexpr int kRefused = 4;

struct Flags {
  std::string config;
  std::string log_format;
  std::string log_level;
  // join
  std::string address, token, ca_pin, name;
  std::string dir = "./causeway-worker";
  double slowdown = 1;
  std::string down, up;
  int threads = 0;
  bool no_start = false;
};

int Fail(const absl::Status& status, int code) {
  std::cerr << "causeway-worker: " << status.message() << "\n";
  return code;
}

absl::Status ApplyLogFlags(const Flags& flags, jobspec::LogConfig* config) {
  if (!flags.log_format.empty()) {
    absl::StatusOr<log::Format> format = log::ParseFormat(flags.log_format);
    if (!format.ok()) return format.status();
    config->format = *format;
  }
  if (!flags.log_level.empty()) {
    absl::StatusOr<log::Level> level = log::ParseLevel(flags.log_level);
    if (!level.ok()) return level.status();
    config->level = *level;
  }
  return absl::OkStatus();
}

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// The first SIGTERM or SIGINT lets the worker drain, the second ends it. Watches until it has ended for whatever reason.
void WatchSignals(const sigset_t& signals, worker::StopSignals stop) {
  SetThreadName("signals");
  while (!stop.end.IsSet()) {
    const timespec wait = {0, 100'000'000};
    if (sigtimedwait(&signals, nullptr, &wait) > 0 && !stop.drain.Set(true)) stop.end.Set(true);
  }
}

int Start(const Flags& flags, const std::string& path) {
  absl::StatusOr<jobspec::WorkerConfig> config = jobspec::LoadWorkerConfig(path);
  if (!config.ok()) return Fail(config.status(), absl::IsInvalidArgument(config.status()) ? kUsage : kFailed);
  if (absl::Status status = ApplyLogFlags(flags, &config->log); !status.ok()) return Fail(status, kUsage);
  if (absl::Status status = log::Configure({config->log.level, config->log.format, config->log.file, "worker"});
      !status.ok()) {
    return Fail(status, kFailed);
  }

  const sigset_t signals = EndSignals();
  worker::StopSignals stop;
  std::thread watcher([&] { WatchSignals(signals, stop); });

  worker::TorchOptions torch;
  torch.threads =
      config->threads > 0 ? config->threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::unique_ptr<worker::ModelFactory> factory = worker::MakeTorchModelFactory(torch);
  const worker::WorkerEnd result = worker::RunWorker(*config, factory.get(), stop);
  stop.SetBoth(true);
  watcher.join();
  if (result.status.ok()) return kDone;
  if (result.refused) return Fail(result.status, kRefused);
  return Fail(result.status, absl::IsInvalidArgument(result.status) ? kUsage : kFailed);
}

int JoinExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition: return kRefused;
    case absl::StatusCode::kInvalidArgument: return kUsage;
    case absl::StatusCode::kDeadlineExceeded: return kTimedOut;
    default: return kFailed;
  }
}

absl::Status FillJoinConfig(const Flags& flags, jobspec::WorkerConfig* config) {
  absl::StatusOr<jobspec::HostPort> coordinator = jobspec::ParseHostPort(flags.address, false);
  if (!coordinator.ok()) return coordinator.status();
  config->coordinator = *coordinator;
  config->threads = flags.threads;
  config->emulate.slowdown = flags.slowdown;
  for (const auto& [text, rate] : {std::pair(&flags.down, &config->emulate.down_bytes_per_s),
                                   std::pair(&flags.up, &config->emulate.up_bytes_per_s)}) {
    if (text->empty()) continue;
    absl::StatusOr<double> parsed = jobspec::ParseBytesPerSecond(*text);
    if (!parsed.ok()) return parsed.status();
    *rate = *parsed;
  }
  return ApplyLogFlags(flags, &config->log);
}

int Join(const Flags& flags) {
  worker::JoinOptions options;
  options.token = flags.token;
  options.ca_pin = flags.ca_pin;
  options.name = flags.name;
  options.dir = std::filesystem::absolute(flags.dir).lexically_normal().string();
  options.fs = RealFileSystem();
  options.clock = RealClock();
  options.fetch_chain = dataplane::FetchServerChain;
  options.call_join = [](const std::string& address, const std::string& ca_pem, const v1::JoinRequest& request,
                         absl::Time deadline) {
    return worker::CallJoin(address, ca_pem, request, RealClock(), deadline);
  };
  if (absl::Status status = FillJoinConfig(flags, &options.config); !status.ok()) return Fail(status, kUsage);
  const absl::StatusOr<worker::Joined> joined = worker::Join(options);
  if (!joined.ok()) return Fail(joined.status(), JoinExitCode(joined.status()));
  std::cout << "joined site " << joined->site << " as worker " << joined->worker << "\n"
            << "configuration: " << joined->config_path << "\n"
            << (flags.no_start ? "start it with: causeway-worker --config " + joined->config_path
                               : std::string("starting"))
            << std::endl;
  return flags.no_start ? kDone : Start(flags, joined->config_path);
}

}  // namespace

int main(int argc, char** argv) {
  // Before any thread starts, those that join needs included, so that all inherit it and only the watcher hears them.
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  dataplane::TuneMalloc();
  dataplane::ConfigureGrpcProcess();

  Flags flags;
  CLI::App app("Trains models for a Causeway coordinator on this machine.", "causeway-worker");
  app.set_version_flag("--version", absl::StrCat("causeway-worker ", dataplane::kBuildVersion, ", protocol ",
                                                 dataplane::kProtocolMajor, ".", dataplane::kProtocolMinor));
  app.add_option("--config", flags.config, "Run as this worker.yaml says");
  app.add_option("--log-format", flags.log_format, "text or json (default: as in worker.yaml)");
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error (default: as in worker.yaml)");
  app.require_subcommand(0, 1);
  app.footer(
      "Examples:\n"
      "  causeway-worker join coord.example:7443 --token T --ca-pin sha256:...   (the line that `causeway site add` "
      "prints)\n"
      "  causeway-worker --config ./causeway-worker/worker.yaml\n\n"
      "SIGTERM or SIGINT: delivers what it has done (drain_timeout), then ends; a second one ends it at once.\n\n"
      "Exit codes: 0 stopped in order, 1 failed, 2 usage or configuration, 3 timed out, 4 refused by the coordinator, "
      "its certificate has expired, or another worker runs in the folder");

  CLI::App* join = app.add_subcommand(
      "join", "Join a coordinator: make a key here, have it certified, store the configuration, and run");
  join->fallthrough();  // --log-format and --log-level may follow.
  join->add_option("address", flags.address, "The coordinator, host:port")->required();
  join->add_option("--token", flags.token, "From `causeway site add`")->required();
  join->add_option("--ca-pin", flags.ca_pin, "SHA-256 of the coordinator's CA, from `causeway site add`")->required();
  join->add_option("--name", flags.name, "Name of this worker (default: SITE-N)");
  join->add_option("--dir", flags.dir, "Folder for credentials, configuration and state")->capture_default_str();
  join->add_option("--threads", flags.threads, "For compute; 0: all cores")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  join->add_option("--emulate-slowdown", flags.slowdown, "Appear so many times slower than this machine is")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  join->add_option("--emulate-down", flags.down, "Appear to receive at most so much, such as 10MB/s");
  join->add_option("--emulate-up", flags.up, "Appear to send at most so much, such as 5MB/s");
  join->add_flag("--no-start", flags.no_start, "Only join, do not run");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  if (join->parsed()) {
    if (!flags.config.empty())
      return Fail(absl::InvalidArgumentError("--config and join exclude each other: join writes the configuration"),
                  kUsage);
    return Join(flags);
  }
  if (flags.config.empty())
    return Fail(absl::InvalidArgumentError("nothing to do: give --config FILE, or join (see --help)"), kUsage);
  return Start(flags, flags.config);
}
