#ifndef CAUSEWAY_BACKUP_RESTORE_H_
#define CAUSEWAY_BACKUP_RESTORE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "jobspec/config.h"

namespace causeway::backup {

struct RestoreOptions {
  std::string backup;                        // What CreateBackup has made.
  std::string dir;                           // The new data directory: missing, or empty.
  std::optional<jobspec::HostPort> address;  // What workers and operators will dial; absent: as before.
  absl::Time wall_now;
  FileSystem* files =
      nullptr;  // Not owned. The journal is prepared by SQLite, and links are seen in the operating system's files.
};

struct RestoreResult {
  std::string config_path;
  std::string advertise;
  std::string listen;
  std::string data_root;  // Not part of a backup: the datasets must be there.
  int64_t files = 0;
  int64_t bytes = 0;
  absl::Time created;
  std::string manifest_sha256;  // Hexadecimal.
};

// Makes a data directory from a backup. Every file is compared with the manifest, on its way into a folder beside DIR; DIR appears when all
// of them are right and the journal has been opened, or not at all. The journal is forked (ForkJournal). With an address, coordinator.yaml
// advertises it and, where it listened on the old one's port, listens on the new one's; the coordinator gets a new key and a certificate for
// it, a year long, from the authority in the backup. Blocks.
// Errors: AlreadyExists (DIR is not empty), NotFound (no backup), DataLoss (files that are missing or damaged, each named), FailedPrecondition
// (files that are not in the manifest, links, each named), InvalidArgument (the manifest, coordinator.yaml), and those of FileSystem.
absl::StatusOr<RestoreResult> RestoreBackup(const RestoreOptions& options);

}  // namespace causeway::backup

#endif  // CAUSEWAY_BACKUP_RESTORE_H_
