#ifndef CAUSEWAY_BACKUP_JOURNAL_SNAPSHOT_H_
#define CAUSEWAY_BACKUP_JOURNAL_SNAPSHOT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataplane/layout.h"

namespace causeway::backup {

// The journal (docs/journal_format.md) as a backup sees it: a file to copy consistently, and names of other files. Paths are the operating
// system's; any thread. Errors common to all: NotFound (no such file), DataLoss (damaged), FailedPrecondition (another program's database,
// locked for long), PermissionDenied, ResourceExhausted (disk full), Internal (I/O).

// Copies a journal that may be in use to `to`, which must not exist: one state of it, whole and checked, durable when this returns. Waits for
// no writer and holds none up.
absl::Status SnapshotJournal(const std::string& from, const std::string& to);

// A version of a job's model.
struct ModelFile {
  std::string path;    // Relative to the data directory.
  std::string job;     // Its layout is in JournalFiles.
  std::string sha256;  // Of the packed model, 32 raw bytes.
  // The newest of a job that has not ended, the final one of a job that has. The journal knows of all versions there ever were, pruned ones
  // included: that another one is not there is no loss.
  bool needed = false;
};

struct JournalFiles {
  int64_t incarnation = 0;
  int64_t jobs = 0;
  std::map<std::string, dataplane::Layout> layouts;  // Of jobs with models.
  std::vector<ModelFile> models;                     // Job by job, the newest first.
  // Of the open rounds of jobs that have not ended; relative to the data directory.
  std::vector<std::string> contributions;
  // Names (hexadecimal SHA-256) of the manifests of the datasets of jobs that have not ended.
  std::vector<std::string> dataset_manifests;
};
absl::StatusOr<JournalFiles> ReadJournalFiles(const std::string& path);

// Before a copy goes into service: makes its incarnation and its sites' generations larger than what the coordinator that it was copied from
// may have reached since, so that nobody takes one for the other.
absl::Status ForkJournal(const std::string& path);

}  // namespace causeway::backup

#endif  // CAUSEWAY_BACKUP_JOURNAL_SNAPSHOT_H_
