#include "server/journal.h"

#include <sqlite3.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/sqlite_seals.h"
#include "base/status_macros.h"

namespace causeway::server {
namespace {

constexpr int64_t kSchemaVersion = 3;

constexpr char kSchema[] = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('schema_version', 3), ('incarnation', 0);
CREATE TABLE sites (name TEXT PRIMARY KEY, generation INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
  id TEXT PRIMARY KEY, site TEXT NOT NULL REFERENCES sites ON DELETE CASCADE, sha256 BLOB NOT NULL, uses INTEGER NOT NULL,
  uses_left INTEGER NOT NULL, expires_ms INTEGER NOT NULL, revoked INTEGER NOT NULL, request_id TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE workers (
  name TEXT PRIMARY KEY, site TEXT NOT NULL REFERENCES sites ON DELETE CASCADE, serial TEXT NOT NULL,
  cert_expires_ms INTEGER NOT NULL, removed INTEGER NOT NULL, incarnation INTEGER NOT NULL,
  key_sha256 BLOB NOT NULL, previous_serial TEXT NOT NULL DEFAULT '') STRICT, WITHOUT ROWID;
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, request_id TEXT UNIQUE, yaml TEXT NOT NULL, spec BLOB NOT NULL,
  state INTEGER NOT NULL, reason TEXT NOT NULL, submitted_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,
  layout BLOB NOT NULL, train_data BLOB NOT NULL, test_data BLOB NOT NULL, pinned_plan BLOB NOT NULL,
  runtime BLOB NOT NULL) STRICT;
CREATE TABLE plans (
  job TEXT NOT NULL REFERENCES jobs (name), number INTEGER NOT NULL, plan BLOB NOT NULL, shards BLOB NOT NULL,
  PRIMARY KEY (job, number)) STRICT, WITHOUT ROWID;
CREATE TABLE profiles (
  job TEXT NOT NULL REFERENCES jobs (name), worker TEXT NOT NULL, profile BLOB NOT NULL,
  PRIMARY KEY (job, worker)) STRICT, WITHOUT ROWID;
CREATE TABLE contributions (
  job TEXT NOT NULL REFERENCES jobs (name), fragment INTEGER NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
  worker TEXT NOT NULL, generation INTEGER NOT NULL, incarnation INTEGER NOT NULL, samples INTEGER NOT NULL,
  sha256 BLOB NOT NULL, path TEXT NOT NULL, info BLOB NOT NULL,
  PRIMARY KEY (job, fragment, round, worker)) STRICT, WITHOUT ROWID;
CREATE TABLE commits (
  job TEXT NOT NULL REFERENCES jobs (name), fragment INTEGER NOT NULL, round INTEGER NOT NULL, version INTEGER NOT NULL,
  sha256 BLOB NOT NULL, path TEXT NOT NULL, samples INTEGER NOT NULL, committed_ms INTEGER NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY (job, fragment, round)) STRICT, WITHOUT ROWID;
CREATE TABLE evaluations (
  job TEXT NOT NULL REFERENCES jobs (name), version INTEGER NOT NULL, evaluation BLOB NOT NULL,
  PRIMARY KEY (job, version)) STRICT, WITHOUT ROWID;
)sql";

// What brings a file from version i + 1 to i + 2. Each ends as kSchema would have made it, but for the order of columns.
constexpr const char* kMigrations[] = {
    "ALTER TABLE workers ADD COLUMN previous_serial TEXT NOT NULL DEFAULT ''",
    kSealsTable,
};
static_assert(std::size(kMigrations) == kSchemaVersion - 1);
constexpr int64_t kSealedSince = 3;

absl::Status ErrorOf(sqlite3* db, absl::string_view doing) {
  const int code = sqlite3_extended_errcode(db);
  const std::string message = absl::StrCat("journal: cannot ", doing, ": ", sqlite3_errmsg(db));
  switch (code) {
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_UNIQUE: return absl::AlreadyExistsError(message);
    case SQLITE_CONSTRAINT_FOREIGNKEY: return absl::NotFoundError(message);
  }
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return absl::DataLossError(message);
    case SQLITE_FULL: return absl::ResourceExhaustedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return absl::FailedPreconditionError(message);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY: return absl::PermissionDeniedError(message);
    default: return absl::InternalError(message);
  }
}

absl::Status Execute(sqlite3* db, const char* sql, absl::string_view doing) {
  return sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus() : ErrorOf(db, doing);
}

// Bytes in a column of type BLOB; plain strings are TEXT.
struct Blob {
  const std::string& bytes;
};

// NULL for an empty string.
struct OptionalText {
  const std::string& text;
};

// One statement and its values, in the order of its question marks.
class Statement {
 public:
  static absl::StatusOr<Statement> Prepare(sqlite3* db, absl::string_view sql, absl::string_view doing) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &statement, nullptr) != SQLITE_OK) {
      return ErrorOf(db, doing);
    }
    return Statement(db, statement, doing);
  }
  Statement(Statement&& other) noexcept
      : db_(other.db_), statement_(std::exchange(other.statement_, nullptr)), doing_(std::move(other.doing_)) {}
  ~Statement() { sqlite3_finalize(statement_); }

  // The values must outlive the statement's steps.
  template <typename... Values>
  Statement& Bind(const Values&... values) {
    (BindOne(values), ...);
    return *this;
  }

  absl::StatusOr<bool> Step() {
    switch (sqlite3_step(statement_)) {
      case SQLITE_ROW: column_ = 0; return true;
      case SQLITE_DONE: return false;
      default: return ErrorOf(db_, doing_);
    }
  }

  // Reads the row's columns in order.
  template <typename... Values>
  void Read(Values&&... values) {
    (ReadOne(values), ...);
  }

 private:
  Statement(sqlite3* db, sqlite3_stmt* statement, absl::string_view doing)
      : db_(db), statement_(statement), doing_(doing) {}

  template <typename T>
  void BindOne(const T& value) {
    ++parameter_;
    int result;
    if constexpr (std::is_integral_v<T>) {
      result = sqlite3_bind_int64(statement_, parameter_, value);
    } else if constexpr (std::is_same_v<T, Blob>) {
      result = sqlite3_bind_blob64(statement_, parameter_, value.bytes.data(), value.bytes.size(), SQLITE_STATIC);
    } else if constexpr (std::is_same_v<T, OptionalText>) {
      result = value.text.empty() ? sqlite3_bind_null(statement_, parameter_) : BindText(value.text);
    } else {
      result = BindText(value);
    }
    CAUSEWAY_CHECK(result == SQLITE_OK);
  }
  int BindText(const std::string& text) {
    return sqlite3_bind_text64(statement_, parameter_, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  }

  template <typename T>
  void ReadOne(T& value) {
    const int column = column_++;
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(sqlite3_column_int64(statement_, column));
    } else {
      const void* data = sqlite3_column_blob(statement_, column);  // Null for an empty value.
      if (data == nullptr) {
        value.clear();
      } else {
        value.assign(static_cast<const char*>(data), sqlite3_column_bytes(statement_, column));
      }
    }
  }

  sqlite3* const db_;
  sqlite3_stmt* statement_;
  std::string doing_;
  int parameter_ = 0;
  int column_ = 0;
};

// Runs one statement that gives no rows; returns how many rows it changed.
template <typename... Values>
absl::StatusOr<int64_t> Run(sqlite3* db, absl::string_view sql, absl::string_view doing, const Values&... values) {
  ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(db, sql, doing));
  RETURN_IF_ERROR(statement.Bind(values...).Step().status());
  return sqlite3_changes64(db);
}

// Runs `body` in one transaction: committed and durable when it returns OK, undone otherwise.
template <typename Body>
absl::Status InTransaction(sqlite3* db, absl::string_view doing, Body body) {
  RETURN_IF_ERROR(Execute(db, "BEGIN IMMEDIATE", doing));
  absl::Status status = body();
  if (status.ok()) status = Execute(db, "COMMIT", doing);
  // Some errors (a full disk) have rolled back already.
  if (!status.ok() && sqlite3_get_autocommit(db) == 0) {
    if (absl::Status undone = Execute(db, "ROLLBACK", doing); !undone.ok()) {
      log::Error("journal_rollback_failed", {{"error", undone}});
    }
  }
  return status;
}

template <typename Row, typename ReadRow, typename... Values>
absl::StatusOr<std::vector<Row>> Select(sqlite3* db, absl::string_view sql, absl::string_view doing, ReadRow read_row,
                                        const Values&... values) {
  ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(db, sql, doing));
  statement.Bind(values...);
  std::vector<Row> rows;
  while (true) {
    ASSIGN_OR_RETURN(bool more, statement.Step());
    if (!more) return rows;
    read_row(&statement, &rows.emplace_back());
  }
}

absl::StatusOr<int64_t> SelectInteger(sqlite3* db, absl::string_view sql) {
  ASSIGN_OR_RETURN(std::vector<int64_t> rows,
                   Select<int64_t>(db, sql, "read", [](Statement* s, int64_t* value) { s->Read(*value); }));
  if (rows.size() != 1) return absl::DataLossError(absl::StrCat("journal: ", rows.size(), " rows from: ", sql));
  return rows[0];
}

absl::Status Damaged(absl::string_view how) { return absl::DataLossError(absl::StrCat("journal: damaged: ", how)); }

absl::Status CheckIntact(sqlite3* db) {
  ASSIGN_OR_RETURN(std::vector<std::string> findings,
                   Select<std::string>(db, "PRAGMA integrity_check(1)", "check",
                                       [](Statement* s, std::string* finding) { s->Read(*finding); }));
  if (findings.size() == 1 && findings[0] == "ok") return absl::OkStatus();
  return Damaged(findings.empty() ? "" : findings[0]);
}

absl::Status PrepareSchema(sqlite3* db) {
  ASSIGN_OR_RETURN(int64_t tables, SelectInteger(db, "SELECT count(*) FROM sqlite_schema"));
  if (tables == 0) {
    return InTransaction(db, "make the tables", [&]() -> absl::Status {
      RETURN_IF_ERROR(Execute(db, kSchema, "make the tables"));
      RETURN_IF_ERROR(Execute(db, kSealsTable, "make the tables"));
      return SealAll(db);
    });
  }
  ASSIGN_OR_RETURN(int64_t ours, SelectInteger(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'"));
  if (ours != 1) return absl::FailedPreconditionError("journal: the file is a database of another program");
  ASSIGN_OR_RETURN(int64_t version, SelectInteger(db, "SELECT value FROM meta WHERE key = 'schema_version'"));
  if (version >= kSealedSince && version <= kSchemaVersion) RETURN_IF_ERROR(CheckSeals(db), "journal");
  if (version == kSchemaVersion) return absl::OkStatus();
  if (version >= 1 && version < kSchemaVersion) {
    RETURN_IF_ERROR(InTransaction(db, "bring the file to the present schema", [&]() -> absl::Status {
      for (int64_t v = version; v < kSchemaVersion; ++v) RETURN_IF_ERROR(Execute(db, kMigrations[v - 1], "migrate"));
      RETURN_IF_ERROR(
          Run(db, "UPDATE meta SET value = ? WHERE key = 'schema_version'", "migrate", kSchemaVersion).status());
      return SealAll(db);
    }));
    log::Info("journal migrated", {{"from", version}, {"to", kSchemaVersion}});
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("journal: the file has schema version ", version,
                                                    ", this program knows version ", kSchemaVersion,
                                                    ": start the program that wrote it, or a newer one"));
}

absl::Status PutTokenRow(sqlite3* db, const TokenRow& row) {
  return Run(db, "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)", "write a token", row.id, row.site,
             Blob{row.sha256}, row.uses, row.uses_left, row.expires_ms, row.revoked, OptionalText{row.request_id})
      .status();
}

absl::Status PutWorkerRow(sqlite3* db, const WorkerRow& row) {
  return Run(db, "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", "write a worker", row.name, row.site,
             row.serial, row.cert_expires_ms, row.removed, row.incarnation, Blob{row.key_sha256}, row.previous_serial)
      .status();
}

absl::Status UpdateJobRow(sqlite3* db, const JobRow& row) {
  ASSIGN_OR_RETURN(
      int64_t changed,
      Run(db,
          "UPDATE jobs SET request_id = ?, yaml = ?, spec = ?, state = ?, reason = ?, submitted_ms = ?, ended_ms = ?, "
          "layout = ?, train_data = ?, test_data = ?, pinned_plan = ?, runtime = ? WHERE name = ?",
          "update a job", OptionalText{row.request_id}, row.yaml, Blob{row.spec}, row.state, row.reason,
          row.submitted_ms, row.ended_ms, Blob{row.layout}, Blob{row.train_data}, Blob{row.test_data},
          Blob{row.pinned_plan}, Blob{row.runtime}, row.name));
  if (changed == 1) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("journal: there is no job ", row.name));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path) {
  sqlite3* db = nullptr;
  const int opened =
      sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  absl::Cleanup close = [&] { sqlite3_close_v2(db); };
  if (opened != SQLITE_OK) return ErrorOf(db, absl::StrCat("open ", path));
  sqlite3_extended_result_codes(db, 1);
  RETURN_IF_ERROR(Execute(db, "PRAGMA journal_mode = WAL", "set up"), path);
  RETURN_IF_ERROR(
      Execute(db, "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF", "set up"), path);
  RETURN_IF_ERROR(CheckIntact(db), path);
  RETURN_IF_ERROR(PrepareSchema(db), path);
  RETURN_IF_ERROR(KeepSeals(db), path);
  std::move(close).Cancel();
  return std::unique_ptr<Journal>(new Journal(db));
}

Journal::~Journal() {
  MutexLock lock(&mu_);
  sqlite3_close_v2(db_);
}

absl::StatusOr<int64_t> Journal::NextIncarnation() {
  MutexLock lock(&mu_);
  int64_t incarnation = 0;
  RETURN_IF_ERROR(InTransaction(db_, "count a start", [&]() -> absl::Status {
    RETURN_IF_ERROR(Run(db_, "UPDATE meta SET value = value + 1 WHERE key = 'incarnation'", "count a start").status());
    ASSIGN_OR_RETURN(incarnation, SelectInteger(db_, "SELECT value FROM meta WHERE key = 'incarnation'"));
    return absl::OkStatus();
  }));
  return incarnation;
}

// ON CONFLICT rather than OR REPLACE: replacing a site deletes it first, and with it its tokens and workers.
absl::Status Journal::PutSite(const SiteRow& row) {
  MutexLock lock(&mu_);
  return Run(db_, "INSERT INTO sites VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET generation = excluded.generation",
             "write a site", row.name, row.generation)
      .status();
}

absl::Status Journal::RemoveSite(const std::string& name) {
  MutexLock lock(&mu_);
  return Run(db_, "DELETE FROM sites WHERE name = ?", "remove a site", name).status();
}

absl::StatusOr<std::vector<SiteRow>> Journal::LoadSites() {
  MutexLock lock(&mu_);
  return Select<SiteRow>(db_, "SELECT name, generation FROM sites ORDER BY name", "read the sites",
                         [](Statement* s, SiteRow* row) { s->Read(row->name, row->generation); });
}

absl::Status Journal::PutToken(const TokenRow& row) {
  MutexLock lock(&mu_);
  return PutTokenRow(db_, row);
}

absl::StatusOr<std::vector<TokenRow>> Journal::LoadTokens() {
  MutexLock lock(&mu_);
  return Select<TokenRow>(
      db_, "SELECT id, site, sha256, uses, uses_left, expires_ms, revoked, request_id FROM tokens ORDER BY id",
      "read the tokens", [](Statement* s, TokenRow* row) {
        s->Read(row->id, row->site, row->sha256, row->uses, row->uses_left, row->expires_ms, row->revoked,
                row->request_id);
      });
}

absl::Status Journal::PutWorker(const WorkerRow& row) {
  MutexLock lock(&mu_);
  return PutWorkerRow(db_, row);
}

absl::Status Journal::AdmitWorker(const WorkerRow& worker, const TokenRow& token) {
  MutexLock lock(&mu_);
  return InTransaction(db_, "admit a worker", [&]() -> absl::Status {
    RETURN_IF_ERROR(PutWorkerRow(db_, worker));
    return PutTokenRow(db_, token);
  });
}

absl::StatusOr<std::vector<WorkerRow>> Journal::LoadWorkers() {
  MutexLock lock(&mu_);
  return Select<WorkerRow>(
      db_,
      "SELECT name, site, serial, cert_expires_ms, removed, incarnation, key_sha256, previous_serial FROM workers "
      "ORDER BY name",
      "read the workers", [](Statement* s, WorkerRow* row) {
        s->Read(row->name, row->site, row->serial, row->cert_expires_ms, row->removed, row->incarnation,
                row->key_sha256, row->previous_serial);
      });
}

absl::Status Journal::AddJob(const JobRow& row) {
  MutexLock lock(&mu_);
  return Run(db_,
             "INSERT INTO jobs (name, request_id, yaml, spec, state, reason, submitted_ms, ended_ms, layout, "
             "train_data, "
             "test_data, pinned_plan, runtime) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
             "add a job", row.name, OptionalText{row.request_id}, row.yaml, Blob{row.spec}, row.state, row.reason,
             row.submitted_ms, row.ended_ms, Blob{row.layout}, Blob{row.train_data}, Blob{row.test_data},
             Blob{row.pinned_plan}, Blob{row.runtime})
      .status();
}

absl::Status Journal::UpdateJob(const JobRow& row) {
  MutexLock lock(&mu_);
  return UpdateJobRow(db_, row);
}

absl::StatusOr<std::vector<JobRow>> Journal::LoadJobs() {
  MutexLock lock(&mu_);
  return Select<JobRow>(
      db_,
      "SELECT name, request_id, yaml, spec, state, reason, submitted_ms, ended_ms, layout, train_data, test_data, "
      "pinned_plan, runtime FROM jobs ORDER BY id",
      "read the jobs", [](Statement* s, JobRow* row) {
        s->Read(row->name, row->request_id, row->yaml, row->spec, row->state, row->reason, row->submitted_ms,
                row->ended_ms, row->layout, row->train_data, row->test_data, row->pinned_plan, row->runtime);
      });
}

absl::Status Journal::PutPlan(const PlanRow& row) {
  MutexLock lock(&mu_);
  return Run(db_, "INSERT OR REPLACE INTO plans VALUES (?, ?, ?, ?)", "write a plan", row.job, row.number,
             Blob{row.plan}, Blob{row.shards})
      .status();
}

absl::StatusOr<std::vector<PlanRow>> Journal::LoadPlans(const std::string& job) {
  MutexLock lock(&mu_);
  return Select<PlanRow>(
      db_, "SELECT job, number, plan, shards FROM plans WHERE job = ? ORDER BY number", "read the plans",
      [](Statement* s, PlanRow* row) { s->Read(row->job, row->number, row->plan, row->shards); }, job);
}

absl::Status Journal::PutProfile(const ProfileRow& row) {
  MutexLock lock(&mu_);
  return Run(db_, "INSERT OR REPLACE INTO profiles VALUES (?, ?, ?)", "write a profile", row.job, row.worker,
             Blob{row.profile})
      .status();
}

absl::StatusOr<std::vector<ProfileRow>> Journal::LoadProfiles(const std::string& job) {
  MutexLock lock(&mu_);
  return Select<ProfileRow>(
      db_, "SELECT job, worker, profile FROM profiles WHERE job = ? ORDER BY worker", "read the profiles",
      [](Statement* s, ProfileRow* row) { s->Read(row->job, row->worker, row->profile); }, job);
}

absl::Status Journal::AddContribution(const ContributionRow& row) {
  MutexLock lock(&mu_);
  return Run(db_, "INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", "add a contribution", row.job,
             row.fragment, row.round, row.attempt, row.worker, row.generation, row.incarnation, row.samples,
             Blob{row.sha256}, row.path, Blob{row.info})
      .status();
}

absl::Status Journal::DropContributions(const std::string& job, int fragment, int64_t round) {
  MutexLock lock(&mu_);
  return Run(db_, "DELETE FROM contributions WHERE job = ? AND fragment = ? AND round = ?", "drop a round", job,
             fragment, round)
      .status();
}

absl::StatusOr<std::vector<ContributionRow>> Journal::LoadContributions(const std::string& job) {
  MutexLock lock(&mu_);
  return Select<ContributionRow>(
      db_,
      "SELECT job, fragment, round, attempt, worker, generation, incarnation, samples, sha256, path, info "
      "FROM contributions WHERE job = ? ORDER BY fragment, round, worker",
      "read the contributions",
      [](Statement* s, ContributionRow* row) {
        s->Read(row->job, row->fragment, row->round, row->attempt, row->worker, row->generation, row->incarnation,
                row->samples, row->sha256, row->path, row->info);
      },
      job);
}

absl::Status Journal::CommitRound(const CommitRow& commit, const JobRow* job) {
  MutexLock lock(&mu_);
  return InTransaction(db_, "commit a round", [&]() -> absl::Status {
    RETURN_IF_ERROR(Run(db_, "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", "commit a round", commit.job,
                        commit.fragment, commit.round, commit.version, Blob{commit.sha256}, commit.path, commit.samples,
                        commit.committed_ms, Blob{commit.record})
                        .status());
    RETURN_IF_ERROR(Run(db_, "DELETE FROM contributions WHERE job = ? AND fragment = ? AND round = ?", "commit a round",
                        commit.job, commit.fragment, commit.round)
                        .status());
    return job == nullptr ? absl::OkStatus() : UpdateJobRow(db_, *job);
  });
}

absl::Status Journal::RollBack(const std::string& job, int64_t version) {
  MutexLock lock(&mu_);
  return InTransaction(db_, "roll back", [&]() -> absl::Status {
    for (const char* sql : {"DELETE FROM commits WHERE job = ? AND version > ?",
                            "DELETE FROM evaluations WHERE job = ? AND version > ?"}) {
      RETURN_IF_ERROR(Run(db_, sql, "roll back", job, version).status());
    }
    return Run(db_, "DELETE FROM contributions WHERE job = ?", "roll back", job).status();
  });
}

absl::StatusOr<std::vector<CommitRow>> Journal::LoadCommits(const std::string& job) {
  MutexLock lock(&mu_);
  return Select<CommitRow>(
      db_,
      "SELECT job, fragment, round, version, sha256, path, samples, committed_ms, record FROM commits WHERE job = ? "
      "ORDER BY fragment, round",
      "read the commits",
      [](Statement* s, CommitRow* row) {
        s->Read(row->job, row->fragment, row->round, row->version, row->sha256, row->path, row->samples,
                row->committed_ms, row->record);
      },
      job);
}

absl::Status Journal::PutEvaluation(const EvaluationRow& row) {
  MutexLock lock(&mu_);
  return Run(db_, "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?)", "write an evaluation", row.job, row.version,
             Blob{row.evaluation})
      .status();
}

absl::StatusOr<std::vector<EvaluationRow>> Journal::LoadEvaluations(const std::string& job) {
  MutexLock lock(&mu_);
  return Select<EvaluationRow>(
      db_, "SELECT job, version, evaluation FROM evaluations WHERE job = ? ORDER BY version", "read the evaluations",
      [](Statement* s, EvaluationRow* row) { s->Read(row->job, row->version, row->evaluation); }, job);
}

}  // namespace causeway::server
