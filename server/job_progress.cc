// Job, the part that moves it on: profiling, plans, rounds, evaluation, its end.
#include "server/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "jobspec/job_spec.h"
#include "server/shares.h"

namespace causeway::server {
namespace {

constexpr absl::Duration kMinRoundDeadline = absl::Seconds(30);
constexpr absl::Duration kMinLateGrace = absl::Seconds(2);
constexpr absl::Duration kMinEvaluationDeadline = absl::Seconds(60);
constexpr int kMaxRejectedRounds = 3;
constexpr int kMaxMissedRounds = 10;
constexpr double kSlowestUploadBytesPerS = 64 << 10;  // of the initial model; slower ones are given up

}  // namespace

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
    if (!member.trouble.empty()) absl::StrAppend(&member.excluded, "; its last trouble: ", member.trouble);
    member.late = true;
    log::Warning("worker left out",
                 {{"job", options_.spec.name()}, {"worker", worker.value()}, {"reason", member.excluded}});
  }
}

void Job::Answered(Member* member, absl::Time now) {
  phase_progress_ = now;
  member->trouble.clear();
  if (member->late) Exclude(member, "");
}

// Leaves out who has fetched nothing of the next plan's data for too long. True: somebody was.
bool Job::DropWhoDoesNotFetch(absl::Time now) {
  if (!next_.has_value() || DataInPlace(*next_) || now - phase_progress_ <= options_.phase_timeout) return false;
  phase_progress_ = now;
  LeaveOutLate("its shard", [this](const WorkerId& worker, const Member& member) {
    const v1::WorkerPlan* plan = PlanOf(*next_, worker);
    return plan != nullptr && plan->samples() > 0 && member.data_plan < next_->result.plan.number();
  });
  for (auto& [worker, member] : members_) {
    const v1::WorkerPlan* plan = PlanOf(*next_, worker);
    const bool missing = plan != nullptr && plan->samples() > 0 && member.data_plan < next_->result.plan.number();
    if (member.late && missing) member.owed = ShardOf(*next_, worker);
  }
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
        for (const auto& [worker, entry] : book_->entries()) {
          if (entry.gone && entry.state == RoundBook::State::kOutstanding)
            missing.push_back(absl::StrCat(worker.value(), " (left)"));
        }
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
    const std::string missing = absl::StrJoin(NotEvaluated(), ", ");
    FinishEvaluation(/*complete=*/false);
    Finish(version, absl::StrCat("the last evaluation is partial: ", missing, " did not answer in time"), now);
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

std::vector<std::string> Job::NotEvaluated() const {
  std::vector<std::string> names;
  for (const auto& [worker, part] : evaluating_->parts) {
    if (!part.done) names.push_back(worker.value());
  }
  return names;
}

void Job::FinishEvaluation(bool complete) {
  const std::string missing = absl::StrJoin(NotEvaluated(), ",");
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
                          {"complete", evaluation.complete()},
                          {"missing", missing}});
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

}  // namespace causeway::server
