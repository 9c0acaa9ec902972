// coordinator.yaml, worker.yaml and an operator's context.yaml: what is accepted can be written and read back as the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "cli/context.h"
#include "jobspec/config.h"
#include "tests/fakes/fault_file.h"
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

void CheckContext(const std::string& text) {
  using namespace causeway;  // NOLINT
  FaultDisk disk;
  const auto load = [&disk](const std::string& content) {
    Require(disk.MakeDirs("/context", 0755).ok() &&
            disk.WriteFileAtomically("/context/context.yaml", content, 0644).ok());
    return cli::LoadContext("/context", &disk);
  };
  const absl::StatusOr<cli::Context> context = load(text);
  if (!context.ok()) {
    Require(absl::IsInvalidArgument(context.status()) || absl::IsResourceExhausted(context.status()));
    return;
  }
  const absl::StatusOr<cli::Context> again = load(cli::ContextYaml(*context));
  Require(again.ok() && again->coordinator.ToString() == context->coordinator.ToString() &&
          again->operator_name == context->operator_name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway::jobspec;  // NOLINT
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string coordinator = "/etc/causeway/coordinator.yaml", worker = "/etc/causeway/worker.yaml";
  Check<CoordinatorConfig>(ParseCoordinatorYaml(text, coordinator), coordinator, ParseCoordinatorYaml,
                           FormatCoordinatorYaml);
  Check<WorkerConfig>(ParseWorkerYaml(text, worker), worker, ParseWorkerYaml, FormatWorkerYaml);
  CheckContext(std::string(text));
  return 0;
}
