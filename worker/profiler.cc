#include "worker/profiler.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "worker/optimizer.h"
#include "worker/sample_decoder.h"
#include "worker/sample_source.h"
#include "worker/step_runner.h"
#include "worker/sync_none.h"
#include "worker/trainer.h"

namespace causeway::worker {
namespace {

constexpr int kWarmUps = 2;
// Linux grants a quota of CPU time every 100 ms: a device with a quarter of a core computes for 25 ms and stands still for 75. Most single
// steps would not see that; one measurement is therefore the mean of the steps of such a time.
constexpr absl::Duration kWindow = absl::Milliseconds(100);
constexpr int kMaxStepsInWindow = 1000;

// Records of noise, each always the same.
class MadeUpSource : public SampleSource {
 public:
  explicit MadeUpSource(int32_t classes) : labels_(std::min(classes, 256)) {}
  absl::Status ReadRecord(int64_t sample, absl::Span<uint8_t> out) override {
    Random random(static_cast<uint64_t>(sample));
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
    out.back() = static_cast<uint8_t>(random.Below(labels_));
    return absl::OkStatus();
  }

 private:
  const int32_t labels_;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

struct Measurement {
  int64_t batch_size = 0;
  std::vector<double> seconds;
};

// Which sizes to measure: ascending, each once, none that the model cannot train.
absl::StatusOr<std::vector<Measurement>> PlanMeasurements(const v1::ProfileTask& task, int64_t min_batch) {
  std::vector<int64_t> sizes(task.batch_sizes().begin(), task.batch_sizes().end());
  std::sort(sizes.begin(), sizes.end());
  std::vector<Measurement> measurements;
  for (int64_t size : sizes) {
    if (size < 1) return absl::InvalidArgumentError(absl::StrCat("batch size ", size));
    if (size < min_batch || (!measurements.empty() && measurements.back().batch_size == size)) continue;
    measurements.push_back({.batch_size = size});
  }
  if (measurements.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no batch size to measure of at least ", min_batch));
  }
  return measurements;
}

absl::StatusOr<v1::DeviceProfile> Measure(const ProfileOptions& options, const v1::ProfileTask& task,
                                          std::stop_token stop) {
  ASSIGN_OR_RETURN(std::vector<Measurement> measurements, PlanMeasurements(task, options.model->min_train_batch()));
  ASSIGN_OR_RETURN(auto optimizer, MakeOptimizer(options.spec.optimizer(), LayerElements(*options.model)));
  const int32_t classes = options.spec.model().classes();
  ASSIGN_OR_RETURN(SampleDecoder decoder,
                   SampleDecoder::Create({.sample_shape = options.sample_shape, .label_bytes = 1, .classes = classes}));
  MadeUpSource source(classes);
  BatchLoader loader(&source, std::move(decoder));
  const std::unique_ptr<SiteSync> site_sync = MakeSyncNone();
  StepRunner runner({.model = options.model,
                     .optimizer = optimizer.get(),
                     .site_sync = site_sync.get(),
                     .clock = options.clock,
                     .slowdown = options.slowdown});
  std::vector<int64_t> samples(std::max(measurements.back().batch_size, kEvaluationBatch));
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);

  // The mean time of as many steps as fill a window.
  auto mean_s = [&](auto step) -> absl::StatusOr<double> {
    absl::Duration elapsed;
    int steps = 0;
    while (steps == 0 || (elapsed < kWindow && steps < kMaxStepsInWindow)) {
      if (stop.stop_requested()) return absl::CancelledError("stopped");
      ASSIGN_OR_RETURN(const StepRunner::Result result, step());
      elapsed += result.elapsed;
      ++steps;
    }
    return absl::ToDoubleSeconds(elapsed) / steps;
  };
  // A rate of 0 costs the same and cannot diverge.
  auto train = [&](int64_t size) {
    return runner.Train(&loader, absl::MakeConstSpan(samples).first(size), 0, 0, stop);
  };
  auto evaluate = [&] { return runner.Evaluate(&loader, absl::MakeConstSpan(samples).first(kEvaluationBatch), stop); };
  for (int i = 0; i < kWarmUps; ++i) {
    for (size_t m = 0; m < measurements.size(); ++m) {
      const absl::Status status = train(measurements[m].batch_size).status();
      if (absl::IsResourceExhausted(status) && m > 0) {
        measurements.resize(m);
        break;
      }
      RETURN_IF_ERROR(status, absl::StrCat("batch of ", measurements[m].batch_size));
    }
  }
  std::vector<double> evaluation_seconds;
  const absl::Time end = options.clock->Now() + absl::Seconds(task.seconds());
  for (int i = 0; i < kMinRepeats || options.clock->Now() < end; ++i) {
    for (Measurement& measurement : measurements) {
      ASSIGN_OR_RETURN(const double seconds, mean_s([&] { return train(measurement.batch_size); }),
                       absl::StrCat("batch of ", measurement.batch_size));
      measurement.seconds.push_back(seconds);
    }
    ASSIGN_OR_RETURN(const double seconds, mean_s(evaluate));
    evaluation_seconds.push_back(seconds);
  }

  v1::DeviceProfile profile;
  for (const Measurement& measurement : measurements) {
    v1::DeviceProfile::BatchTime* time = profile.add_batch_times();
    time->set_batch_size(measurement.batch_size);
    time->set_batch_time_s(Median(measurement.seconds));
    time->set_repeats(static_cast<int32_t>(measurement.seconds.size()));
  }
  profile.set_max_parallel(measurements.back().batch_size);
  profile.set_eval_samples_per_s(static_cast<double>(kEvaluationBatch) / Median(evaluation_seconds));
  return profile;
}

}  // namespace

absl::StatusOr<v1::DeviceProfile> Profile(const ProfileOptions& options, const v1::ProfileTask& task,
                                          std::stop_token stop) {
  CAUSEWAY_CHECK(options.model != nullptr && options.clock != nullptr);
  if (!(options.slowdown >= 1))
    return absl::InvalidArgumentError(absl::StrCat("slowdown ", options.slowdown, " is below 1"));
  // Batch normalization learns even at a rate of 0.
  std::vector<uint8_t> before(options.model->layout().total_bytes());
  RETURN_IF_ERROR(options.model->Save(absl::MakeSpan(before)));
  absl::StatusOr<v1::DeviceProfile> profile = Measure(options, task, stop);
  RETURN_IF_ERROR(options.model->Load(before));
  return profile;
}

}  // namespace causeway::worker
