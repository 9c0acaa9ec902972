#ifndef CAUSEWAY_SCHEDULER_BUBBLE_FILL_H_
#define CAUSEWAY_SCHEDULER_BUBBLE_FILL_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/layer_schedule.h"

namespace causeway::scheduler {

enum class FillRule {
  kNone,
  // The iteration must not take longer than without fill.
  kEnd,
  // Stricter: the fill's averages have ended when the iteration's own first layer is ready, so that none of its own is
  // delayed. An iteration without layers of its own only must not take longer.
  kBefore,
};

// "none", "end", "before".
absl::string_view FillRuleName(FillRule rule);
// Errors: InvalidArgument (another name).
absl::StatusOr<FillRule> FillRuleFromName(absl::string_view name);

// The schedule with idle time of the link used: per iteration `fill` is the longest {L, L-1, ..., l} above the first layer
// of its own that the rule allows, any `fill` it had before forgotten. No iteration gets longer; a layer near the output
// is averaged more often than once a period. O(layers * period). Source: DreamDDP, Eq. 12, in absolute time.
// Errors: InvalidArgument (an invalid schedule).
absl::StatusOr<LayerSchedule> FillBubbles(const LayerTimes& times, const LayerSchedule& schedule, FillRule rule);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_BUBBLE_FILL_H_
