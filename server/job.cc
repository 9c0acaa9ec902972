#include "server/job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "jobspec/job_spec.h"

namespace causeway::server {
namespace {

constexpr absl::Duration kMinRoundDeadline = absl::Seconds(30);
constexpr absl::Duration kMinLateGrace = absl::Seconds(2);
constexpr absl::Duration kNoRoomGrace = absl::Seconds(30);  // Longer than a worker waits before it tries again.
constexpr absl::Duration kMinEvaluationDeadline = absl::Seconds(60);
constexpr int kMaxRejectedRounds = 3;
constexpr int kMaxBatchTimes = 100;
constexpr int kMaxMissedRounds = 10;
constexpr double kSlowestUploadBytesPerS = 64 << 10;  // of the initial model; slower ones are given up
constexpr size_t kShownRounds = 1000;

using Ranges = std::vector<scheduler::SampleRange>;

// "TRAINING"
std::string StateText(v1::JobState state) {
  return std::string(absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

int64_t Count(const Ranges& ranges) {
  int64_t n = 0;
  for (const auto& range : ranges) n += range.end - range.begin;
  return n;
}

template <typename Repeated>
void AddRanges(const Ranges& ranges, Repeated* out) {
  for (const auto& range : ranges) {
    v1::SampleRange* r = out->Add();
    r->set_begin(range.begin);
    r->set_end(range.end);
  }
}

// Steps [first, last) of sub-round `round % rounds_per_epoch`, and how many samples they are (ALGORITHMS 1.5).
struct Steps {
  int64_t first = 0;
  int64_t last = 0;
  int64_t samples = 0;
};
Steps StepsOf(const v1::WorkerPlan& worker, int64_t round, int64_t rounds_per_epoch) {
  const int64_t j = round % rounds_per_epoch;
  const auto cut = [&](int64_t k) {
    return static_cast<int64_t>(static_cast<__int128>(k) * worker.steps_per_epoch() / rounds_per_epoch);
  };
  Steps steps{.first = cut(j), .last = cut(j + 1)};
  steps.samples = std::min(steps.last * worker.batch_size(), worker.samples()) -
                  std::min(steps.first * worker.batch_size(), worker.samples());
  return steps;
}

// The test set in disjoint parts in proportion to `speeds`.
std::vector<Ranges> Split(const Ranges& all, const std::vector<double>& speeds) {
  double total_speed = 0;
  for (double s : speeds) total_speed += s;
  const int64_t total = Count(all);
  std::vector<Ranges> parts(speeds.size());
  double cumulative = 0;
  int64_t given = 0;
  size_t at = 0;
  int64_t offset = all.empty() ? 0 : all[0].begin;
  for (size_t i = 0; i < speeds.size(); ++i) {
    cumulative += total_speed > 0 ? speeds[i] / total_speed : 1.0 / static_cast<double>(speeds.size());
    const int64_t until = i + 1 == speeds.size() ? total : std::llround(cumulative * static_cast<double>(total));
    while (given < until) {
      const int64_t take = std::min(until - given, all[at].end - offset);
      parts[i].push_back({offset, offset + take});
      given += take;
      offset += take;
      if (offset == all[at].end && ++at < all.size()) offset = all[at].begin;
    }
  }
  return parts;
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
    member.excluded.clear();
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

void Job::Forget(const WorkerId& worker, absl::Time now) {
  if (book_ != nullptr) book_->SetPresent(worker, false);
  if (Member* member = FindMember(worker); member != nullptr) {
    member->present = false;
    member->excluded = kRemoved;
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
    member->excluded = "its model has another layout than that of the other workers";
    log::Warning("worker left out",
                 {{"job", options_.spec.name()}, {"worker", worker.value()}, {"reason", member->excluded}});
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
  for (const auto& time : request.profile().batch_times()) {
    if (time.batch_size() < 1 || !(time.batch_time_s() > 0) || !std::isfinite(time.batch_time_s())) {
      return absl::InvalidArgumentError("a profile with an impossible batch time");
    }
  }
  if (request.profile().max_parallel() < 1 || request.profile().batch_times_size() > kMaxBatchTimes) {
    return absl::InvalidArgumentError("a profile with no largest batch, or too many batch sizes");
  }
  if (!(request.profile().down_bytes_per_s() > 0) || !(request.profile().up_bytes_per_s() > 0) ||
      request.profile().batch_times().empty()) {
    return absl::InvalidArgumentError("a profile without figures");
  }
  // Repeated, or asked for by a former coordinator.
  if (member->profile.has_value() || request.attempt() != options_.attempt_base + 1) return absl::OkStatus();
  Answered(member, now);
  if (options_.spec.batch().per_worker() > request.profile().max_parallel()) {
    member->excluded = absl::StrCat("its largest batch is ", request.profile().max_parallel(), ", batch.per_worker is ",
                                    options_.spec.batch().per_worker());
    return absl::OkStatus();
  }
  member->profile = request.profile();
  actions_.push_back(StoreProfile{.worker = worker, .profile = request.profile()});
  return absl::OkStatus();
}

absl::Status Job::OnData(const WorkerId& worker, const v1::ReportDataRequest& request, absl::Time now) {
  Member* member = FindMember(worker);
  if (member == nullptr || !active()) return absl::FailedPreconditionError("no data of this worker is wanted now");
  const bool known = (next_.has_value() && request.plan() == next_->result.plan.number()) ||
                     (active_.has_value() && request.plan() == active_->result.plan.number());
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
  log::Warning("worker reports failure", {{"job", options_.spec.name()},
                                          {"worker", worker.value()},
                                          {"task", request.task()},
                                          {"permanent", request.permanent()},
                                          {"message", request.message()}});
  if (!request.permanent()) return absl::OkStatus();
  member->excluded = absl::StrCat(request.task(), ": ", request.message());
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
                                                             const v1::PushRequest& request) {
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
    return RejectContribution(worker, request, "wrong_layout", "its layout is another than the job's");
  if (!shape_fits)
    return RejectContribution(worker, request, "wrong_shape", "part, elements or size do not fit the layout");
  if (absl::Status weight = book_->CheckWanted(worker, request.samples()); !weight.ok()) {
    return RejectContribution(worker, request, "wrong_weight", std::string(weight.message()));
  }
  return std::nullopt;
}

v1::PushResult Job::RejectContribution(const WorkerId& worker, const v1::PushRequest& request,
                                       const std::string& reason, const std::string& message) {
  if (book_ != nullptr && request.fence().round() == round_.value() && request.attempt() == attempt_) {
    book_->MarkRejected(worker, reason, request.sha256());
  }
  log::Warning("contribution rejected", {{"job", options_.spec.name()},
                                         {"worker", worker.value()},
                                         {"round", request.fence().round()},
                                         {"generation", request.fence().site_generation()},
                                         {"attempt", request.attempt()},
                                         {"reason", reason},
                                         {"message", message}});
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

// ---- Moving on

std::vector<Job::Action> Job::Advance(absl::Time now, absl::Time wall_now) {
  bool moved = true;
  for (int i = 0; moved && i < 100; ++i) {
    if (paused_ && AdvancePause(now)) break;
    switch (state_) {
      case v1::JOB_STATE_PROFILING: moved = AdvanceProfiling(now); break;
      case v1::JOB_STATE_DISTRIBUTING: moved = AdvanceDistributing(now); break;
      case v1::JOB_STATE_TRAINING: moved = AdvanceTraining(now, wall_now); break;
      default: moved = false;
    }
  }
  if (ended() && ended_wall_ == absl::InfinitePast()) {
    ended_wall_ = wall_now;
    actions_.push_back(StoreJob{});
  }
  return std::exchange(actions_, {});
}

std::set<WorkerId> Job::Usable() const {
  std::set<WorkerId> usable;
  for (const auto& [worker, member] : members_) {
    if (Serves(&member) && member.prepared && member.profile.has_value()) usable.insert(worker);
  }
  return usable;
}

// True: the job stands still. What is under way (a round, the last evaluation) comes to its end before.
bool Job::AdvancePause(absl::Time now) {
  if (state_ == v1::JOB_STATE_PAUSED) return true;
  if (ended() || state_ == v1::JOB_STATE_SUBMITTED || book_ != nullptr || committing_) return false;
  if (state_ == v1::JOB_STATE_TRAINING && EndReached()) return false;
  evaluating_.reset();
  paused_in_ = state_;
  Enter(v1::JOB_STATE_PAUSED, "by an operator", now);
  return true;
}

void Job::AskForWhatIsDone(absl::string_view why) {
  if (std::exchange(deliver_now_, true)) return;
  std::vector<std::string> late;
  for (const WorkerId& worker : book_->WaitingFor()) late.push_back(worker.value());
  log::Warning("round asks for what is done", {{"job", options_.spec.name()},
                                               {"round", round_.value()},
                                               {"attempt", attempt_},
                                               {"why", why},
                                               {"waiting_for", absl::StrJoin(late, ",")},
                                               {"grace_s", absl::ToDoubleSeconds(book_->options().late_grace)}});
}

bool Job::AdvanceProfiling(absl::Time now) {
  int present = 0;
  int prepared = 0;
  int profiled = 0;
  int usable_in_principle = 0;
  std::optional<WorkerId> first_prepared;
  std::vector<std::string> excluded;
  for (const auto& [worker, member] : members_) {
    if (!member.excluded.empty()) {
      excluded.push_back(absl::StrCat(worker.value(), ": ", member.excluded));
      continue;
    }
    ++usable_in_principle;
    if (!Serves(&member)) continue;
    ++present;
    if (!member.prepared) continue;
    ++prepared;
    if (!first_prepared.has_value()) first_prepared = worker;
    profiled += member.profile.has_value();
  }
  if (!excluded.empty() && usable_in_principle == 0) {
    Fail(absl::StrCat("no worker can do this job (", absl::StrJoin(excluded, "; "), ")"), now);
    return false;
  }
  if (present == 0) {
    reason_ = "waiting for a worker";
    phase_started_ = now;
    return false;
  }
  reason_.clear();
  const bool waited_long = now - phase_started_ > options_.phase_timeout;
  if (!profiling_started_) {
    if (prepared < present && waited_long) {
      LeaveOutLate("its model", [](const WorkerId&, const Member& member) { return !member.prepared; });
      return true;
    }
    if (prepared == 0) return false;
    if (version_.value() < 0) {
      const Member* uploader = uploader_.has_value() ? FindMember(*uploader_) : nullptr;
      if (!Serves(uploader) || !uploader->prepared) {
        uploader_ = first_prepared;
        phase_started_ = now;
        return false;
      }
      const absl::Duration transfer =
          absl::Seconds(static_cast<double>(layout_->total_bytes()) / kSlowestUploadBytesPerS);
      if (now - phase_started_ <= options_.phase_timeout + transfer) return false;
      LeaveOutLate("the initial model", [this](const WorkerId& worker, const Member&) { return worker == *uploader_; });
      return true;
    }
    if (prepared < present) return false;
    profiling_started_ = true;
    phase_started_ = now;
    return true;
  }
  if (profiled < present) {
    if (!waited_long) return false;
    LeaveOutLate("its profile", [](const WorkerId&, const Member& member) { return !member.profile.has_value(); });
    return true;
  }
  if (options_.pinned.has_value() && !waited_long) {
    const std::set<WorkerId> usable = Usable();
    for (const v1::WorkerPlan& worker : options_.pinned->workers()) {
      if (!usable.contains(WorkerId(worker.worker()))) {
        reason_ = absl::StrCat("the pinned plan waits for worker ", worker.worker());
        return false;
      }
    }
  }
  return TryPlan(now, "first plan");
}

bool Job::TryPlan(absl::Time now, const std::string& reason) {
  PlanInput input;
  input.spec = &options_.spec;
  input.samples = options_.train.samples();
  input.record_bytes = options_.train.record_bytes();
  input.model_bytes = layout_->total_bytes();
  const double done =
      static_cast<double>(committed_samples_) / static_cast<double>(std::max<int64_t>(1, input.samples));
  input.epochs_left = std::max(EpochsTotal() - done, 1.0 / static_cast<double>(options_.spec.rounds().per_epoch()));
  input.pinned = options_.pinned;
  input.number = ++last_plan_number_;
  input.reason = reason;
  for (const WorkerId& worker : Usable()) {
    const Member& member = members_.at(worker);
    input.candidates.push_back({.worker = worker, .site = member.site, .profile = *member.profile});
  }
  if (active_.has_value()) input.previous = active_->result.shards;
  absl::StatusOr<PlanResult> result = MakePlan(input);
  if (!result.ok()) {
    if (!active_.has_value()) Fail(std::string(result.status().message()), now);
    log::Warning("no plan", {{"job", options_.spec.name()}, {"reason", reason}, {"status", result.status()}});
    return false;
  }
  PlanState plan;
  plan.result = *std::move(result);
  for (const auto& shard : plan.result.shards) plan.shards[shard.worker] = shard.ranges;
  std::vector<std::string> evaluators;
  std::vector<double> speeds;
  for (const v1::WorkerPlan& worker : plan.result.plan.workers()) {
    if (worker.samples() == 0) continue;
    evaluators.push_back(worker.worker());
    speeds.push_back(std::max(1e-6, members_.at(WorkerId(worker.worker())).profile->eval_samples_per_s()));
  }
  std::vector<Ranges> tests;
  if (options_.test.samples() > 0) tests = Split({{0, options_.test.samples()}}, speeds);
  for (size_t i = 0; i < tests.size(); ++i) plan.tests[evaluators[i]] = tests[i];
  log::Info("plan made", {{"job", options_.spec.name()},
                          {"plan", plan.result.plan.number()},
                          {"reason", reason},
                          {"workers", static_cast<int64_t>(evaluators.size())},
                          {"predicted_s", plan.result.plan.predicted_total_s()},
                          {"even_split_s", plan.result.plan.even_split_total_s()},
                          {"binding", plan.result.plan.binding()}});
  actions_.push_back(StorePlan{plan.result});
  next_ = std::move(plan);
  phase_progress_ = now;
  if (state_ != v1::JOB_STATE_TRAINING) {
    Enter(v1::JOB_STATE_PLANNED, "", now);
    Enter(v1::JOB_STATE_DISTRIBUTING, "", now);
  }
  return true;
}

bool Job::DataInPlace(const PlanState& plan) const {
  for (const v1::WorkerPlan& worker : plan.result.plan.workers()) {
    if (worker.samples() == 0) continue;
    const Member* member = FindMember(WorkerId(worker.worker()));
    if (member == nullptr || member->data_plan < plan.result.plan.number()) return false;
  }
  return true;
}

void Job::LeaveOutLate(absl::string_view what, absl::FunctionRef<bool(const WorkerId&, const Member&)> not_done) {
  for (auto& [worker, member] : members_) {
    if (!member.present || !member.excluded.empty() || !not_done(worker, member)) continue;
    member.excluded = absl::StrCat("waited in vain for ", what);
    member.late = true;
    log::Warning("worker left out",
                 {{"job", options_.spec.name()}, {"worker", worker.value()}, {"reason", member.excluded}});
  }
}

void Job::Answered(Member* member, absl::Time now) {
  phase_progress_ = now;
  if (!member->late) return;
  member->late = false;
  member->excluded.clear();
}

// Leaves out who has fetched nothing of the next plan's data for too long. True: somebody was.
bool Job::DropWhoDoesNotFetch(absl::Time now) {
  if (!next_.has_value() || DataInPlace(*next_) || now - phase_progress_ <= options_.phase_timeout) return false;
  phase_progress_ = now;
  LeaveOutLate("its shard", [this](const WorkerId& worker, const Member& member) {
    const v1::WorkerPlan* plan = PlanOf(*next_, worker);
    return plan != nullptr && plan->samples() > 0 && member.data_plan < next_->result.plan.number();
  });
  return true;
}

bool Job::AdvanceDistributing(absl::Time now) {
  std::vector<std::string> lost;
  for (const v1::WorkerPlan& worker : next_->result.plan.workers()) {
    if (worker.samples() == 0) continue;
    const Member* member = FindMember(WorkerId(worker.worker()));
    if (!Serves(member)) lost.push_back(worker.worker());
  }
  if (!lost.empty() && !options_.pinned.has_value() && !Usable().empty()) {
    return TryPlan(now, absl::StrCat("lost while distributing: ", absl::StrJoin(lost, ", ")));
  }
  if (!lost.empty()) reason_ = absl::StrCat("waiting for ", absl::StrJoin(lost, ", "));
  if (DropWhoDoesNotFetch(now)) {
    bool any = false;
    for (const auto& [worker, member] : members_) any |= member.excluded.empty();
    if (!any) Fail("no worker could fetch its shard", now);
    return true;
  }
  if (!DataInPlace(*next_)) return false;
  Activate(now);
  training_started_ = now;
  Enter(v1::JOB_STATE_TRAINING, "", now);
  return true;
}

void Job::Activate(absl::Time now) {
  active_ = std::move(next_);
  next_.reset();
  for (auto& [worker, member] : members_) {
    member.rounds = member.samples_counted = 0;
    member.compute_s = member.pull_s = member.push_s = member.evaluate_s = 0;
  }
  actions_.push_back(StoreJob{});
  log::Info("plan in force", {{"job", options_.spec.name()}, {"plan", active_->result.plan.number()}});
}

bool Job::AdvanceTraining(absl::Time now, absl::Time wall_now) {
  if (evaluating_.has_value() && AdvanceEvaluation(now)) return true;
  DropWhoDoesNotFetch(now);
  if (committing_ || (evaluating_.has_value() && evaluating_->final)) return false;
  if (book_ != nullptr) {
    if (now >= book_->deadline() && !book_->WaitingFor().empty()) AskForWhatIsDone("the deadline has passed");
    switch (book_->Decide(now)) {
      case RoundBook::Verdict::kWait: return false;
      case RoundBook::Verdict::kCommit: {
        committing_ = true;
        v1::RoundRecord& record = pending_record_;
        record.Clear();
        record.set_round(round_.value());
        record.set_version(version_.value() + 1);
        record.set_plan(active_->result.plan.number());
        record.set_samples(book_->counted_samples());
        record.set_contributions(book_->counted());
        record.set_planned_contributions(static_cast<int32_t>(book_->entries().size()));
        record.set_seconds(absl::ToDoubleSeconds(now - book_->options().opened));
        record.set_train_loss(round_loss_sum_ / static_cast<double>(std::max<int64_t>(1, record.samples())));
        record.set_committed_ms(absl::ToUnixMillis(wall_now));
        for (const v1::Evaluation& evaluation : evaluations_) {
          if (evaluation.version() == version_.value()) *record.mutable_evaluation() = evaluation;
        }
        actions_.push_back(CommitRound{record});
        return false;
      }
      case RoundBook::Verdict::kZeroWeight:
        actions_.push_back(DropRound{round_, "zero weight"});
        Fail(absl::StrCat("round ", round_.value(), ": the contributions have a total weight of zero samples"), now);
        return false;
      case RoundBook::Verdict::kDropRejected: {
        std::vector<std::string> reasons;
        for (const auto& [worker, entry] : book_->entries()) {
          if (entry.state == RoundBook::State::kRejected)
            reasons.push_back(absl::StrCat(worker.value(), ": ", entry.reason));
        }
        const std::string reason = absl::StrCat("contributions rejected (", absl::StrJoin(reasons, ", "), ")");
        actions_.push_back(DropRound{round_, reason});
        book_.reset();
        if (++rejected_rounds_ >= kMaxRejectedRounds) {
          Fail(absl::StrCat("round ", round_.value(), " was dropped ", rejected_rounds_, " times in a row: ", reason,
                            "; the last good model is version ", version_.value()),
               now);
        }
        return true;
      }
      case RoundBook::Verdict::kDropMissing: {
        std::vector<std::string> missing;
        for (const WorkerId& worker : book_->WaitingFor()) missing.push_back(worker.value());
        const std::string reason = absl::StrCat("quorum not reached, missing ", absl::StrJoin(missing, ", "));
        actions_.push_back(DropRound{round_, reason});
        // Who is there and was too slow will be so again: the round is repeated without it. A pinned plan cannot do
        // without.
        LeaveOutLate(
            absl::StrCat("its contribution to round ", round_.value()), [this](const WorkerId& worker, const Member&) {
              const RoundBook::Entry* entry = book_->Find(worker);
              return !options_.pinned.has_value() && entry != nullptr && entry->state == RoundBook::State::kOutstanding;
            });
        book_.reset();
        const bool nobody_left =
            std::all_of(members_.begin(), members_.end(), [](const auto& m) { return !m.second.excluded.empty(); });
        if (++missed_rounds_ >= kMaxMissedRounds || nobody_left) {
          Fail(absl::StrCat("round ", round_.value(), ": ", reason,
                            "; is rounds.deadline too short? The last good model is version ", version_.value()),
               now);
        }
        return true;
      }
    }
  }
  if (std::all_of(members_.begin(), members_.end(), [](const auto& m) { return !m.second.excluded.empty(); })) {
    std::vector<std::string> why;
    for (const auto& [worker, member] : members_) why.push_back(absl::StrCat(worker.value(), ": ", member.excluded));
    Fail(absl::StrCat("no worker is left (", absl::StrJoin(why, "; "), "); the last good model is version ",
                      version_.value()),
         now);
    return false;
  }
  if (EndReached()) {
    if (options_.test.samples() == 0) {
      Finish(version_, "", now);
      return false;
    }
    if (!end_reached_.has_value()) end_reached_ = now;
    StartEvaluation(version_, /*final=*/true, now);
    if (evaluating_.has_value()) return true;
    reason_ = "waiting for a worker for the last evaluation";
    if (now - *end_reached_ > kMinEvaluationDeadline)
      Finish(version_, "no worker was there for the last evaluation", now);
    return false;
  }
  if (next_.has_value() && DataInPlace(*next_)) Activate(now);
  if (!options_.pinned.has_value()) {
    const std::set<WorkerId> usable = Usable();
    std::set<WorkerId> planned;
    const PlanState& newest = next_.has_value() ? *next_ : *active_;
    for (const v1::WorkerPlan& worker : newest.result.plan.workers()) planned.insert(WorkerId(worker.worker()));
    if (usable != planned && !usable.empty() && usable != unplannable_) {
      std::vector<std::string> changes;
      for (const WorkerId& worker : planned) {
        if (!usable.contains(worker)) changes.push_back(absl::StrCat("without ", worker.value()));
      }
      for (const WorkerId& worker : usable) {
        if (!planned.contains(worker)) changes.push_back(absl::StrCat("with ", worker.value()));
      }
      unplannable_ = TryPlan(now, absl::StrJoin(changes, ", ")) ? std::set<WorkerId>() : usable;
    }
  }
  return OpenNextRound(now);
}

bool Job::OpenNextRound(absl::Time now) {
  const v1::Plan& plan = active_->result.plan;
  RoundBook::Options book{.round = round_,
                          .attempt = ++attempt_,
                          .base = version_,
                          .quorum = options_.spec.rounds().quorum(),
                          .replan_after = absl::Seconds(options_.spec.rounds().replan_after_s()),
                          .opened = now};
  int64_t planned = 0;
  int64_t present = 0;
  std::vector<std::string> missing;
  for (int i = 0; i < plan.workers_size(); ++i) {
    const v1::WorkerPlan& worker = plan.workers(i);
    const int64_t samples = StepsOf(worker, round_.value(), plan.rounds_per_epoch()).samples;
    if (samples == 0) continue;
    planned += samples;
    const Member* member = FindMember(WorkerId(worker.worker()));
    if (!Serves(member)) {
      missing.push_back(worker.worker());
      continue;
    }
    present += samples;
    book.participants.push_back({.worker = WorkerId(worker.worker()), .planned_samples = samples, .rank = i});
  }
  if (book.participants.empty() || static_cast<double>(present) < book.quorum * static_cast<double>(planned)) {
    --attempt_;
    const std::string reason = absl::StrCat("waiting for ", absl::StrJoin(missing, ", "),
                                            next_.has_value() ? " or for the data of a new plan" : "");
    if (reason != reason_) {
      log::Warning("round cannot open", {{"job", options_.spec.name()}, {"round", round_.value()}, {"reason", reason}});
      reason_ = reason;
    }
    return false;
  }
  reason_.clear();
  book.quorum_of = planned;
  book.deadline = RoundDeadline(round_.value(), book.participants);
  book.late_grace = LateGrace(book);
  deliver_now_ = false;
  log::Info("round opened", {{"job", options_.spec.name()},
                             {"round", round_.value()},
                             {"attempt", attempt_},
                             {"plan", plan.number()},
                             {"participants", static_cast<int64_t>(book.participants.size())},
                             {"samples", present},
                             {"deadline_s", absl::ToDoubleSeconds(book.deadline)}});
  book_ = std::make_unique<RoundBook>(std::move(book));
  round_loss_sum_ = 0;
  actions_.push_back(StoreJob{});
  actions_.push_back(OpenRound{});
  StartEvaluation(version_, /*final=*/false, now);
  return true;
}

absl::Duration Job::RoundDeadline(int64_t round, const std::vector<RoundBook::Participant>& participants) const {
  if (options_.spec.rounds().deadline_s() > 0) return absl::Seconds(options_.spec.rounds().deadline_s());
  const v1::Plan& plan = active_->result.plan;
  double planned_s = 0;
  for (const auto& participant : participants) {
    const v1::WorkerPlan* worker = PlanOf(*active_, participant.worker);
    if (worker == nullptr) continue;
    const Steps steps = StepsOf(*worker, round, plan.rounds_per_epoch());
    planned_s = std::max(planned_s, static_cast<double>(steps.last - steps.first) * worker->batch_time_s() +
                                        worker->comm_s() / static_cast<double>(plan.rounds_per_epoch()));
  }
  return std::max(kMinRoundDeadline, 3 * absl::Seconds(planned_s));
}

// The time of a step and of sending the model, thrice, for the slowest; no longer than the round itself was given.
absl::Duration Job::LateGrace(const RoundBook::Options& book) const {
  double longest_s = 0;
  for (const auto& participant : book.participants) {
    const v1::WorkerPlan* worker = PlanOf(*active_, participant.worker);
    if (worker == nullptr) continue;
    longest_s = std::max(longest_s,
                         worker->batch_time_s() + worker->comm_s() / static_cast<double>(std::max<int64_t>(
                                                                         1, active_->result.plan.rounds_per_epoch())));
  }
  return std::clamp(3 * absl::Seconds(longest_s), kMinLateGrace, std::max(kMinLateGrace, book.deadline));
}

// ---- Evaluation

void Job::StartEvaluation(Version version, bool final, absl::Time now) {
  if (options_.test.samples() == 0) return;
  for (const v1::Evaluation& evaluation : evaluations_) {
    if (evaluation.version() == version.value() && evaluation.complete() && !final) return;
  }
  Evaluating evaluating;
  evaluating.version = version;
  evaluating.final = final;
  evaluating.attempt = ++last_attempt_ + options_.attempt_base;
  evaluating.sum.set_version(version.value());
  // Who evaluates: the round's participants, or at the end whoever of the plan is there. Each keeps the part that its cache holds; the
  // parts of those that are missing go to the others.
  std::vector<WorkerId> evaluators;
  std::vector<double> speeds;
  Ranges orphaned;
  for (const v1::WorkerPlan& worker : active_->result.plan.workers()) {
    if (worker.samples() == 0) continue;
    const WorkerId id(worker.worker());
    const Member* member = FindMember(id);
    const bool there = book_ != nullptr ? book_->Find(id) != nullptr : Serves(member);
    const Ranges& part = active_->tests[worker.worker()];
    if (!there) {
      orphaned.insert(orphaned.end(), part.begin(), part.end());
      continue;
    }
    evaluators.push_back(id);
    speeds.push_back(
        member != nullptr && member->profile.has_value() ? std::max(1e-6, member->profile->eval_samples_per_s()) : 1.0);
    evaluating.parts[id] = {.ranges = part, .attempt = evaluating.attempt};
  }
  if (evaluators.empty()) return;
  if (active_->tests.empty() ||
      std::all_of(active_->tests.begin(), active_->tests.end(), [](const auto& t) { return t.second.empty(); })) {
    orphaned = {{0, options_.test.samples()}};  // After a restart, whose plan holds no parts of the test set.
  }
  const std::vector<Ranges> shares = Split(orphaned, speeds);
  double rate = 0;
  for (size_t i = 0; i < evaluators.size(); ++i) {
    Ranges& ranges = evaluating.parts[evaluators[i]].ranges;
    ranges.insert(ranges.end(), shares[i].begin(), shares[i].end());
    rate += speeds[i];
  }
  std::erase_if(evaluating.parts, [](const auto& part) { return part.second.ranges.empty(); });
  evaluating.deadline =
      now + std::max(kMinEvaluationDeadline, 10 * absl::Seconds(static_cast<double>(options_.test.samples()) / rate));
  evaluating_ = std::move(evaluating);
}

bool Job::AdvanceEvaluation(absl::Time now) {
  bool all_done = true;
  for (const auto& [worker, part] : evaluating_->parts) all_done &= part.done;
  if (all_done) {
    const Version version = evaluating_->version;
    const bool final = evaluating_->final;
    FinishEvaluation(/*complete=*/true);
    const v1::Evaluation& result = evaluations_.back();
    const v1::EndSpec& end = options_.spec.end();
    const bool reached = (end.target_metric() == v1::METRIC_ACCURACY && result.accuracy() >= end.target_value()) ||
                         (end.target_metric() == v1::METRIC_LOSS && result.loss() <= end.target_value());
    if (reached) {
      Finish(version, "target reached", now);
    } else if (final) {
      Finish(version, "", now);
    }
    return true;
  }
  if (!evaluating_->final) return false;
  if (now > evaluating_->deadline) {
    const Version version = evaluating_->version;
    FinishEvaluation(/*complete=*/false);
    Finish(version, "the last evaluation is partial: its workers did not answer in time", now);
    return true;
  }
  // The parts of those that were lost go to somebody who is there.
  for (auto& [worker, part] : evaluating_->parts) {
    const Member* member = FindMember(worker);
    if (part.done || Serves(member)) continue;
    for (const WorkerId& heir : Usable()) {
      auto it = evaluating_->parts.find(heir);
      if (it != evaluating_->parts.end() && !it->second.done) continue;  // It has enough to do.
      Evaluating::Part taken{.ranges = part.ranges, .attempt = ++last_attempt_ + options_.attempt_base};
      part.ranges.clear();
      part.done = true;
      evaluating_->parts[heir] = taken;
      return false;
    }
  }
  return false;
}

void Job::FinishEvaluation(bool complete) {
  v1::Evaluation evaluation = evaluating_->sum;
  evaluation.set_complete(complete && evaluation.total() == options_.test.samples());
  const double total = static_cast<double>(std::max<int64_t>(1, evaluation.total()));
  evaluation.set_accuracy(static_cast<double>(evaluation.correct()) / total);
  evaluation.set_loss(evaluating_->loss_sum / total);
  evaluating_.reset();
  if (evaluation.total() == 0) return;  // Nobody answered.
  std::erase_if(evaluations_, [&](const auto& e) { return e.version() == evaluation.version(); });
  evaluations_.push_back(evaluation);
  for (v1::RoundRecord& record : rounds_) {
    if (record.version() == evaluation.version() + 1) *record.mutable_evaluation() = evaluation;
  }
  log::Info("evaluated", {{"job", options_.spec.name()},
                          {"version", evaluation.version()},
                          {"accuracy", evaluation.accuracy()},
                          {"loss", evaluation.loss()},
                          {"samples", evaluation.total()},
                          {"complete", evaluation.complete()}});
  actions_.push_back(StoreEvaluation{evaluation});
}

// ---- End

int64_t Job::JobSamples() const { return jobspec::SamplesToTrain(options_.spec, options_.train.samples()); }

double Job::EpochsTotal() const {
  const double samples = static_cast<double>(JobSamples());
  return samples > 0 ? samples / static_cast<double>(options_.train.samples()) : 1.0;
}

bool Job::EndReached() const {
  const v1::EndSpec& end = options_.spec.end();
  const double d = static_cast<double>(options_.train.samples());
  return (end.epochs() > 0 && static_cast<double>(committed_samples_) >= end.epochs() * d) ||
         (end.samples() > 0 && committed_samples_ >= end.samples()) ||
         (end.rounds() > 0 && round_.value() >= end.rounds());
}

// ---- What others see

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
  if (!active() || member == nullptr || !member->excluded.empty()) return a;
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
  const PlanState* newest = next_.has_value() ? &*next_ : active_.has_value() ? &*active_ : nullptr;
  if (newest != nullptr && !draining) {
    const v1::WorkerPlan* plan = PlanOf(*newest, worker);
    if (plan != nullptr && plan->samples() > 0) {
      v1::ShardTask* shard = a.mutable_shard();
      shard->set_plan(newest->result.plan.number());
      *shard->mutable_train() = options_.train;
      *shard->mutable_test() = options_.test;
      if (auto it = newest->shards.find(worker.value()); it != newest->shards.end())
        AddRanges(it->second, shard->mutable_train_ranges());
      if (auto it = newest->tests.find(worker.value()); it != newest->tests.end())
        AddRanges(it->second, shard->mutable_test_ranges());
    }
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
