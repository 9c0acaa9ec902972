#include "worker/step_runner.h"

#include <algorithm>

#include "base/status_macros.h"

namespace causeway::worker {

absl::StatusOr<StepRunner::Result> StepRunner::Train(BatchLoader* loader, absl::Span<const int64_t> samples,
                                                     double learning_rate, int64_t step, std::stop_token stop) {
  const absl::Time start = options_.clock->Now();
  ASSIGN_OR_RETURN(const Batch batch, loader->Load(samples));
  Result result;
  ASSIGN_OR_RETURN(result.batch,
                   options_.model->TrainBatch(batch, [this](int layer) { options_.site_sync->OnGradient(layer); }));
  RETURN_IF_ERROR(options_.site_sync->OnBackwardEnd());
  int index = 0;
  for (const LayerView& layer : options_.model->layers()) {
    options_.optimizer->Step(index++, layer.parameters, layer.gradients, learning_rate);
  }
  RETURN_IF_ERROR(options_.site_sync->OnStepEnd(step));
  ASSIGN_OR_RETURN(result.elapsed, AppearSlower(start, stop));
  return result;
}

absl::StatusOr<StepRunner::Result> StepRunner::Evaluate(BatchLoader* loader, absl::Span<const int64_t> samples,
                                                        std::stop_token stop) {
  const absl::Time start = options_.clock->Now();
  ASSIGN_OR_RETURN(const Batch batch, loader->Load(samples));
  Result result;
  ASSIGN_OR_RETURN(result.batch, options_.model->EvaluateBatch(batch));
  ASSIGN_OR_RETURN(result.elapsed, AppearSlower(start, stop));
  return result;
}

absl::StatusOr<absl::Duration> StepRunner::AppearSlower(absl::Time start, const std::stop_token& stop) {
  const absl::Duration real = options_.clock->Now() - start;
  // Slept in pieces, so that a stop is heard in the middle of a long step.
  constexpr absl::Duration kPiece = absl::Milliseconds(200);
  for (absl::Duration left = real * (options_.slowdown - 1); left > absl::ZeroDuration(); left -= kPiece) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    options_.clock->SleepFor(std::min(left, kPiece));
  }
  return options_.clock->Now() - start;
}

}  // namespace causeway::worker
