#include "jobspec/config.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "jobspec/yaml_reader.h"

namespace causeway::jobspec {
namespace {

constexpr absl::Duration kShortest = absl::Milliseconds(10);
constexpr absl::Duration kLongest = absl::Hours(1);

// The folder of the file that is read; relative paths count from it.
std::string FolderOf(const std::string& file_name) {
  size_t slash = file_name.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : file_name.substr(0, slash);
}

std::string PathFrom(const std::string& folder, const std::string& path) {
  return path.empty() || path[0] == '/' ? path : JoinPath(folder, path);
}

std::string ReadDir(YamlMap& root, const std::string& folder) {
  std::string dir = root.String("dir", "");
  return dir.empty() ? folder : PathFrom(folder, dir);
}

HostPort ReadHostPort(YamlMap& map, absl::string_view key, std::optional<HostPort> fallback, bool allow_port_zero) {
  const std::optional<std::string> text = map.OptionalString(key, /*required=*/!fallback.has_value());
  if (!text.has_value()) return fallback.value_or(HostPort{});
  absl::StatusOr<HostPort> parsed = ParseHostPort(*text, allow_port_zero);
  if (parsed.ok()) return *parsed;
  map.AddError(key, parsed.status().message());
  return {};
}

LogConfig ReadLog(YamlMap map, const std::string& folder) {
  LogConfig config;
  // The names are checked by Choice, so that its message has file and line.
  config.level =
      log::ParseLevel(map.Choice("level", "info", {"debug", "info", "warning", "error"})).value_or(log::Level::kInfo);
  config.format = log::ParseFormat(map.Choice("format", "text", {"text", "json"})).value_or(log::Format::kText);
  config.file = PathFrom(folder, map.String("file", ""));
  return config;
}

std::string LogYaml(const LogConfig& config) {
  constexpr const char* kLevels[] = {"debug", "info", "warning", "error"};
  return absl::StrCat("log:\n  level: ", kLevels[static_cast<int>(config.level)],
                      "        # debug, info, warning, error\n  format: ",
                      config.format == log::Format::kJson ? "json" : "text", "       # text (key=value) or json\n",
                      config.file.empty() ? "  # file: /var/log/causeway.log    # instead of standard error\n"
                                          : absl::StrCat("  file: \"", absl::Utf8SafeCHexEscape(config.file), "\"\n"));
}

// A setting, or a commented-out one that shows what may be set.
std::string PathYaml(absl::string_view key, const std::string& value, absl::string_view shown,
                     absl::string_view comment) {
  if (value.empty()) return absl::StrCat("# ", key, ": ", shown, "    # ", comment, "\n");
  return absl::StrCat(key, ": \"", absl::Utf8SafeCHexEscape(value), "\"    # ", comment, "\n");
}

std::string RateYaml(absl::string_view key, double bytes_per_s, absl::string_view comment) {
  if (bytes_per_s <= 0) return absl::StrCat("  # ", key, ": 1MiB/s    # ", comment, "\n");
  return absl::StrCat("  ", key, ": ", FormatBytes(static_cast<int64_t>(bytes_per_s)), "/s    # ", comment, "\n");
}

}  // namespace

std::string HostPort::ToString() const {
  bool ipv6 = host.find(':') != std::string::npos;
  return absl::StrCat(ipv6 ? "[" : "", host, ipv6 ? "]:" : ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text, bool allow_port_zero) {
  absl::Status error = absl::InvalidArgumentError(absl::StrCat(
      "found \"", absl::Utf8SafeCHexEscape(text.substr(0, 300)), "\"; allowed: HOST:PORT with a port from ",
      allow_port_zero ? 0 : 1, " to 65535, such as coord.example:7443 or [::1]:7443"));
  size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return error;
  absl::string_view host = text.substr(0, colon);
  absl::string_view port_text = text.substr(colon + 1);
  bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.size() > 255 || bracketed != (host.find(':') != absl::string_view::npos)) return error;
  for (char c : host) {
    bool allowed = absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || (bracketed && (c == ':' || c == '%'));
    if (!allowed) return error;
  }
  HostPort result{std::string(host), 0};
  bool digits = !port_text.empty() && port_text.size() <= 5 &&
                port_text.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!digits || !absl::SimpleAtoi(port_text, &result.port) || result.port > 65535) return error;
  if (result.port == 0 && !allow_port_zero) return error;
  return result;
}

TlsPaths CoordinatorTlsPaths(const std::string& dir) {
  return {.ca = JoinPath(dir, "tls/ca.pem"),
          .ca_key = JoinPath(dir, "tls/ca.key"),
          .certificate = JoinPath(dir, "tls/coordinator.pem"),
          .key = JoinPath(dir, "tls/coordinator.key")};
}

TlsPaths WorkerTlsPaths(const std::string& dir) {
  return {.ca = JoinPath(dir, "tls/ca.pem"),
          .ca_key = "",
          .certificate = JoinPath(dir, "tls/worker.pem"),
          .key = JoinPath(dir, "tls/worker.key")};
}

absl::StatusOr<CoordinatorConfig> ParseCoordinatorYaml(absl::string_view text, const std::string& file_name) {
  ASSIGN_OR_RETURN(std::unique_ptr<YamlDocument> document, YamlDocument::Parse(text, file_name));
  YamlMap root = document->root();
  std::string folder = FolderOf(file_name);
  CoordinatorConfig config;
  config.advertise = ReadHostPort(root, "advertise", std::nullopt, /*allow_port_zero=*/false);
  config.listen = ReadHostPort(root, "listen", config.listen, /*allow_port_zero=*/true);
  YamlMap http = root.Map("http");
  config.http_listen = ReadHostPort(http, "listen", config.http_listen, /*allow_port_zero=*/true);
  config.dir = ReadDir(root, folder);
  config.data_root = PathFrom(folder, root.String("data_root", ""));
  if (config.data_root.empty()) config.data_root = JoinPath(config.dir, "data");
  config.log = ReadLog(root.Map("log"), folder);
  config.heartbeat = root.Duration("heartbeat", config.heartbeat, kShortest, kLongest);
  config.lease = root.Duration("lease", config.lease, kShortest, kLongest);
  config.broken_stream_grace =
      root.Duration("broken_stream_grace", config.broken_stream_grace, absl::ZeroDuration(), kLongest);
  config.profile = root.Duration("profile_seconds", config.profile, absl::Milliseconds(100), absl::Minutes(10));
  config.spool_limit_bytes = root.Bytes("spool_limit", config.spool_limit_bytes, 1 << 20);
  config.certificate_lifetime =
      root.Duration("certificate_lifetime", config.certificate_lifetime, absl::Seconds(5), absl::Hours(24 * 3650));
  if (config.lease < 2 * config.heartbeat) {
    root.AddError(
        "lease", absl::StrCat("found ", absl::FormatDuration(config.lease), "; allowed: at least twice the heartbeat (",
                              absl::FormatDuration(config.heartbeat), ")"));
  }
  RETURN_IF_ERROR(document->Finish());
  return config;
}

absl::StatusOr<WorkerConfig> ParseWorkerYaml(absl::string_view text, const std::string& file_name) {
  ASSIGN_OR_RETURN(std::unique_ptr<YamlDocument> document, YamlDocument::Parse(text, file_name));
  YamlMap root = document->root();
  std::string folder = FolderOf(file_name);
  WorkerConfig config;
  config.coordinator = ReadHostPort(root, "coordinator", std::nullopt, /*allow_port_zero=*/false);
  config.dir = ReadDir(root, folder);
  YamlMap http = root.Map("http");
  config.http_listen = ReadHostPort(http, "listen", config.http_listen, /*allow_port_zero=*/true);
  config.log = ReadLog(root.Map("log"), folder);
  YamlMap cache = root.Map("cache");
  config.cache_limit_bytes = cache.Bytes("limit", config.cache_limit_bytes, 1 << 20);
  config.threads = static_cast<int>(root.Int("threads", 0, 0, 4096));
  config.drain_timeout = root.Duration("drain_timeout", config.drain_timeout, absl::ZeroDuration(), absl::Hours(24));
  config.device = root.Choice("device", "auto", {"auto", "cpu", "cuda"});
  YamlMap emulate = root.Map("emulate");
  config.emulate.slowdown = emulate.Double("slowdown", 1, {.min = 1, .max = 1e6});
  config.emulate.down_bytes_per_s = emulate.BytesPerSecond("down", 0);
  config.emulate.up_bytes_per_s = emulate.BytesPerSecond("up", 0);
  RETURN_IF_ERROR(document->Finish());
  return config;
}

absl::StatusOr<CoordinatorConfig> LoadCoordinatorConfig(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, RealFileSystem()->ReadFile(path, YamlDocument::kMaxBytes));
  return ParseCoordinatorYaml(text, path);
}

absl::StatusOr<WorkerConfig> LoadWorkerConfig(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, RealFileSystem()->ReadFile(path, YamlDocument::kMaxBytes));
  return ParseWorkerYaml(text, path);
}

std::string FormatCoordinatorYaml(const CoordinatorConfig& config) {
  return absl::StrCat(
      "# Configuration of causeway-coordinator; docs/reference.md describes every key. Relative paths count from this "
      "file's folder.\n",
      "advertise: \"", config.advertise.ToString(), "\"    # what workers and operators dial\n", "listen: \"",
      config.listen.ToString(), "\"          # gRPC, mutually authenticated\n", "http:\n  listen: \"",
      config.http_listen.ToString(), "\"      # /metrics, /healthz, /readyz; plain HTTP\n",
      PathYaml("dir", config.dir, ".", "state: journal, chunks, spool, checkpoints"),
      PathYaml("data_root", config.data_root, "data", "data paths of jobs lie below it"), LogYaml(config.log),
      "heartbeat: ", absl::FormatDuration(config.heartbeat), "             # of workers\n",
      "lease: ", absl::FormatDuration(config.lease), "                # a worker unheard of for so long is lost\n",
      "broken_stream_grace: ", absl::FormatDuration(config.broken_stream_grace),
      "   # and one whose connection broke, for so long\n", "profile_seconds: ", absl::FormatDuration(config.profile),
      "       # how long workers measure at least\n", "spool_limit: ", FormatBytes(config.spool_limit_bytes),
      "         # bytes of contributions not yet committed\n",
      "certificate_lifetime: ", absl::FormatDuration(config.certificate_lifetime),
      "   # renewed at two thirds of it\n");
}

std::string FormatWorkerYaml(const WorkerConfig& config) {
  std::string emulate =
      "# emulate:\n  # slowdown: 4        # compute takes so many times longer\n  # down: 1MiB/s\n  # up: 1MiB/s\n";
  if (config.emulate.any()) {
    emulate =
        absl::StrCat("emulate:\n  slowdown: ", config.emulate.slowdown, "    # compute takes so many times longer\n",
                     RateYaml("down", config.emulate.down_bytes_per_s, "from the coordinator"),
                     RateYaml("up", config.emulate.up_bytes_per_s, "to the coordinator"));
  }
  return absl::StrCat(
      "# Configuration of causeway-worker; docs/reference.md describes every key. Relative paths count from this "
      "file's folder.\n",
      "coordinator: \"", config.coordinator.ToString(), "\"\n",
      PathYaml("dir", config.dir, ".", "state: cache of chunks, training state"), "http:\n  listen: \"",
      config.http_listen.ToString(), "\"      # /metrics, /healthz, /readyz; port 0: the system chooses\n",
      LogYaml(config.log), "cache:\n  limit: ", FormatBytes(config.cache_limit_bytes), "\n",
      "threads: ", config.threads, "    # for compute; 0: all cores\n",
      "drain_timeout: ", absl::FormatDuration(config.drain_timeout),
      "   # a worker that is to end may take so long to deliver what it has done\n", "device: ", config.device,
      "  # auto, cpu, cuda\n",
      "# Makes this worker slower than it is, for trials on one machine; every listing marks it as emulated.\n",
      emulate);
}

}  // namespace causeway::jobspec
