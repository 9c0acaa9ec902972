#include "cli/backup_commands.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backup/backup.h"
#include "backup/restore.h"
#include "base/status_macros.h"
#include "cli/output.h"
#include "dataplane/protocol_version.h"
#include "jobspec/config.h"

namespace causeway::cli {

absl::Status Backup(Session& session, const BackupArguments& arguments) {
  ASSIGN_OR_RETURN(const backup::BackupResult result, backup::CreateBackup({.dir = arguments.dir,
                                                                            .config_path = arguments.config,
                                                                            .out = arguments.out,
                                                                            .program = dataplane::kBuildVersion,
                                                                            .wall_now = session.env().clock->WallNow(),
                                                                            .files = session.env().files}));
  session.Print("causeway.backup-made/1",
                {{"backup", arguments.out},
                 {"files", result.files},
                 {"bytes", result.bytes},
                 {"incarnation", result.incarnation},
                 {"tries", result.tries},
                 {"left_out", result.left_out},
                 {"left_out_models", result.left_out_models},
                 {"manifest_sha256", result.manifest_sha256}},
                absl::StrCat("backup    ", arguments.out, ": ", result.files, " files, ", HumanBytes(result.bytes),
                             "\nmanifest  ", result.manifest_sha256, "\n"));
  if (result.left_out > 0) {
    session.Note(absl::StrCat(result.left_out,
                              " chunks of samples are missing or damaged and were left out; the coordinator makes them "
                              "again from data_root"));
  }
  if (!result.left_out_models.empty()) {
    session.Note(
        absl::StrCat("damaged models that no job needs were left out: ", absl::StrJoin(result.left_out_models, ", ")));
  }
  return absl::OkStatus();
}

absl::Status Restore(Session& session, const RestoreArguments& arguments) {
  backup::RestoreOptions options = {.backup = arguments.backup,
                                    .dir = arguments.dir,
                                    .wall_now = session.env().clock->WallNow(),
                                    .files = session.env().files};
  if (!arguments.address.empty()) {
    absl::StatusOr<jobspec::HostPort> address = jobspec::ParseHostPort(arguments.address, /*allow_port_zero=*/false);
    if (!address.ok()) return Annotate(address.status(), "--address");
    options.address = *address;
  }
  ASSIGN_OR_RETURN(const backup::RestoreResult result, backup::RestoreBackup(options));
  session.Print("causeway.restored/1",
                {{"config", result.config_path},
                 {"advertise", result.advertise},
                 {"listen", result.listen},
                 {"data_root", result.data_root},
                 {"files", result.files},
                 {"bytes", result.bytes},
                 {"created_ms", absl::ToUnixMillis(result.created)},
                 {"manifest_sha256", result.manifest_sha256}},
                absl::StrCat("restored   ", result.files, " files, ", HumanBytes(result.bytes), ", as of ",
                             HumanTime(absl::ToUnixMillis(result.created)), "\nmanifest   ", result.manifest_sha256,
                             "\nadvertise  ", result.advertise, "\nlisten     ", result.listen, "\ndata       ",
                             result.data_root, "\nnext: causeway-coordinator --config ", result.config_path, "\n"));
  if (!session.env().files->Exists(result.data_root)) {
    session.Note(absl::StrCat("the datasets are not part of a backup: bring them to ", result.data_root,
                              ", or name their folder in coordinator.yaml (data_root)"));
  }
  return absl::OkStatus();
}

}  // namespace causeway::cli
