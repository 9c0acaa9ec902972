// Sites whose workers step together (lock step). Within a site the number of steps S is one number, and a member's batch is
// its share of each step: it takes D_k <= S * batch_k samples, its last step ragged; a member that has run out joins with
// weight 0. Amounts across sites are allocation_exact.h's to find, to which a site is one device.
// Source: ours; C-ADP knows single devices. All functions are pure and thread-safe.
#ifndef CAUSEWAY_SCHEDULER_SITE_BATCHES_H_
#define CAUSEWAY_SCHEDULER_SITE_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/batch_choice.h"

namespace causeway::scheduler {

struct SiteMember {
  int64_t max_parallel = 0;                    // >= 1; most samples that the device processes at once.
  std::vector<BatchMeasurement> measurements;  // At least one; three or more tell a step's fixed cost.
};

// Each member's batch, with its estimated time: what it processes in a step time that is the same for all, as short as
// the site's batch allows, under each max_parallel. So batches are in proportion to the speeds measured near them. No
// member gets fewer than two samples (a batch of one has no variance to normalise by) where the site's batch and its
// max_parallel allow it, and none fewer than one.
//
// Times between and beyond the measurements are EstimateBatchTime's, never falling with the size.
// O(members * (measurements + log(max_parallel)) * 64).
// Errors: InvalidArgument, naming the member by its index (a value out of range, no measurement, a batch size measured
// twice, a site batch below the number of members or above what they process at once).
absl::StatusOr<std::vector<BatchMeasurement>> ChooseSiteBatches(absl::Span<const SiteMember> members,
                                                                int64_t site_batch);

struct SiteMemberRoom {
  int64_t batch_size = 0;        // >= 1
  int64_t capacity_samples = 0;  // >= 0
};

// The most samples of which every number up to it can be split among the members. It is below the sum of the capacities
// where a small one holds the others up: a member may be full one step before the site's last, no earlier.
int64_t SiteCapacity(absl::Span<const SiteMemberRoom> members);

// Each member's samples, in proportion to the batches but for rounding, at most S * batch_size with the fewest steps S
// that hold `samples`, at most its capacity. A last step of a single sample is avoided where another member's samples
// allow it. O(members^2) at worst. Requires samples <= SiteCapacity(members).
std::vector<int64_t> SplitSiteSamples(absl::Span<const SiteMemberRoom> members, int64_t samples);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_SITE_BATCHES_H_
