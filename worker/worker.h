#ifndef CAUSEWAY_WORKER_WORKER_H_
#define CAUSEWAY_WORKER_WORKER_H_

#include <string>

#include "absl/status/status.h"
#include "base/completion.h"
#include "jobspec/config.h"
#include "worker/model.h"

namespace causeway::worker {

struct WorkerEnd {
  absl::Status status;
  // By the coordinator, for good; or another worker runs in this folder. Trying again is useless.
  bool refused = false;
};

// Runs a worker as `config` says until `end` is set or the coordinator refuses it. Blocks. `factory` is not owned.
WorkerEnd RunWorker(const jobspec::WorkerConfig& config, ModelFactory* factory, Completion<bool> end);

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_WORKER_H_
