#ifndef CAUSEWAY_SERVER_JOURNAL_H_
#define CAUSEWAY_SERVER_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

struct sqlite3;

namespace causeway::server {

// The rows of the journal (docs/journal_format.md). Times are Unix milliseconds; fields called bytes hold serialised
// messages or are empty.
struct SiteRow {
  std::string name;
  int64_t generation = 0;
};

struct TokenRow {
  std::string id;
  std::string site;
  std::string sha256;  // Of the secret, 32 raw bytes; the secret itself is stored nowhere.
  int64_t uses = 0;
  int64_t uses_left = 0;
  int64_t expires_ms = 0;
  bool revoked = false;
  std::string request_id;  // Of the call that made it.
};

struct WorkerRow {
  std::string name;
  std::string site;
  std::string serial;  // Of its certificate, hexadecimal.
  int64_t cert_expires_ms = 0;
  bool removed = false;
  int64_t incarnation = 0;
  std::string key_sha256;       // Of its public key, 32 raw bytes.
  std::string previous_serial;  // Of the certificate before, if that still counts.
};

struct JobRow {
  std::string name;
  std::string request_id;  // Of the submission that made it; unique unless empty.
  std::string yaml;
  std::string spec;  // v1::JobSpec
  int state = 0;     // v1::JobState
  std::string reason;
  int64_t submitted_ms = 0;
  int64_t ended_ms = 0;
  std::string layout;       // v1::Layout
  std::string train_data;   // v1::DatasetInfo
  std::string test_data;    // v1::DatasetInfo
  std::string pinned_plan;  // As submitted.
  std::string runtime;      // v1::StoredRuntime
};

struct PlanRow {
  std::string job;
  int64_t number = 0;
  std::string plan;    // v1::Plan
  std::string shards;  // Who holds which samples.
};

struct ProfileRow {
  std::string job;
  std::string worker;
  std::string profile;  // v1::DeviceProfile
};

struct ContributionRow {
  std::string job;
  int fragment = 0;
  int64_t round = 0;
  int64_t attempt = 0;
  std::string worker;
  int64_t generation = 0;
  int64_t incarnation = 0;
  int64_t samples = 0;
  std::string sha256;  // Of the part, 32 raw bytes.
  std::string path;    // Of the spooled part.
  std::string info;    // What else came with it.
};

struct CommitRow {
  std::string job;
  int fragment = 0;
  int64_t round = 0;  // -1: the initial model.
  int64_t version = 0;
  std::string sha256;  // Of the packed model, 32 raw bytes.
  std::string path;    // Of the checkpoint.
  int64_t samples = 0;
  int64_t committed_ms = 0;
  std::string record;  // What is told about the round.
};

struct EvaluationRow {
  std::string job;
  int64_t version = 0;
  std::string evaluation;
};

// What the coordinator must not forget, in one SQLite file.
//
// Every write is one transaction and is on stable storage when it returns; one that fails has changed nothing. The rows
// of every Load are sorted by their keys.
//
// Thread-safe. Errors of all calls: DataLoss (the file is damaged), ResourceExhausted (disk full), Internal (I/O); of
// the writes also NotFound (the row belongs to a site or a job that is not there).
class Journal {
 public:
  // Opens or makes the journal; its folder must exist. One of an older program is brought to the present schema, in one transaction. Errors: also FailedPrecondition (a newer program's file, the
  // message has both schema versions; another program's file; another process is
  // writing), PermissionDenied (the file cannot be opened).
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // A number larger than all before it, the first is 1: one for every start of the coordinator.
  absl::StatusOr<int64_t> NextIncarnation() ABSL_LOCKS_EXCLUDED(mu_);

  // Put: adds the row or replaces the one with the same key.
  absl::Status PutSite(const SiteRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  // With its tokens and workers. A missing one is OK.
  absl::Status RemoveSite(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<SiteRow>> LoadSites() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status PutToken(const TokenRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<TokenRow>> LoadTokens() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status PutWorker(const WorkerRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  // A worker that joined and the token that it used, together.
  absl::Status AdmitWorker(const WorkerRow& worker, const TokenRow& token) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<WorkerRow>> LoadWorkers() ABSL_LOCKS_EXCLUDED(mu_);

  // Errors: also AlreadyExists (the name, or the request id).
  absl::Status AddJob(const JobRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  // Replaces the row of this name. Errors: also NotFound.
  absl::Status UpdateJob(const JobRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  // In the order of their submission.
  absl::StatusOr<std::vector<JobRow>> LoadJobs() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status PutPlan(const PlanRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<PlanRow>> LoadPlans(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status PutProfile(const ProfileRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<ProfileRow>> LoadProfiles(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);

  // Errors: also AlreadyExists (this worker's contribution to this round is there).
  absl::Status AddContribution(const ContributionRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  // Those of a round that is to be repeated.
  absl::Status DropContributions(const std::string& job, int fragment, int64_t round) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<ContributionRow>> LoadContributions(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);

  // Adds the commit, drops the contributions of its round and, if `job` is given, updates that row, all together.
  // Errors: also AlreadyExists (the round is committed), NotFound.
  absl::Status CommitRound(const CommitRow& commit, const JobRow* job = nullptr) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes back what came after `version` was committed: commits, evaluations, contributions. Its checkpoints are lost.
  absl::Status RollBack(const std::string& job, int64_t version) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<CommitRow>> LoadCommits(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status PutEvaluation(const EvaluationRow& row) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<EvaluationRow>> LoadEvaluations(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit Journal(sqlite3* db) : db_(db) {}

  Mutex mu_;
  sqlite3* const db_ ABSL_PT_GUARDED_BY(mu_);  // Owned.
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_JOURNAL_H_
