#ifndef CAUSEWAY_WORKER_SHARD_FETCHER_H_
#define CAUSEWAY_WORKER_SHARD_FETCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dataplane/transfer.h"
#include "proto/membership.pb.h"
#include "worker/chunk_cache.h"
#include "worker/dataset.h"

namespace causeway::worker {

// Brings the chunks of sample ranges into the cache. One thread.
class ShardFetcher {
 public:
  struct Options {
    ChunkCache* cache = nullptr;          // Not owned; outlives this.
    dataplane::TransferOptions transfer;  // Its cancellation is given per call.
  };
  struct Progress {
    int64_t bytes_done = 0;   // Over the wire.
    int64_t bytes_total = 0;  // Known to be missing so far.
  };
  struct Stats {
    int64_t bytes_fetched = 0;
    int64_t corrupt_chunks = 0;  // Damaged in the cache or on the way, and fetched again.
  };
  // Chunks stay in the cache as long as this lives.
  struct Held {
    DatasetIndex index;
    std::unique_ptr<ChunkCache::Pins> manifest_pin;
    std::unique_ptr<ChunkCache::Pins> pins;
  };
  explicit ShardFetcher(const Options& options) : options_(options) {}

  // The manifest and the samples of `ranges`: what is missing is fetched, manifest first, after broken links from where it stopped; all of
  // it is hashed once in this process. Adds to `stats`, also when it fails. Blocks. `on_progress` may be empty.
  // Errors: InvalidArgument (impossible dataset or ranges), ResourceExhausted (the cache's limit), DataLoss (a chunk that keeps coming
  // damaged), those of dataplane::FetchChunks and of the file system.
  absl::StatusOr<Held> Fetch(const std::string& job, const v1::DatasetInfo& info, const SampleRanges& ranges,
                             dataplane::Cancellation* cancellation,
                             const std::function<void(const Progress&)>& on_progress, Stats* stats);

 private:
  absl::Status FetchMissing(const std::string& job, absl::Span<const ChunkRef> chunks,
                            dataplane::Cancellation* cancellation,
                            const std::function<void(const Progress&)>& on_progress, Stats* stats);

  const Options options_;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_SHARD_FETCHER_H_
