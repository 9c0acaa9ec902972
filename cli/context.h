#ifndef CAUSEWAY_CLI_CONTEXT_H_
#define CAUSEWAY_CLI_CONTEXT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "jobspec/config.h"

namespace causeway::cli {

// An operator's credentials for one coordinator: a folder with context.yaml, ca.pem, operator.pem and operator.key.
struct Context {
  std::string dir;
  jobspec::HostPort coordinator;
  std::string operator_name;

  std::string ca_path() const { return JoinPath(dir, "ca.pem"); }
  std::string certificate_path() const { return JoinPath(dir, "operator.pem"); }
  // Until the first renewal, which puts the key into the certificate's file.
  std::string key_path() const { return JoinPath(dir, "operator.key"); }
};

// Where the user's credentials lie: $XDG_CONFIG_HOME/causeway, else $HOME/.config/causeway. Either may be empty.
std::string ConfigHome(absl::string_view xdg_config_home, absl::string_view home);

// The folder that `--context` means: a path if it has a slash, else CONFIG_HOME/NAME; empty: CONFIG_HOME itself.
// Errors: InvalidArgument (a name that is none; no home and no path).
absl::StatusOr<std::string> ContextDir(absl::string_view flag, const std::string& config_home);

// Errors: NotFound (no context there; the message says how to get one), InvalidArgument (a broken context.yaml), PermissionDenied.
absl::StatusOr<Context> LoadContext(const std::string& dir, FileSystem* files);

std::string ContextYaml(const Context& context);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_CONTEXT_H_
