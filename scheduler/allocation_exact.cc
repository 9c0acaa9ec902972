#include "scheduler/allocation_exact.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace causeway::scheduler {
namespace {

// Two allocations whose objectives differ by less are equally good.
constexpr double kRelativeTolerance = 1e-12;
// Nodes, and nodes times devices, that the search may visit.
constexpr int64_t kMaxNodes = 4'000'000;
constexpr int64_t kMaxWork = 200'000'000;

// The samples that one device can take as a function of a time threshold: `unit` samples more at each breakpoint
// offset + k * step, k = 1..max_steps. Thresholds are only ever compared with breakpoints computed by TimeOf, so a
// threshold that is a breakpoint always includes it: rounding cannot lose a sample.
class Staircase {
 public:
  Staircase(double offset, double step, int64_t unit, int64_t limit)
      : offset_(offset), step_(step), unit_(unit), max_steps_(internal::StepsPerEpoch(limit, unit)) {
    if (max_steps_ > 0) {
      first_ = TimeOf(1);
      last_ = TimeOf(max_steps_);
    }
  }

  double first() const { return first_; }  // Infinite without steps.
  double last() const { return last_; }    // 0 without steps.

  // At most unit * max_steps, which may be above the limit by less than a unit.
  int64_t SamplesWithin(double threshold) const { return unit_ * StepsWithin(threshold); }

  // 0 when there is none.
  double BreakpointUpTo(double threshold) const {
    const int64_t steps = StepsWithin(threshold);
    return steps == 0 ? 0 : TimeOf(steps);
  }

  // Infinite when there is none.
  double BreakpointAbove(double threshold) const {
    int64_t steps = StepsWithin(threshold);
    return steps == max_steps_ ? std::numeric_limits<double>::infinity() : TimeOf(steps + 1);
  }

 private:
  double TimeOf(int64_t steps) const { return offset_ + static_cast<double>(steps) * step_; }

  // The largest k with TimeOf(k) <= threshold.
  int64_t StepsWithin(double threshold) const {
    if (threshold < first_) return 0;
    if (threshold >= last_) return max_steps_;
    const auto guess = static_cast<int64_t>((threshold - offset_) / step_);
    for (int64_t steps : {guess, guess - 1, guess + 1}) {
      if (TimeOf(steps) <= threshold && threshold < TimeOf(steps + 1)) return steps;
    }
    // A step so small beside the offset that the division says little.
    int64_t within = 1, above = max_steps_;
    while (above - within > 1) {
      const int64_t middle = within + (above - within) / 2;
      (TimeOf(middle) <= threshold ? within : above) = middle;
    }
    return within;
  }

  double offset_;
  double step_;
  int64_t unit_;
  int64_t max_steps_;
  double first_ = std::numeric_limits<double>::infinity();
  double last_ = 0;
};

// The staircases of all devices on one of the two axes: sending time or epoch time.
class Axis {
 public:
  void Add(const Staircase& staircase) { staircases_.push_back(staircase); }

  std::vector<int64_t> SamplesWithin(double threshold) const {
    std::vector<int64_t> samples;
    samples.reserve(staircases_.size());
    for (const Staircase& staircase : staircases_) samples.push_back(staircase.SamplesWithin(threshold));
    return samples;
  }

  double BreakpointUpTo(double threshold) const {
    double largest = 0;
    for (const Staircase& staircase : staircases_) largest = std::max(largest, staircase.BreakpointUpTo(threshold));
    return largest;
  }

  double BreakpointAbove(double threshold) const {
    double least = std::numeric_limits<double>::infinity();
    for (const Staircase& staircase : staircases_) least = std::min(least, staircase.BreakpointAbove(threshold));
    return least;
  }

  // Whether the devices can take `total` samples within the threshold, each at most its limit. Since a limit is at most
  // `total`, the sum stays below 2 * total.
  bool Holds(int64_t total, double threshold, absl::Span<const int64_t> limits) const {
    int64_t sum = 0;
    for (size_t i = 0; i < staircases_.size() && sum < total; ++i) {
      sum += std::min(limits[i], staircases_[i].SamplesWithin(threshold));
    }
    return sum >= total;
  }

  // The least threshold that holds `total`. Some threshold must.
  double LeastHolding(int64_t total, absl::Span<const int64_t> limits) const {
    double lo = std::numeric_limits<double>::infinity(), hi = 0;
    for (const Staircase& staircase : staircases_) {
      lo = std::min(lo, staircase.first());
      hi = std::max(hi, staircase.last());
    }
    return LeastHolding(total, limits, lo, hi);
  }

  // The same, where it is known to be one of the breakpoints lo..hi.
  double LeastHolding(int64_t total, absl::Span<const int64_t> limits, double lo, double hi) const {
    while (lo < hi) {
      const double middle = Middle(lo, hi);
      if (Holds(total, middle, limits)) {
        hi = BreakpointUpTo(middle);
      } else {
        lo = BreakpointAbove(middle);
      }
    }
    return lo;
  }

  // In [lo, hi), where lo < hi.
  static double Middle(double lo, double hi) {
    const double middle = lo + (hi - lo) / 2;
    return middle < hi ? middle : lo;
  }

 private:
  std::vector<Staircase> staircases_;
};

class ExactSolver {
 public:
  explicit ExactSolver(const AllocationProblem& problem) : total_(problem.samples), epochs_(problem.epochs) {
    for (const DeviceProfile& device : problem.devices) {
      const int64_t limit = internal::SampleLimit(problem, device);
      limits_.push_back(limit);
      send_.Add(Staircase(0, internal::SendSecondsPerSample(problem, device), 1, limit));
      epoch_.Add(
          Staircase(internal::EpochOffsetSeconds(problem, device), device.batch_time_s, device.batch_size, limit));
    }
  }

  Allocation Solve() {
    // Below tau_min not all samples find room; above tau_max sending takes no less.
    sigma_min_ = send_.LeastHolding(total_, limits_);
    const double tau_min = epoch_.LeastHolding(total_, limits_);
    const double tau_max = epoch_.LeastHolding(total_, LimitsAt(send_, sigma_min_));
    best_sigma_ = sigma_min_;
    best_tau_ = tau_max;
    best_ = best_sigma_ + epochs_ * best_tau_;

    // Breadth first, so that all open intervals shrink alike and the best is good before they are many. lo and hi are
    // breakpoints, and hi has been tried.
    struct Interval {
      double lo, hi;
    };
    std::vector<Interval> open = {{tau_min, tau_max}}, next;
    const int64_t max_nodes = std::min(kMaxNodes, kMaxWork / static_cast<int64_t>(limits_.size()) + 1);
    int64_t nodes = 0;
    while (!open.empty() && nodes < max_nodes) {
      next.clear();
      for (const Interval& interval : open) {
        ++nodes;
        if (interval.lo == interval.hi || !CanImprove(interval.lo, interval.hi)) continue;
        const double middle = Axis::Middle(interval.lo, interval.hi);
        const double left_hi = epoch_.BreakpointUpTo(middle);
        Try(left_hi);
        next.push_back({interval.lo, left_hi});
        next.push_back({epoch_.BreakpointAbove(middle), interval.hi});
      }
      std::swap(open, next);
    }
    Allocation allocation = Fill();
    // hi was tried: sigma*(hi) >= best - epochs * hi, which bounds what the rest of the interval can hold.
    for (const Interval& interval : open) {
      allocation.gap_s = std::max(allocation.gap_s, epochs_ * (interval.hi - interval.lo));
    }
    return allocation;
  }

 private:
  // Each device's samples within the threshold, at most its limit.
  std::vector<int64_t> LimitsAt(const Axis& axis, double threshold) const {
    std::vector<int64_t> samples = axis.SamplesWithin(threshold);
    for (size_t i = 0; i < samples.size(); ++i) samples[i] = std::min(samples[i], limits_[i]);
    return samples;
  }

  // The sending time below which an epoch time of tau is better than the best; negative where none is.
  double SigmaToBeat(double tau) const { return best_ * (1 - kRelativeTolerance) - epochs_ * tau; }

  // Whether the bound sigma*(tau_hi) + epochs * tau_lo is better than the best.
  bool CanImprove(double tau_lo, double tau_hi) const {
    const double sigma = SigmaToBeat(tau_lo);
    return sigma >= sigma_min_ && send_.Holds(total_, sigma, LimitsAt(epoch_, tau_hi));
  }

  void Try(double tau) {
    const double sigma = SigmaToBeat(tau);
    if (sigma < sigma_min_) return;
    const std::vector<int64_t> limits = LimitsAt(epoch_, tau);
    if (!send_.Holds(total_, sigma, limits)) return;
    best_sigma_ = send_.LeastHolding(total_, limits, sigma_min_, send_.BreakpointUpTo(sigma));
    best_tau_ = tau;
    best_ = best_sigma_ + epochs_ * best_tau_;
  }

  // All samples under the best thresholds' caps, in proportion to the caps.
  Allocation Fill() const {
    std::vector<int64_t> caps = LimitsAt(epoch_, best_tau_);
    const std::vector<int64_t> send_caps = send_.SamplesWithin(best_sigma_);
    __int128 sum = 0;
    for (size_t i = 0; i < caps.size(); ++i) sum += caps[i] = std::min(caps[i], send_caps[i]);
    Allocation allocation;
    std::vector<std::pair<__int128, size_t>> remainders;
    int64_t left = total_;
    for (size_t i = 0; i < caps.size(); ++i) {
      const __int128 product = static_cast<__int128>(total_) * caps[i];
      allocation.samples.push_back(static_cast<int64_t>(product / sum));
      left -= allocation.samples[i];
      remainders.push_back({-(product % sum), i});
    }
    // The remainders sum to `left` times `sum`, so more than `left` of them are not 0 unless `left` is, and a device
    // with a remainder has room for one more.
    std::sort(remainders.begin(), remainders.end());
    for (int64_t i = 0; i < left; ++i) ++allocation.samples[remainders[i].second];
    return allocation;
  }

  const int64_t total_;
  const double epochs_;
  std::vector<int64_t> limits_;
  Axis send_;
  Axis epoch_;
  double sigma_min_ = 0;
  double best_ = 0, best_sigma_ = 0, best_tau_ = 0;
};

}  // namespace

absl::StatusOr<Allocation> AllocateExact(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  return ExactSolver(problem).Solve();
}

}  // namespace causeway::scheduler
