#include "scheduler/allocation_pipelined.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"

namespace causeway::scheduler::internal {
namespace {

// Amounts of samples: int64_t for the problem itself, double for its fractional relaxation. Each party pays as one of
// `lo` participants, and at most `hi` take part.
template <typename Amount>
class Bisection {
 public:
  Bisection(const PartyProblem& problem, int64_t lo, int64_t hi) : problem_(problem), lo_(lo), hi_(hi) {
    if constexpr (std::is_same_v<Amount, double>) {
      // So much less than all samples: parties that only just hold them must not lack one by rounding.
      samples_ = static_cast<double>(problem.samples) * (1 - kRelativeTolerance);
    } else {
      samples_ = problem.samples;
    }
    for (size_t i = 0; i < problem.parties.size(); ++i) {
      const Party& party = problem.parties[i];
      offsets_.push_back(problem.OffsetSeconds(party, lo));
      if (party.limit > 0) (party.local ? locals_ : others_).push_back(i);
    }
  }

  // The best below upper_s.
  RelaxedSolution Solve(double upper_s) {
    RelaxedSolution solution;
    double hi = 0;
    for (size_t i = 0; i < problem_.parties.size(); ++i) {
      hi = std::max(hi, TotalSeconds(i, problem_.parties[i].limit, problem_.samples));
    }
    hi = std::min(hi, upper_s * (1 - kRelativeTolerance));
    if (!Fits(hi)) return solution;
    double lo = 0;  // Fits nothing, since a batch takes time.
    for (double middle = hi / 2; lo < middle && middle < hi; middle = lo + (hi - lo) / 2) {
      (Fits(middle) ? hi : lo) = middle;
    }
    Fits(hi);
    solution.bound_s = hi;
    solution.samples = Fill();
    solution.tight = PaysNoMoreThan(problem_, solution.samples, lo_);
    if constexpr (std::is_same_v<Amount, int64_t>) {
      solution.total_s = internal::TotalSeconds(problem_, solution.samples);
    }
    return solution;
  }

 private:
  double TotalSeconds(size_t i, int64_t samples, int64_t sent) const {
    const Party& party = problem_.parties[i];
    return problem_.SendSeconds(party, samples, sent) +
           problem_.epochs *
               (static_cast<double>(StepsPerEpoch(samples, party.batch_size)) * party.step_s + offsets_[i]);
  }

  // The most samples that party i can take within the total when so many are sent to all. Never falls as the total grows
  // or fewer are sent.
  double Cap(size_t i, double total_s, double sent) const {
    const Party& party = problem_.parties[i];
    const double left_s = total_s - problem_.epochs * offsets_[i];
    const double step_s = problem_.epochs * party.step_s / static_cast<double>(party.batch_size);
    double cap = std::min(static_cast<double>(party.limit), left_s / (party.send_s + step_s));
    if (!party.local) cap = std::min(cap, (left_s - sent * problem_.egress_send_s) / step_s);
    return std::max(0.0, cap);
  }

  int64_t Cap(size_t i, double total_s, int64_t sent) const {
    const Party& party = problem_.parties[i];
    const auto fits = [&](int64_t samples) { return TotalSeconds(i, samples, sent) <= total_s; };
    if (!fits(1)) return 0;
    if (fits(party.limit)) return party.limit;
    // From the fractional steps, the whole ones and what can still be sent beside one step more.
    const double left_s = total_s - problem_.epochs * offsets_[i];
    const double step_s = problem_.epochs * party.step_s;
    const auto batch = static_cast<double>(party.batch_size);
    double steps = std::floor(left_s / (step_s + batch * party.send_s));
    if (!party.local) {
      steps = std::min(steps, std::floor((left_s - static_cast<double>(sent) * problem_.egress_send_s) / step_s));
    }
    double guess = steps * batch;
    if (party.send_s > 0) {
      guess = std::clamp(std::floor((left_s - (steps + 1) * step_s) / party.send_s), guess, guess + batch);
    }
    const auto near = std::clamp<int64_t>(static_cast<int64_t>(std::min(guess, static_cast<double>(party.limit))), 1,
                                          party.limit - 1);
    int64_t within = 1, above = party.limit;
    if (fits(near)) {
      within = near;
      if (!fits(near + 1)) return near;
    } else {
      above = near;
      if (fits(near - 1)) return near - 1;
    }
    while (above - within > 1) {
      const int64_t middle = within + (above - within) / 2;
      (fits(middle) ? within : above) = middle;
    }
    return within;
  }

  bool IsHigher(size_t a, size_t b) const { return caps_[a] != caps_[b] ? caps_[a] > caps_[b] : a < b; }

  // The parties of `among`, at most `count`, with the highest caps above 0, in any order.
  std::vector<size_t> Highest(std::vector<size_t> among, int64_t count) const {
    std::erase_if(among, [&](size_t i) { return caps_[i] <= 0; });
    if (static_cast<int64_t>(among.size()) <= count) return among;
    std::nth_element(among.begin(), among.begin() + count, among.end(),
                     [&](size_t a, size_t b) { return IsHigher(a, b); });
    among.resize(static_cast<size_t>(count));
    return among;
  }

  void SortHighestFirst(std::vector<size_t>* parties) const {
    std::sort(parties->begin(), parties->end(), [&](size_t a, size_t b) { return IsHigher(a, b); });
  }

  // Saturates at all samples, which keeps it from overflowing.
  Amount SumOfCaps(absl::Span<const size_t> parties) const {
    Amount sum = 0;
    for (size_t i : parties) sum = std::min(samples_, sum + caps_[i]);
    return sum;
  }

  // Whether all samples can be placed within the total; if so, caps_, chosen_locals_, chosen_others_ and sent_ say how.
  bool Fits(double total_s) {
    caps_.assign(problem_.parties.size(), 0);
    for (size_t i : locals_) caps_[i] = Cap(i, total_s, Amount{0});
    if (static_cast<int64_t>(locals_.size() + others_.size()) <= hi_) {
      const Amount to_send = samples_ - SumOfCaps(locals_);
      for (size_t i : others_) caps_[i] = Cap(i, total_s, to_send);
      return Choose(locals_, others_, to_send);
    }
    std::vector<size_t> locals = Highest(locals_, hi_);
    SortHighestFirst(&locals);
    std::vector<Amount> to_send = {samples_};  // [k]: besides what the k locals with the highest caps take.
    Amount local = 0;
    for (size_t i : locals) {
      local = std::min(samples_, local + caps_[i]);
      to_send.push_back(samples_ - local);
    }
    return FitsWithLocals(total_s, locals, to_send, 0, static_cast<int64_t>(locals.size()));
  }

  // Fits where `lo` to `hi` local parties take part.
  bool FitsWithLocals(double total_s, const std::vector<size_t>& locals, const std::vector<Amount>& to_send, int64_t lo,
                      int64_t hi) {
    // The fewer are sent, the more each party can take; so these caps are no less than those beside any number of locals.
    for (size_t i : others_) caps_[i] = Cap(i, total_s, to_send[hi]);
    std::vector<size_t> others = Highest(others_, hi_ - lo);
    if (lo == hi) return Choose(absl::MakeConstSpan(locals).first(lo), others, to_send[lo]);
    SortHighestFirst(&others);
    std::vector<Amount> sums = {0};  // [n]: of the n highest.
    for (size_t i : others) sums.push_back(std::min(samples_, sums.back() + caps_[i]));
    const auto others_beside = [&](int64_t k) { return std::min(static_cast<int64_t>(others.size()), hi_ - k); };
    const auto may_fit = [&](int64_t k) { return sums[others_beside(k)] >= to_send[k]; };
    while (lo <= hi && !may_fit(lo)) ++lo;
    if (lo > hi) return false;
    const bool caps_are_of_all = problem_.egress_send_s == 0;
    if (may_fit(hi) || caps_are_of_all) {
      const int64_t k = may_fit(hi) ? hi : lo;
      return Choose(absl::MakeConstSpan(locals).first(k), absl::MakeConstSpan(others).first(others_beside(k)),
                    to_send[k]);
    }
    while (!may_fit(hi)) --hi;
    const int64_t middle = lo + (hi - lo) / 2;
    return FitsWithLocals(total_s, locals, to_send, middle, hi) ||
           (lo < middle && FitsWithLocals(total_s, locals, to_send, lo, middle - 1));
  }

  bool Choose(absl::Span<const size_t> locals, absl::Span<const size_t> others, Amount sent) {
    if (SumOfCaps(others) < sent) return false;
    chosen_locals_.assign(locals.begin(), locals.end());
    chosen_others_.assign(others.begin(), others.end());
    sent_ = sent;
    return true;
  }

  // As Fits has found it. Of the fractional problem only who takes part.
  std::vector<int64_t> Fill() const {
    std::vector<int64_t> samples(problem_.parties.size());
    if constexpr (std::is_same_v<Amount, double>) {
      for (size_t i : chosen_locals_) samples[i] = caps_[i] > 0 ? 1 : 0;
      for (size_t i : chosen_others_) samples[i] = caps_[i] > 0 ? 1 : 0;
    } else if (problem_.egress_send_s == 0) {
      std::vector<size_t> chosen = chosen_locals_;
      chosen.insert(chosen.end(), chosen_others_.begin(), chosen_others_.end());
      FillInProportion(samples_, caps_, chosen, &samples);
    } else {
      FillInProportion(sent_, caps_, chosen_others_, &samples);
      FillInProportion(samples_ - sent_, caps_, chosen_locals_, &samples);
    }
    return samples;
  }

  const PartyProblem& problem_;
  const int64_t lo_;
  const int64_t hi_;
  Amount samples_;
  std::vector<double> offsets_;  // [parties]
  std::vector<size_t> locals_, others_;
  std::vector<Amount> caps_;  // [parties]
  std::vector<size_t> chosen_locals_, chosen_others_;
  Amount sent_ = 0;
};

template <typename Amount>
ParticipantsSolution Minimise(const PartyProblem& problem) {
  return MinimiseOverParticipants(
      static_cast<int64_t>(problem.parties.size()),
      [&](int64_t lo, int64_t hi, double upper_s) { return Bisection<Amount>(problem, lo, hi).Solve(upper_s); });
}

}  // namespace

ParticipantsSolution SolvePipelined(const PartyProblem& problem) { return Minimise<int64_t>(problem); }

double FractionalPipelinedSeconds(const PartyProblem& problem) { return Minimise<double>(problem).bound_s; }

double FractionalPipelinedSeconds(const PartyProblem& problem, int64_t lo, int64_t hi) {
  return Bisection<double>(problem, lo, hi).Solve(std::numeric_limits<double>::infinity()).bound_s;
}

}  // namespace causeway::scheduler::internal
