#include "scheduler/layer_schedulers.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

absl::Status ValidatePeriod(int period) {
  if (period >= 1 && period <= kMaxPeriod) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("period is ", period, ", not in 1..", kMaxPeriod));
}

// What an iteration costs whose averages end at `comm_end_ns`.
int64_t CostNs(const LayerTimes& times, int64_t comm_end_ns) {
  return std::max(times.total_backward_ns(), comm_end_ns);
}

// A cut of the backward order, as the number of layers that are left before each piece, and 0 after the last: piece h is
// {left[h], ..., left[h + 1] + 1}. Pieces that are missing at the end are empty.
LayerSchedule FromCut(const std::vector<int>& left, int period) {
  LayerSchedule schedule;
  schedule.iterations.resize(period);
  for (size_t h = 0; h + 1 < left.size(); ++h) {
    for (int layer = left[h]; layer > left[h + 1]; --layer) schedule.iterations[h].layers.push_back(layer);
  }
  return schedule;
}

ScheduleResult Result(LayerSchedule schedule, int64_t objective_ns, int64_t lower_bound_ns, int64_t candidates) {
  return {.schedule = std::move(schedule),
          .objective_ns = objective_ns,
          .lower_bound_ns = lower_bound_ns,
          .optimal = objective_ns == lower_bound_ns,
          .candidates = candidates};
}

// In closed form, the averages of layers {first, ..., last} end at
//   max over k in last..first of (backward_end(k) + comm(k) + comm(k - 1) + ... + comm(last)).
// Of that, this is what does not depend on `last`: backward_end(k) + CommUpTo(k).
class ClosedForm {
 public:
  explicit ClosedForm(const LayerTimes& times) : times_(times), comm_up_to_ns_(times.layers() + 1) {
    for (int layer = 1; layer <= times.layers(); ++layer) {
      comm_up_to_ns_[layer] = comm_up_to_ns_[layer - 1] + times.comm_ns(layer);
    }
  }

  // Of layers 1..layer; 0 for layer 0.
  int64_t CommUpToNs(int layer) const { return comm_up_to_ns_[layer]; }
  int64_t TermNs(int layer) const { return times_.backward_end_ns(layer) + comm_up_to_ns_[layer]; }

 private:
  const LayerTimes& times_;
  std::vector<int64_t> comm_up_to_ns_;  // [layers + 1]
};

// The dynamic programme. best[h][l] is the least cost of h pieces that hold all layers above l. For the last of them,
// {a, ..., l + 1}, the choice is that of a; fewer layers in the first h - 1 pieces never cost more, so best[h - 1][a] never
// rises with a. All a between two records of ClosedForm::TermNs share the end of the piece's averages, and the largest of
// them is best; the records form a stack as l falls.
class ExactSearch {
 public:
  ExactSearch(const LayerTimes& times, int pieces)
      : times_(times), closed_form_(times), layers_(times.layers()), best_(pieces + 1) {
    best_[1].resize(layers_ + 1);
    int64_t term_ns = 0;
    best_[1][layers_] = times_.total_backward_ns();
    for (int left = layers_ - 1; left >= 0; --left) {
      term_ns = std::max(term_ns, closed_form_.TermNs(left + 1));
      best_[1][left] = CostNs(times_, term_ns - closed_form_.CommUpToNs(left));
    }
    for (int piece = 2; piece <= pieces; ++piece) best_[piece] = AddPiece(best_[piece - 1]);
  }

  int64_t objective_ns() const { return best_.back()[0]; }

  // As in FromCut. From the last piece to the first, each as short as an optimum allows.
  std::vector<int> Cut() const {
    std::vector<int> cut = {0};
    for (size_t piece = best_.size() - 1; piece > 1; --piece) {
      const std::vector<int64_t>& before = best_[piece - 1];
      const int left = cut.back();
      int first = left;
      int64_t term_ns = 0, cost_ns = times_.total_backward_ns();
      while (before[first] + cost_ns != best_[piece][left]) {
        ++first;
        term_ns = std::max(term_ns, closed_form_.TermNs(first));
        cost_ns = CostNs(times_, term_ns - closed_form_.CommUpToNs(left));
      }
      cut.push_back(first);
    }
    cut.push_back(layers_);
    std::reverse(cut.begin(), cut.end());
    return cut;
  }

 private:
  struct Record {
    int64_t term_ns;
    int first;           // The largest a that shares it.
    int64_t exposed_ns;  // The least of before[a] + term over this record and those below it.
  };

  std::vector<int64_t> AddPiece(const std::vector<int64_t>& before) const {
    const int64_t backward_ns = times_.total_backward_ns();
    std::vector<int64_t> best(layers_ + 1);
    best[layers_] = before[layers_] + backward_ns;
    std::vector<Record> records;  // Falling in term and in first.
    for (int left = layers_ - 1; left >= 0; --left) {
      Record record = {.term_ns = closed_form_.TermNs(left + 1), .first = left + 1, .exposed_ns = 0};
      while (!records.empty() && records.back().term_ns <= record.term_ns) {
        record.first = records.back().first;
        records.pop_back();
      }
      record.exposed_ns = before[record.first] + record.term_ns;
      if (!records.empty()) record.exposed_ns = std::min(record.exposed_ns, records.back().exposed_ns);
      records.push_back(record);

      const int64_t comm_ns = closed_form_.CommUpToNs(left);
      const auto hidden = std::partition_point(records.begin(), records.end(),
                                               [&](const Record& r) { return r.term_ns - comm_ns > backward_ns; });
      best[left] = before[left] + backward_ns;  // An empty piece.
      if (hidden != records.begin()) best[left] = std::min(best[left], std::prev(hidden)->exposed_ns - comm_ns);
      if (hidden != records.end()) best[left] = std::min(best[left], before[hidden->first] + backward_ns);
    }
    return best;
  }

  const LayerTimes& times_;
  const ClosedForm closed_form_;
  const int layers_;
  std::vector<std::vector<int64_t>> best_;  // [pieces + 1][layers + 1]; [0] is empty.
};

// Every cut, from the last piece to the first, shorter pieces first.
class BruteSearch {
 public:
  BruteSearch(const LayerTimes& times, int period)
      : times_(times), closed_form_(times), rest_ns_(times.layers() + 1), cut_(period + 1) {
    int64_t term_ns = 0;
    rest_ns_[times.layers()] = times.total_backward_ns();
    for (int left = times.layers() - 1; left >= 0; --left) {
      term_ns = std::max(term_ns, closed_form_.TermNs(left + 1));
      rest_ns_[left] = CostNs(times, term_ns - closed_form_.CommUpToNs(left));
    }
    cut_[0] = times.layers();
    Search(period, 0);
  }

  const std::vector<int>& best_cut() const { return best_cut_; }
  int64_t best_ns() const { return best_ns_; }
  int64_t cuts() const { return cuts_; }

 private:
  // The first `pieces` pieces are to hold all layers above cut_[pieces].
  void Search(int pieces, int64_t cost_ns) {
    const int left = cut_[pieces];
    if (left == times_.layers()) {
      std::fill(cut_.begin(), cut_.begin() + pieces, left);
      return Found(cost_ns + pieces * times_.total_backward_ns());
    }
    if (pieces == 1) return Found(cost_ns + rest_ns_[left]);
    cut_[pieces - 1] = left;
    Search(pieces - 1, cost_ns + times_.total_backward_ns());
    int64_t term_ns = 0;
    for (int first = left + 1; first <= times_.layers(); ++first) {
      term_ns = std::max(term_ns, closed_form_.TermNs(first));
      cut_[pieces - 1] = first;
      Search(pieces - 1, cost_ns + CostNs(times_, term_ns - closed_form_.CommUpToNs(left)));
    }
  }

  void Found(int64_t cost_ns) {
    ++cuts_;
    if (cost_ns < best_ns_) {
      best_ns_ = cost_ns;
      best_cut_ = cut_;
    }
  }

  const LayerTimes& times_;
  const ClosedForm closed_form_;
  std::vector<int64_t> rest_ns_;  // [layers + 1]: the cost of the piece of all layers above l.
  std::vector<int> cut_;          // As in FromCut.
  std::vector<int> best_cut_;
  int64_t best_ns_ = kMaxInt64;
  int64_t cuts_ = 0;
};

// C(layers + period - 1, period - 1), or more than kMaxBruteCuts where it is more.
int64_t CountCuts(int layers, int period) {
  const int64_t n = layers + period - 1;
  const int64_t k = std::min(layers, period - 1);
  int64_t count = 1;
  for (int64_t i = 1; i <= k && count <= kMaxBruteCuts; ++i) count = count * (n - k + i) / i;
  return count;
}

// Algorithm 2. An iteration that begins with layer l takes layers as long as they are hidden, whatever was before; then
// there is one way to go on, or two.
class DreamDdpSearch {
 public:
  DreamDdpSearch(const LayerTimes& times, int period)
      : times_(times),
        period_(period),
        ways_(times.layers() + 1),
        takes_(period, std::vector<bool>(times.layers() + 1)) {
    for (int layer = 1; layer <= times.layers(); ++layer) ways_[layer] = WaysFrom(layer);
    // From the last iteration to the first; [l]: with l layers left to place.
    std::vector<Outcome> after(times.layers() + 1);
    for (int left = 0; left <= times.layers(); ++left) after[left] = {.cost_ns = ways_[left].rest_ns, .leaves = 1};
    after[0].cost_ns = times.total_backward_ns();
    for (int h = period - 2; h >= 0; --h) {
      std::vector<Outcome> outcomes(times.layers() + 1);
      outcomes[0] = {.cost_ns = after[0].cost_ns + times.total_backward_ns(), .leaves = 1};
      for (int left = 1; left <= times.layers(); ++left) outcomes[left] = BestOf(h, left, after);
      after = std::move(outcomes);
    }
    outcome_ = after[times.layers()];
  }

  int64_t objective_ns() const { return outcome_.cost_ns; }
  int64_t leaves() const { return outcome_.leaves; }

  // As in FromCut.
  std::vector<int> Cut() const {
    std::vector<int> cut = {times_.layers()};
    for (int h = 0; h + 1 < period_ && cut.back() > 0; ++h) {
      const Ways& ways = ways_[cut.back()];
      cut.push_back(takes_[h][cut.back()] ? ways.leave - 1 : ways.leave);
    }
    cut.push_back(0);
    return cut;
  }

 private:
  struct Ways {
    int leave = 0;  // Layers left to the iterations after.
    int64_t leave_ns = 0;
    bool may_take = false;  // Whether to try one layer more, too.
    int64_t take_ns = 0;
    int64_t rest_ns = 0;  // All layers are taken, hidden or not.
  };
  struct Outcome {
    int64_t cost_ns = 0;
    int64_t leaves = 0;
  };

  Ways WaysFrom(int first) const {
    Ways ways;
    int64_t end_ns = times_.backward_end_ns(first) + times_.comm_ns(first);
    int layer = first - 1;
    const auto end_with = [&] { return std::max(times_.backward_end_ns(layer), end_ns) + times_.comm_ns(layer); };
    for (; layer >= 1 && end_with() <= times_.total_backward_ns(); --layer) end_ns = end_with();
    ways.leave = layer;
    ways.leave_ns = CostNs(times_, end_ns);
    if (layer >= 1 && end_ns <= times_.total_backward_ns()) {
      ways.may_take = true;
      ways.take_ns = CostNs(times_, end_with());
    }
    for (; layer >= 1; --layer) end_ns = end_with();
    ways.rest_ns = CostNs(times_, end_ns);
    return ways;
  }

  Outcome BestOf(int h, int left, const std::vector<Outcome>& after) {
    const Ways& ways = ways_[left];
    Outcome outcome = {.cost_ns = ways.leave_ns + after[ways.leave].cost_ns, .leaves = after[ways.leave].leaves};
    if (!ways.may_take) return outcome;
    const Outcome& taken = after[ways.leave - 1];
    outcome.leaves = outcome.leaves > kMaxInt64 - taken.leaves ? kMaxInt64 : outcome.leaves + taken.leaves;
    if (ways.take_ns + taken.cost_ns <= outcome.cost_ns) {
      outcome.cost_ns = ways.take_ns + taken.cost_ns;
      takes_[h][left] = true;
    }
    return outcome;
  }

  const LayerTimes& times_;
  const int period_;
  std::vector<Ways> ways_;                // [layers + 1], by the iteration's first layer
  std::vector<std::vector<bool>> takes_;  // [period][layers + 1]
  Outcome outcome_;
};

// A bound on P over all assignments of layers to iterations.
//
// (1) The layers that, alone, backward cannot hide cost at least the sum of what each exposes alone: of those in one
// iteration the first exposes at least its own part and all of the others' averages.
// (2) For every l: the sets' layers up to l begin at different layers, so at best at l, l - 1, ..., and what each set can
// hide of them is the rest of backward from there.
int64_t FreeLowerBoundNs(const LayerTimes& times, const ClosedForm& closed_form, int period) {
  const int64_t backward_ns = times.total_backward_ns();
  int64_t alone_ns = 0, together_ns = 0;
  int64_t hidden_ns = 0;  // Of the sets that begin at l, l - 1, ..., at most `period` of them.
  for (int layer = 1; layer <= times.layers(); ++layer) {
    const int64_t rest_ns = backward_ns - times.backward_end_ns(layer);
    alone_ns += std::max<int64_t>(0, times.comm_ns(layer) - rest_ns);
    hidden_ns += rest_ns;
    if (layer > period) hidden_ns -= backward_ns - times.backward_end_ns(layer - period);
    together_ns = std::max(together_ns, closed_form.CommUpToNs(layer) - hidden_ns);
  }
  return period * backward_ns + std::max(alone_ns, together_ns);
}

class FreeSearch {
 public:
  FreeSearch(const LayerTimes& times, const LayerSchedule& start, int64_t lower_bound_ns)
      : times_(times), lower_bound_ns_(lower_bound_ns), set_of_(times.layers() + 1) {
    for (const ScheduledIteration& iteration : start.iterations) {
      for (const int layer : iteration.layers) set_of_[layer] = sets_.size();
      costs_ns_.push_back(CostNs(times, CommEndNs(times, iteration.layers)));
      objective_ns_ += costs_ns_.back();
      sets_.push_back(iteration.layers);
    }
    int64_t before_ns;
    do {
      before_ns = objective_ns_;
      MoveLayers();
      SwapLayers();
    } while (objective_ns_ < before_ns && !Done());
  }

  int64_t objective_ns() const { return objective_ns_; }
  int64_t changes() const { return changes_; }

  LayerSchedule Schedule() const {
    LayerSchedule schedule;
    for (const std::vector<int>& set : sets_) schedule.iterations.push_back({.layers = set, .fill = {}});
    return schedule;
  }

 private:
  bool Done() const { return objective_ns_ == lower_bound_ns_ || changes_ == kMaxFreeChanges; }
  // Only a set with something exposed can become cheaper.
  bool IsHidden(size_t set) const { return costs_ns_[set] == times_.total_backward_ns(); }

  void MoveLayers() {
    for (int layer = times_.layers(); layer >= 1; --layer) {
      bool tried_empty = false;
      for (size_t to = 0; to < sets_.size(); ++to) {
        if (IsHidden(set_of_[layer])) break;
        if (to == set_of_[layer] || (sets_[to].empty() && std::exchange(tried_empty, true))) continue;
        if (Done()) return;
        Try(set_of_[layer], layer, to, 0);
      }
    }
  }

  void SwapLayers() {
    for (int layer = times_.layers(); layer >= 1; --layer) {
      for (int other = layer - 1; other >= 1; --other) {
        if (set_of_[other] == set_of_[layer] || (IsHidden(set_of_[layer]) && IsHidden(set_of_[other]))) continue;
        if (Done()) return;
        Try(set_of_[layer], layer, set_of_[other], other);
      }
    }
  }

  // Gives `layer` from set `from` to set `to`, and `other`, unless it is 0, from there to `from`, if P falls.
  void Try(size_t from, int layer, size_t to, int other) {
    ++changes_;
    std::vector<int> new_from = Exchanged(sets_[from], layer, other);
    std::vector<int> new_to = Exchanged(sets_[to], other, layer);
    const int64_t from_ns = CostNs(times_, CommEndNs(times_, new_from));
    const int64_t to_ns = CostNs(times_, CommEndNs(times_, new_to));
    const int64_t gain_ns = costs_ns_[from] + costs_ns_[to] - from_ns - to_ns;
    if (gain_ns <= 0) return;
    objective_ns_ -= gain_ns;
    sets_[from] = std::move(new_from);
    sets_[to] = std::move(new_to);
    costs_ns_[from] = from_ns;
    costs_ns_[to] = to_ns;
    set_of_[layer] = to;
    if (other != 0) set_of_[other] = from;
  }

  // `set` with `in` instead of `out`; 0 is no layer.
  static std::vector<int> Exchanged(const std::vector<int>& set, int out, int in) {
    std::vector<int> exchanged;
    exchanged.reserve(set.size() + 1);
    for (const int layer : set) {
      if (in > layer) exchanged.push_back(std::exchange(in, 0));
      if (layer != out) exchanged.push_back(layer);
    }
    if (in > 0) exchanged.push_back(in);
    return exchanged;
  }

  const LayerTimes& times_;
  const int64_t lower_bound_ns_;
  std::vector<std::vector<int>> sets_;  // [period], each in backward order
  std::vector<int64_t> costs_ns_;       // [period]
  std::vector<size_t> set_of_;          // [layers + 1]
  int64_t objective_ns_ = 0;
  int64_t changes_ = 0;
};

// More pieces than layers are never of use, and ties leave the last ones empty.
int UsefulPieces(const LayerTimes& times, int period) { return std::min(times.layers(), period); }
int64_t EmptyPiecesNs(const LayerTimes& times, int period) {
  return (period - UsefulPieces(times, period)) * times.total_backward_ns();
}

}  // namespace

absl::string_view LayerSchedulerName(LayerScheduler scheduler) {
  switch (scheduler) {
    case LayerScheduler::kEqual: return "equal";
    case LayerScheduler::kDreamDdp: return "dreamddp";
    case LayerScheduler::kBrute: return "brute";
    case LayerScheduler::kExact: return "exact";
    case LayerScheduler::kFree: return "free";
  }
  return "";
}

absl::StatusOr<LayerScheduler> LayerSchedulerFromName(absl::string_view name) {
  for (const LayerScheduler scheduler : {LayerScheduler::kEqual, LayerScheduler::kDreamDdp, LayerScheduler::kBrute,
                                         LayerScheduler::kExact, LayerScheduler::kFree}) {
    if (name == LayerSchedulerName(scheduler)) return scheduler;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("scheduler \"", name, "\" is none of equal, dreamddp, brute, exact, free"));
}

absl::StatusOr<ScheduleResult> ScheduleLayers(LayerScheduler scheduler, const LayerTimes& times, int period) {
  switch (scheduler) {
    case LayerScheduler::kEqual: return ScheduleEqual(times, period);
    case LayerScheduler::kDreamDdp: return ScheduleDreamDdp(times, period);
    case LayerScheduler::kBrute: return ScheduleBrute(times, period);
    case LayerScheduler::kExact: return ScheduleExact(times, period);
    case LayerScheduler::kFree: return ScheduleFree(times, period);
  }
  return absl::InvalidArgumentError("no such scheduler");
}

absl::StatusOr<ScheduleResult> ScheduleEqual(const LayerTimes& times, int period) {
  const absl::StatusOr<ScheduleResult> exact = ScheduleExact(times, period);
  if (!exact.ok()) return exact;
  const int64_t layers = times.layers();
  std::vector<int> left;
  for (int64_t h = 0; h <= period; ++h) {
    left.push_back(static_cast<int>(layers - (2 * h * layers + period) / (2 * period)));
  }
  LayerSchedule schedule = FromCut(left, period);
  int64_t objective_ns = 0;
  for (const ScheduledIteration& iteration : schedule.iterations) {
    objective_ns += CostNs(times, CommEndNs(times, iteration.layers));
  }
  return Result(std::move(schedule), objective_ns, exact->objective_ns, 1);
}

absl::StatusOr<ScheduleResult> ScheduleDreamDdp(const LayerTimes& times, int period) {
  if (absl::Status status = ValidatePeriod(period); !status.ok()) return status;
  const DreamDdpSearch search(times, UsefulPieces(times, period));
  const int64_t objective_ns = search.objective_ns() + EmptyPiecesNs(times, period);
  return Result(FromCut(search.Cut(), period), objective_ns, objective_ns, search.leaves());
}

absl::StatusOr<ScheduleResult> ScheduleBrute(const LayerTimes& times, int period) {
  if (absl::Status status = ValidatePeriod(period); !status.ok()) return status;
  if (CountCuts(times.layers(), period) > kMaxBruteCuts) {
    return absl::InvalidArgumentError(absl::StrCat("scheduler brute: ", times.layers(), " layers in ", period,
                                                   " iterations are more than ", kMaxBruteCuts, " cuts"));
  }
  const BruteSearch search(times, period);
  return Result(FromCut(search.best_cut(), period), search.best_ns(), search.best_ns(), search.cuts());
}

absl::StatusOr<ScheduleResult> ScheduleExact(const LayerTimes& times, int period) {
  if (absl::Status status = ValidatePeriod(period); !status.ok()) return status;
  const ExactSearch search(times, UsefulPieces(times, period));
  const int64_t objective_ns = search.objective_ns() + EmptyPiecesNs(times, period);
  return Result(FromCut(search.Cut(), period), objective_ns, objective_ns, 1);
}

absl::StatusOr<ScheduleResult> ScheduleFree(const LayerTimes& times, int period) {
  const absl::StatusOr<ScheduleResult> exact = ScheduleExact(times, period);
  if (!exact.ok()) return exact;
  const int64_t lower_bound_ns = FreeLowerBoundNs(times, ClosedForm(times), period);
  const FreeSearch search(times, exact->schedule, lower_bound_ns);
  return Result(search.Schedule(), search.objective_ns(), lower_bound_ns, search.changes());
}

}  // namespace causeway::scheduler
