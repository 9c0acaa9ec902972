#ifndef CAUSEWAY_WORKER_SYNC_NONE_H_
#define CAUSEWAY_WORKER_SYNC_NONE_H_

#include <memory>

#include "worker/site_sync.h"

namespace causeway::worker {

// `none`: every worker trains its shard alone, and the coordinator averages all of them.
std::unique_ptr<SiteSync> MakeSyncNone();

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_SYNC_NONE_H_
