#ifndef CAUSEWAY_CLI_FLEET_COMMANDS_H_
#define CAUSEWAY_CLI_FLEET_COMMANDS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/session.h"

// `causeway site|token|worker ...`. Errors of all: those of Session::Client and OperatorClient.
namespace causeway::cli {

struct SiteAddOptions {
  std::string site;
  int uses = 0;                                    // 0: the coordinator's default.
  absl::Duration lifetime = absl::ZeroDuration();  // 0: the coordinator's default.
  std::string request_id;                          // Empty: a random one.
};
// Standard output gets exactly the line to run on each of the site's nodes.
absl::Status SiteAdd(Session& session, const SiteAddOptions& options);
absl::Status SiteList(Session& session);
absl::Status SiteRemove(Session& session, const std::string& site);

absl::Status TokenList(Session& session);
absl::Status TokenRevoke(Session& session, const std::string& token_id);

absl::Status WorkerList(Session& session);
absl::Status WorkerShow(Session& session, const std::string& worker);
absl::Status WorkerDrain(Session& session, const std::string& worker);
absl::Status WorkerRemove(Session& session, const std::string& worker);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_FLEET_COMMANDS_H_
