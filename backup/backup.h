#ifndef CAUSEWAY_BACKUP_BACKUP_H_
#define CAUSEWAY_BACKUP_BACKUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file.h"

namespace causeway::backup {

struct BackupOptions {
  std::string dir;          // The coordinator's data directory.
  std::string config_path;  // Empty: DIR/coordinator.yaml.
  std::string out;          // A folder that does not exist yet; its parent is made.
  std::string program;      // Goes into the manifest.
  absl::Time wall_now;
  FileSystem* files = nullptr;  // Not owned. The journal is read by SQLite, from the operating system's files.
};

struct BackupResult {
  int64_t files = 0;  // The manifest not counted.
  int64_t bytes = 0;
  int64_t incarnation = 0;
  int tries = 0;         // Journal snapshots taken, until all files of one were there.
  int64_t left_out = 0;  // Damaged or missing chunks of samples: the coordinator makes them again from their source.
  // Damaged versions that no job needs; of the data directory.
  std::vector<std::string> left_out_models;
  std::string manifest_sha256;  // Hexadecimal.
};

// Saves a data directory whose coordinator may be running and writing: a snapshot of the journal first, then the files that it names, which
// never change once they are there; when one of those is gone (its round was committed, its version pruned), again from a fresh snapshot.
// Each model is compared with the journal's digest; only of those that no job needs may one be damaged, or not be there (pruned).
// The manifest, with the digests of all, is written last. OUT appears when everything is in it and durable, or not at all. Blocks.
// Errors: AlreadyExists (OUT), NotFound (no data directory), DataLoss (damaged, the journal is lost, or a file that it needs is missing or
// damaged and stays so),
// Unavailable (the coordinator moves on faster than its files can be copied), and those of FileSystem.
absl::StatusOr<BackupResult> CreateBackup(const BackupOptions& options);

}  // namespace causeway::backup

#endif  // CAUSEWAY_BACKUP_BACKUP_H_
