#ifndef CAUSEWAY_SERVER_JOB_H_
#define CAUSEWAY_SERVER_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "dataplane/layout.h"
#include "proto/bulk.pb.h"
#include "proto/job.pb.h"
#include "proto/journal.pb.h"
#include "proto/membership.pb.h"
#include "proto/operator.pb.h"
#include "proto/plan.pb.h"
#include "scheduler/shard_assignment.h"
#include "server/log_budget.h"
#include "server/planner.h"
#include "server/round.h"

namespace causeway::server {

inline constexpr int64_t kAttemptsPerIncarnation = 1'000'000;

// Job::Status's `excluded` of a worker that was removed for good.
inline constexpr char kRemoved[] = "removed";

// One job from submission to its end: which worker is to do what, when a round opens, and when it is over.
//
//   SUBMITTED -> PROFILING -> PLANNED -> DISTRIBUTING -> TRAINING -> FINISHED | FAILED | ABORTED;  PAUSED
//
// Who is late at a round's deadline, drains, or holds up a pause is asked to deliver what it has done so far; its weight is the samples
// done. What such a worker leaves out of its shard waits for the next epoch.
//
// Pure state, no I/O; takes `now` (steady). Not thread-safe. Events come in through the On... methods; Advance(now)
// then moves on as far as it can and leaves Actions, which the caller carries out in order, with durable writes before
// anything is announced. An action that takes long (CommitRound) is answered by an event.
class Job {
 public:
  struct Options {
    v1::JobSpec spec;
    v1::DatasetInfo train;
    v1::DatasetInfo test;
    std::optional<v1::Plan> pinned;
    absl::Duration profile_duration = absl::Seconds(2);
    // How long one worker may hold up profiling or distributing before the others go on without it. Progress (fetched
    // bytes) renews it.
    absl::Duration phase_timeout = absl::Seconds(120);
    absl::Time submitted;  // wall
    // Attempt numbers (profiles, evaluations, rounds) start above this, so that those of a restarted coordinator are
    // new to the workers.
    int64_t attempt_base = 0;  // The coordinator's incarnation times kAttemptsPerIncarnation.
  };

  // ---- Actions
  struct StoreJob {};  // state, reason, layout or runtime have changed
  struct StorePlan {
    PlanResult result;
  };
  struct StoreProfile {
    WorkerId worker;
    v1::DeviceProfile profile;
  };
  struct StoreEvaluation {
    v1::Evaluation evaluation;
  };
  struct OpenRound {};  // make a sum for book(); its contributions start from none
  struct CommitRound {
    v1::RoundRecord record;
  };  // sum -> checkpoint -> journal, then OnRoundCommitted
  struct DropRound {
    Round round;
    std::string reason;
  };
  using Action = std::variant<StoreJob, StorePlan, StoreProfile, StoreEvaluation, OpenRound, CommitRound, DropRound>;

  explicit Job(Options options);

  // What a restarted coordinator read from its journal. Everybody in the plan is taken as present until told otherwise.
  struct Stored {
    v1::JobState state = v1::JOB_STATE_SUBMITTED;
    std::string reason;
    absl::Time ended = absl::InfinitePast();  // wall
    std::optional<dataplane::Layout> layout;
    v1::StoredRuntime runtime;
    std::vector<PlanResult> plans;  // ascending
    std::map<WorkerId, v1::DeviceProfile> profiles;
    std::vector<v1::RoundRecord> rounds;
    Version version{-1};
    std::vector<v1::Evaluation> evaluations;
  };
  void Restore(Stored stored, absl::Time now);

  // ---- Events. Each is idempotent; after it, call Advance.
  void Start(absl::Time now);  // It is its turn.
  void SetPresent(const WorkerId& worker, const SiteId& site, Incarnation incarnation, bool present, absl::Time now);
  void Left(const WorkerId& worker);                    // In order. Beside SetPresent, which says that it is not there.
  void Forget(const WorkerId& worker, absl::Time now);  // Removed for good.
  // It delivers what it has done and is planned no more, until another process of it registers.
  void SetDraining(const WorkerId& worker, absl::Time now);
  // Errors: InvalidArgument (the layout differs from that of the others; the worker is left out), FailedPrecondition
  // (not wanted now).
  absl::Status OnModel(const WorkerId& worker, const dataplane::Layout& layout, bool has_optimizer_state,
                       absl::Time now);
  void OnInitialCommitted(absl::Time now);
  absl::Status OnProfile(const WorkerId& worker, const v1::ReportProfileRequest& request, absl::Time now);
  absl::Status OnData(const WorkerId& worker, const v1::ReportDataRequest& request, absl::Time now);
  absl::Status OnEvaluation(const WorkerId& worker, const v1::ReportEvaluationRequest& request, absl::Time now);
  absl::Status OnFailure(const WorkerId& worker, const v1::ReportFailureRequest& request, absl::Time now);
  void OnProgress(const WorkerId& worker, const v1::WorkerProgress& progress, absl::Time now);
  // Stands still as soon as the open round, whose workers deliver what they have, is committed; a job that is queued does not start.
  void Pause(absl::Time now);
  void Resume(absl::Time now);
  void Abort(const std::string& reason, absl::Time now);
  void Fail(const std::string& reason, absl::Time now);

  // ---- Contributions Decides on a push before any byte of it is read. Empty: its bytes are wanted. A result: the
  // answer. Invalid ones are marked rejected here. Errors: Unavailable (the same contribution is just being added: ask
  // again).
  absl::StatusOr<std::optional<v1::PushResult>> CheckPush(const WorkerId& worker, Incarnation registered,
                                                          const v1::PushRequest& request, absl::Time now);
  // Its values did not pass; answers with what the sender is told.
  v1::PushResult RejectContribution(const WorkerId& worker, const v1::PushRequest& request, const std::string& reason,
                                    const std::string& message, absl::Time now);
  // Verified and about to be journaled. False: its round has passed.
  bool BeginAdding(const WorkerId& worker, const v1::PushRequest& request);
  void CancelAdding(const WorkerId& worker);  // It could not be journaled.
  void OnAdded(const WorkerId& worker, const v1::PushRequest& request, const v1::StoredContribution& info,
               absl::Time now);
  // The coordinator had no room for a part of a contribution (or of the initial model): whoever sends it again is not late.
  void OnNoRoom(absl::Time now);
  // From the journal, after a restart: added to the sum already.
  void RestoreContribution(const WorkerId& worker, int64_t samples, const std::string& sha256,
                           const v1::StoredContribution& info);

  // The sum of the open round is void (its files could not be read): the round is repeated.
  void DropOpenRound(const std::string& reason);
  // The checkpoint of `version` is durable and journaled.
  void OnRoundCommitted(Version version, absl::Time now);

  // Moves on. Returns the actions in order.
  std::vector<Action> Advance(absl::Time now, absl::Time wall_now);

  // What this worker is to do now, without sequence. Empty `job`: nothing.
  v1::Assignment AssignmentFor(const WorkerId& worker) const;

  // ---- What is shown
  v1::JobSummary Summary() const;
  v1::GetJobResponse Status(absl::Time now) const;  // Without emulation and liveness, which membership knows.

  bool Eligible(const SiteId& site) const;  // Whether the job uses this site.
  const v1::JobSpec& spec() const { return options_.spec; }
  const Options& options() const { return options_; }
  v1::JobState state() const { return state_; }
  bool paused() const { return paused_; }  // Or about to be.
  bool active() const { return state_ != v1::JOB_STATE_SUBMITTED && !ended(); }
  bool ended() const;
  const std::string& reason() const { return reason_; }
  absl::Time ended_wall() const { return ended_wall_; }
  const std::optional<dataplane::Layout>& layout() const { return layout_; }
  v1::StoredRuntime runtime() const;
  const RoundBook* book() const { return book_.get(); }
  Version version() const { return version_; }
  std::optional<Version> final_version() const { return final_version_; }
  const std::vector<v1::Evaluation>& evaluations() const { return evaluations_; }
  const PlanResult* plan() const;  // The newest; null before the first.
  std::vector<std::string> WaitingFor() const;
  int64_t committed_samples() const { return committed_samples_; }

 private:
  struct Member {
    SiteId site;
    Incarnation incarnation;
    bool present = false;
    bool prepared = false;  // its model's layout is reported and right
    bool has_optimizer_state = false;
    std::optional<v1::DeviceProfile> profile;
    int64_t data_plan = 0;              // newest plan whose data it has
    std::string excluded;               // why it is left out; empty: it is not
    bool late = false;                  // left out for not answering: its answer brings it back
    std::optional<v1::ShardTask> owed;  // the data that it was left out for
    std::string trouble;                // what it has last said that it tries again; until it answers
    bool draining = false;              // delivers what it has done and leaves
    v1::WorkerProgress progress;
    // Measured, under the active plan.
    int64_t rounds = 0;
    double compute_s = 0, pull_s = 0, push_s = 0, evaluate_s = 0;
    double fetch_s = 0;
    int64_t fetch_bytes = 0;
    int64_t samples_counted = 0;
    bool fresh_optimizer = false;
    Incarnation contributed;  // which of its processes sent the newest contribution
  };
  struct PlanState {
    PlanResult result;
    std::map<std::string, std::vector<scheduler::SampleRange>> shards;
    std::map<std::string, std::vector<scheduler::SampleRange>> tests;
  };
  // An evaluation under way: disjoint parts of the test set, counted once each.
  struct Evaluating {
    Version version;
    bool final = false;
    absl::Time deadline;
    int64_t attempt = 1;
    struct Part {
      std::vector<scheduler::SampleRange> ranges;
      int64_t attempt = 1;
      bool done = false;
    };
    std::map<WorkerId, Part> parts;
    v1::Evaluation sum;
    double loss_sum = 0;
  };
  void Enter(v1::JobState state, const std::string& reason, absl::Time now);
  bool AdvancePause(absl::Time now);
  bool AdvanceProfiling(absl::Time now);
  bool AdvanceDistributing(absl::Time now);
  bool AdvanceTraining(absl::Time now, absl::Time wall_now);
  bool AdvanceEvaluation(absl::Time now);
  // Leaves out who is present and has `not_done` yet, naming what was waited for.
  void LeaveOutLate(absl::string_view what, absl::FunctionRef<bool(const WorkerId&, const Member&)> not_done);
  void Answered(Member* member, absl::Time now);
  static void Exclude(Member* member, const std::string& reason);  // For good; empty: no longer.
  v1::ShardTask ShardOf(const PlanState& plan, const WorkerId& worker) const;
  bool DropWhoDoesNotFetch(absl::Time now);
  bool TryPlan(absl::Time now, const std::string& reason);
  bool DataInPlace(const PlanState& plan) const;
  void Activate(absl::Time now);
  bool OpenNextRound(absl::Time now);
  void StartEvaluation(Version version, bool final, absl::Time now);
  void FinishEvaluation(bool complete);
  std::vector<std::string> NotEvaluated() const;  // Whose part of the evaluation under way is missing.
  void Finish(Version version, const std::string& reason, absl::Time now);
  bool EndReached() const;
  double EpochsTotal() const;
  int64_t JobSamples() const;
  absl::Duration RoundDeadline(int64_t round, const std::vector<RoundBook::Participant>& participants) const;
  absl::Duration LateGrace(const RoundBook::Options& book) const;
  void AskForWhatIsDone(absl::string_view why);
  const v1::WorkerPlan* PlanOf(const PlanState& plan, const WorkerId& worker) const;
  // There, and to be given further work.
  static bool Serves(const Member* member) {
    return member != nullptr && member->present && member->excluded.empty() && !member->draining;
  }
  std::set<WorkerId> Usable() const;  // Serves, prepared, profiled.
  Member* FindMember(const WorkerId& worker);
  const Member* FindMember(const WorkerId& worker) const;
  // How many events of a worker a line of the log stands for now; 0: it is not written.
  int64_t Lines(const WorkerId& worker, absl::string_view event, absl::Time now) {
    return lines_.Take(absl::StrCat(worker.value(), " ", event), now);
  }
  v1::PushResult Refuse(v1::PushResult::Outcome outcome, const std::string& reason, const std::string& message);

  const Options options_;
  v1::JobState state_ = v1::JOB_STATE_SUBMITTED;
  std::string reason_;
  absl::Time phase_started_;
  absl::Time phase_progress_;
  absl::Time ended_wall_ = absl::InfinitePast();
  std::map<WorkerId, Member> members_;
  std::optional<dataplane::Layout> layout_;
  std::optional<WorkerId> uploader_;
  bool profiling_started_ = false;

  std::optional<PlanState> active_;
  std::optional<PlanState> next_;  // Its data is on its way.

  Version version_{-1};
  Round round_{0};  // Open or next.
  int64_t attempt_ = 0;
  int64_t rejected_rounds_ = 0;  // in a row
  int64_t missed_rounds_ = 0;    // dropped in a row for want of contributions
  int64_t committed_samples_ = 0;
  std::unique_ptr<RoundBook> book_;
  double round_loss_sum_ = 0;
  bool committing_ = false;
  bool deliver_now_ = false;  // The open round's workers are asked for what they have done.
  bool paused_ = false;
  v1::JobState paused_in_ = v1::JOB_STATE_UNSPECIFIED;  // What a job that is PAUSED goes on with.
  std::optional<absl::Time> end_reached_;               // When nothing but the last evaluation was left to do.
  std::optional<Evaluating> evaluating_;
  std::optional<Version> final_version_;
  std::vector<v1::RoundRecord> rounds_;
  std::vector<v1::Evaluation> evaluations_;
  std::map<std::string, int64_t> rejected_by_reason_;
  absl::Time training_started_ = absl::InfinitePast();
  int64_t last_plan_number_ = 0;
  int64_t last_attempt_ = 0;        // of evaluations, above attempt_base
  std::set<WorkerId> unplannable_;  // with whom no plan could be made; not tried again
  v1::RoundRecord pending_record_;  // of the round being committed
  std::vector<Action> actions_;
  LogBudget lines_;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_JOB_H_
