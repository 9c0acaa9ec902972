#include "scheduler/allocation_exact.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/allocation_parties.h"
#include "scheduler/allocation_pipelined.h"

namespace causeway::scheduler {
namespace {

using internal::kRelativeTolerance;
using internal::Party;
using internal::PartyProblem;
using internal::Placement;
using internal::RelaxedSolution;

// Nodes, and nodes times parties, that the search may visit.
constexpr int64_t kMaxNodes = 4'000'000;
constexpr int64_t kMaxWork = 200'000'000;

// The samples that one party can take as a function of a time threshold: `unit` samples more at each breakpoint
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

// The staircases of all parties on one of the two axes, and on the axis of sending time what egress carries.
class Axis {
 public:
  void Add(const Staircase& staircase) { staircases_.push_back(staircase); }
  void SetEgress(const Staircase& egress) { egress_ = egress; }

  // Each party's samples within the threshold, at most limits[i].
  std::vector<int64_t> SamplesWithin(double threshold, absl::Span<const int64_t> limits) const {
    std::vector<int64_t> samples(staircases_.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      samples[i] = std::min(limits[i], staircases_[i].SamplesWithin(threshold));
    }
    return samples;
  }

  // The most samples that can be sent to all parties together.
  int64_t SentWithin(double threshold) const {
    return egress_ ? egress_->SamplesWithin(threshold) : std::numeric_limits<int64_t>::max();
  }

  double BreakpointUpTo(double threshold) const {
    double largest = egress_ ? egress_->BreakpointUpTo(threshold) : 0;
    for (const Staircase& staircase : staircases_) largest = std::max(largest, staircase.BreakpointUpTo(threshold));
    return largest;
  }

  double BreakpointAbove(double threshold) const {
    double least = egress_ ? egress_->BreakpointAbove(threshold) : std::numeric_limits<double>::infinity();
    for (const Staircase& staircase : staircases_) least = std::min(least, staircase.BreakpointAbove(threshold));
    return least;
  }

  // Whether all samples find room within the threshold, each party taking at most its limit and at most max_sent being
  // sent.
  bool Holds(double threshold, absl::Span<const int64_t> limits, int64_t max_sent, const Placement& placement) const {
    return placement.Holds(SamplesWithin(threshold, limits), std::min(max_sent, SentWithin(threshold)));
  }

  // The least threshold that does; infinite where none does.
  double LeastHolding(absl::Span<const int64_t> limits, int64_t max_sent, const Placement& placement) const {
    double lo = egress_ ? egress_->first() : std::numeric_limits<double>::infinity();
    double hi = egress_ ? egress_->last() : 0;
    for (const Staircase& staircase : staircases_) {
      lo = std::min(lo, staircase.first());
      hi = std::max(hi, staircase.last());
    }
    if (!Holds(hi, limits, max_sent, placement)) return std::numeric_limits<double>::infinity();
    return LeastHolding(limits, max_sent, placement, lo, hi);
  }

  // The same, where it is known to be one of the breakpoints lo..hi.
  double LeastHolding(absl::Span<const int64_t> limits, int64_t max_sent, const Placement& placement, double lo,
                      double hi) const {
    while (lo < hi) {
      const double middle = Middle(lo, hi);
      if (Holds(middle, limits, max_sent, placement)) {
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
  std::optional<Staircase> egress_;
};

// kSeparable and kBarrier, where each party pays as one of `lo` participants and at most `hi` take part.
class TwoThresholds {
 public:
  TwoThresholds(const PartyProblem& problem, int64_t lo, int64_t hi)
      : problem_(problem), placement_(&problem, hi), epochs_(problem.epochs) {
    for (const Party& party : problem.parties) {
      limits_.push_back(party.limit);
      // A relaxation that may be off by four times as much need not be solved better.
      slack_s_ =
          std::max(slack_s_, epochs_ / 4 * (problem.OffsetSeconds(party, hi) - problem.OffsetSeconds(party, lo)));
      send_.Add(Staircase(0, party.send_s, 1, party.limit));
      epoch_.Add(Staircase(problem.OffsetSeconds(party, lo), party.step_s, party.batch_size, party.limit));
    }
    if (problem.egress_send_s > 0) send_.SetEgress(Staircase(0, problem.egress_send_s, 1, problem.samples));
  }

  double LeastSendSeconds() const { return send_.LeastHolding(limits_, kAnyNumber, placement_); }

  // The best below upper_s, where none sends in less than sigma_min; without an upper_s sigma_min is LeastSendSeconds.
  // Visits at most *nodes nodes, and takes those that it visits from it.
  RelaxedSolution Solve(double sigma_min, double upper_s, int64_t* nodes) {
    RelaxedSolution solution;
    sigma_min_ = sigma_min;
    upper_ = upper_s;
    // Below tau_min not all samples find room.
    const double tau_min = epoch_.LeastHolding(limits_, kAnyNumber, placement_);
    if (sigma_min + epochs_ * tau_min >= upper_s) return solution;
    // Above tau_max nothing is better than upper_s, or sending takes no less.
    double tau_max = epoch_.BreakpointUpTo((upper_s - sigma_min) / epochs_);
    if (std::isinf(upper_s)) {
      tau_max = epoch_.LeastHolding(send_.SamplesWithin(sigma_min, limits_), send_.SentWithin(sigma_min), placement_);
    }
    Try(tau_max);

    // Breadth first, so that all open intervals shrink alike and the best is good before they are many. lo and hi are
    // breakpoints, and hi has been tried.
    struct Interval {
      double lo, hi;
    };
    std::vector<Interval> open = {{tau_min, tau_max}}, next;
    while (!open.empty() && *nodes > 0) {
      next.clear();
      for (const Interval& interval : open) {
        --*nodes;
        if (interval.lo == interval.hi || !CanImprove(interval.lo, interval.hi)) continue;
        const double middle = Axis::Middle(interval.lo, interval.hi);
        const double left_hi = epoch_.BreakpointUpTo(middle);
        Try(left_hi);
        next.push_back({interval.lo, left_hi});
        next.push_back({epoch_.BreakpointAbove(middle), interval.hi});
      }
      std::swap(open, next);
    }
    // hi was tried, so what it costs is no better than the best: what the rest of the interval holds is better by its
    // width at most.
    double unproven_s = 0;
    for (const Interval& interval : open) unproven_s = std::max(unproven_s, epochs_ * (interval.hi - interval.lo));
    const double bound_s = std::min(SoughtBelow(), std::min(best_, upper_) - unproven_s);
    if (bound_s >= upper_) return solution;
    solution.bound_s = bound_s;
    if (std::isinf(best_)) return solution;
    solution.samples = placement_.Fill(send_.SamplesWithin(best_sigma_, epoch_.SamplesWithin(best_tau_, limits_)),
                                       send_.SentWithin(best_sigma_));
    solution.total_s = internal::TotalSeconds(problem_, solution.samples);
    solution.tight = slack_s_ == 0;  // More participants cost no more.
    return solution;
  }

 private:
  static constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();

  // Totals that are not below are not looked for.
  double SoughtBelow() const { return std::min(upper_, best_ - slack_s_); }

  // The sending time within which an epoch time of tau comes to less than a total; negative where none does.
  double SigmaToBeat(double total, double tau) const { return total * (1 - kRelativeTolerance) - epochs_ * tau; }

  // Whether the bound sigma*(tau_hi) + epochs * tau_lo is low enough.
  bool CanImprove(double tau_lo, double tau_hi) const {
    const double sigma = SigmaToBeat(SoughtBelow(), tau_lo);
    return sigma >= sigma_min_ && send_.Holds(sigma, epoch_.SamplesWithin(tau_hi, limits_), kAnyNumber, placement_);
  }

  void Try(double tau) {
    const double sigma = SigmaToBeat(std::min(best_, upper_), tau);
    if (sigma < sigma_min_) return;
    const std::vector<int64_t> limits = epoch_.SamplesWithin(tau, limits_);
    if (!send_.Holds(sigma, limits, kAnyNumber, placement_)) return;
    best_sigma_ = send_.LeastHolding(limits, kAnyNumber, placement_, sigma_min_, send_.BreakpointUpTo(sigma));
    best_tau_ = tau;
    best_ = best_sigma_ + epochs_ * best_tau_;
  }

  const PartyProblem& problem_;
  const Placement placement_;
  const double epochs_;
  double slack_s_ = 0;
  std::vector<int64_t> limits_;
  Axis send_;
  Axis epoch_;
  double sigma_min_ = 0;
  double upper_ = 0;
  double best_ = std::numeric_limits<double>::infinity(), best_sigma_ = 0, best_tau_ = 0;
};

}  // namespace

absl::StatusOr<Allocation> AllocateExact(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  const PartyProblem parties = internal::MakeParties(problem);
  const auto count = static_cast<int64_t>(parties.parties.size());
  internal::ParticipantsSolution solution;
  switch (problem.objective) {
    case AllocationObjective::kSeparable:
    case AllocationObjective::kBarrier: {
      int64_t nodes = std::min(kMaxNodes, kMaxWork / count + 1);
      const double sigma_min_s = TwoThresholds(parties, 1, count).LeastSendSeconds();
      solution = internal::MinimiseOverParticipants(count, [&](int64_t lo, int64_t hi, double upper_s) {
        return TwoThresholds(parties, lo, hi).Solve(sigma_min_s, upper_s, &nodes);
      });
      break;
    }
    case AllocationObjective::kPipelined: solution = internal::SolvePipelined(parties); break;
  }
  const double gap_s = solution.total_s - solution.bound_s;
  return Allocation{.samples = internal::SplitAmongMembers(problem, parties, solution.samples),
                    .gap_s = gap_s > kRelativeTolerance * solution.total_s ? gap_s : 0};
}

}  // namespace causeway::scheduler
