#include "worker/trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace causeway::worker {
namespace {

absl::StatusOr<SampleDecoder> MakeDecoder(const v1::DatasetInfo& info, const v1::DataSource& source, int32_t classes) {
  ASSIGN_OR_RETURN(SampleDecoder decoder,
                   SampleDecoder::Create({.sample_shape = {info.sample_shape().begin(), info.sample_shape().end()},
                                          .label_bytes = info.label_bytes(),
                                          .mean = {source.mean().begin(), source.mean().end()},
                                          .std = {source.std().begin(), source.std().end()},
                                          .classes = classes}));
  if (decoder.record_bytes() != info.record_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("records of ", info.record_bytes(), " bytes for samples of ",
                                                   decoder.record_bytes(), " with their label"));
  }
  return decoder;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(Options options) {
  CAUSEWAY_CHECK(options.model != nullptr && options.site_sync != nullptr && options.train_source != nullptr &&
                 options.test_source != nullptr && options.clock != nullptr);
  if (!(options.slowdown >= 1))
    return absl::InvalidArgumentError(absl::StrCat("slowdown ", options.slowdown, " is below 1"));
  const v1::JobSpec& spec = options.spec;
  ASSIGN_OR_RETURN(auto optimizer, MakeOptimizer(spec.optimizer(), LayerElements(*options.model)));
  ASSIGN_OR_RETURN(LrSchedule schedule, LrSchedule::Create(spec.optimizer()));
  ASSIGN_OR_RETURN(SampleDecoder train, MakeDecoder(options.train, spec.data().train(), spec.model().classes()),
                   "training data");
  ASSIGN_OR_RETURN(SampleDecoder test, MakeDecoder(options.test, spec.data().test(), spec.model().classes()),
                   "test data");
  return std::unique_ptr<Trainer>(
      new Trainer(std::move(options), std::move(optimizer), schedule, std::move(train), std::move(test)));
}

Trainer::Trainer(Options options, std::unique_ptr<Optimizer> optimizer, LrSchedule schedule,
                 SampleDecoder train_decoder, SampleDecoder test_decoder)
    : options_(std::move(options)),
      optimizer_(std::move(optimizer)),
      schedule_(schedule),
      train_loader_(options_.train_source, std::move(train_decoder)),
      test_loader_(options_.test_source, std::move(test_decoder)),
      runner_({.model = options_.model,
               .optimizer = optimizer_.get(),
               .site_sync = options_.site_sync,
               .clock = options_.clock,
               .slowdown = options_.slowdown}) {}

absl::StatusOr<Trainer::RoundResult> Trainer::TrainRound(const v1::TrainTask& task, std::stop_token stop,
                                                         const std::function<bool()>& cut_short) {
  RETURN_IF_ERROR(schedule_.CheckTask(task));
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(task.ranges()));
  ASSIGN_OR_RETURN(
      const std::vector<BatchRange> batches,
      StepBatches(task.first_step(), task.last_step(), task.batch_size(), samples, options_.model->min_train_batch()));
  int64_t planned = 0;
  for (const BatchRange& batch : batches) planned += batch.counted;
  if (planned != task.planned_samples()) {
    return absl::InvalidArgumentError(absl::StrCat("the task plans ", task.planned_samples(), " samples, but steps [",
                                                   task.first_step(), ", ", task.last_step(), ") in batches of ",
                                                   task.batch_size(), " over a shard of ", samples, " have ", planned));
  }
  const std::vector<int64_t> order =
      EpochOrder(task.ranges(), options_.spec.seed(), options_.spec.name(), options_.worker, task.epoch());

  RoundResult result;
  double loss_sum = 0;
  absl::Duration compute;
  for (const BatchRange& range : batches) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    ASSIGN_OR_RETURN(
        const StepRunner::Result step,
        runner_.Train(&train_loader_, absl::MakeConstSpan(order).subspan(range.begin, range.end - range.begin),
                      schedule_.ForStep(task, result.steps), result.steps, stop));
    ++result.steps;
    result.samples += range.counted;
    loss_sum += step.batch.loss_sum * static_cast<double>(range.counted) / static_cast<double>(range.end - range.begin);
    result.loss_mean = loss_sum / static_cast<double>(result.samples);
    compute += step.elapsed;
    if (options_.on_progress) {
      options_.on_progress({.steps_done = result.steps,
                            .steps_planned = static_cast<int64_t>(batches.size()),
                            .samples_done = result.samples,
                            .train_loss = result.loss_mean});
    }
    if (cut_short && cut_short()) break;
  }
  RETURN_IF_ERROR(options_.site_sync->OnRoundEnd());
  result.compute_s = absl::ToDoubleSeconds(compute);
  return result;
}

absl::StatusOr<Trainer::EvaluationResult> Trainer::Evaluate(const SampleRanges& ranges, std::stop_token stop) {
  ASSIGN_OR_RETURN(const int64_t count, CountSamples(ranges));
  const std::vector<int64_t> samples = ListSamples(ranges);
  EvaluationResult result;
  absl::Duration compute;
  for (int64_t begin = 0; begin < count; begin += kEvaluationBatch) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    ASSIGN_OR_RETURN(
        const StepRunner::Result batch,
        runner_.Evaluate(&test_loader_, absl::MakeConstSpan(samples).subspan(begin, kEvaluationBatch), stop));
    result.correct += batch.batch.correct;
    result.total += batch.batch.samples;
    result.loss_sum += batch.batch.loss_sum;
    compute += batch.elapsed;
  }
  result.compute_s = absl::ToDoubleSeconds(compute);
  return result;
}

}  // namespace causeway::worker
