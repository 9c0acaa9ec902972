// coordinator.yaml and worker.yaml: what is accepted can be written and read back as the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "jobspec/config.h"
#include "tests/fuzz/fuzz_require.h"

namespace {

using causeway::Require;

template <typename Config>
void Check(const absl::StatusOr<Config>& config, const std::string& file,
           absl::StatusOr<Config> (*parse)(absl::string_view, const std::string&),
           std::string (*format)(const Config&)) {
  if (!config.ok()) {
    Require(absl::IsInvalidArgument(config.status()) && absl::StartsWith(config.status().message(), file));
    return;
  }
  const absl::StatusOr<Config> again = parse(format(*config), file);
  Require(again.ok());
  // Times and sizes are written rounded to what people read; the rest is the same.
  Require(again->dir == config->dir && again->http_listen == config->http_listen && again->log == config->log);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway::jobspec;  // NOLINT
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string coordinator = "/etc/causeway/coordinator.yaml", worker = "/etc/causeway/worker.yaml";
  Check<CoordinatorConfig>(ParseCoordinatorYaml(text, coordinator), coordinator, ParseCoordinatorYaml,
                           FormatCoordinatorYaml);
  Check<WorkerConfig>(ParseWorkerYaml(text, worker), worker, ParseWorkerYaml, FormatWorkerYaml);
  return 0;
}
