#include "worker/shard_fetcher.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "dataplane/sample_stream.h"

namespace causeway::worker {
namespace {

constexpr int kMaxPasses = 3;  // Over chunks that came damaged.

}  // namespace

absl::StatusOr<ShardFetcher::Held> ShardFetcher::Fetch(const std::string& job, const v1::DatasetInfo& info,
                                                       const SampleRanges& ranges,
                                                       dataplane::Cancellation* cancellation,
                                                       const std::function<void(const Progress&)>& on_progress,
                                                       Stats* stats) {
  ASSIGN_OR_RETURN(const ChunkRef manifest_ref, DatasetIndex::ManifestOf(info));
  ASSIGN_OR_RETURN(std::unique_ptr<ChunkCache::Pins> manifest_pin, options_.cache->Pin({manifest_ref}));
  RETURN_IF_ERROR(FetchMissing(job, {manifest_ref}, cancellation, on_progress, stats), "manifest");
  std::string manifest(manifest_ref.size_bytes, '\0');
  RETURN_IF_ERROR(options_.cache->Read(manifest_ref.sha256, 0,
                                       absl::MakeSpan(reinterpret_cast<uint8_t*>(manifest.data()), manifest.size())));
  ASSIGN_OR_RETURN(DatasetIndex index, DatasetIndex::Create(info, std::move(manifest)));

  ASSIGN_OR_RETURN(const std::vector<ChunkRef> chunks, index.ChunksOf(ranges));
  ASSIGN_OR_RETURN(std::unique_ptr<ChunkCache::Pins> pins, options_.cache->Pin(chunks));
  RETURN_IF_ERROR(FetchMissing(job, chunks, cancellation, on_progress, stats));
  return Held{std::move(index), std::move(manifest_pin), std::move(pins)};
}

absl::Status ShardFetcher::FetchMissing(const std::string& job, absl::Span<const ChunkRef> chunks,
                                        dataplane::Cancellation* cancellation,
                                        const std::function<void(const Progress&)>& on_progress, Stats* stats) {
  ChunkCache* const cache = options_.cache;
  dataplane::TransferOptions transfer = options_.transfer;
  transfer.cancellation = cancellation;
  Progress progress;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    ASSIGN_OR_RETURN(const ChunkCache::Check check, cache->FindMissing(chunks));
    stats->corrupt_chunks += check.corrupt_chunks;
    if (check.missing.empty()) return absl::OkStatus();

    std::vector<dataplane::FetchItem> items;
    int64_t max_bytes = 0;
    absl::flat_hash_map<std::string, int64_t> sizes;
    for (const ChunkCache::Missing& missing : check.missing) {
      items.push_back({missing.chunk.sha256, missing.offset});
      sizes.emplace(missing.chunk.sha256, missing.chunk.size_bytes);
      max_bytes = std::max(max_bytes, missing.chunk.size_bytes);
      progress.bytes_total += missing.chunk.size_bytes - missing.offset;
    }
    RETURN_IF_ERROR(dataplane::FetchChunks(
        transfer, job, items, max_bytes, [&](const dataplane::ChunkPiece& piece) -> absl::Status {
          const std::string sha256(piece.sha256.data(), piece.sha256.size());
          if (piece.total_bytes != sizes.at(sha256)) {
            return absl::DataLossError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " was sent with ",
                                                    piece.total_bytes, " bytes, not ", sizes.at(sha256)));
          }
          if (!piece.bytes.empty()) RETURN_IF_ERROR(cache->Append(sha256, piece.offset, piece.bytes));
          const int64_t piece_bytes = static_cast<int64_t>(piece.bytes.size());
          stats->bytes_fetched += piece_bytes;
          progress.bytes_done += piece_bytes;
          if (on_progress) on_progress(progress);
          if (piece.offset + piece_bytes < piece.total_bytes) return absl::OkStatus();
          const absl::Status completed = cache->Complete(sha256);
          if (!absl::IsDataLoss(completed)) return completed;
          ++stats->corrupt_chunks;  // The next pass fetches it again.
          return absl::OkStatus();
        }));
  }
  ASSIGN_OR_RETURN(const ChunkCache::Check check, cache->FindMissing(chunks));
  if (check.missing.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(check.missing.size(), " chunks came damaged ", kMaxPasses, " times"));
}

}  // namespace causeway::worker
