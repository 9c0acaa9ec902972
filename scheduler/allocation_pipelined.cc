#include "scheduler/allocation_pipelined.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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

  ParticipantsSolution Solve() {
    double hi = 0;
    for (size_t i = 0; i < problem_.parties.size(); ++i) {
      hi = std::max(hi, TotalSeconds(i, problem_.parties[i].limit, problem_.samples));
    }
    ParticipantsSolution solution;
    if (!Fits(hi)) return solution;
    double lo = 0;  // Fits nothing, since a batch takes time.
    for (double middle = hi / 2; lo < middle && middle < hi; middle = lo + (hi - lo) / 2) {
      (Fits(middle) ? hi : lo) = middle;
    }
    Fits(hi);
    solution.bound_s = hi;
    solution.samples = Fill();
    solution.attained = PaysNoMoreThan(problem_, solution.samples, lo_);
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

  // The parties of `among`, at most `count`, with the highest caps above 0, highest first.
  std::vector<size_t> Highest(std::vector<size_t> among, int64_t count) const {
    std::erase_if(among, [&](size_t i) { return caps_[i] <= 0; });
    const auto end = among.begin() + std::min(count, static_cast<int64_t>(among.size()));
    std::partial_sort(among.begin(), end, among.end(),
                      [&](size_t a, size_t b) { return caps_[a] != caps_[b] ? caps_[a] > caps_[b] : a < b; });
    among.erase(end, among.end());
    return among;
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
    const bool all = static_cast<int64_t>(locals_.size() + others_.size()) <= hi_;
    const std::vector<size_t> locals = all ? locals_ : Highest(locals_, hi_);
    // The fewer are sent, the more each party can take: with all locals that may take part it is fewest.
    const Amount fewest_sent = samples_ - SumOfCaps(locals);
    for (size_t i : others_) caps_[i] = Cap(i, total_s, fewest_sent);
    const std::vector<size_t> others = all ? others_ : Highest(others_, hi_);
    if (all) return Choose(locals, others, fewest_sent);

    Amount local = 0;
    for (size_t k = 0; k <= locals.size(); ++k) {
      const Amount sent = samples_ - local;
      const auto rest = std::min(others.size(), static_cast<size_t>(hi_) - k);
      if (Choose(absl::MakeSpan(locals).first(k), absl::MakeSpan(others).first(rest), sent)) {
        if (problem_.egress_send_s == 0 || sent == fewest_sent) return true;
        // That was by the caps of sending least.
        const std::vector<Amount> caps = caps_;
        for (size_t i : others_) caps_[i] = Cap(i, total_s, sent);
        const std::vector<size_t> by_own_caps = Highest(others_, static_cast<int64_t>(rest));
        if (Choose(absl::MakeSpan(locals).first(k), by_own_caps, sent)) return true;
        caps_ = caps;
      }
      if (k < locals.size()) local = std::min(samples_, local + caps_[locals[k]]);
    }
    return false;
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
  return MinimiseOverParticipants(static_cast<int64_t>(problem.parties.size()), [&](int64_t lo, int64_t hi) {
    return Bisection<Amount>(problem, lo, hi).Solve();
  });
}

}  // namespace

ParticipantsSolution SolvePipelined(const PartyProblem& problem) { return Minimise<int64_t>(problem); }

double FractionalPipelinedSeconds(const PartyProblem& problem) { return Minimise<double>(problem).bound_s; }

}  // namespace causeway::scheduler::internal
