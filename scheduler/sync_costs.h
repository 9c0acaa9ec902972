// What an iteration takes under each of the methods by which a group keeps in step, in closed form. A method that
// averages once a period is charged the mean of the period's iterations. Source: DreamDDP and the methods it compares with.
#ifndef CAUSEWAY_SCHEDULER_SYNC_COSTS_H_
#define CAUSEWAY_SCHEDULER_SYNC_COSTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/layer_schedule.h"
#include "scheduler/layer_schedulers.h"

namespace causeway::scheduler {

enum class SyncMethod {
  kSsgd,      // All gradients, after backward, in every iteration.
  kWfbp,      // Gradients layer by layer, small layers merged, during backward, in every iteration.
  kFlsgd,     // All parameters, after the last backward of a period.
  kPlsgdEnp,  // Parameters by ScheduleEqual, during backward, without fill.
  kDreamDdp,  // Parameters by a given scheduler, during backward, with or without fill (which costs no time).
};

// "ssgd", "wfbp", "flsgd", "plsgd_enp", "dreamddp".
absl::string_view SyncMethodName(SyncMethod method);
// Errors: InvalidArgument (another name).
absl::StatusOr<SyncMethod> SyncMethodFromName(absl::string_view name);

// Layers whose gradients go into one collective: first, first - 1, ..., last. It starts when backward of `last` has ended.
struct MergedLayers {
  int first = 0;
  int last = 0;
  int64_t comm_ns = 0;

  friend bool operator==(const MergedLayers&, const MergedLayers&) = default;
};

// Divides the layers into merged ones, in backward order, such that the last collective ends as early as it can. Of every
// layer's communication `startup_s` is the collective's own, and paid once for merged layers (a layer that takes less pays
// what it takes). With 0 no layers are merged. Ties: the fewer layers are merged, the last collective's first.
// O(layers^2).
// Errors: InvalidArgument (a start-up time that is negative, not finite or above kMaxModelSeconds).
absl::StatusOr<std::vector<MergedLayers>> MergeSmallLayers(const LayerTimes& times, double startup_s);

// When the last of the collectives has ended, from the start of backward.
int64_t CommEndNs(const LayerTimes& times, absl::Span<const MergedLayers> merged);

struct SyncCost {
  double iteration_s = 0;  // Forward included; the mean over a period.
  double exposed_s = 0;    // What of it neither forward nor backward accounts for; the mean over a period.
};

struct SyncOptions {
  int period = 1;                                     // 1..kMaxPeriod; without meaning for kSsgd and kWfbp.
  LayerScheduler scheduler = LayerScheduler::kExact;  // For kDreamDdp.
  double startup_s = 0;                               // For kWfbp: see MergeSmallLayers.
};

// ssgd: f + b + c;  wfbp: f + max(b, end of the last collective);  flsgd: f + b + c / H;  plsgd_enp, dreamddp: f + P / H
// with f, b, c the sums of all layers' forward, backward and communication, H the period.
// Errors: InvalidArgument (an option out of range, those of the scheduler).
absl::StatusOr<SyncCost> CostOf(SyncMethod method, const LayerTimes& times, const SyncOptions& options);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_SYNC_COSTS_H_
