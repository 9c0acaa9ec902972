// Finds the schedule (layer_schedule.h) of least objective P, by several ways of looking for it.
//
// All but kFree cut the backward order into `period` consecutive pieces, some of them possibly empty, and give piece h to
// iteration h; kFree may give any layer to any iteration. No result has fill (bubble_fill.h). The same times and period
// give the same schedule everywhere: each function says how ties are broken.
#ifndef CAUSEWAY_SCHEDULER_LAYER_SCHEDULERS_H_
#define CAUSEWAY_SCHEDULER_LAYER_SCHEDULERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/layer_schedule.h"

namespace causeway::scheduler {

enum class LayerScheduler { kEqual, kDreamDdp, kBrute, kExact, kFree };

// "equal", "dreamddp", "brute", "exact", "free".
absl::string_view LayerSchedulerName(LayerScheduler scheduler);
// Errors: InvalidArgument (another name).
absl::StatusOr<LayerScheduler> LayerSchedulerFromName(absl::string_view name);

struct ScheduleResult {
  LayerSchedule schedule;
  int64_t objective_ns = 0;  // P of the schedule (ScheduleTiming).
  // No schedule of the scheduler's space costs less: of contiguous cuts, or from kFree of any assignment at all. The
  // former is the optimum itself.
  int64_t lower_bound_ns = 0;
  bool optimal = false;  // objective_ns == lower_bound_ns: proven optimal in the scheduler's space.
  // Schedules compared: 1 by kEqual and kExact, the leaves of the search by kDreamDdp, the cuts by kBrute, the changes
  // tried by kFree. At most the largest int64.
  int64_t candidates = 0;
};

// Any of those below.
absl::StatusOr<ScheduleResult> ScheduleLayers(LayerScheduler scheduler, const LayerTimes& times, int period);

// All of them: errors: InvalidArgument (a period outside 1..kMaxPeriod).

// Pieces of equal numbers of layers (PLSGD-ENP): piece h of H ends after h * L / H layers, rounded, halves upward.
// O(layers + period), and ScheduleExact's for the bound.
absl::StatusOr<ScheduleResult> ScheduleEqual(const LayerTimes& times, int period);

// DreamDDP's Algorithm 2: take a layer into the iteration while its average is hidden, go on to the next iteration once
// something is exposed, try both in between. Exact over contiguous cuts. The first of the best leaves wins, where the
// search takes a layer before it leaves it. Leaves are counted as if the search remembered nothing, but it does:
// O(layers^2 + layers * period).
absl::StatusOr<ScheduleResult> ScheduleDreamDdp(const LayerTimes& times, int period);

// Every one of the C(L + period - 1, period - 1) cuts, for comparison. Ties as in ScheduleExact.
// Errors: also InvalidArgument (more than kMaxBruteCuts cuts).
inline constexpr int64_t kMaxBruteCuts = int64_t{1} << 28;
absl::StatusOr<ScheduleResult> ScheduleBrute(const LayerTimes& times, int period);

// The optimum over contiguous cuts, by dynamic programming. Of several the one whose last piece is shortest, among those
// the one whose last but one is, and so on. O(H * layers * log(layers)) time and O(H * layers) memory, H the smaller of
// period and layers.
absl::StatusOr<ScheduleResult> ScheduleExact(const LayerTimes& times, int period);

// Starts from ScheduleExact and moves or exchanges single layers between iterations as long as that lowers P, the first
// such change in the order of layers (from the output) and iterations. Never worse than ScheduleExact; not always the
// optimum, which lower_bound_ns bounds. At most kMaxFreeChanges changes are tried, at O(layers / period) each in the mean.
inline constexpr int64_t kMaxFreeChanges = int64_t{1} << 21;
absl::StatusOr<ScheduleResult> ScheduleFree(const LayerTimes& times, int period);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_LAYER_SCHEDULERS_H_
