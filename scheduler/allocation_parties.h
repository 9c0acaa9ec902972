// An allocation problem as its solvers see it. Not for use outside this folder.
//
// What gets samples is a party: a device, or where sites step together a site. Coefficients and participation are computed
// here for the evaluator, the bound and all solvers, so that they agree to the last bit.
#ifndef CAUSEWAY_SCHEDULER_ALLOCATION_PARTIES_H_
#define CAUSEWAY_SCHEDULER_ALLOCATION_PARTIES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
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

  // Indices of the `count` parties, local ones or the others, with the highest caps above 0, highest first; the earlier
  // party on ties.
  std::vector<size_t> Highest(absl::Span<const int64_t> caps, bool local, int64_t count) const;

  int64_t max_participants() const { return max_participants_; }

 private:
  // Those that take part. Requires that max_participants binds.
  std::vector<size_t> Choose(absl::Span<const int64_t> caps, int64_t max_sent) const;

  const PartyProblem& problem_;
  const int64_t max_participants_;
};

// Divides `amount` among the parties `among` in proportion to their caps, which sum to at least `amount`, by largest
// remainder; nobody gets more than its cap.
void FillInProportion(int64_t amount, absl::Span<const int64_t> caps, absl::Span<const size_t> among,
                      std::vector<int64_t>* samples);

// What a problem costs depends on how many parties take part, since they share the coordinator's link. Solution of a
// relaxation: each party pays as one of `lo` participants, and at most `hi` take part.
struct ParticipantsSolution {
  double bound_s = std::numeric_limits<double>::infinity();  // No solution of the relaxation is below; infinite: none.
  double gap_s = 0;              // The solution found is at most so far above bound_s.
  bool attained = false;         // The solution found pays no less as what it is: more participants cost no more.
  std::vector<int64_t> samples;  // [parties]
};

// The best over all numbers of participants 1..parties, best first, splitting the range until the best is attained.
// `solve(lo, hi)` solves the relaxation and says `attained` whenever lo == hi.
template <typename Solve>
ParticipantsSolution MinimiseOverParticipants(int64_t parties, const Solve& solve) {
  struct Node {
    ParticipantsSolution solution;
    int64_t lo, hi;
    bool operator>(const Node& other) const { return solution.bound_s > other.solution.bound_s; }
  };
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open;
  open.push({solve(int64_t{1}, parties), 1, parties});
  while (true) {
    Node node = open.top();
    open.pop();
    if (node.solution.attained || node.lo == node.hi) return std::move(node.solution);
    const int64_t middle = node.lo + (node.hi - node.lo) / 2;
    open.push({solve(node.lo, middle), node.lo, middle});
    open.push({solve(middle + 1, node.hi), middle + 1, node.hi});
  }
}

// Whether the parties with samples pay as participants of their own number no more than as participants of `assumed`.
bool PaysNoMoreThan(const PartyProblem& problem, absl::Span<const int64_t> samples, int64_t assumed);

// The devices' samples where the parties' are given. O(devices * log(devices)).
std::vector<int64_t> SplitAmongMembers(const AllocationProblem& problem, const PartyProblem& parties,
                                       absl::Span<const int64_t> party_samples);

}  // namespace causeway::scheduler::internal

#endif  // CAUSEWAY_SCHEDULER_ALLOCATION_PARTIES_H_
