#ifndef CAUSEWAY_SERVER_COORDINATOR_H_
#define CAUSEWAY_SERVER_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "dataplane/link.h"
#include "proto/bulk.pb.h"
#include "proto/membership.pb.h"
#include "proto/operator.pb.h"
#include "server/data_owner.h"
#include "server/job.h"
#include "server/journal.h"
#include "server/log_budget.h"
#include "server/membership.h"
#include "server/merge.h"
#include "server/metrics.h"
#include "server/own_certificate.h"
#include "server/parameter_store.h"
#include "server/peer_guard.h"
#include "server/spool.h"

namespace causeway::server {

// The coordinator's state and what it does with it: membership, jobs, rounds; the journal behind them. Knows no RPC.
//
// All methods but Authorize and AccountOf run on `executor` (the services post there) and do not block but for small, durable journal writes. What takes
// long runs on `io`. After every event the jobs move on, their actions are carried out in order (a durable write before anything that
// follows from it is announced), and every worker whose assignment has changed is told. An action that fails (disk full) is tried
// again at each tick; until it succeeds its job stands still.
class Coordinator {
 public:
  struct Options {
    std::string dir;  // Data directory, locked by the caller.
    std::string data_root;
    std::string advertise;  // host:port that workers dial
    std::string ca_pem;
    std::string ca_key_pem;
    absl::Duration heartbeat = absl::Seconds(1);
    absl::Duration lease = absl::Seconds(10);
    absl::Duration broken_stream_grace = absl::Seconds(1);
    absl::Duration profile_duration = absl::Seconds(2);
    absl::Duration certificate_lifetime = absl::Hours(24 * 365);  // Of workers and operators.
    int64_t spool_limit_bytes = int64_t{8} << 30;

    // Breaks the bulk streams of a worker that was removed. On the executor; must not block. Empty: there are none.
    std::function<void(const std::string& worker)> cancel_streams;
    // PeerGuard's.
    std::function<void(const dataplane::PeerIdentity& peer)> break_connections;

    // Not owned; outlive this.
    OwnCertificate* certificate = nullptr;  // The coordinator's; null: somebody else looks after it.
    FileSystem* fs = nullptr;
    Clock* clock = nullptr;
    Executor* executor = nullptr;
    Executor* io = nullptr;
    MetricRegistry* registry = nullptr;
  };

  // Opens journal, spool and datasets and takes up the jobs that had not ended. Blocks (before the executor is used).
  // Errors: those of Journal, Spool, DataOwner and ParameterStore.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(Options options);
  ~Coordinator();

  // Begins to tick. Stop ends that; the executor is stopped before this is destroyed.
  void Start();

  // ---- Who may do what, and how often. Thread-safe; called for every RPC before it is looked at.
  absl::Status Authorize(const dataplane::PeerIdentity& peer, absl::string_view method) const
      ABSL_LOCKS_EXCLUDED(roster_mu_);
  // The peer, or, if its certificate does not count (replaced, or its worker removed), a peer of another name: what such a one does must not
  // be held against who has the name today.
  dataplane::PeerIdentity AccountOf(const dataplane::PeerIdentity& peer) const ABSL_LOCKS_EXCLUDED(roster_mu_);

  // ---- Workers
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request);
  absl::StatusOr<v1::RegisterResponse> Register(const dataplane::PeerIdentity& peer, const v1::RegisterRequest& request,
                                                const std::string& address);
  // A heartbeat stream. `send` and `close` are called on the executor and must not block; close ends the stream with a status.
  struct HeartbeatStream {
    std::function<void(const v1::HeartbeatResponse&)> send;
    std::function<void(const absl::Status&)> close;
  };
  // The stream's first message. Returns an id for the calls below. A stream that the worker had before is closed.
  absl::StatusOr<int64_t> OpenHeartbeat(const dataplane::PeerIdentity& peer, Incarnation incarnation,
                                        HeartbeatStream stream);
  absl::Status Heartbeat(int64_t stream, const v1::HeartbeatRequest& request);
  void HeartbeatClosed(int64_t stream);
  absl::Status ReportModel(const dataplane::PeerIdentity& peer, const v1::ReportModelRequest& request);
  absl::Status ReportProfile(const dataplane::PeerIdentity& peer, const v1::ReportProfileRequest& request);
  absl::Status ReportData(const dataplane::PeerIdentity& peer, const v1::ReportDataRequest& request);
  absl::Status ReportEvaluation(const dataplane::PeerIdentity& peer, const v1::ReportEvaluationRequest& request);
  absl::Status ReportFailure(const dataplane::PeerIdentity& peer, const v1::ReportFailureRequest& request);
  absl::Status Leave(const dataplane::PeerIdentity& peer, const v1::LeaveRequest& request);
  // Errors: InvalidArgument (the request), PermissionDenied (removed meanwhile), those of the journal.
  absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(const dataplane::PeerIdentity& peer,
                                                                const v1::RenewCertificateRequest& request);

  // ---- Operators
  using SubmitCallback = absl::AnyInvocable<void(absl::StatusOr<v1::SubmitJobResponse>) &&>;
  // Reads the dataset on `io`, then calls back on the executor.
  void SubmitJob(const v1::SubmitJobRequest& request, SubmitCallback done);
  absl::StatusOr<v1::GetJobResponse> GetJob(const std::string& job) const;
  v1::ListJobsResponse ListJobs() const;
  absl::Status AbortJob(const v1::AbortJobRequest& request);
  absl::Status PauseJob(const std::string& job);
  absl::Status ResumeJob(const std::string& job);
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request) const;
  absl::Status DrainWorker(const std::string& worker);
  absl::Status RemoveWorker(const std::string& worker);
  absl::StatusOr<v1::AddSiteResponse> AddSite(const v1::AddSiteRequest& request);
  v1::ListSitesResponse ListSites() const;
  absl::Status RemoveSite(const std::string& site);
  v1::ListTokensResponse ListTokens() const;
  absl::Status RevokeToken(const std::string& text);  // Its id, or the whole token.
  absl::StatusOr<v1::ListModelsResponse> ListModels(const std::string& job) const;
  // The operator's own is that of `peer`.
  absl::StatusOr<v1::ListCertificatesResponse> ListCertificates(const dataplane::PeerIdentity& peer) const;
  // Errors: NotFound, FailedPrecondition (a removed worker; a certificate of the coordinator that it does not look after).
  absl::StatusOr<v1::RequestRenewalResponse> RequestRenewal(const v1::RequestRenewalRequest& request);
  absl::StatusOr<v1::RenewCertificateResponse> RenewOperatorCertificate(
      const dataplane::PeerIdentity& peer, const v1::RenewCertificateRequest& request) const;

  // ---- Bulk, in steps between which the caller moves bytes on its own thread
  // The sum of a round, shared by the threads that add to it.
  struct Sum {
    Mutex mu;
    std::optional<RoundSum> sum ABSL_GUARDED_BY(mu);
  };
  struct PushTicket {
    std::optional<v1::PushResult> result;  // Set: the answer; nothing else is.
    SpoolKey key;
    dataplane::Layout layout;
    PackedModel committed;  // What the contribution is compared with; null for the initial model.
    double max_change = 0;
    std::shared_ptr<ParameterStore> store;
    std::shared_ptr<Sum> sum;
    int rank = 0;
  };
  absl::StatusOr<PushTicket> BeginPush(const dataplane::PeerIdentity& peer, const v1::PushRequest& request);
  absl::StatusOr<v1::PushResult> RejectPush(const dataplane::PeerIdentity& peer, const v1::PushRequest& request,
                                            const std::string& reason, const std::string& message);
  // Journals a verified contribution. OK: add it to the ticket's sum, then call FinishPush. Errors: Aborted (its round has passed).
  absl::Status JournalPush(const dataplane::PeerIdentity& peer, const v1::PushRequest& request, const std::string& path,
                           const v1::StoredContribution& info);
  absl::StatusOr<v1::PushResult> FinishPush(const dataplane::PeerIdentity& peer, const v1::PushRequest& request,
                                            const absl::Status& added, const v1::StoredContribution& info);
  // There is no room to store what a push brings: the job stands still, and says so, until one goes through.
  void NoRoomForPush(const std::string& job, const absl::Status& status);
  absl::StatusOr<v1::PushResult> CommitInitial(const v1::PushRequest& request,
                                               const ParameterStore::Checkpoint& checkpoint, PackedModel packed);
  struct PullTicket {
    dataplane::Layout layout;
    std::shared_ptr<ParameterStore> store;
    Version version;
  };
  absl::StatusOr<PullTicket> BeginPull(const v1::PullRequest& request) const;
  // Errors: NotFound, PermissionDenied (the worker does not serve this job).
  absl::Status CheckFetch(const dataplane::PeerIdentity& peer, const std::string& job) const;
  const dataplane::ChunkSource& chunks() const { return *data_owner_; }
  Spool* spool() const { return spool_.get(); }
  const Options& options() const { return options_; }
  Incarnation incarnation() const { return incarnation_; }
  Metrics* metrics() const { return metrics_.get(); }
  PeerGuard* guard() const { return guard_.get(); }

 private:
  struct JobEntry {
    JobRow row;
    std::unique_ptr<Job> job;
    std::shared_ptr<ParameterStore> store;  // Once the layout is known.
    std::shared_ptr<Sum> sum;
    std::deque<Job::Action> actions;
    bool busy = false;  // An action runs on io.
    bool data_open = false;
    bool end_shown = false;                               // By the gauges.
    v1::JobState stored_state = v1::JOB_STATE_SUBMITTED;  // What the journal has.
    absl::Time retry_at = absl::InfinitePast();
    std::string
        stands_still;  // Why the action at the front cannot be carried out, or pushes not be stored; empty: they can.
    std::vector<CommitRow> commits;
  };
  struct Stream {
    int64_t id = 0;
    HeartbeatStream stream;
    Incarnation incarnation;
    int64_t sequence = 0;
    std::string sent;  // The last assignment, serialised without its sequence.
  };

  explicit Coordinator(Options options);
  absl::Status Recover();
  absl::Status RecoverJob(JobRow row);
  absl::Status ReaddContributions(JobEntry* entry);
  void Tick();
  void Pump();
  void StartQueued(absl::Time now);
  void TakeLost(absl::Time now);
  void CarryOut(JobEntry* entry);
  // Errors: the action is to be tried again.
  absl::Status CarryOut(JobEntry* entry, const Job::Action& action);
  void CommitRoundOnIo(JobEntry* entry, const v1::RoundRecord& record);
  void SendAssignments();
  void CloseData(const v1::JobSpec& spec, const v1::DatasetInfo& train, const v1::DatasetInfo& test);
  void UpdateRoster() ABSL_LOCKS_EXCLUDED(roster_mu_);
  void UpdateGauges();
  void PresentTo(JobEntry* entry, const Worker& worker, absl::Time now);
  // The operator's job, to be changed. Errors: NotFound, FailedPrecondition (it has ended).
  absl::StatusOr<JobEntry*> FindUnended(const std::string& job);
  // The front action has failed: the job stands still, says why, and tries again.
  void StandStill(JobEntry* entry, absl::string_view what, const absl::Status& status);
  void GoOn(JobEntry* entry);
  static v1::JobSummary SummaryOf(const JobEntry& entry);
  JobEntry* FindJob(const std::string& job);
  const JobEntry* FindJob(const std::string& job) const;
  JobEntry* JobOf(const dataplane::PeerIdentity& peer, const v1::Fence& fence, absl::Status* error);
  absl::Status PutWorker(const Worker& worker);
  absl::Status PutToken(const Token& token);
  absl::StatusOr<std::string> SignFor(const dataplane::PeerIdentity& holder, const std::string& csr_pem) const;
  void RenewOwnCertificate();
  JobRow RowOf(const JobEntry& entry) const;
  absl::StatusOr<std::shared_ptr<ParameterStore>> MakeStore(const std::string& job,
                                                            const dataplane::Layout& layout) const;
  void FinishSubmit(const v1::SubmitJobRequest& request, v1::JobSpec spec,
                    absl::StatusOr<std::pair<DataOwner::Dataset, DataOwner::Dataset>> data,
                    std::optional<v1::Plan> pinned, SubmitCallback done);

  const Options options_;
  Incarnation incarnation_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Spool> spool_;
  std::unique_ptr<DataOwner> data_owner_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<PeerGuard> guard_;
  Membership membership_;
  std::vector<std::unique_ptr<JobEntry>> jobs_;  // In order of submission.
  std::set<SiteId> unstored_sites_;              // Whose newest generation is not in the journal: it is told to nobody.
  std::map<WorkerId, Stream> streams_;
  int64_t next_stream_ = 1;
  std::set<WorkerId> renewal_asked_;  // By an operator, and not done yet.
  bool renewing_ = false;             // The coordinator's own, on io.
  absl::Time renew_again_at_ = absl::InfinitePast();
  std::set<std::string> submitting_;  // Names and request ids whose data is being read.
  absl::Time recovering_until_ = absl::InfinitePast();
  std::set<std::string> recovering_;  // Whom interrupted rounds wait for until then.
  absl::Time gauges_at_ = absl::InfinitePast();
  bool pumping_ = false;
  LogBudget lines_;  // Of what workers do.

  // What Authorize, on gRPC's threads, knows of the workers: renewed whenever a certificate is made or taken back.
  mutable Mutex roster_mu_;
  Membership roster_ ABSL_GUARDED_BY(roster_mu_);
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_COORDINATOR_H_
