#ifndef CAUSEWAY_SCHEDULER_ROUND_STEPS_H_
#define CAUSEWAY_SCHEDULER_ROUND_STEPS_H_

#include <cstdint>
#include <vector>

#include "scheduler/simulated_job.h"

namespace causeway::scheduler {

// Which of a participant's steps a job's rounds consist of, counted from 0 over the whole job, and what is sent when. A
// participant is given by the steps of its epoch (EpochSteps), which have no meaning where rounds are of a number of steps.
class RoundSteps {
 public:
  explicit RoundSteps(const SimulatedJob& job) : job_(job) {}  // Not copied; outlives this.

  // The steps before the round.
  int64_t RoundStart(int64_t epoch_steps, int64_t round) const;
  int64_t StepsOf(int64_t epoch_steps, int64_t round) const {
    return RoundStart(epoch_steps, round + 1) - RoundStart(epoch_steps, round);
  }
  // The steps before the fragment is sent.
  int64_t SendPosition(int64_t epoch_steps, int fragment, int64_t round) const;
  // What these of its workers train on in the round, or in the first `steps` steps of it.
  double SamplesOf(int64_t epoch_steps, int64_t round, const std::vector<int>& workers) const {
    return SamplesOf(epoch_steps, round, workers, StepsOf(epoch_steps, round));
  }
  double SamplesOf(int64_t epoch_steps, int64_t round, const std::vector<int>& workers, int64_t steps) const;

 private:
  const SimulatedJob& job_;
};

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_ROUND_STEPS_H_
