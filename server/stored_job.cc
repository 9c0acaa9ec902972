#include "server/stored_job.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"

namespace causeway::server {
namespace {

// Of samples, steps, rounds and bytes: products of two batch sizes more than this stay within 64 bits.
constexpr int64_t kMost = int64_t{1} << 46;
constexpr int64_t kMostPerEpoch = 100'000;
constexpr int64_t kLargestBatch = 1 << 20;
constexpr int kMostBatchTimes = 100;
// Of what is measured; with these, times of whole jobs stay far from the largest double.
constexpr double kLongestBatchSeconds = 1e6;
constexpr double kLeastRate = 1e-3;
constexpr double kMostRate = 1e15;
// Attempts are incarnations times a million.
constexpr int64_t kMostAttempts = int64_t{1} << 60;

absl::Status Impossible(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the journal is damaged: ", what));
}

absl::Status InRange(absl::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Impossible(absl::StrCat(what, " is ", value));
}

absl::Status Finite(absl::string_view what, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Impossible(absl::StrCat(what, " is ", value));
}

absl::Status CheckName(absl::string_view what, absl::string_view name) {
  return ValidateName(what, name).ok() ? absl::OkStatus() : Impossible(absl::StrCat(what, " is none"));
}

absl::Status CheckSpec(const v1::JobSpec& spec) {
  RETURN_IF_ERROR(CheckName("a job's name", spec.name()));
  RETURN_IF_ERROR(InRange("rounds.per_epoch", spec.rounds().per_epoch(), 1, kMostPerEpoch));
  if (!(spec.rounds().quorum() > 0 && spec.rounds().quorum() <= 1)) return Impossible("rounds.quorum is out of range");
  RETURN_IF_ERROR(Finite("rounds.deadline", spec.rounds().deadline_s()));
  RETURN_IF_ERROR(Finite("rounds.replan_after", spec.rounds().replan_after_s()));
  RETURN_IF_ERROR(InRange("checkpoint.every_rounds", spec.checkpoint().every_rounds(), 1, kMost));
  RETURN_IF_ERROR(InRange("checkpoint.keep", spec.checkpoint().keep(), 1, kMost));
  RETURN_IF_ERROR(InRange("batch.per_worker", spec.batch().per_worker(), 0, kLargestBatch));
  RETURN_IF_ERROR(InRange("batch.max", spec.batch().max(), 1, kLargestBatch));
  RETURN_IF_ERROR(InRange("model.classes", spec.model().classes(), 1, kLargestBatch));
  RETURN_IF_ERROR(Finite("end.epochs", spec.end().epochs()));
  RETURN_IF_ERROR(InRange("end.rounds", spec.end().rounds(), 0, int64_t{1} << 50));
  return InRange("end.samples", spec.end().samples(), 0, int64_t{1} << 50);
}

absl::Status CheckPlan(const v1::Plan& plan) {
  RETURN_IF_ERROR(InRange("a plan's number", plan.number(), 1, kMost));
  RETURN_IF_ERROR(InRange("a plan's samples", plan.samples(), 0, kMost));
  RETURN_IF_ERROR(InRange("a plan's rounds per epoch", plan.rounds_per_epoch(), 1, kMostPerEpoch));
  for (const v1::WorkerPlan& worker : plan.workers()) {
    RETURN_IF_ERROR(CheckName("a planned worker's name", worker.worker()));
    RETURN_IF_ERROR(CheckName("a planned worker's site", worker.site()));
    RETURN_IF_ERROR(InRange("a worker's planned samples", worker.samples(), 0, kMost));
    RETURN_IF_ERROR(InRange("a worker's batch", worker.batch_size(), worker.samples() > 0 ? 1 : 0, kLargestBatch));
    RETURN_IF_ERROR(InRange("a worker's steps per epoch", worker.steps_per_epoch(), 0, worker.samples()));
    RETURN_IF_ERROR(Finite("a worker's batch time", worker.batch_time_s()));
    RETURN_IF_ERROR(Finite("a worker's computing time", worker.compute_s()));
    RETURN_IF_ERROR(Finite("a worker's communication time", worker.comm_s()));
  }
  return absl::OkStatus();
}

absl::Status CheckShards(const std::vector<scheduler::WorkerRanges>& shards, int64_t samples) {
  for (const scheduler::WorkerRanges& shard : shards) {
    RETURN_IF_ERROR(CheckName("a shard's worker", shard.worker));
    for (const auto& range : shard.ranges) {
      RETURN_IF_ERROR(InRange("the begin of a shard's range", range.begin, 0, samples));
      RETURN_IF_ERROR(InRange("the end of a shard's range", range.end, range.begin, samples));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRuntime(const v1::StoredRuntime& runtime) {
  const v1::StoredRound& round = runtime.open_round();
  RETURN_IF_ERROR(InRange("an open round's attempt", round.attempt(), 0, kMostAttempts));
  RETURN_IF_ERROR(InRange("an open round's quorum", round.quorum_of(), 0, kMost));
  for (const auto& participant : round.participants()) {
    RETURN_IF_ERROR(CheckName("a participant's name", participant.worker()));
    RETURN_IF_ERROR(InRange("a participant's samples", participant.planned_samples(), 0, kMost));
    RETURN_IF_ERROR(InRange("a participant's rank", participant.rank(), 0, std::numeric_limits<int32_t>::max()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProfile(const v1::DeviceProfile& profile) {
  if (profile.max_parallel() < 1 || profile.max_parallel() > kLargestBatch || profile.batch_times().empty() ||
      profile.batch_times_size() > kMostBatchTimes) {
    return absl::InvalidArgumentError("a profile with no largest batch, or with no or too many batch sizes");
  }
  const auto is_rate = [](double value) { return value >= kLeastRate && value <= kMostRate; };  // No NaN is.
  for (const auto& time : profile.batch_times()) {
    if (time.batch_size() < 1 || time.batch_size() > kLargestBatch ||
        !(time.batch_time_s() > 0 && time.batch_time_s() <= kLongestBatchSeconds))
      return absl::InvalidArgumentError("a profile with an impossible batch time");
  }
  if (!is_rate(profile.down_bytes_per_s()) || !is_rate(profile.up_bytes_per_s()) ||
      !is_rate(profile.eval_samples_per_s())) {
    return absl::InvalidArgumentError("a profile with an impossible rate");
  }
  return absl::OkStatus();
}

absl::Status CheckPinnedPlan(const v1::Plan& plan) {
  for (const v1::WorkerPlan& worker : plan.workers()) {
    if (worker.samples() < 0 || worker.samples() > kMost || worker.batch_size() < 0 ||
        worker.batch_size() > kLargestBatch) {
      return absl::InvalidArgumentError(absl::StrCat("a pinned plan with ", worker.samples(), " samples in batches of ",
                                                     worker.batch_size(), " for a worker"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFetched(const v1::ReportDataRequest& request) {
  if (request.bytes_fetched() < 0 || request.bytes_fetched() > kMost || !std::isfinite(request.seconds()) ||
      request.seconds() < 0) {
    return absl::InvalidArgumentError("data of an impossible size, or fetched in an impossible time");
  }
  return absl::OkStatus();
}

absl::Status CheckStoredJob(const Job::Options& options, const Job::Stored& stored) {
  RETURN_IF_ERROR(CheckSpec(options.spec));
  if (!v1::JobState_IsValid(stored.state) || stored.state == v1::JOB_STATE_UNSPECIFIED) {
    return Impossible(absl::StrCat("a job's state is ", stored.state));
  }
  RETURN_IF_ERROR(InRange("the training set's size", options.train.samples(), 0, kMost));
  RETURN_IF_ERROR(InRange("the test set's size", options.test.samples(), 0, kMost));
  if (options.pinned.has_value()) {
    if (absl::Status pinned = CheckPinnedPlan(*options.pinned); !pinned.ok()) return Impossible(pinned.message());
  }
  for (const PlanResult& plan : stored.plans) {
    RETURN_IF_ERROR(CheckPlan(plan.plan));
    RETURN_IF_ERROR(CheckShards(plan.shards, options.train.samples()));
  }
  RETURN_IF_ERROR(CheckRuntime(stored.runtime));
  for (const auto& [worker, profile] : stored.profiles) {
    if (absl::Status measured = CheckProfile(profile); !measured.ok()) return Impossible(measured.message());
  }
  RETURN_IF_ERROR(InRange("a version", stored.version.value(), -1, kMost));
  if (stored.version.value() >= 0 && !stored.layout.has_value())
    return Impossible("a version of a model without layout");
  for (const v1::RoundRecord& record : stored.rounds) {
    RETURN_IF_ERROR(InRange("a round's samples", record.samples(), 0, kMost));
    RETURN_IF_ERROR(InRange("a round's version", record.version(), 0, kMost));
  }
  for (const v1::Evaluation& evaluation : stored.evaluations) {
    RETURN_IF_ERROR(InRange("an evaluation's samples", evaluation.total(), 0, kMost));
    RETURN_IF_ERROR(InRange("an evaluation's hits", evaluation.correct(), 0, evaluation.total()));
  }
  return absl::OkStatus();
}

}  // namespace causeway::server
