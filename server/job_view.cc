// Job, the part that others see: assignments, what is journaled, what is shown.
#include "server/job.h"

#include <algorithm>
#include <cmath>

#include "server/shares.h"

namespace causeway::server {
namespace {

constexpr size_t kShownRounds = 1000;

template <typename Repeated>
void AddRanges(const Ranges& ranges, Repeated* out) {
  for (const auto& range : ranges) {
    v1::SampleRange* r = out->Add();
    r->set_begin(range.begin);
    r->set_end(range.end);
  }
}

}  // namespace

const v1::WorkerPlan* Job::PlanOf(const PlanState& plan, const WorkerId& worker) const {
  for (const v1::WorkerPlan& w : plan.result.plan.workers()) {
    if (w.worker() == worker.value()) return &w;
  }
  return nullptr;
}

const PlanResult* Job::plan() const {
  if (next_.has_value()) return &next_->result;
  return active_.has_value() ? &active_->result : nullptr;
}

v1::Assignment Job::AssignmentFor(const WorkerId& worker) const {
  v1::Assignment a;
  const Member* member = FindMember(worker);
  if (!active() || member == nullptr) return a;
  // Who was left out because it did not answer goes on with what it owes: that brings it back.
  const bool owes = member->late && (!member->prepared || !member->profile.has_value() || member->owed.has_value());
  if (!member->excluded.empty() && !owes) return a;
  a.set_job(options_.spec.name());
  *a.mutable_spec() = options_.spec;
  v1::PrepareTask* prepare = a.mutable_prepare();
  *prepare->mutable_train() = options_.train;
  prepare->set_upload_initial(version_.value() < 0 && uploader_ == worker);
  if (state_ == v1::JOB_STATE_PAUSED) return a;
  const bool newcomer = state_ != v1::JOB_STATE_PROFILING || profiling_started_;
  const bool draining = member->draining;  // Nothing new for it.
  if (member->prepared && !member->profile.has_value() && version_.value() >= 0 && newcomer && !draining) {
    v1::ProfileTask* profile = a.mutable_profile();
    profile->set_attempt(options_.attempt_base + 1);
    for (int64_t size : BatchSizesToProfile(options_.spec.batch())) profile->add_batch_sizes(size);
    profile->set_record_bytes(options_.train.record_bytes());
    profile->set_seconds(absl::ToDoubleSeconds(options_.profile_duration));
  }
  if (!member->excluded.empty()) {
    if (member->owed.has_value() && !draining) *a.mutable_shard() = *member->owed;
    return a;
  }
  const PlanState* newest = next_.has_value() ? &*next_ : active_.has_value() ? &*active_ : nullptr;
  if (newest != nullptr && !draining) {
    const v1::WorkerPlan* plan = PlanOf(*newest, worker);
    if (plan != nullptr && plan->samples() > 0) *a.mutable_shard() = ShardOf(*newest, worker);
  }
  if (evaluating_.has_value() && !draining) {
    auto it = evaluating_->parts.find(worker);
    if (it != evaluating_->parts.end() && !it->second.done) {
      v1::EvaluateTask* evaluate = a.mutable_evaluate();
      evaluate->set_version(evaluating_->version.value());
      evaluate->set_attempt(it->second.attempt);
      AddRanges(it->second.ranges, evaluate->mutable_ranges());
    }
  }
  if (book_ != nullptr) {
    const RoundBook::Entry* entry = book_->Find(worker);
    // Who has contributed keeps the task until the commit is announced, so that the answer to its push is not cut off;
    // only another process of the same worker would do the round again in vain.
    const bool counted = entry != nullptr && entry->state == RoundBook::State::kCounted;
    const bool open = counted ? member->contributed == member->incarnation
                              : entry != nullptr && entry->state != RoundBook::State::kRejected && !committing_;
    if (open) {
      const v1::WorkerPlan* plan = PlanOf(*active_, worker);
      const int64_t n = active_->result.plan.rounds_per_epoch();
      const Steps steps = StepsOf(*plan, round_.value(), n);
      v1::TrainTask* train = a.mutable_train();
      train->set_plan(active_->result.plan.number());
      train->set_round(round_.value());
      train->set_version(version_.value());
      train->set_epoch(round_.value() / n);
      train->set_first_step(steps.first);
      train->set_last_step(steps.last);
      train->set_batch_size(plan->batch_size());
      train->set_planned_samples(entry->participant.planned_samples);
      train->set_committed_samples(committed_samples_);
      train->set_round_samples(book_->planned_samples());
      train->set_job_samples(JobSamples());
      train->set_attempt(attempt_);
      train->set_deadline_ms(absl::ToInt64Milliseconds(book_->options().deadline));
      train->set_deliver_now(deliver_now_ || draining);
      AddRanges(active_->shards.at(worker.value()), train->mutable_ranges());
    }
  }
  return a;
}

v1::ShardTask Job::ShardOf(const PlanState& plan, const WorkerId& worker) const {
  v1::ShardTask shard;
  shard.set_plan(plan.result.plan.number());
  *shard.mutable_train() = options_.train;
  *shard.mutable_test() = options_.test;
  if (auto it = plan.shards.find(worker.value()); it != plan.shards.end())
    AddRanges(it->second, shard.mutable_train_ranges());
  if (auto it = plan.tests.find(worker.value()); it != plan.tests.end())
    AddRanges(it->second, shard.mutable_test_ranges());
  return shard;
}

v1::StoredRuntime Job::runtime() const {
  v1::StoredRuntime runtime;
  runtime.set_final_version(final_version_.has_value() ? final_version_->value() : -1);
  runtime.set_rejected_rounds(static_cast<int32_t>(rejected_rounds_));
  runtime.set_paused(paused_);
  if (active_.has_value()) runtime.set_active_plan(active_->result.plan.number());
  if (book_ != nullptr) {
    v1::StoredRound* round = runtime.mutable_open_round();
    round->set_round(round_.value());
    round->set_attempt(attempt_);
    round->set_base_version(version_.value());
    round->set_plan(active_->result.plan.number());
    round->set_quorum_of(book_->options().quorum_of);
    for (const auto& participant : book_->options().participants) {
      auto* p = round->add_participants();
      p->set_worker(participant.worker.value());
      p->set_planned_samples(participant.planned_samples);
      p->set_rank(participant.rank);
    }
  }
  return runtime;
}

std::vector<std::string> Job::WaitingFor() const {
  std::vector<std::string> names;
  if (state_ == v1::JOB_STATE_TRAINING && book_ != nullptr) {
    for (const WorkerId& worker : book_->WaitingFor()) names.push_back(worker.value());
    return names;
  }
  if (evaluating_.has_value() && evaluating_->final) return NotEvaluated();
  for (const auto& [worker, member] : members_) {
    if (!member.present || !member.excluded.empty()) continue;
    const bool profiling = state_ == v1::JOB_STATE_PROFILING && !(member.prepared && member.profile.has_value());
    const v1::WorkerPlan* plan = next_.has_value() ? PlanOf(*next_, worker) : nullptr;
    const bool distributing = state_ == v1::JOB_STATE_DISTRIBUTING && plan != nullptr && plan->samples() > 0 &&
                              member.data_plan < next_->result.plan.number();
    if (profiling || distributing) names.push_back(worker.value());
  }
  return names;
}

v1::JobSummary Job::Summary() const {
  v1::JobSummary summary;
  summary.set_job(options_.spec.name());
  summary.set_state(state_);
  summary.set_reason(reason_);
  summary.set_round(round_.value());
  const double per_epoch = static_cast<double>(options_.spec.rounds().per_epoch());
  const double d = static_cast<double>(options_.train.samples());
  if (JobSamples() > 0)
    summary.set_rounds_planned(
        static_cast<int64_t>(std::ceil(static_cast<double>(JobSamples()) / d * per_epoch - 1e-9)));
  summary.set_epochs_done(static_cast<double>(committed_samples_) / d);
  summary.set_version(final_version_.has_value() ? final_version_->value() : version_.value());
  for (const v1::Evaluation& evaluation : evaluations_) {
    const bool final = final_version_.has_value() && evaluation.version() == final_version_->value();
    if ((evaluation.complete() && !final_version_.has_value()) || final) *summary.mutable_evaluation() = evaluation;
  }
  summary.set_submitted_ms(absl::ToUnixMillis(options_.submitted));
  if (ended_wall_ != absl::InfinitePast()) summary.set_ended_ms(absl::ToUnixMillis(ended_wall_));
  summary.set_model(options_.spec.model().builtin());
  return summary;
}

v1::GetJobResponse Job::Status(absl::Time now) const {
  v1::GetJobResponse status;
  *status.mutable_summary() = Summary();
  *status.mutable_spec() = options_.spec;
  // The plan in force; one whose data is on its way follows when it is.
  const std::optional<PlanState>& shown = active_.has_value() ? active_ : next_;
  if (shown.has_value()) *status.mutable_plan() = shown->result.plan;
  for (const auto& [worker, member] : members_) {
    v1::WorkerInJob* w = status.add_workers();
    w->set_worker(worker.value());
    w->set_site(member.site.value());
    w->set_live(member.present);
    *w->mutable_progress() = member.progress;
    if (member.profile.has_value()) *w->mutable_profile() = *member.profile;
    if (active_.has_value() || next_.has_value()) {
      const v1::WorkerPlan* plan = PlanOf(active_.has_value() ? *active_ : *next_, worker);
      if (plan != nullptr) *w->mutable_plan() = *plan;
      w->set_takes_part(plan != nullptr && plan->samples() > 0);
    }
    w->set_excluded(member.excluded);
    w->set_rounds(member.rounds);
    w->set_compute_s(member.compute_s);
    w->set_pull_s(member.pull_s);
    w->set_push_s(member.push_s);
    w->set_evaluate_s(member.evaluate_s);
    w->set_fetch_s(member.fetch_s);
    w->set_fetch_bytes(member.fetch_bytes);
    w->set_samples_counted(member.samples_counted);
    w->set_fresh_optimizer(member.fresh_optimizer);
  }
  const size_t first = rounds_.size() > kShownRounds ? rounds_.size() - kShownRounds : 0;
  double recent_s = 0;
  int recent = 0;
  for (size_t i = first; i < rounds_.size(); ++i) *status.add_rounds() = rounds_[i];
  for (auto it = rounds_.rbegin(); it != rounds_.rend() && recent < 5; ++it, ++recent) recent_s += it->seconds();
  if (training_started_ != absl::InfinitePast())
    status.set_train_seconds(absl::ToDoubleSeconds((ended() ? phase_started_ : now) - training_started_));
  if (book_ != nullptr) {
    status.set_round_elapsed_s(absl::ToDoubleSeconds(now - book_->options().opened));
    status.set_round_deadline_s(absl::ToDoubleSeconds(book_->options().deadline));
    const double left = static_cast<double>(JobSamples() - committed_samples_) /
                        static_cast<double>(std::max<int64_t>(1, book_->planned_samples()));
    if (recent > 0 && left > 0)
      status.set_seconds_left(std::max(0.0, left * recent_s / recent - status.round_elapsed_s()));
  }
  for (const std::string& name : WaitingFor()) status.add_waiting_for(name);
  for (const auto& [reason, count] : rejected_by_reason_) (*status.mutable_rejected())[reason] = count;
  return status;
}

}  // namespace causeway::server
