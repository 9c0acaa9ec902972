#ifndef CAUSEWAY_WORKER_DATASET_H_
#define CAUSEWAY_WORKER_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/membership.pb.h"
#include "worker/chunk_cache.h"
#include "worker/sample_order.h"
#include "worker/sample_source.h"

namespace causeway::worker {

inline constexpr int64_t kMaxChunkBytes = 64 << 20;

// Which chunks hold which records of a dataset. Immutable.
class DatasetIndex {
 public:
  // The chunk that is the manifest. Errors: InvalidArgument (numbers that are impossible, a hash that is not 32 bytes).
  static absl::StatusOr<ChunkRef> ManifestOf(const v1::DatasetInfo& info);
  // `manifest` is that chunk's content. Errors: also InvalidArgument (its size).
  static absl::StatusOr<DatasetIndex> Create(const v1::DatasetInfo& info, std::string manifest);

  const v1::DatasetInfo& info() const { return info_; }
  ChunkRef chunk(int64_t i) const;
  // The chunks that hold samples of `ranges`, ascending, each once. Errors: InvalidArgument (beyond the dataset, a range that falls).
  absl::StatusOr<std::vector<ChunkRef>> ChunksOf(const SampleRanges& ranges) const;

 private:
  DatasetIndex(const v1::DatasetInfo& info, std::string manifest) : info_(info), manifest_(std::move(manifest)) {}
  v1::DatasetInfo info_;
  std::string manifest_;
};

// A dataset's records out of the cache. Thread-safe.
class CachedSamples : public SampleSource {
 public:
  // `cache` is not owned and outlives this.
  CachedSamples(ChunkCache* cache, DatasetIndex index) : cache_(cache), index_(std::move(index)) {}
  absl::Status ReadRecord(int64_t sample, absl::Span<uint8_t> out) override;

 private:
  ChunkCache* const cache_;
  const DatasetIndex index_;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_DATASET_H_
