// The input parser of `causeway plan`: whatever the bytes, it answers with an input that scheduler/ accepts, or with an
// error that names the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "cli/plan_input.h"
#include "cli/plan_result.h"
#include "cli/plan_tables.h"

namespace {

void Require(bool condition) {
  if (!condition) abort();
}

// Whether planning takes no time to speak of: what is fuzzed is the parser, and what it lets through.
bool IsSmall(const causeway::cli::PlanInput& input) {
  if (input.allocation.has_value() && (input.allocation->problem.devices.size() > 4 ||
                                       input.allocation->method != causeway::scheduler::AllocationMethod::kUniform)) {
    return false;
  }
  return !input.schedule.has_value() ||
         (input.schedule->layers.size() <= 16 && input.schedule->options.period <= 64 &&
          input.schedule->options.scheduler != causeway::scheduler::LayerScheduler::kBrute);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using causeway::cli::Json;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<causeway::cli::PlanInput> input = causeway::cli::ParsePlanInput(text, "input.yaml");
  if (!input.ok()) {
    Require(absl::IsInvalidArgument(input.status()) && absl::StartsWith(input.status().message(), "input.yaml:"));
    return 0;
  }
  if (!IsSmall(*input)) return 0;
  const absl::StatusOr<causeway::cli::PlanResult> plan = causeway::cli::MakePlanResult(*input, /*compare=*/false);
  Require(plan.ok());
  const std::string document = causeway::cli::JsonDocument("causeway.plan/1", causeway::cli::PlanToJson(*plan));
  Require(Json::parse(document, nullptr, /*allow_exceptions=*/false).is_object());
  Require(!causeway::cli::PlanText(*plan, 80).empty());
  return 0;
}
