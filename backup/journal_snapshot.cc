#include "backup/journal_snapshot.h"

#include <sqlite3.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "backup/manifest.h"
#include "base/sqlite_seals.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "proto/job.pb.h"
#include "proto/journal.pb.h"
#include "proto/membership.pb.h"

namespace causeway::backup {
namespace {

constexpr int kBusyTimeoutMs = 10'000;
// More than happen between a backup and its use. Attempt numbers are incarnations times a million, and stay readable.
constexpr int kForkedRestarts = 1000;
constexpr int kForkedGenerations = 1'000'000;

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

absl::Status ErrorOf(sqlite3* db, absl::string_view doing) {
  const std::string message = absl::StrCat("cannot ", doing, ": ", db == nullptr ? "no memory" : sqlite3_errmsg(db));
  switch (sqlite3_errcode(db) & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return absl::DataLossError(message);
    case SQLITE_FULL: return absl::ResourceExhaustedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return absl::FailedPreconditionError(message);
    case SQLITE_CANTOPEN: return absl::NotFoundError(message);
    case SQLITE_PERM:
    case SQLITE_READONLY: return absl::PermissionDeniedError(message);
    default: return absl::InternalError(message);
  }
}

absl::StatusOr<Database> Open(const std::string& path, int flags) {
  sqlite3* db = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &db, flags, nullptr);
  Database database(db);
  if (opened != SQLITE_OK) return ErrorOf(db, absl::StrCat("open ", path));
  sqlite3_busy_timeout(db, kBusyTimeoutMs);
  return database;
}

absl::Status Execute(sqlite3* db, const char* sql, absl::string_view doing) {
  return sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus() : ErrorOf(db, doing);
}

std::string Column(sqlite3_stmt* row, int column) {
  const void* data = sqlite3_column_blob(row, column);  // Null for an empty value.
  return data == nullptr ? "" : std::string(static_cast<const char*>(data), sqlite3_column_bytes(row, column));
}

template <typename ReadRow>
absl::Status ForEachRow(sqlite3* db, const char* sql, ReadRow read_row) {
  sqlite3_stmt* prepared = nullptr;
  if (sqlite3_prepare_v2(db, sql, -1, &prepared, nullptr) != SQLITE_OK) {
    return absl::FailedPreconditionError(absl::StrCat("not a journal that this program knows: ", sqlite3_errmsg(db)));
  }
  const Statement statement(prepared);
  int step;
  while ((step = sqlite3_step(statement.get())) == SQLITE_ROW) RETURN_IF_ERROR(read_row(statement.get()));
  return step == SQLITE_DONE ? absl::OkStatus() : ErrorOf(db, "read the journal");
}

absl::Status CheckIntact(sqlite3* db, const std::string& path) {
  std::string finding;
  RETURN_IF_ERROR(ForEachRow(db, "PRAGMA quick_check(1)", [&](sqlite3_stmt* row) {
    finding = Column(row, 0);
    return absl::OkStatus();
  }));
  return finding == "ok" ? absl::OkStatus() : absl::DataLossError(absl::StrCat(path, " is damaged: ", finding));
}

// FOLDER/JOB/F of a path that ends in F: the data directory may have been another one when it was journaled.
absl::StatusOr<std::string> FileOf(absl::string_view folder, const std::string& job, const std::string& journaled) {
  const std::string path = absl::StrCat(folder, "/", job, "/", journaled.substr(journaled.rfind('/') + 1));
  if (absl::Status fits = CheckPath(path); !fits.ok()) {
    return absl::DataLossError(absl::StrCat("the journal names a file that cannot be: ", fits.message()));
  }
  return path;
}

struct StoredJob {
  bool over = false;
  int64_t final_version = -1;
};

// Of a row with the columns name, state, train_data, test_data, layout, runtime.
absl::Status ReadJob(sqlite3_stmt* row, StoredJob* job, JournalFiles* files) {
  const std::string name = Column(row, 0);
  const int state = sqlite3_column_int(row, 1);
  job->over = state == v1::JOB_STATE_FINISHED || state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_ABORTED;
  for (int column : {2, 3}) {
    v1::DatasetInfo info;
    if (!info.ParseFromString(Column(row, column))) {
      return absl::DataLossError(absl::StrCat("the dataset of job ", name, " is damaged"));
    }
    if (!job->over && info.manifest_sha256().size() == dataplane::kSha256Bytes) {
      files->dataset_manifests.push_back(dataplane::ToHex(info.manifest_sha256()));
    }
  }
  v1::Layout layout;
  v1::StoredRuntime runtime;
  if (!layout.ParseFromString(Column(row, 4)) || !runtime.ParseFromString(Column(row, 5))) {
    return absl::DataLossError(absl::StrCat("the state of job ", name, " is damaged"));
  }
  if (layout.tensors_size() > 0) {
    absl::StatusOr<dataplane::Layout> checked = dataplane::Layout::FromProto(layout);
    if (!checked.ok()) {
      return absl::DataLossError(absl::StrCat("the layout of job ", name, ": ", checked.status().message()));
    }
    files->layouts[name] = *std::move(checked);
  }
  job->final_version = runtime.final_version();
  return absl::OkStatus();
}

}  // namespace

absl::Status SnapshotJournal(const std::string& from, const std::string& to) {
  ASSIGN_OR_RETURN(const Database source, Open(from, SQLITE_OPEN_READONLY));
  ASSIGN_OR_RETURN(const Database target, Open(to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  sqlite3_backup* copy = sqlite3_backup_init(target.get(), "main", source.get(), "main");
  if (copy == nullptr) return ErrorOf(target.get(), absl::StrCat("copy ", from));
  // All pages in one read transaction: one state, whatever is written meanwhile.
  sqlite3_backup_step(copy, -1);
  if (sqlite3_backup_finish(copy) != SQLITE_OK) return ErrorOf(target.get(), absl::StrCat("copy ", from));
  // One file without companions.
  RETURN_IF_ERROR(Execute(target.get(), "PRAGMA journal_mode = DELETE", "finish the copy"));
  RETURN_IF_ERROR(CheckIntact(target.get(), from));
  return HasSeals(target.get()) ? Annotate(CheckSeals(target.get()), from) : absl::OkStatus();
}

absl::StatusOr<JournalFiles> ReadJournalFiles(const std::string& path) {
  ASSIGN_OR_RETURN(const Database db, Open(path, SQLITE_OPEN_READONLY));
  JournalFiles files;
  RETURN_IF_ERROR(ForEachRow(db.get(), "SELECT value FROM meta WHERE key = 'incarnation'", [&](sqlite3_stmt* row) {
    files.incarnation = sqlite3_column_int64(row, 0);
    return absl::OkStatus();
  }));
  std::map<std::string, StoredJob> jobs;
  RETURN_IF_ERROR(ForEachRow(db.get(),
                             "SELECT name, state, train_data, test_data, layout, runtime FROM jobs ORDER BY name",
                             [&](sqlite3_stmt* row) { return ReadJob(row, &jobs[Column(row, 0)], &files); }));
  files.jobs = static_cast<int64_t>(jobs.size());
  std::string job_before;
  RETURN_IF_ERROR(ForEachRow(db.get(), "SELECT job, path, version, sha256 FROM commits ORDER BY job, version DESC",
                             [&](sqlite3_stmt* row) -> absl::Status {
                               ModelFile model = {.job = Column(row, 0), .sha256 = Column(row, 3)};
                               ASSIGN_OR_RETURN(model.path, FileOf("jobs", model.job, Column(row, 1)));
                               if (!files.layouts.contains(model.job)) {
                                 return absl::DataLossError(absl::StrCat("the journal has no layout for ", model.path));
                               }
                               const StoredJob& job = jobs[model.job];
                               const bool newest = model.job != std::exchange(job_before, model.job);
                               model.needed = job.over ? sqlite3_column_int64(row, 2) == job.final_version : newest;
                               files.models.push_back(std::move(model));
                               return absl::OkStatus();
                             }));
  RETURN_IF_ERROR(ForEachRow(db.get(), "SELECT job, path FROM contributions ORDER BY job, path",
                             [&](sqlite3_stmt* row) -> absl::Status {
                               const std::string job = Column(row, 0);
                               if (jobs[job].over) return absl::OkStatus();
                               ASSIGN_OR_RETURN(std::string file, FileOf("spool", job, Column(row, 1)));
                               files.contributions.push_back(std::move(file));
                               return absl::OkStatus();
                             }));
  return files;
}

absl::Status ForkJournal(const std::string& path) {
  ASSIGN_OR_RETURN(const Database db, Open(path, SQLITE_OPEN_READWRITE));
  if (HasSeals(db.get())) RETURN_IF_ERROR(KeepSeals(db.get()), path);
  const std::string sql = absl::StrCat("BEGIN IMMEDIATE; UPDATE meta SET value = value + ", kForkedRestarts,
                                       " WHERE key = 'incarnation'; UPDATE sites SET generation = generation + ",
                                       kForkedGenerations, "; COMMIT");
  return Execute(db.get(), sql.c_str(), absl::StrCat("prepare ", path));
}

}  // namespace causeway::backup
