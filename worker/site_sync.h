#ifndef CAUSEWAY_WORKER_SITE_SYNC_H_
#define CAUSEWAY_WORKER_SITE_SYNC_H_

#include <cstdint>

#include "absl/status/status.h"

namespace causeway::worker {

// What the workers of a site do together while they train: a policy that hears the training loop's events and answers
// with collectives. The method of a job is one implementation (sync_none.h).
//
// Per round: (OnGradient* OnBackwardEnd OnStepEnd)* OnRoundEnd, all on the training thread but OnGradient, which comes
// on the backward thread (the events around forward come with the methods that need them). An error ends the round.
class SiteSync {
 public:
  virtual ~SiteSync() = default;

  // The gradients of layer l (1..L) are complete; backward order. An error that it meets is returned by OnBackwardEnd.
  virtual void OnGradient(int layer) = 0;
  // Backward has ended; the optimizer steps when this returns.
  virtual absl::Status OnBackwardEnd() = 0;
  // The optimizer has stepped; `step` counts from 0 in the round.
  virtual absl::Status OnStepEnd(int64_t step) = 0;
  // The round's steps are done.
  virtual absl::Status OnRoundEnd() = 0;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_SITE_SYNC_H_
