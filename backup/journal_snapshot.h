#ifndef CAUSEWAY_BACKUP_JOURNAL_SNAPSHOT_H_
#define CAUSEWAY_BACKUP_JOURNAL_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace causeway::backup {

// The journal (docs/journal_format.md) as a backup sees it: a file to copy consistently, and names of other files. Paths are the operating
// system's; any thread. Errors common to all: NotFound (no such file), DataLoss (damaged), FailedPrecondition (another program's database,
// locked for long), PermissionDenied, ResourceExhausted (disk full), Internal (I/O).

// Copies a journal that may be in use to `to`, which must not exist: one state of it, whole and checked, durable when this returns. Waits for
// no writer and holds none up.
absl::Status SnapshotJournal(const std::string& from, const std::string& to);

struct JournalFiles {
  int64_t incarnation = 0;
  // Relative to the data directory. `needed`: without them a job that has not ended cannot go on (newest model, contributions of the open
  // round). `kept`: other versions of models; the journal knows of all there ever were, pruned ones included.
  std::vector<std::string> needed;
  std::vector<std::string> kept;
  // Names (hexadecimal SHA-256) of the manifests of the datasets of jobs that have not ended.
  std::vector<std::string> dataset_manifests;
};
absl::StatusOr<JournalFiles> ReadJournalFiles(const std::string& path);

// Before a copy goes into service: makes its incarnation and its sites' generations larger than what the coordinator that it was copied from
// may have reached since, so that nobody takes one for the other.
absl::Status ForkJournal(const std::string& path);

}  // namespace causeway::backup

#endif  // CAUSEWAY_BACKUP_JOURNAL_SNAPSHOT_H_
