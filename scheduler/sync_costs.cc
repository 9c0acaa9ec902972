#include "scheduler/sync_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

SyncCost Mean(int64_t period_ns, int64_t exposed_ns, int period) {
  return {.iteration_s = ToSeconds(period_ns) / period, .exposed_s = ToSeconds(exposed_ns) / period};
}

absl::StatusOr<SyncCost> CostOfScheduler(LayerScheduler scheduler, const LayerTimes& times, int period) {
  const absl::StatusOr<ScheduleResult> result = ScheduleLayers(scheduler, times, period);
  if (!result.ok()) return result.status();
  return Mean(period * times.total_forward_ns() + result->objective_ns,
              result->objective_ns - period * times.total_backward_ns(), period);
}

}  // namespace

absl::string_view SyncMethodName(SyncMethod method) {
  switch (method) {
    case SyncMethod::kSsgd: return "ssgd";
    case SyncMethod::kWfbp: return "wfbp";
    case SyncMethod::kFlsgd: return "flsgd";
    case SyncMethod::kPlsgdEnp: return "plsgd_enp";
    case SyncMethod::kDreamDdp: return "dreamddp";
  }
  return "";
}

absl::StatusOr<SyncMethod> SyncMethodFromName(absl::string_view name) {
  for (const SyncMethod method :
       {SyncMethod::kSsgd, SyncMethod::kWfbp, SyncMethod::kFlsgd, SyncMethod::kPlsgdEnp, SyncMethod::kDreamDdp}) {
    if (name == SyncMethodName(method)) return method;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("method \"", name, "\" is none of ssgd, wfbp, flsgd, plsgd_enp, dreamddp"));
}

absl::StatusOr<std::vector<MergedLayers>> MergeSmallLayers(const LayerTimes& times, double startup_s) {
  if (!(startup_s >= 0 && startup_s <= kMaxModelSeconds)) {
    return absl::InvalidArgumentError(absl::StrCat("startup_s is ", startup_s, ", not in 0..", kMaxModelSeconds));
  }
  const int64_t startup_ns = ToNanoseconds(startup_s);
  // end_ns[l]: when the collectives of layers L..l can have ended at the earliest; before[l]: the last of these.
  std::vector<int64_t> end_ns(times.layers() + 2, std::numeric_limits<int64_t>::max());
  std::vector<MergedLayers> before(times.layers() + 2);
  end_ns[times.layers() + 1] = 0;
  for (int last = times.layers(); last >= 1; --last) {
    int64_t startup_part_ns = 0, rest_ns = 0;
    for (int first = last; first <= times.layers(); ++first) {
      const int64_t own_startup_ns = std::min(startup_ns, times.comm_ns(first));
      startup_part_ns = std::max(startup_part_ns, own_startup_ns);
      rest_ns += times.comm_ns(first) - own_startup_ns;
      const int64_t comm_ns = startup_part_ns + rest_ns;
      const int64_t candidate_ns = std::max(times.backward_end_ns(last), end_ns[first + 1]) + comm_ns;
      if (candidate_ns < end_ns[last]) {
        end_ns[last] = candidate_ns;
        before[last] = {.first = first, .last = last, .comm_ns = comm_ns};
      }
    }
  }
  std::vector<MergedLayers> merged;
  for (int last = 1; last <= times.layers(); last = merged.back().first + 1) merged.push_back(before[last]);
  std::reverse(merged.begin(), merged.end());
  return merged;
}

int64_t CommEndNs(const LayerTimes& times, absl::Span<const MergedLayers> merged) {
  int64_t end_ns = 0;
  for (const MergedLayers& layers : merged) {
    end_ns = std::max(times.backward_end_ns(layers.last), end_ns) + layers.comm_ns;
  }
  return end_ns;
}

absl::StatusOr<SyncCost> CostOf(SyncMethod method, const LayerTimes& times, const SyncOptions& options) {
  if (options.period < 1 || options.period > kMaxPeriod) {
    return absl::InvalidArgumentError(absl::StrCat("period is ", options.period, ", not in 1..", kMaxPeriod));
  }
  const int64_t local_ns = times.total_forward_ns() + times.total_backward_ns();
  const int64_t comm_ns = times.total_comm_ns();
  switch (method) {
    case SyncMethod::kSsgd: return Mean(local_ns + comm_ns, comm_ns, 1);
    case SyncMethod::kWfbp: {
      const absl::StatusOr<std::vector<MergedLayers>> merged = MergeSmallLayers(times, options.startup_s);
      if (!merged.ok()) return merged.status();
      const int64_t exposed_ns = std::max<int64_t>(0, CommEndNs(times, *merged) - times.total_backward_ns());
      return Mean(local_ns + exposed_ns, exposed_ns, 1);
    }
    case SyncMethod::kFlsgd: return Mean(options.period * local_ns + comm_ns, comm_ns, options.period);
    case SyncMethod::kPlsgdEnp: return CostOfScheduler(LayerScheduler::kEqual, times, options.period);
    case SyncMethod::kDreamDdp: return CostOfScheduler(options.scheduler, times, options.period);
  }
  return absl::InvalidArgumentError("no such method");
}

}  // namespace causeway::scheduler
