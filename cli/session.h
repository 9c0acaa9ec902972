#ifndef CAUSEWAY_CLI_SESSION_H_
#define CAUSEWAY_CLI_SESSION_H_

#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/context.h"
#include "cli/operator_client.h"
#include "cli/output.h"

namespace causeway::cli {

// What the command line stands on. Pointers are not owned and outlive the session.
struct Environment {
  std::istream* in = nullptr;
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  bool out_is_terminal = false;
  int columns = 80;
  Clock* clock = nullptr;
  FileSystem* files = nullptr;
  std::string config_home;  // See ConfigHome().
  // Connects lazily: an absent coordinator shows at the first call.
  std::function<absl::StatusOr<std::unique_ptr<OperatorClient>>(const Context& context)> connect;
};

// What holds for every command.
struct GlobalOptions {
  std::string context;
  bool json = false;
  std::optional<absl::Duration> timeout;
};

// One invocation of a command. Not thread-safe.
class Session {
 public:
  Session(const Environment& environment, const GlobalOptions& options) : env_(environment), options_(options) {}

  const Environment& env() const { return env_; }
  bool json() const { return options_.json; }
  // --timeout, or what the command takes by default.
  absl::Duration timeout(absl::Duration fallback = absl::Seconds(30)) const {
    return options_.timeout.value_or(fallback);
  }

  absl::StatusOr<std::string> ContextFolder() const { return ContextDir(options_.context, env_.config_home); }
  // The coordinator of this session's context. Errors: those of LoadContext and of making the credentials.
  absl::StatusOr<OperatorClient*> Client();

  // `json` with this schema when JSON is asked for, else `text`, to standard output.
  void Print(absl::string_view schema, const Json& json, absl::string_view text);
  // A remark for people, to standard error.
  void Note(absl::string_view text);

  // The whole of a file that the user named; "-" is standard input. Errors: InvalidArgument (more than `max_bytes`), and
  // those of ReadFile.
  absl::StatusOr<std::string> ReadInput(const std::string& path, int64_t max_bytes = 1 << 20);

  // Notes if the certificate that Client went by is in the last third of its life.
  void WarnOfExpiry();

  // What happened and what to do about it, for standard error.
  std::string Explain(const absl::Status& error) const;

 private:
  const Environment& env_;
  const GlobalOptions options_;
  std::optional<Context> context_;
  std::unique_ptr<OperatorClient> client_;
};

// How messages call a file that the user named.
std::string ShownName(const std::string& path);

// 0 done, 1 failed, 2 usage (bad flags or a bad file), 3 timed out, 4 refused (not allowed, wrong state, exists already).
int ExitCode(const absl::Status& status);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_SESSION_H_
