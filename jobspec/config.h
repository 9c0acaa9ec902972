#ifndef CAUSEWAY_JOBSPEC_CONFIG_H_
#define CAUSEWAY_JOBSPEC_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log.h"

namespace causeway::jobspec {

struct HostPort {
  std::string host;
  int port = 0;

  std::string ToString() const;  // "host:port"; an IPv6 address in brackets.
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// "coord.example:7443", "10.0.0.1:7443", "[::1]:7443"; port 0 only where `allow_port_zero` (the system chooses).
// Errors: InvalidArgument.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text, bool allow_port_zero);

struct LogConfig {
  log::Level level = log::Level::kInfo;
  log::Format format = log::Format::kText;
  std::string file;  // Empty: standard error.
  friend bool operator==(const LogConfig&, const LogConfig&) = default;
};

// coordinator.yaml; docs/reference.md describes each key. Paths are absolute or relative to the process's folder: those in the file
// that are relative count from the file's folder.
struct CoordinatorConfig {
  HostPort advertise;  // What workers and operators dial.
  HostPort listen = {"0.0.0.0", 7443};
  HostPort http_listen = {"127.0.0.1", 7480};  // /metrics, /healthz, /readyz
  std::string dir;                             // State; default: the file's folder.
  std::string data_root;                       // Data paths of jobs lie below it. Default: DIR/data.
  LogConfig log;
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration lease = absl::Seconds(10);
  absl::Duration broken_stream_grace = absl::Seconds(1);
  absl::Duration profile = absl::Seconds(2);  // `profile_seconds`: how long workers measure at least.
  int64_t spool_limit_bytes = int64_t{8} << 30;
  absl::Duration certificate_lifetime = absl::Hours(24 * 365);  // Of those that are made from now on.
  friend bool operator==(const CoordinatorConfig&, const CoordinatorConfig&) = default;
};

// worker.yaml.
struct WorkerConfig {
  struct Emulate {
    double slowdown = 1;          // Compute takes so many times longer.
    double down_bytes_per_s = 0;  // 0: as fast as the link is.
    double up_bytes_per_s = 0;
    bool any() const { return slowdown > 1 || down_bytes_per_s > 0 || up_bytes_per_s > 0; }
    friend bool operator==(const Emulate&, const Emulate&) = default;
  };

  HostPort coordinator;
  std::string dir;                          // State; default: the file's folder.
  HostPort http_listen = {"127.0.0.1", 0};  // 0: the system chooses; printed and reported.
  LogConfig log;
  int64_t cache_limit_bytes = int64_t{20} << 30;
  int threads = 0;  // For compute. 0: all cores.
  // How long a worker that is to end may take to finish its step and deliver what it has done.
  absl::Duration drain_timeout = absl::Seconds(20);
  std::string device = "auto";  // auto, cpu, cuda
  Emulate emulate;
  friend bool operator==(const WorkerConfig&, const WorkerConfig&) = default;
};

// Where a daemon's keys and certificates (PEM) lie in its `dir`.
struct TlsPaths {
  std::string ca;
  std::string ca_key;       // Coordinator only: signs its workers' certificates.
  std::string certificate;  // The coordinator's holds leaf and CA, the worker's the leaf; once it has run, the key too.
  std::string key;          // Where the key lies before.
};
TlsPaths CoordinatorTlsPaths(const std::string& dir);  // DIR/tls/{ca.pem,ca.key,coordinator.pem,coordinator.key}
TlsPaths WorkerTlsPaths(const std::string& dir);       // DIR/tls/{ca.pem,worker.pem,worker.key}

// Errors: InvalidArgument, one line per error: "worker.yaml:7: cache.limit: found ...; allowed: ...".
absl::StatusOr<CoordinatorConfig> ParseCoordinatorYaml(absl::string_view text, const std::string& file_name);
absl::StatusOr<WorkerConfig> ParseWorkerYaml(absl::string_view text, const std::string& file_name);

// Reads the file. Errors: also those of FileSystem::ReadFile.
absl::StatusOr<CoordinatorConfig> LoadCoordinatorConfig(const std::string& path);
absl::StatusOr<WorkerConfig> LoadWorkerConfig(const std::string& path);

// The file that `causeway init` or `causeway-worker join` writes: every key with its value and a comment. An empty `dir` or `data_root` is
// left to its default, so that the folder may be moved. Reads back as the same configuration.
std::string FormatCoordinatorYaml(const CoordinatorConfig& config);
std::string FormatWorkerYaml(const WorkerConfig& config);

}  // namespace causeway::jobspec

#endif  // CAUSEWAY_JOBSPEC_CONFIG_H_
