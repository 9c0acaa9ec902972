#ifndef CAUSEWAY_SERVER_BULK_SERVICE_H_
#define CAUSEWAY_SERVER_BULK_SERVICE_H_

#include "base/clock.h"
#include "base/executor.h"
#include "dataplane/link.h"
#include "dataplane/transfer.h"
#include "server/coordinator.h"
#include "server/log_budget.h"

namespace causeway::server {

// The coordinator's end of every bulk stream: chunks and models out, contributions in, probes. Moves bytes on the stream's own thread and asks
// the coordinator, on its executor, between the steps. Thread-safe.
class BulkService : public dataplane::LinkHandler {
 public:
  // Neither is owned; both outlive this.
  BulkService(Coordinator* coordinator, Executor* executor, dataplane::StreamSizes sizes = {})
      : coordinator_(coordinator), executor_(executor), sizes_(sizes) {}

  absl::Status Serve(dataplane::LinkKind kind, const dataplane::PeerIdentity& peer, dataplane::Link* link) override;

 private:
  Coordinator* const coordinator_;
  Executor* const executor_;
  const dataplane::StreamSizes sizes_;
  LogBudget lines_;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_BULK_SERVICE_H_
