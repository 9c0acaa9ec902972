#ifndef CAUSEWAY_CLI_INIT_H_
#define CAUSEWAY_CLI_INIT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "cli/context.h"
#include "jobspec/config.h"

namespace causeway::cli {

struct InitOptions {
  jobspec::HostPort address;  // What workers and operators dial.
  std::string dir;            // Of the coordinator.
  std::string data_root;      // Empty: DIR/data.
  std::string operator_name = "admin";
  std::string context_dir;  // Gets the first operator's credential.
  absl::Time wall_now;
};

struct InitResult {
  std::string config_path;
  std::string data_root;
  std::string ca_pin;
  Context context;
};

// Makes a coordinator: a certificate authority (10 years), the coordinator's certificate and the first operator's credential (1 year each), a
// data folder and coordinator.yaml. Keys have mode 0600. coordinator.yaml is written last, so that a broken attempt is seen as such.
// Errors: AlreadyExists (any of the files is there; nothing is changed), InvalidArgument (names), those of the file system.
absl::StatusOr<InitResult> InitCoordinator(const InitOptions& options, FileSystem* files);

struct Credential {
  std::string key_pem;
  std::string certificate_pem;
};
// As the first operator's: for a year, with a new key. Errors: InvalidArgument (the authority's certificate or key).
absl::StatusOr<Credential> MakeOperatorCredential(const Credential& ca, const std::string& name, absl::Time wall_now);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_INIT_H_
