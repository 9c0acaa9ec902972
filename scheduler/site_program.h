// What a site's workers do in each iteration, layer by layer, as the simulator runs it: the schedules themselves, written out
// as collectives with the moment at which each may start. Nothing here says how long an iteration takes.
#ifndef CAUSEWAY_SCHEDULER_SITE_PROGRAM_H_
#define CAUSEWAY_SCHEDULER_SITE_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/bubble_fill.h"
#include "scheduler/layer_schedule.h"
#include "scheduler/sync_costs.h"

namespace causeway::scheduler {

// One collective among all workers of a site. The site's link carries one at a time, first come, first served; it begins when
// every worker has come to its moment and the link is free.
struct ProgramCollective {
  enum class When {
    kBeforeForward,   // Of `layer`, which waits for it.
    kBeforeBackward,  // Of `layer`, which waits for it.
    kAfterBackward,   // Of `layer`; runs under the backward of the layers below.
    kAfterLast,       // After the backward of layer 1.
  };
  When when = When::kAfterBackward;
  int layer = 0;  // 1..L
  double duration_s = 0;
  double bytes = 0;  // For the timeline; 0 where unknown.

  friend bool operator==(const ProgramCollective&, const ProgramCollective&) = default;
};

// The next iteration begins when the worker's backward and all collectives of the iteration have ended. An iteration without
// collectives ends for each worker by itself.
struct SiteProgram {
  std::vector<double> forward_s;   // [layers]; forward_s[l - 1] is layer l's.
  std::vector<double> backward_s;  // [layers]
  // [period]; iteration r, counted from 0, does iterations[r mod period]. Each list is in the order in which the link is
  // asked for: by `when` (before forward by rising layer, then by falling layer what is before and after each backward, then
  // after the last).
  std::vector<std::vector<ProgramCollective>> iterations;

  int layers() const { return static_cast<int>(forward_s.size()); }
};

// Errors: InvalidArgument (no layers or no iterations, times that are negative or not finite, a layer outside 1..L, a list
// out of order).
absl::Status Validate(const SiteProgram& program);

// The programs of the methods. `layer_bytes` is [layers] or empty (unknown). Durations are the layers' times, in whole
// nanoseconds. Errors of all: InvalidArgument (layer_bytes of another length or negative; a period, schedule or list of merged
// layers that does not fit).

// Nothing is exchanged within the site.
absl::StatusOr<SiteProgram> ProgramNone(const LayerTimes& times);
// Every layer's gradients, after the last backward, in every iteration.
absl::StatusOr<SiteProgram> ProgramSsgd(const LayerTimes& times, absl::Span<const double> layer_bytes = {});
// Merged layers' gradients (MergeSmallLayers), each when its last layer's backward has ended, in every iteration.
absl::StatusOr<SiteProgram> ProgramWfbp(const LayerTimes& times, absl::Span<const MergedLayers> merged,
                                        absl::Span<const double> layer_bytes = {});
// Every layer's parameters, after the last backward of every period-th iteration.
absl::StatusOr<SiteProgram> ProgramFlsgd(const LayerTimes& times, int period,
                                         absl::Span<const double> layer_bytes = {});
// The layers of the schedule, `fill` first, each when its backward has ended (plsgd_enp, dreamddp).
absl::StatusOr<SiteProgram> ProgramOfSchedule(const LayerTimes& times, const LayerSchedule& schedule,
                                              absl::Span<const double> layer_bytes = {});

// The collectives of one layer under fsdp or hsdp; see CostOfCollective for their seconds.
struct ShardedLayer {
  double gather_s = 0;     // Before its forward and again before its backward.
  double scatter_s = 0;    // After its backward.
  double replicate_s = 0;  // After the scatter, among replicas; 0 for fsdp.
  double bytes = 0;
};
// `sharded` is [layers]; nothing is fetched ahead, and t_comm_s has no meaning. (fsdp, hsdp)
absl::StatusOr<SiteProgram> ProgramSharded(const LayerTimes& times, absl::Span<const ShardedLayer> sharded);

// The program of one of the methods that CostOf knows, from its options; `fill` is for kDreamDdp.
// Errors: also those of the scheduler.
absl::StatusOr<SiteProgram> ProgramOf(SyncMethod method, const LayerTimes& times, const SyncOptions& options,
                                      FillRule fill = FillRule::kNone, absl::Span<const double> layer_bytes = {});

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_SITE_PROGRAM_H_
