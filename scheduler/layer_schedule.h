// Partial synchronization: which layers a group averages in which iteration, and how long an iteration takes then.
// Schedules are found in layer_schedulers.h, completed in bubble_fill.h, and compared with other methods in sync_costs.h.
//
// Layers have the numbers 1 (input) to L (output). Backward visits L, L-1, ..., 1, and "backward order" is this one. A
// period of H iterations repeats; iteration r of the training, counted from 0 and never reset, is the schedule's
// iteration r mod H. Source: DreamDDP, Eq. 7 and 8, with the stalls of the communication counted.
//
// Inside, times are integer nanoseconds, so that the same profiles give the same schedule on every platform and every
// member of a group. All functions are pure and thread-safe.
#ifndef CAUSEWAY_SCHEDULER_LAYER_SCHEDULE_H_
#define CAUSEWAY_SCHEDULER_LAYER_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/model.h"

namespace causeway::scheduler {

inline constexpr int kMaxLayers = 4096;
inline constexpr int kMaxPeriod = 4096;
// Of all layers' forward, backward and communication together. A period's sum then fits an int64 of nanoseconds.
inline constexpr double kMaxModelSeconds = 1e6;

// Nanoseconds, to the nearest, halves upward. Requires 0 <= seconds <= kMaxModelSeconds.
int64_t ToNanoseconds(double seconds);
// Seconds; the double nearest to ns / 1e9 for |ns| up to 2^53.
double ToSeconds(int64_t ns);

// A model's layer times, checked and rounded to nanoseconds. Immutable; layers are given by number, 1..layers().
class LayerTimes {
 public:
  // `profiles` is in forward order: profiles[l - 1] is layer l. O(layers * log(layers)).
  // Errors: InvalidArgument, naming layer and field (no layers or more than kMaxLayers, a time that is negative or not
  // finite, a name that is empty or used twice, times that sum to more than kMaxModelSeconds).
  static absl::StatusOr<LayerTimes> Create(absl::Span<const LayerProfile> profiles);

  int layers() const { return static_cast<int>(backward_ns_.size()); }
  int64_t forward_ns(int layer) const { return forward_ns_[Index(layer)]; }
  int64_t backward_ns(int layer) const { return backward_ns_[Index(layer)]; }
  int64_t comm_ns(int layer) const { return comm_ns_[Index(layer)]; }
  // From the start of backward until the layer's backward has ended; falls with the number of the layer.
  int64_t backward_end_ns(int layer) const { return backward_end_ns_[Index(layer)]; }

  // Of all layers.
  int64_t total_forward_ns() const { return total_forward_ns_; }
  int64_t total_backward_ns() const { return backward_end_ns_.front(); }
  int64_t total_comm_ns() const { return total_comm_ns_; }

 private:
  LayerTimes() = default;
  static size_t Index(int layer) { return static_cast<size_t>(layer - 1); }

  // [layers]
  std::vector<int64_t> forward_ns_;
  std::vector<int64_t> backward_ns_;
  std::vector<int64_t> comm_ns_;
  std::vector<int64_t> backward_end_ns_;
  int64_t total_forward_ns_ = 0;
  int64_t total_comm_ns_ = 0;
};

// The layers averaged in one iteration of a period.
struct ScheduledIteration {
  std::vector<int> layers;  // In backward order (falling numbers); may be empty.
  // Further layers, averaged only because the link would idle: {L, L-1, ..., l}, all above the first of `layers`. They
  // enter the link first, so that `fill` followed by `layers` is in backward order.
  std::vector<int> fill;

  friend bool operator==(const ScheduledIteration&, const ScheduledIteration&) = default;
};

// Each layer is in `layers` of exactly one iteration.
struct LayerSchedule {
  std::vector<ScheduledIteration> iterations;  // [period]

  int period() const { return static_cast<int>(iterations.size()); }
  friend bool operator==(const LayerSchedule&, const LayerSchedule&) = default;
};

// Whether `schedule` is one for a model of `layers` layers, as described above. O(layers * period).
// Errors: InvalidArgument, naming the iteration (counted from 0) and what is wrong.
absl::Status Validate(const LayerSchedule& schedule, int layers);

// Everything averaged in an iteration, `fill` included, in backward order.
std::vector<int> SynchronizedLayers(const ScheduledIteration& iteration);

// 64 bits that tell schedules apart, so that the members of a group can compare theirs: FNV-1a over the period, then per
// iteration the number of `layers`, the layers, the number of `fill`, the fill, each number as four bytes, lowest first.
// The same in every version and on every platform.
uint64_t ScheduleHash(const LayerSchedule& schedule);

// When the averages of `layers`, which are in backward order, have ended, from the start of backward: each starts when its
// layer's backward has ended and the one before it has, on one link. Stalls count. 0 without layers. O(layers).
int64_t CommEndNs(const LayerTimes& times, absl::Span<const int> layers);

// When each of those averages is on the link, in the same order.
struct CommSpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  friend bool operator==(const CommSpan&, const CommSpan&) = default;
};
std::vector<CommSpan> CommSpans(const LayerTimes& times, absl::Span<const int> layers);

struct IterationTiming {
  int64_t comm_end_ns = 0;  // CommEndNs of all synchronized layers.
  int64_t exposed_ns = 0;   // max(0, comm_end - backward): what backward does not hide.
  int64_t time_ns = 0;      // forward + max(backward, comm_end)
};

struct ScheduleTiming {
  std::vector<IterationTiming> iterations;  // [period]
  // The objective P: the sum of max(backward, comm_end) over the period, forward not included.
  int64_t objective_ns = 0;
  int64_t overflow_ns = 0;  // P - period * backward, the sum of what is exposed; never below layer 1's communication.
  int64_t period_ns = 0;    // P + period * forward: the sum of the iterations' times.
};

// `fill` included, which a schedule by bubble_fill.h does not cost anything. O(layers * period).
// Errors: InvalidArgument (an invalid schedule).
absl::StatusOr<ScheduleTiming> TimeSchedule(const LayerTimes& times, const LayerSchedule& schedule);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_LAYER_SCHEDULE_H_
