#include "scheduler/allocation_bound.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "scheduler/allocation_parties.h"
#include "scheduler/allocation_pipelined.h"

namespace causeway::scheduler {
namespace {

using internal::kRelativeTolerance;
using internal::Party;
using internal::PartyProblem;

// The fractional relaxation of kSeparable and kBarrier where each party pays as one of so many participants. For a fixed
// epoch time tau, party i can take u_i = min(rate_i * (tau - offset_i), limit_i) samples, and the least sending time is
// where sum min(sigma / alpha_i, u_i) reaches all samples, no more of them sent than egress carries.
class FractionalProblem {
 public:
  FractionalProblem(const PartyProblem& problem, int64_t participants)
      // So much less than all samples: parties that only just hold them must not lack one by rounding.
      : samples_(static_cast<double>(problem.samples) * (1 - kRelativeTolerance)),
        epochs_(problem.epochs),
        egress_alpha_(problem.egress_send_s) {
    for (const Party& party : problem.parties) {
      if (party.limit == 0) continue;
      parts_.push_back({.alpha = party.send_s,
                        .offset = problem.OffsetSeconds(party, participants),
                        .rate = static_cast<double>(party.batch_size) / party.step_s,
                        .limit = static_cast<double>(party.limit),
                        .local = party.local});
    }
  }

  // Seconds, without kSeparable's constant.
  //
  // The objective as a function of tau is convex between two neighbouring offsets, where the participants are the same,
  // but not across one; so every piece is minimised that could hold less than the best so far.
  double Minimise() const {
    std::set<double> edges;
    double tau_end = 0;
    for (const Part& part : parts_) {
      edges.insert(part.offset);
      tau_end = std::max(tau_end, part.offset + part.limit / part.rate);
    }
    // Anything between the offsets of different pieces will do as a start.
    double best = MinimiseBetween(*edges.begin(), tau_end);
    for (auto edge = edges.begin(); edge != edges.end(); ++edge) {
      const double lo = *edge;
      const double hi = std::next(edge) == edges.end() ? tau_end : *std::next(edge);
      if (CanHoldAll(best - epochs_ * lo, hi)) best = std::min(best, MinimiseBetween(lo, hi));
    }
    return best;
  }

 private:
  struct Part {
    double alpha, offset, rate, limit;
    bool local;

    double SamplesWithin(double tau) const { return std::min(rate * std::max(0.0, tau - offset), limit); }
  };
  struct SendTime {
    double sigma;  // Infinite where the parties cannot take all samples within tau.
    double slope;  // d sigma / d tau, <= 0
  };

  bool CanHoldAll(double sigma, double tau) const {
    if (sigma < 0) return false;
    double local = 0, sent = 0;
    for (const Part& part : parts_) {
      const double within = part.SamplesWithin(tau);
      (part.local ? local : sent) += part.alpha * within <= sigma ? within : sigma / part.alpha;
    }
    if (egress_alpha_ * sent > sigma) sent = sigma / egress_alpha_;
    return local + sent >= samples_;
  }

  SendTime LeastSendTime(double tau) const {
    double local = 0, local_rate = 0;
    for (const Part& part : parts_) {
      if (!part.local) continue;
      local += part.SamplesWithin(tau);
      if (tau > part.offset && part.SamplesWithin(tau) < part.limit) local_rate += part.rate;
    }
    const SendTime links = LeastSendTimeOfLinks(tau, local, local_rate);
    const double egress_sigma = egress_alpha_ * std::max(0.0, samples_ - local);
    return links.sigma >= egress_sigma ? links : SendTime{egress_sigma, -egress_alpha_ * local_rate};
  }

  SendTime LeastSendTimeOfLinks(double tau, double local, double local_rate) const {
    struct Saturation {
      double sigma, within, inverse_alpha, rate;  // rate: by how much `within` grows with tau.
    };
    std::vector<Saturation> saturations;
    double taken = local, taken_rate = local_rate;  // Of the saturated.
    for (const Part& part : parts_) {
      if (part.local) continue;
      const double within = part.SamplesWithin(tau);
      const double rate = tau > part.offset && within < part.limit ? part.rate : 0;
      if (part.alpha == 0) {
        taken += within;
        taken_rate += rate;
      } else if (within > 0) {
        saturations.push_back({part.alpha * within, within, 1 / part.alpha, rate});
      }
    }
    if (taken >= samples_) return {0, 0};
    std::sort(saturations.begin(), saturations.end(),
              [](const Saturation& a, const Saturation& b) { return a.sigma < b.sigma; });
    // The sum of 1/alpha over those not saturated yet, added up from the end: subtracting would leave rounding errors.
    std::vector<double> open(saturations.size());
    double sum = 0;
    for (size_t i = saturations.size(); i-- > 0;) open[i] = sum += saturations[i].inverse_alpha;
    for (size_t i = 0; i < saturations.size(); ++i) {
      if (taken + saturations[i].sigma * open[i] >= samples_) {
        return {(samples_ - taken) / open[i], -taken_rate / open[i]};
      }
      taken += saturations[i].within;
      taken_rate += saturations[i].rate;
    }
    return {std::numeric_limits<double>::infinity(), 0};
  }

  double MinimiseBetween(double lo, double hi) const {
    double best = LeastSendTime(hi).sigma + epochs_ * hi;
    for (double mid = lo + (hi - lo) / 2; lo < mid && mid < hi; mid = lo + (hi - lo) / 2) {
      const SendTime send = LeastSendTime(mid);
      best = std::min(best, send.sigma + epochs_ * mid);
      if (std::isinf(send.sigma) || send.slope < -epochs_) {
        lo = mid;
      } else {
        hi = mid;
      }
    }
    return best;
  }

  const double samples_;
  const double epochs_;
  const double egress_alpha_;
  std::vector<Part> parts_;
};

}  // namespace

absl::StatusOr<double> LowerBound(const AllocationProblem& problem) {
  if (absl::Status status = Validate(problem); !status.ok()) return status;
  const PartyProblem parties = internal::MakeRelaxedParties(problem);
  const auto count = static_cast<int64_t>(parties.parties.size());
  if (problem.objective == AllocationObjective::kPipelined) return internal::FractionalPipelinedSeconds(parties);
  if (problem.objective == AllocationObjective::kSeparable) {
    double constant_s = 0;
    for (const Party& party : parties.parties) {
      constant_s = std::max(constant_s, problem.epochs * parties.CommSeconds(party, count));
    }
    return FractionalProblem(parties, count).Minimise() + constant_s;
  }
  const auto relax = [&](int64_t lo, int64_t hi, double) {
    internal::RelaxedSolution solution;
    solution.tight = std::all_of(parties.parties.begin(), parties.parties.end(), [&](const Party& party) {
      return parties.OffsetSeconds(party, hi) == parties.OffsetSeconds(party, lo);
    });
    // No barrier only shortens it. Unlike the first, the second bound knows that no more than `hi` can take part.
    solution.bound_s =
        std::max(FractionalProblem(parties, lo).Minimise(), internal::FractionalPipelinedSeconds(parties, lo, hi));
    return solution;
  };
  return internal::MinimiseOverParticipants(count, relax).bound_s;
}

}  // namespace causeway::scheduler
