#include "server/job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "scheduler/plan_proto.h"
#include "server/shares.h"
#include "server/stored_job.h"

namespace causeway::server {
namespace {

constexpr absl::Duration kNoRoomGrace = absl::Seconds(30);  // Longer than a worker waits before it tries again.

// "TRAINING"
std::string StateText(v1::JobState state) {
  return std::string(absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

}  // namespace

Job::Job(Options options) : options_(std::move(options)), attempt_(options_.attempt_base) {}

bool Job::ended() const {
  return state_ == v1::JOB_STATE_FINISHED || state_ == v1::JOB_STATE_FAILED || state_ == v1::JOB_STATE_ABORTED;
}

bool Job::Eligible(const SiteId& site) const {
  const auto& sites = options_.spec.sites();
  return sites.empty() || std::find(sites.begin(), sites.end(), site.value()) != sites.end();
}

Job::Member* Job::FindMember(const WorkerId& worker) {
  auto it = members_.find(worker);
  return it == members_.end() ? nullptr : &it->second;
}

const Job::Member* Job::FindMember(const WorkerId& worker) const {
  auto it = members_.find(worker);
  return it == members_.end() ? nullptr : &it->second;
}

void Job::Enter(v1::JobState state, const std::string& reason, absl::Time now) {
  log::Info("job state",
            {{"job", options_.spec.name()}, {"from", StateText(state_)}, {"to", StateText(state)}, {"reason", reason}});
  state_ = state;
  reason_ = reason;
  if (ended()) {
    for (auto& [worker, member] : members_) member.progress.set_phase(v1::WORKER_PHASE_UNSPECIFIED);
  }
  phase_started_ = now;
  phase_progress_ = now;
  actions_.push_back(StoreJob{});
}

void Job::Restore(Stored stored, absl::Time now) {
  state_ = stored.state;
  reason_ = stored.reason;
  ended_wall_ = stored.ended;
  layout_ = std::move(stored.layout);
  version_ = stored.version;
  round_ = Round(std::max<int64_t>(0, stored.version.value()));
  rounds_ = std::move(stored.rounds);
  evaluations_ = std::move(stored.evaluations);
  rejected_rounds_ = stored.runtime.rejected_rounds();
  paused_ = stored.runtime.paused();
  for (v1::RoundRecord& record : rounds_) {
    committed_samples_ += record.samples();
    for (const v1::Evaluation& evaluation : evaluations_) {
      if (evaluation.version() == record.version() - 1) *record.mutable_evaluation() = evaluation;
    }
  }
  if (ended()) {
    if (stored.runtime.final_version() >= 0) final_version_ = Version(stored.runtime.final_version());
  }
  const auto restore_plan = [&](const PlanResult& plan) {
    active_.emplace();
    active_->result = plan;
    for (const auto& shard : plan.shards) active_->shards[shard.worker] = shard.ranges;
  };
  phase_started_ = phase_progress_ = now;
  if (state_ == v1::JOB_STATE_SUBMITTED) return;
  for (auto& [worker, profile] : stored.profiles) members_[worker].profile = profile;
  for (const PlanResult& plan : stored.plans) {
    for (const v1::WorkerPlan& worker : plan.plan.workers()) {
      members_[WorkerId(worker.worker())].site = SiteId(worker.site());
    }
  }
  for (const PlanResult& plan : stored.plans) {
    if (plan.plan.number() == stored.runtime.active_plan() ||
        (ended() && plan.plan.number() >= stored.runtime.active_plan()))
      restore_plan(plan);
    // A plan that was not in force yet is made again, under a new number, so that its data is reported again.
    last_plan_number_ = std::max<int64_t>(last_plan_number_, plan.plan.number());
  }
  if (ended()) return;
  if (!active_.has_value() || (state_ != v1::JOB_STATE_TRAINING && state_ != v1::JOB_STATE_PAUSED)) {
    active_.reset();
    profiling_started_ = false;
    paused_in_ = v1::JOB_STATE_PROFILING;
    if (state_ != v1::JOB_STATE_PROFILING && state_ != v1::JOB_STATE_PAUSED)
      Enter(v1::JOB_STATE_PROFILING, "the coordinator was restarted", now);
    return;
  }
  paused_in_ = v1::JOB_STATE_TRAINING;
  for (const v1::WorkerPlan& worker : active_->result.plan.workers()) {
    Member& member = members_[WorkerId(worker.worker())];
    member.site = SiteId(worker.site());
    member.present = true;
    member.prepared = true;
    member.data_plan = active_->result.plan.number();
  }
  training_started_ = now;
  const v1::StoredRound& open = stored.runtime.open_round();
  if (state_ == v1::JOB_STATE_TRAINING && open.participants_size() > 0 && open.round() == round_.value() &&
      open.base_version() == version_.value()) {
    RoundBook::Options book{.round = round_,
                            .attempt = open.attempt(),
                            .base = version_,
                            .quorum = options_.spec.rounds().quorum(),
                            .replan_after = absl::Seconds(options_.spec.rounds().replan_after_s()),
                            .opened = now};
    for (const auto& p : open.participants()) {
      book.participants.push_back(
          {.worker = WorkerId(p.worker()), .planned_samples = p.planned_samples(), .rank = p.rank()});
    }
    attempt_ = open.attempt();
    book.quorum_of = open.quorum_of();
    book.deadline = RoundDeadline(round_.value(), book.participants);
    book.late_grace = LateGrace(book);
    book_ = std::make_unique<RoundBook>(std::move(book));
    round_loss_sum_ = 0;
    actions_.push_back(OpenRound{});
    StartEvaluation(version_, /*final=*/false, now);
  }
}

void Job::OnNoRoom(absl::Time now) {
  phase_progress_ = now;
  if (book_ != nullptr) book_->Postpone(now + kNoRoomGrace);
}

void Job::RestoreContribution(const WorkerId& worker, int64_t samples, const std::string& sha256,
                              const v1::StoredContribution& info) {
  if (book_ == nullptr || !book_->MarkAdding(worker, samples, sha256)) return;
  book_->MarkCounted(worker);
  round_loss_sum_ += info.train_loss() * static_cast<double>(samples);
}

void Job::Start(absl::Time now) {
  if (state_ == v1::JOB_STATE_SUBMITTED && !paused_) Enter(v1::JOB_STATE_PROFILING, "", now);
}

void Job::SetPresent(const WorkerId& worker, const SiteId& site, Incarnation incarnation, bool present,
                     absl::Time now) {
  if (!Eligible(site)) return;
  if (!present && !members_.contains(worker)) return;
  Member& member = members_[worker];
  member.site = site;
  if (member.incarnation != incarnation) {
    // A restarted process builds its model again; what it has on disk it reports again. What an older one was excluded for may have been mended.
    if (member.incarnation.value() != 0) member.prepared = false;
    member.incarnation = incarnation;
    Exclude(&member, "");
    member.draining = false;
    member.progress.Clear();
  }
  if (member.present != present) {
    member.present = present;
    phase_progress_ = now;
    if (!present) member.progress.set_phase(v1::WORKER_PHASE_UNSPECIFIED);
  }
  if (book_ != nullptr) book_->SetPresent(worker, present);
}

void Job::Left(const WorkerId& worker) {
  if (book_ != nullptr) book_->SetGone(worker);
}

void Job::Exclude(Member* member, const std::string& reason) {
  member->excluded = reason;
  member->late = false;
  member->owed.reset();
}

void Job::Forget(const WorkerId& worker, absl::Time now) {
  Left(worker);
  if (Member* member = FindMember(worker); member != nullptr) {
    member->present = false;
    Exclude(member, kRemoved);
  }
}

void Job::SetDraining(const WorkerId& worker, absl::Time now) {
  Member* member = FindMember(worker);
  if (member == nullptr || std::exchange(member->draining, true)) return;
  phase_progress_ = now;
  log::Info("worker drains", {{"job", options_.spec.name()}, {"worker", worker.value()}, {"round", round_.value()}});
}

absl::Status Job::OnModel(const WorkerId& worker, const dataplane::Layout& layout, bool has_optimizer_state,
                          absl::Time now) {
  Member* member = FindMember(worker);
  if (member == nullptr || !active())
    return absl::FailedPreconditionError("this worker prepares no model for this job now");
  if (!layout_.has_value()) {
    layout_ = layout;
    actions_.push_back(StoreJob{});
  } else if (layout_->hash() != layout.hash()) {
    Exclude(member, "its model has another layout than that of the other workers");
    if (const int64_t times = Lines(worker, "left out", now); times > 0) {
      log::Warning(
          "worker left out",
          {{"job", options_.spec.name()}, {"worker", worker.value()}, {"reason", member->excluded}, {"times", times}});
    }
    return absl::InvalidArgumentError(member->excluded);
  }
  Answered(member, now);
  member->prepared = true;
  member->has_optimizer_state = has_optimizer_state;
  return absl::OkStatus();
}

void Job::OnInitialCommitted(absl::Time now) {
  if (version_.value() >= 0) return;
  version_ = Version(0);
  phase_progress_ = now;
}

absl::Status Job::OnProfile(const WorkerId& worker, const v1::ReportProfileRequest& request, absl::Time now) {
  Member* member = FindMember(worker);
  if (member == nullptr || !active()) return absl::FailedPreconditionError("no profile of this worker is wanted now");
  RETURN_IF_ERROR(CheckProfile(request.profile()));
  // Repeated, or asked for by a former coordinator.
  if (member->profile.has_value() || request.attempt() != options_.attempt_base + 1) return absl::OkStatus();
  Answered(member, now);
  if (options_.spec.batch().per_worker() > request.profile().max_parallel()) {
    Exclude(member, absl::StrCat("its largest batch is ", request.profile().max_parallel(), ", batch.per_worker is ",
                                 options_.spec.batch().per_worker()));
    return absl::OkStatus();
  }
  // One that no plan can be made with would take the others' plan with it.
  const scheduler::BatchLimits batch{.per_worker = options_.spec.batch().per_worker(),
                                     .max = options_.spec.batch().max()};
  if (const auto device = scheduler::DeviceFromProto(worker.value(), member->site.value(), request.profile(), batch);
      !device.ok()) {
    Exclude(member, absl::StrCat("its profile: ", device.status().message()));
    return absl::OkStatus();
  }
  member->profile = request.profile();
  actions_.push_back(StoreProfile{.worker = worker, .profile = request.profile()});
  return absl::OkStatus();
}

absl::Status Job::OnData(const WorkerId& worker, const v1::ReportDataRequest& request, absl::Time now) {
  Member* member = FindMember(worker);
  if (member == nullptr || !active()) return absl::FailedPreconditionError("no data of this worker is wanted now");
  RETURN_IF_ERROR(CheckFetched(request));
  const bool known = (next_.has_value() && request.plan() == next_->result.plan.number()) ||
                     (active_.has_value() && request.plan() == active_->result.plan.number()) ||
                     (member->owed.has_value() && request.plan() == member->owed->plan());
  if (!known || request.plan() <= member->data_plan)
    return absl::OkStatus();  // Repeated, or of a plan that has passed.
  Answered(member, now);
  member->data_plan = request.plan();
  member->fetch_bytes += request.bytes_fetched();
  member->fetch_s += request.seconds();
  return absl::OkStatus();
}

absl::Status Job::OnEvaluation(const WorkerId& worker, const v1::ReportEvaluationRequest& request, absl::Time now) {
  if (!evaluating_.has_value() || request.version() != evaluating_->version.value())
    return absl::OkStatus();  // Too late to matter.
  auto it = evaluating_->parts.find(worker);
  if (it == evaluating_->parts.end() || it->second.done || it->second.attempt != request.attempt())
    return absl::OkStatus();
  const int64_t samples = Count(it->second.ranges);
  if (request.total() != samples || request.correct() < 0 || request.correct() > samples) {
    return absl::InvalidArgumentError(absl::StrCat("an evaluation of ", request.total(), " samples with ",
                                                   request.correct(), " correct ones, where ", samples,
                                                   " were asked for"));
  }
  it->second.done = true;
  v1::Evaluation& sum = evaluating_->sum;
  sum.set_correct(sum.correct() + request.correct());
  sum.set_total(sum.total() + request.total());
  // A diverged model's loss may be anything; what is no number counts as infinite.
  evaluating_->loss_sum +=
      std::isnan(request.loss_sum()) ? std::numeric_limits<double>::infinity() : request.loss_sum();
  return absl::OkStatus();
}

absl::Status Job::OnFailure(const WorkerId& worker, const v1::ReportFailureRequest& request, absl::Time now) {
  Member* member = FindMember(worker);
  if (member == nullptr || !active()) return absl::OkStatus();
  if (const int64_t times = Lines(worker, "failure", now); times > 0) {
    log::Warning("worker reports failure", {{"job", options_.spec.name()},
                                            {"worker", worker.value()},
                                            {"task", request.task()},
                                            {"permanent", request.permanent()},
                                            {"message", request.message()},
                                            {"times", times}});
  }
  const std::string trouble = absl::StrCat(request.task(), ": ", request.message());
  if (!request.permanent()) {
    member->trouble = trouble;
    return absl::OkStatus();
  }
  Exclude(member, trouble);
  if (book_ != nullptr) book_->SetPresent(worker, false);
  phase_progress_ = now;
  return absl::OkStatus();
}

void Job::OnProgress(const WorkerId& worker, const v1::WorkerProgress& progress, absl::Time now) {
  Member* member = FindMember(worker);
  if (member == nullptr || progress.job() != options_.spec.name()) return;
  if (progress.fetch_bytes_done() != member->progress.fetch_bytes_done()) phase_progress_ = now;
  member->progress = progress;
}

void Job::Pause(absl::Time now) {
  if (ended() || std::exchange(paused_, true)) return;
  if (state_ == v1::JOB_STATE_SUBMITTED) reason_ = "paused by an operator";
  if (book_ != nullptr) AskForWhatIsDone("the job is to pause");
  actions_.push_back(StoreJob{});
}

void Job::Resume(absl::Time now) {
  if (ended() || !std::exchange(paused_, false)) return;
  reason_.clear();
  if (state_ == v1::JOB_STATE_PAUSED) {
    Enter(paused_in_, "", now);
  } else {
    actions_.push_back(StoreJob{});
  }
}

void Job::Abort(const std::string& reason, absl::Time now) {
  if (ended()) return;
  book_.reset();
  evaluating_.reset();
  final_version_ = version_.value() >= 0 ? std::optional<Version>(version_) : std::nullopt;
  Enter(v1::JOB_STATE_ABORTED, reason, now);
}

void Job::Fail(const std::string& reason, absl::Time now) {
  if (ended()) return;
  book_.reset();
  evaluating_.reset();
  final_version_ = version_.value() >= 0 ? std::optional<Version>(version_) : std::nullopt;
  Enter(v1::JOB_STATE_FAILED, reason, now);
}

void Job::Finish(Version version, const std::string& reason, absl::Time now) {
  book_.reset();
  evaluating_.reset();
  final_version_ = version;
  Enter(v1::JOB_STATE_FINISHED, reason, now);
}

// ---- Contributions

v1::PushResult Job::Refuse(v1::PushResult::Outcome outcome, const std::string& reason, const std::string& message) {
  ++rejected_by_reason_[reason];
  v1::PushResult result;
  result.set_outcome(outcome);
  result.set_reason(reason);
  result.set_message(message);
  return result;
}

absl::StatusOr<std::optional<v1::PushResult>> Job::CheckPush(const WorkerId& worker, Incarnation registered,
                                                             const v1::PushRequest& request, absl::Time now) {
  const v1::Fence& fence = request.fence();
  const auto not_wanted = [&](const std::string& reason, const std::string& message) {
    return Refuse(v1::PushResult::OUTCOME_NOT_WANTED, reason, message);
  };
  v1::PushResult counted;
  counted.set_outcome(v1::PushResult::OUTCOME_COUNTED);
  if (Incarnation(fence.incarnation()) != registered) {
    return not_wanted("old_incarnation", absl::StrCat("incarnation ", fence.incarnation(),
                                                      " is not the registered one, ", registered.value()));
  }
  if (!active() || !layout_.has_value()) return not_wanted("job_over", "the job takes no contributions");
  const bool shape_fits = request.part() == 0 && request.parts() == 1 && fence.fragment() == 0 &&
                          request.elements_size() == 1 && request.elements(0).begin() == 0 &&
                          request.elements(0).end() == layout_->total_elements() &&
                          request.total_bytes() == layout_->total_bytes() && request.sha256().size() == 32;
  if (request.initial()) {
    if (version_.value() >= 0) return counted;
    if (!uploader_.has_value() || *uploader_ != worker)
      return not_wanted("not_uploader", "another worker uploads the initial model");
    if (request.layout_sha256() != layout_->hash())
      return Refuse(v1::PushResult::OUTCOME_REJECTED, "wrong_layout", "another layout");
    if (!shape_fits)
      return Refuse(v1::PushResult::OUTCOME_REJECTED, "wrong_shape", "part, elements or size do not fit the layout");
    return std::nullopt;
  }
  if (book_ == nullptr || committing_ || fence.round() != round_.value() || request.attempt() != attempt_) {
    return not_wanted("stale_round",
                      absl::StrCat("round ", fence.round(), " attempt ", request.attempt(),
                                   " is not the open one (round ", round_.value(), " attempt ", attempt_, ")"));
  }
  const RoundBook::Entry* entry = book_->Find(worker);
  if (entry == nullptr) return not_wanted("not_participant", "the worker takes no part in this round");
  switch (entry->state) {
    case RoundBook::State::kAdding: return absl::UnavailableError("this contribution is being added");
    case RoundBook::State::kCounted:
      if (entry->sha256 == request.sha256()) return counted;
      return not_wanted("replayed", "another contribution of this worker is counted already");
    case RoundBook::State::kRejected: return Refuse(v1::PushResult::OUTCOME_REJECTED, entry->reason, "rejected before");
    case RoundBook::State::kOutstanding: break;
  }
  if (request.layout_sha256() != layout_->hash())
    return RejectContribution(worker, request, "wrong_layout", "its layout is another than the job's", now);
  if (!shape_fits)
    return RejectContribution(worker, request, "wrong_shape", "part, elements or size do not fit the layout", now);
  if (absl::Status weight = book_->CheckWanted(worker, request.samples()); !weight.ok()) {
    return RejectContribution(worker, request, "wrong_weight", std::string(weight.message()), now);
  }
  return std::nullopt;
}

v1::PushResult Job::RejectContribution(const WorkerId& worker, const v1::PushRequest& request,
                                       const std::string& reason, const std::string& message, absl::Time now) {
  if (book_ != nullptr && request.fence().round() == round_.value() && request.attempt() == attempt_) {
    book_->MarkRejected(worker, reason, request.sha256());
  }
  if (const int64_t times = Lines(worker, "rejected", now); times > 0) {
    log::Warning("contribution rejected", {{"job", options_.spec.name()},
                                           {"worker", worker.value()},
                                           {"round", request.fence().round()},
                                           {"generation", request.fence().site_generation()},
                                           {"attempt", request.attempt()},
                                           {"reason", reason},
                                           {"message", message},
                                           {"times", times}});
  }
  return Refuse(v1::PushResult::OUTCOME_REJECTED, reason, message);
}

bool Job::BeginAdding(const WorkerId& worker, const v1::PushRequest& request) {
  if (book_ == nullptr || committing_ || request.fence().round() != round_.value() || request.attempt() != attempt_)
    return false;
  members_[worker].contributed = Incarnation(request.fence().incarnation());
  return book_->MarkAdding(worker, request.samples(), request.sha256());
}

void Job::CancelAdding(const WorkerId& worker) {
  if (book_ != nullptr) book_->CancelAdding(worker);
}

void Job::OnAdded(const WorkerId& worker, const v1::PushRequest& request, const v1::StoredContribution& info,
                  absl::Time now) {
  if (book_ == nullptr || request.fence().round() != round_.value() || request.attempt() != attempt_) return;
  if (!book_->MarkCounted(worker)) return;
  round_loss_sum_ += info.train_loss() * static_cast<double>(request.samples());
  Member& member = members_[worker];
  ++member.rounds;
  member.compute_s += info.compute_s();
  member.pull_s += info.pull_s();
  member.push_s += info.push_s();
  member.evaluate_s += info.evaluate_s();
  member.samples_counted += request.samples();
  member.fresh_optimizer = info.fresh_optimizer();
  log::Info("contribution counted", {{"job", options_.spec.name()},
                                     {"worker", worker.value()},
                                     {"round", round_.value()},
                                     {"generation", request.fence().site_generation()},
                                     {"samples", request.samples()},
                                     {"planned_samples", book_->Find(worker)->participant.planned_samples},
                                     {"train_loss", info.train_loss()}});
}

void Job::DropOpenRound(const std::string& reason) {
  if (book_ == nullptr) return;
  actions_.push_back(DropRound{round_, reason});
  book_.reset();
}

void Job::OnRoundCommitted(Version version, absl::Time now) {
  committing_ = false;
  version_ = version;
  rounds_.push_back(pending_record_);
  committed_samples_ += pending_record_.samples();
  if (ended()) return;
  rejected_rounds_ = missed_rounds_ = 0;
  round_ = Round(version.value());
  attempt_ = options_.attempt_base;
  book_.reset();
  if (evaluating_.has_value() && !evaluating_->final) FinishEvaluation(/*complete=*/false);
}

}  // namespace causeway::server
