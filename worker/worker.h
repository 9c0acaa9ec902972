#ifndef CAUSEWAY_WORKER_WORKER_H_
#define CAUSEWAY_WORKER_WORKER_H_

#include <string>

#include "absl/status/status.h"
#include "base/completion.h"
#include "jobspec/config.h"
#include "worker/model.h"

namespace causeway::worker {

struct WorkerEnd {
  absl::Status status;  // InvalidArgument, unless refused: the configuration, or a folder that has not joined.
  // By the coordinator, for good; or its certificate has expired; or another worker runs in this folder. Trying again is useless.
  bool refused = false;
};

// Set from outside to end a worker; set by it as well when it has ended for a reason of its own.
struct StopSignals {
  Completion<bool> drain;  // Deliver what is done, for at most the configured time, then end.
  Completion<bool> end;    // At once.
  void SetBoth(const absl::StatusOr<bool>& result) {
    end.Set(result);
    drain.Set(result);
  }
};

// Runs a worker as `config` says until `stop` says otherwise, the coordinator has it drain, or refuses it. Blocks. `factory` is not owned.
WorkerEnd RunWorker(const jobspec::WorkerConfig& config, ModelFactory* factory, StopSignals stop);

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_WORKER_H_
