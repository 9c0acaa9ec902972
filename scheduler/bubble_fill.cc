#include "scheduler/bubble_fill.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

// By when the fill's averages must have ended.
int64_t FillDeadlineNs(const LayerTimes& times, const std::vector<int>& own, FillRule rule) {
  if (own.empty()) return times.total_backward_ns();
  if (rule == FillRule::kBefore) return times.backward_end_ns(own.front());
  // A link that is busy until t ends the iteration's own averages at the later of what they took without and of t plus
  // their sum.
  int64_t own_ns = 0;
  for (const int layer : own) own_ns += times.comm_ns(layer);
  return std::max(times.total_backward_ns(), CommEndNs(times, own)) - own_ns;
}

}  // namespace

absl::string_view FillRuleName(FillRule rule) {
  switch (rule) {
    case FillRule::kNone: return "none";
    case FillRule::kEnd: return "end";
    case FillRule::kBefore: return "before";
  }
  return "";
}

absl::StatusOr<FillRule> FillRuleFromName(absl::string_view name) {
  for (const FillRule rule : {FillRule::kNone, FillRule::kEnd, FillRule::kBefore}) {
    if (name == FillRuleName(rule)) return rule;
  }
  return absl::InvalidArgumentError(absl::StrCat("fill \"", name, "\" is none of none, end, before"));
}

absl::StatusOr<LayerSchedule> FillBubbles(const LayerTimes& times, const LayerSchedule& schedule, FillRule rule) {
  if (absl::Status status = Validate(schedule, times.layers()); !status.ok()) return status;
  LayerSchedule filled = schedule;
  for (ScheduledIteration& iteration : filled.iterations) {
    iteration.fill.clear();
    if (rule == FillRule::kNone) continue;
    const int64_t deadline_ns = FillDeadlineNs(times, iteration.layers, rule);
    const int floor = iteration.layers.empty() ? 0 : iteration.layers.front();
    int64_t end_ns = 0;
    for (int layer = times.layers(); layer > floor; --layer) {
      end_ns = std::max(times.backward_end_ns(layer), end_ns) + times.comm_ns(layer);
      if (end_ns > deadline_ns) break;
      iteration.fill.push_back(layer);
    }
  }
  return filled;
}

}  // namespace causeway::scheduler
