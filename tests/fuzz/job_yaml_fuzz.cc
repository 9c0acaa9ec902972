// job.yaml: a specification in which everything is filled in, or errors that name the file.
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "jobspec/job_spec.h"
#include "tests/fuzz/fuzz_require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using causeway::Require;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<causeway::v1::JobSpec> spec = causeway::jobspec::ParseJobYaml(text, "job.yaml");
  if (!spec.ok()) {
    Require(absl::IsInvalidArgument(spec.status()) && absl::StartsWith(spec.status().message(), "job.yaml:"));
    return 0;
  }
  Require(!spec->name().empty() && causeway::jobspec::SamplesToTrain(*spec, 60000) >= 0);
  return 0;
}
