#include "scheduler/layer_schedule.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace causeway::scheduler {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

absl::Status ValidateTime(absl::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", not a number of seconds from 0 up"));
}

absl::Status ValidateProfile(const LayerProfile& profile) {
  if (profile.name.empty()) return absl::InvalidArgumentError("name is empty");
  for (const auto& [field, value] :
       {std::pair("t_fp_s", profile.t_fp_s), {"t_bp_s", profile.t_bp_s}, {"t_comm_s", profile.t_comm_s}}) {
    if (absl::Status status = ValidateTime(field, value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status IterationError(size_t iteration, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("iteration ", iteration, ": ", what));
}

class Fnv1a {
 public:
  void Add(size_t number) {
    for (int byte = 0; byte < 4; ++byte) {
      hash_ = (hash_ ^ ((number >> (8 * byte)) & 0xff)) * 0x100000001b3;
    }
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

int64_t ToNanoseconds(double seconds) { return std::llround(seconds * kNanosecondsPerSecond); }

double ToSeconds(int64_t ns) { return static_cast<double>(ns) / kNanosecondsPerSecond; }

absl::StatusOr<LayerTimes> LayerTimes::Create(absl::Span<const LayerProfile> profiles) {
  if (profiles.empty()) return absl::InvalidArgumentError("layers: there are none");
  if (profiles.size() > kMaxLayers) {
    return absl::InvalidArgumentError(absl::StrCat("layers: there are ", profiles.size(), ", above ", kMaxLayers));
  }
  std::set<absl::string_view> names;
  double total_s = 0;
  for (size_t i = 0; i < profiles.size(); ++i) {
    const LayerProfile& profile = profiles[i];
    absl::Status status = ValidateProfile(profile);
    if (status.ok() && !names.insert(profile.name).second) {
      status = absl::InvalidArgumentError("name is used twice");
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("layers: layer ", i + 1, " \"", profile.name, "\": ", status.message()));
    }
    total_s += profile.t_fp_s + profile.t_bp_s + profile.t_comm_s;
  }
  if (total_s > kMaxModelSeconds) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers: t_fp_s, t_bp_s and t_comm_s sum to ", total_s, " s, above ", kMaxModelSeconds));
  }

  LayerTimes times;
  for (const LayerProfile& profile : profiles) {
    times.forward_ns_.push_back(ToNanoseconds(profile.t_fp_s));
    times.backward_ns_.push_back(ToNanoseconds(profile.t_bp_s));
    times.comm_ns_.push_back(ToNanoseconds(profile.t_comm_s));
    times.total_forward_ns_ += times.forward_ns_.back();
    times.total_comm_ns_ += times.comm_ns_.back();
  }
  times.backward_end_ns_.resize(profiles.size());
  int64_t end_ns = 0;
  for (int layer = times.layers(); layer >= 1; --layer) {
    end_ns += times.backward_ns(layer);
    times.backward_end_ns_[Index(layer)] = end_ns;
  }
  return times;
}

absl::Status Validate(const LayerSchedule& schedule, int layers) {
  if (schedule.iterations.empty() || schedule.iterations.size() > kMaxPeriod) {
    return absl::InvalidArgumentError(
        absl::StrCat("a schedule of ", schedule.iterations.size(), " iterations, not 1..", kMaxPeriod));
  }
  std::vector<bool> scheduled(layers + 1);
  int64_t count = 0;
  for (size_t h = 0; h < schedule.iterations.size(); ++h) {
    const ScheduledIteration& iteration = schedule.iterations[h];
    int above = layers + 1;
    for (const int layer : iteration.layers) {
      if (layer < 1 || layer > layers) return IterationError(h, absl::StrCat("there is no layer ", layer));
      if (layer >= above) return IterationError(h, absl::StrCat("layer ", layer, " is not in backward order"));
      if (scheduled[layer]) return IterationError(h, absl::StrCat("layer ", layer, " is in two iterations"));
      scheduled[layer] = true;
      above = layer;
      ++count;
    }
    const int floor = iteration.layers.empty() ? 0 : iteration.layers.front();
    int expected = layers;
    for (const int layer : iteration.fill) {
      if (layer != expected) return IterationError(h, absl::StrCat("the fill has layer ", layer, ", not ", expected));
      if (layer <= floor) return IterationError(h, absl::StrCat("the fill has layer ", layer, ", not above ", floor));
      --expected;
    }
  }
  if (count == layers) return absl::OkStatus();
  const auto missing = std::find(scheduled.begin() + 1, scheduled.end(), false) - scheduled.begin();
  return absl::InvalidArgumentError(absl::StrCat("layer ", missing, " is in no iteration"));
}

std::vector<int> SynchronizedLayers(const ScheduledIteration& iteration) {
  std::vector<int> layers = iteration.fill;
  layers.insert(layers.end(), iteration.layers.begin(), iteration.layers.end());
  return layers;
}

uint64_t ScheduleHash(const LayerSchedule& schedule) {
  Fnv1a hash;
  hash.Add(schedule.iterations.size());
  for (const ScheduledIteration& iteration : schedule.iterations) {
    for (const std::vector<int>* layers : {&iteration.layers, &iteration.fill}) {
      hash.Add(layers->size());
      for (const int layer : *layers) hash.Add(static_cast<size_t>(layer));
    }
  }
  return hash.hash();
}

int64_t CommEndNs(const LayerTimes& times, absl::Span<const int> layers) {
  int64_t end_ns = 0;
  for (const int layer : layers) end_ns = std::max(times.backward_end_ns(layer), end_ns) + times.comm_ns(layer);
  return end_ns;
}

std::vector<CommSpan> CommSpans(const LayerTimes& times, absl::Span<const int> layers) {
  std::vector<CommSpan> spans;
  spans.reserve(layers.size());
  int64_t end_ns = 0;
  for (const int layer : layers) {
    const int64_t start_ns = std::max(times.backward_end_ns(layer), end_ns);
    end_ns = start_ns + times.comm_ns(layer);
    spans.push_back({.start_ns = start_ns, .end_ns = end_ns});
  }
  return spans;
}

absl::StatusOr<ScheduleTiming> TimeSchedule(const LayerTimes& times, const LayerSchedule& schedule) {
  if (absl::Status status = Validate(schedule, times.layers()); !status.ok()) return status;
  ScheduleTiming timing;
  for (const ScheduledIteration& iteration : schedule.iterations) {
    const int64_t comm_end_ns = CommEndNs(times, SynchronizedLayers(iteration));
    const int64_t exposed_ns = std::max<int64_t>(0, comm_end_ns - times.total_backward_ns());
    const int64_t time_ns = times.total_forward_ns() + times.total_backward_ns() + exposed_ns;
    timing.iterations.push_back({.comm_end_ns = comm_end_ns, .exposed_ns = exposed_ns, .time_ns = time_ns});
    timing.overflow_ns += exposed_ns;
    timing.period_ns += time_ns;
  }
  timing.objective_ns = timing.period_ns - schedule.period() * times.total_forward_ns();
  return timing;
}

}  // namespace causeway::scheduler
