#include "worker/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace causeway::worker {

absl::StatusOr<LrSchedule> LrSchedule::Create(const v1::OptimizerSpec& spec) {
  const v1::ScheduleSpec& from = spec.schedule();
  LrSchedule schedule;
  if (from.name().empty() || from.name() == "constant") {
    schedule.kind_ = Kind::kConstant;
  } else if (from.name() == "step") {
    schedule.kind_ = Kind::kStep;
    if (from.step_samples() <= 0 || !(from.gamma() > 0) || !std::isfinite(from.gamma())) {
      return absl::InvalidArgumentError(absl::StrCat("schedule step with step_samples ", from.step_samples(),
                                                     " and gamma ", from.gamma(), "; both must be positive"));
    }
  } else if (from.name() == "cosine") {
    schedule.kind_ = Kind::kCosine;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown schedule \"", from.name(), "\"; allowed: constant, step, cosine"));
  }
  if (!(spec.learning_rate() > 0) || !std::isfinite(spec.learning_rate())) {
    return absl::InvalidArgumentError(absl::StrCat("learning_rate ", spec.learning_rate(), " is not positive"));
  }
  if (from.warmup_samples() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("warmup_samples ", from.warmup_samples(), " is negative"));
  }
  schedule.learning_rate_ = spec.learning_rate();
  schedule.warmup_samples_ = from.warmup_samples();
  schedule.step_samples_ = from.step_samples();
  schedule.gamma_ = from.gamma();
  return schedule;
}

absl::Status LrSchedule::CheckTask(const v1::TrainTask& task) const {
  if (kind_ == Kind::kCosine && task.job_samples() <= 0) {
    return absl::InvalidArgumentError("schedule cosine needs a job whose length in samples is known");
  }
  return absl::OkStatus();
}

double LrSchedule::At(double global_samples, int64_t job_samples) const {
  const double warmup = static_cast<double>(warmup_samples_);
  double rate = learning_rate_;
  if (global_samples < warmup) rate *= global_samples / warmup;
  switch (kind_) {
    case Kind::kConstant: break;
    case Kind::kStep: rate *= std::pow(gamma_, std::floor(global_samples / static_cast<double>(step_samples_))); break;
    case Kind::kCosine: {
      const double span = static_cast<double>(job_samples) - warmup;
      const double progress = span > 0 ? std::clamp((global_samples - warmup) / span, 0.0, 1.0) : 0.0;
      rate *= 0.5 * (1 + std::cos(std::numbers::pi * progress));
      break;
    }
  }
  return rate;
}

double LrSchedule::ForStep(const v1::TrainTask& task, int64_t steps_done) const {
  const double done = static_cast<double>(steps_done) / static_cast<double>(task.last_step() - task.first_step());
  return At(static_cast<double>(task.committed_samples()) + done * static_cast<double>(task.round_samples()),
            task.job_samples());
}

}  // namespace causeway::worker
