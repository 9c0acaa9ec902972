#ifndef CAUSEWAY_WORKER_LR_SCHEDULE_H_
#define CAUSEWAY_WORKER_LR_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/membership.pb.h"

namespace causeway::worker {

// The learning rate over a job, by global samples and never by local steps, so that a worker with three steps an epoch
// is as far along as one with 300. Immutable, so thread-safe.
//
// `constant`; `step`: times gamma every step_samples; `cosine`: from the full rate, at the end of the warm-up, to 0 at
// the job's end. Each is scaled linearly from 0 during the first warmup_samples.
class LrSchedule {
 public:
  // Errors: InvalidArgument (unknown name, a number out of range).
  static absl::StatusOr<LrSchedule> Create(const v1::OptimizerSpec& spec);

  // Whether the job can be scheduled. Errors: InvalidArgument (`cosine` in a job whose length in samples is unknown).
  absl::Status CheckTask(const v1::TrainTask& task) const;

  // The rate after `global_samples` of the job's `job_samples`.
  double At(double global_samples, int64_t job_samples) const;

  // The rate of the step that follows `steps_done` steps of `task`: global samples are those committed and this
  // worker's progress through its own steps times the round's planned samples.
  double ForStep(const v1::TrainTask& task, int64_t steps_done) const;

 private:
  enum class Kind { kConstant, kStep, kCosine };
  LrSchedule() = default;

  Kind kind_ = Kind::kConstant;
  double learning_rate_ = 0;
  int64_t warmup_samples_ = 0;
  int64_t step_samples_ = 0;
  double gamma_ = 1;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_LR_SCHEDULE_H_
