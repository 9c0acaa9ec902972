#include "scheduler/allocation_auglag.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/allocation_parties.h"

namespace causeway::scheduler {
namespace {

using internal::Party;
using internal::PartyProblem;

// The paper gives no values. Times are in units of the start's objective, so these fit every instance.
constexpr int kOuterRounds = 60;  // psi
constexpr int kInnerSteps = 200;  // zeta
constexpr double kPenalty = 10;   // rho
constexpr double kBarrier = 0.1;  // mu at first, over all parties
constexpr double kBarrierDecay = 0.6;
constexpr double kLastBarrier = 1e-7;
constexpr double kFirstPower = 2, kPowerGrowth = 1.25, kLastPower = 100;
constexpr double kTolerance = 1e-6;  // epsilon, of the gradient and of the constraint
constexpr double kSufficientDecrease = 1e-4;
constexpr int kMemory = 8;  // A step must improve on the worst of so many before it.

double Dot(absl::Span<const double> a, absl::Span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// || y ||_p of affine functions of the shares x: y = own * x[party] + shared * (sum of x over those that are sent to) +
// constant.
struct Row {
  size_t party;
  double own, shared, constant;
};

class Surrogate {
 public:
  // Of the parties `among` alone, which all take part.
  Surrogate(const PartyProblem& problem, absl::Span<const size_t> among)
      : samples_(static_cast<double>(problem.samples)) {
    const int64_t participants = problem.objective == AllocationObjective::kSeparable
                                     ? static_cast<int64_t>(problem.parties.size())
                                     : static_cast<int64_t>(among.size());
    std::vector<Row> send, epoch, total;
    for (size_t each : among) {
      const Party& party = problem.parties[each];
      const size_t i = limits_.size();
      limits_.push_back(static_cast<double>(party.limit) / samples_);
      sent_.push_back(!party.local);
      const double own_send_s = samples_ * party.send_s;
      const double egress_send_s = party.local ? 0 : samples_ * problem.egress_send_s;
      const double compute_s = problem.epochs * samples_ * (party.step_s / static_cast<double>(party.batch_size));
      const double offset_s = problem.epochs * problem.OffsetSeconds(party, participants);
      send.push_back({i, own_send_s, 0, 0});
      epoch.push_back({i, compute_s, 0, offset_s});
      total.push_back({i, own_send_s + compute_s, 0, offset_s});
      if (egress_send_s > 0) total.push_back({i, compute_s, egress_send_s, offset_s});
    }
    if (problem.egress_send_s > 0) send.push_back({0, 0, samples_ * problem.egress_send_s, 0});
    if (problem.objective == AllocationObjective::kPipelined) {
      norms_ = {total};
    } else {
      norms_ = {send, epoch};
    }
  }

  absl::Span<const double> limits() const { return limits_; }  // Shares.

  // Seconds. Adds nothing to the gradient where it is null.
  double Evaluate(absl::Span<const double> shares, double power, std::vector<double>* gradient) const {
    double sent = 0;
    for (size_t i = 0; i < shares.size(); ++i) sent += sent_[i] ? shares[i] : 0;
    double value = 0, shared_gradient = 0;
    std::vector<double> y;
    for (const std::vector<Row>& rows : norms_) {
      y.clear();
      for (const Row& row : rows) y.push_back(row.own * shares[row.party] + row.shared * sent + row.constant);
      // The largest first taken out, or the powers overflow.
      const double largest = *std::max_element(y.begin(), y.end());
      if (largest <= 0) continue;
      double sum = 0;
      for (double each : y) sum += std::pow(each / largest, power);
      const double norm = largest * std::pow(sum, 1 / power);
      value += norm;
      if (gradient == nullptr) continue;
      for (size_t j = 0; j < rows.size(); ++j) {
        const double weight = std::pow(y[j] / norm, power - 1);
        (*gradient)[rows[j].party] += weight * rows[j].own;
        shared_gradient += weight * rows[j].shared;
      }
    }
    for (size_t i = 0; gradient != nullptr && i < shares.size(); ++i) {
      if (sent_[i]) (*gradient)[i] += shared_gradient;
    }
    return value;
  }

 private:
  const double samples_;
  std::vector<std::vector<Row>> norms_;
  std::vector<double> limits_;
  std::vector<bool> sent_;
};

class AugmentedLagrangian {
 public:
  explicit AugmentedLagrangian(const Surrogate* surrogate) : surrogate_(*surrogate) {}

  // Shares inside (0, limit) that sum to 1, but for rounding. Requires limits that sum to more than 1.
  std::vector<double> Minimise() {
    const absl::Span<const double> limits = surrogate_.limits();
    const auto count = static_cast<double>(limits.size());
    const double room = std::accumulate(limits.begin(), limits.end(), 0.0);
    const bool even = *std::min_element(limits.begin(), limits.end()) > 1 / count;
    shares_.clear();
    for (double limit : limits) shares_.push_back(even ? 1 / count : limit / room);
    power_ = kFirstPower;
    unit_s_ = surrogate_.Evaluate(shares_, power_, nullptr);
    barrier_ = kBarrier / count;
    for (int round = 0; round < kOuterRounds; ++round) {
      scales_ = shares_;
      const bool stationary = Descend();
      const double excess = Excess(shares_);
      if (stationary && std::abs(excess) <= kTolerance && power_ == kLastPower && barrier_ * count <= kLastBarrier)
        break;
      multiplier_ += kPenalty * excess;
      barrier_ = std::max(barrier_ * kBarrierDecay, kLastBarrier / count);
      power_ = std::min(power_ * kPowerGrowth, kLastPower);
    }
    return shares_;
  }

 private:
  static double Excess(absl::Span<const double> shares) { return std::accumulate(shares.begin(), shares.end(), -1.0); }

  double Evaluate(const std::vector<double>& shares, std::vector<double>* gradient) const {
    if (gradient != nullptr) gradient->assign(shares.size(), 0);
    double value = surrogate_.Evaluate(shares, power_, gradient) / unit_s_;
    const double excess = Excess(shares);
    value += (multiplier_ + kPenalty / 2 * excess) * excess;
    for (size_t i = 0; i < shares.size(); ++i) {
      const double limit = surrogate_.limits()[i];
      // A limit of all samples binds nobody.
      value -= barrier_ * (std::log(shares[i]) + (limit < 1 ? std::log(limit - shares[i]) : 0));
      if (gradient == nullptr) continue;
      (*gradient)[i] = (*gradient)[i] / unit_s_ + multiplier_ + kPenalty * excess - barrier_ / shares[i] +
                       (limit < 1 ? barrier_ / (limit - shares[i]) : 0);
      (*gradient)[i] *= scales_[i];
    }
    return value;
  }

  // Gradient steps in shares / scales. Whether the gradient has vanished.
  bool Descend() {
    std::vector<double> gradient, next(shares_.size()), next_gradient;
    std::vector<double> recent = {Evaluate(shares_, &gradient)};
    double step = 1 / std::max(1.0, std::sqrt(Dot(gradient, gradient)));
    for (int i = 0; i < kInnerSteps; ++i) {
      const double square = Dot(gradient, gradient);
      if (std::sqrt(square) <= kTolerance) return true;
      // Stay inside.
      for (size_t k = 0; k < shares_.size(); ++k) {
        const double change = scales_[k] * gradient[k];
        if (change > 0) step = std::min(step, 0.9 * shares_[k] / change);
        const double limit = surrogate_.limits()[k];
        if (change < 0 && limit < 1) step = std::min(step, 0.9 * (limit - shares_[k]) / -change);
      }
      const double worst = *std::max_element(recent.begin(), recent.end());
      double value = 0;
      for (;; step /= 2) {
        for (size_t k = 0; k < shares_.size(); ++k) next[k] = shares_[k] - step * scales_[k] * gradient[k];
        value = Evaluate(next, nullptr);
        if (value <= worst - kSufficientDecrease * step * square) break;
        if (step * std::sqrt(square) < std::numeric_limits<double>::epsilon()) return false;
      }
      recent.push_back(Evaluate(next, &next_gradient));
      if (recent.size() > kMemory) recent.erase(recent.begin());
      // The step that would have led from the last gradient to this one.
      double moved = 0, curved = 0;
      for (size_t k = 0; k < shares_.size(); ++k) {
        const double change = -step * gradient[k];
        moved += change * change;
        curved += change * (next_gradient[k] - gradient[k]);
      }
      shares_ = next;
      gradient = next_gradient;
      step = curved > 0 ? moved / curved : step * 2;
    }
    return false;
  }

  const Surrogate& surrogate_;
  double power_ = kFirstPower;
  double unit_s_ = 1;
  double multiplier_ = 0;
  double barrier_ = 0;
  std::vector<double> shares_, scales_;
};

// The solver of a problem with a given set of participants, and the search for that set.
class Auglag {
 public:
  explicit Auglag(const PartyProblem* problem) : problem_(*problem) {
    for (size_t i = 0; i < problem_.parties.size(); ++i) {
      if (problem_.parties[i].limit > 0) order_.push_back(i);
    }
  }

  std::vector<int64_t> Solve() {
    if (problem_.objective == AllocationObjective::kSeparable) return SolveFor(order_.size());
    // Whoever takes part, an epoch is as long as its own communication and one step; so those for whom that takes longest
    // are left out first.
    const auto shortest_epoch_s = [&](size_t i) {
      return problem_.OffsetSeconds(problem_.parties[i], 1) + problem_.parties[i].step_s;
    };
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return shortest_epoch_s(a) < shortest_epoch_s(b); });
    size_t best_count = order_.size();
    std::vector<int64_t> best = SolveFor(best_count);
    double best_s = internal::TotalSeconds(problem_, best);
    for (size_t stride = (order_.size() + 1) / 2; stride > 0; stride /= 2) {
      for (size_t count : {best_count - std::min(stride, best_count), best_count + stride}) {
        if (count == 0 || count > order_.size() || !CanHoldAll(count)) continue;
        std::vector<int64_t> samples = SolveFor(count);
        const double total_s = internal::TotalSeconds(problem_, samples);
        if (total_s >= best_s) continue;
        best_count = count;
        best = std::move(samples);
        best_s = total_s;
        break;
      }
    }
    return best;
  }

 private:
  int64_t RoomOf(size_t count) const {
    int64_t room = 0;
    for (size_t k = 0; k < count; ++k) {
      room = std::min(problem_.samples + 1, room + problem_.parties[order_[k]].limit);
    }
    return room;
  }

  bool CanHoldAll(size_t count) const { return RoomOf(count) >= problem_.samples; }

  // With the first `count` parties in order_, which can hold all samples.
  std::vector<int64_t> SolveFor(size_t count) const {
    const auto among = absl::MakeConstSpan(order_).first(count);
    std::vector<int64_t> limits;
    for (size_t i : among) limits.push_back(problem_.parties[i].limit);
    std::vector<int64_t> parts = limits;  // Where there is no room to spare.
    if (RoomOf(count) > problem_.samples) {
      const Surrogate surrogate(problem_, among);
      parts = internal::Apportion(problem_.samples, limits, AugmentedLagrangian(&surrogate).Minimise());
    }
    std::vector<int64_t> samples(problem_.parties.size());
    for (size_t k = 0; k < count; ++k) samples[among[k]] = parts[k];
    return samples;
  }

  const PartyProblem& problem_;
  std::vector<size_t> order_;  // Those with room.
};

}  // namespace

absl::StatusOr<Allocation> AllocateAuglag(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  const PartyProblem parties = internal::MakeParties(problem);
  return Allocation{.samples = internal::SplitAmongMembers(problem, parties, Auglag(&parties).Solve())};
}

}  // namespace causeway::scheduler
