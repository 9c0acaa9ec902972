#ifndef CAUSEWAY_CLI_BACKUP_COMMANDS_H_
#define CAUSEWAY_CLI_BACKUP_COMMANDS_H_

#include <string>

#include "absl/status/status.h"
#include "cli/session.h"

namespace causeway::cli {

// `causeway backup` and `causeway restore`: on the coordinator's machine, without credentials and without the coordinator.

struct BackupArguments {
  std::string dir = "./causeway";
  std::string out;
  std::string config;  // Empty: DIR/coordinator.yaml.
};
// Errors: those of backup::CreateBackup.
absl::Status Backup(Session& session, const BackupArguments& arguments);

struct RestoreArguments {
  std::string backup;
  std::string dir;
  std::string address;  // Empty: as before.
};
// Errors: those of backup::RestoreBackup, InvalidArgument (the address).
absl::Status Restore(Session& session, const RestoreArguments& arguments);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_BACKUP_COMMANDS_H_
