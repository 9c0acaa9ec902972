// An allocation problem as its solvers see it. Not for use outside this folder.
//
// What gets samples is a party: a device, or where sites step together a site. Coefficients and participation are computed
// here for the evaluator, the bound and all solvers, so that they agree to the last bit.
#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_PARTIES_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_PARTIES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/allocation.h"

namespace causeway::scheduler::internal {

// Of two thresholds or totals that differ by less (relative), neither is better.
inline constexpr double kRelativeTolerance = 1e-12;

// ceil(samples / batch_size)
int64_t StepsPerEpoch(int64_t samples, int64_t batch_size);

// The most samples that the device may get: its capacity, at most all.
int64_t SampleLimit(const AllocationProblem& problem, const DeviceProfile& device);

// Seconds to send one sample over the device's own link; 0 where it reads its data locally.
double SendSecondsPerSample(const AllocationProblem& problem, const DeviceProfile& device);

struct Party {
  std::vector<size_t> members;  // The problem's devices, ascending; all of one site, or one.
  double send_s = 0;            // One of the party's samples over its own links; 0 where it reads its data locally.
  double down_s = 0, up_s = 0;  // One model over its own links.
  double step_s = 0;            // One step of `batch_size` samples.
  int64_t batch_size = 0;       // Of all members.
  int64_t limit = 0;            // Most samples that it may get, at most all.
  bool local = false;           // Nothing is sent before training.
};

struct PartyProblem {
  int64_t samples = 0;
  double epochs = 0;
  double rounds_per_epoch = 0;
  AllocationObjective objective = AllocationObjective::kBarrier;
  double egress_send_s = 0;   // One sample over the coordinator's own link; 0 without a cap.
  double egress_model_s = 0;  // One model over it.
  std::vector<Party> parties;

  // Seconds of an epoch's model traffic for a party that is one of so many participants.
  double CommSeconds(const Party& party, int64_t participants) const;
  // What a party with samples pays in an epoch before its first step: CommSeconds, but 0 under kSeparable.
  double OffsetSeconds(const Party& party, int64_t participants) const;
  // Until the party's data is there, where `sent` samples are sent to all parties together.
  double SendSeconds(const Party& party, int64_t samples, int64_t sent) const;
};

// Of a problem that is valid, or has at least been checked device by device. O(devices * log(devices)).
//
// A site in lock step takes samples in proportion to its members' batches, each over its own link, and exchanges one model,
// each member its part.
PartyProblem MakeParties(const AllocationProblem& problem);

// The same as a relaxation for bounds: a site's samples may be spread over its members' links in any way.
PartyProblem MakeRelaxedParties(const AllocationProblem& problem);

// Places samples where at most `max_participants` parties may take some.
class Placement {
 public:
  Placement(const PartyProblem* problem, int64_t max_participants);  // Not owned; outlives this.

  // Whether all samples find room when party i takes up to caps[i] and at most `max_sent` are sent to those that do not
  // read theirs locally. Each cap is at most its party's limit. O(parties), O(parties * log(parties)) where
  // max_participants binds.
  bool Holds(absl::Span<const int64_t> caps, int64_t max_sent) const;

  // The samples of each party, in proportion to the caps as far as the limits let them. Requires Holds.
  std::vector<int64_t> Fill(absl::Span<const int64_t> caps, int64_t max_sent) const;

 private:
  struct Mix {
    size_t locals = 0, others = 0;
    int64_t placed = -1;
  };

  // Indices of the parties, local ones or the others, with the highest caps above 0, as many as may take part, highest
  // first; the earlier party on ties.
  std::vector<size_t> Highest(absl::Span<const int64_t> caps, bool local) const;

  // The best number of local parties beside others, where both caps are descending.
  Mix Most(absl::Span<const int64_t> locals, absl::Span<const int64_t> others, int64_t max_sent) const;

  // Those that take part. Requires that max_participants binds.
  std::vector<size_t> Choose(absl::Span<const int64_t> caps, int64_t max_sent) const;

  const PartyProblem& problem_;
  const int64_t max_participants_;
};

// Divides `amount` among the parties `among` in proportion to their caps, which sum to at least `amount`, by largest
// remainder; nobody gets more than its cap.
void FillInProportion(int64_t amount, absl::Span<const int64_t> caps, absl::Span<const size_t> among,
                      std::vector<int64_t>* samples);

// Divides `amount` in proportion to the weights (each above 0), by largest remainder, the earlier first on ties; what one
// that has reached its limit cannot take, the others share in the same proportions. The limits sum to at least `amount`.
std::vector<int64_t> Apportion(int64_t amount, absl::Span<const int64_t> limits, absl::Span<const double> weights);

// What samples [parties] cost, by the formulas of allocation.h, without kSeparable's constant.
double TotalSeconds(const PartyProblem& problem, absl::Span<const int64_t> samples);

// What a problem costs depends on how many parties take part, since they share the coordinator's link. A relaxation: each
// party pays as one of `lo` participants, and at most `hi` take part.
struct RelaxedSolution {
  // No solution of the relaxation is below. Infinite where there is none below the total that was asked for.
  double bound_s = std::numeric_limits<double>::infinity();
  bool tight = false;            // No solution of the problem with lo..hi participants is better than `samples`.
  std::vector<int64_t> samples;  // [parties]; empty where the bound is infinite.
  double total_s = std::numeric_limits<double>::infinity();  // What `samples` cost in truth.
};

struct ParticipantsSolution {
  double bound_s = 0;  // No solution is below.
  double total_s = std::numeric_limits<double>::infinity();
  std::vector<int64_t> samples;  // [parties]
};

// The best over all numbers of participants 1..parties, best first, splitting the range until the best is tight.
// `solve(lo, hi, upper_s)` solves the relaxation, as far as it is below upper_s; it is tight whenever lo == hi.
template <typename Solve>
ParticipantsSolution MinimiseOverParticipants(int64_t parties, const Solve& solve) {
  struct Node {
    double bound_s;
    bool tight;
    int64_t lo, hi;
    bool operator>(const Node& other) const { return bound_s > other.bound_s; }
  };
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open;
  ParticipantsSolution best;
  const auto push = [&](int64_t lo, int64_t hi) {
    RelaxedSolution solution = solve(lo, hi, best.total_s);
    if (std::isinf(solution.bound_s)) return;
    open.push({solution.bound_s, solution.tight || lo == hi, lo, hi});
    if (solution.total_s < best.total_s) {
      best.total_s = solution.total_s;
      best.samples = std::move(solution.samples);
    }
  };
  push(1, parties);
  while (!open.empty()) {
    const Node node = open.top();
    open.pop();
    best.bound_s = std::min(node.bound_s, best.total_s);
    if (node.tight || node.bound_s >= best.total_s * (1 - kRelativeTolerance)) return best;
    const int64_t middle = node.lo + (node.hi - node.lo) / 2;
    push(node.lo, middle);
    push(middle + 1, node.hi);
  }
  best.bound_s = best.total_s;  // Nothing else is below it.
  return best;
}

// Whether the parties with samples pay as participants of their own number no more than as participants of `assumed`.
bool PaysNoMoreThan(const PartyProblem& problem, absl::Span<const int64_t> samples, int64_t assumed);

// The devices' samples where the parties' are given. O(devices * log(devices)).
std::vector<int64_t> SplitAmongMembers(const AllocationProblem& problem, const PartyProblem& parties,
                                       absl::Span<const int64_t> party_samples);

}  // namespace causeway::scheduler::internal

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_PARTIES_H_
