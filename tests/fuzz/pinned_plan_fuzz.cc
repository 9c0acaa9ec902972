// A pinned plan (causeway.plan/1), in JSON or YAML.
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "jobspec/job_spec.h"
#include "tests/fuzz/fuzz_require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using causeway::Require;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<causeway::v1::Plan> plan = causeway::jobspec::ParsePinnedPlan(text, "plan.json");
  if (!plan.ok()) {
    Require(absl::IsInvalidArgument(plan.status()) && absl::StartsWith(plan.status().message(), "plan.json"));
    return 0;
  }
  int64_t samples = 0;
  for (const auto& worker : plan->workers()) {
    Require(!worker.worker().empty() && worker.samples() >= 0);
    samples += worker.samples();
  }
  Require(samples == plan->samples());
  return 0;
}
