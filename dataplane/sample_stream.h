#ifndef CAUSEWAY_DATAPLANE_SAMPLE_STREAM_H_
#define CAUSEWAY_DATAPLANE_SAMPLE_STREAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dataplane/link.h"
#include "dataplane/transfer.h"

namespace causeway::dataplane {

struct FetchItem {
  std::string sha256;  // 32 raw bytes
  int64_t offset = 0;  // Where to go on.
};

// A piece of a chunk, digest of the frame checked, as it arrives. Views are valid during the callback.
struct ChunkPiece {
  absl::string_view sha256;         // 32 raw bytes
  int64_t offset = 0;               // In the chunk.
  int64_t total_bytes = 0;          // Of the chunk.
  absl::Span<const uint8_t> bytes;  // The chunk is complete when offset + bytes.size() == total_bytes.
};

// Fetches `items` in order. Every item gives at least one piece (an empty one when nothing is left); its pieces are contiguous from its
// offset. Goes on after broken links without repeating a piece. Blocks. The caller checks a complete chunk against its name.
// Errors: Cancelled; Unavailable, DeadlineExceeded (attempts used up); DataLoss (offsets, sizes or digests that do not fit);
// ResourceExhausted (a chunk larger than `max_chunk_bytes`); InvalidArgument (a name that is not 32 bytes, a negative offset); the
// peer's: NotFound (no such chunk), ...; those of `on_piece`, which end the transfer.
absl::Status FetchChunks(const TransferOptions& options, const std::string& job, const std::vector<FetchItem>& items,
                         int64_t max_chunk_bytes, const std::function<absl::Status(const ChunkPiece&)>& on_piece);

// Where chunks are served from. Thread-safe.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  virtual absl::StatusOr<int64_t> Size(absl::string_view sha256) const = 0;  // Bytes. Errors: NotFound.
  virtual absl::Status Read(absl::string_view sha256, int64_t offset,
                            absl::Span<uint8_t> out) const = 0;  // Fills `out`.
};

// Answers one fetch; the request was the link's first frame. Errors: InvalidArgument (a bad name or offset), those of the source and of
// the link.
absl::Status ServeFetch(Link* link, const v1::FetchRequest& request, const ChunkSource& source,
                        const ServeOptions& options);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_SAMPLE_STREAM_H_
