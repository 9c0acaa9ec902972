#ifndef CAUSEWAY_WORKER_CHUNK_CACHE_H_
#define CAUSEWAY_WORKER_CHUNK_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/mutex.h"

namespace causeway::worker {

// Names one chunk: its SHA-256 (32 raw bytes) and how long it is.
struct ChunkRef {
  std::string sha256;
  int64_t size_bytes = 0;
};

// Chunks on this worker's disk, by SHA-256: DIR/ab/SHA256 in hexadecimal, DIR/ab/SHA256.part while it arrives.
//
// Thread-safe; a chunk that is arriving has one writer at a time (the caller sees to it). What is pinned stays; the rest goes, least
// recently used first, when room is needed. Content is believed after it was hashed once in this process. Pins must not outlive the cache.
class ChunkCache {
 public:
  struct Options {
    FileSystem* fs = nullptr;  // Not owned; outlives this.
    std::string dir;           // Made if missing.
    int64_t limit_bytes = 0;   // > 0
    int max_open_files = 256;  // Kept open between reads; > 0.
  };
  // Takes over what earlier processes left in `dir`. Errors: InvalidArgument (options), those of the file system.
  static absl::StatusOr<std::unique_ptr<ChunkCache>> Open(const Options& options);

  // Keeps chunks, present or not yet, in the cache while it lives.
  class Pins {
   public:
    ~Pins();
    Pins(const Pins&) = delete;
    Pins& operator=(const Pins&) = delete;

   private:
    friend class ChunkCache;
    Pins(ChunkCache* cache, std::vector<std::string> names) : cache_(cache), names_(std::move(names)) {}
    ChunkCache* const cache_;
    const std::vector<std::string> names_;
  };
  // Makes room for all of `chunks` (duplicates count once) and keeps it. Errors: ResourceExhausted (all that is pinned and these are more
  // than the limit; the message has both figures; nothing was changed), those of the file system.
  absl::StatusOr<std::unique_ptr<Pins>> Pin(absl::Span<const ChunkRef> chunks) ABSL_LOCKS_EXCLUDED(mu_);

  struct Missing {
    ChunkRef chunk;
    int64_t offset = 0;  // Where to go on: the bytes before it are on disk.
  };
  struct Check {
    std::vector<Missing> missing;  // In the order asked for.
    int64_t corrupt_chunks = 0;    // Found damaged, and deleted, by this call.
  };
  // Which of `chunks` are not here whole. Those not yet hashed in this process are hashed now. Errors: those of the file system.
  absl::StatusOr<Check> FindMissing(absl::Span<const ChunkRef> chunks) ABSL_LOCKS_EXCLUDED(mu_);

  // Adds bytes of an arriving, pinned chunk. `offset` is where FindMissing and earlier calls left off.
  // Errors: FailedPrecondition (not pinned, another offset), InvalidArgument (beyond its size), Unavailable (the disk is full), the
  // others of the file system.
  absl::Status Append(const std::string& sha256, int64_t offset, absl::Span<const uint8_t> data)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Ends an arrival: the chunk is hashed and from now on readable. Errors: DataLoss (wrong content: deleted, to be fetched from 0 again),
  // FailedPrecondition (not all bytes are here), those of the file system.
  absl::Status Complete(const std::string& sha256) ABSL_LOCKS_EXCLUDED(mu_);

  // Fills `out` from `offset` of a whole chunk. Errors: NotFound (not here whole), DataLoss (damaged or unreadable: deleted, to be
  // fetched again), OutOfRange (beyond its end), those of the file system.
  absl::Status Read(const std::string& sha256, int64_t offset, absl::Span<uint8_t> out) ABSL_LOCKS_EXCLUDED(mu_);

  // Hashes everything again before it is believed: for a caller who has read what cannot be.
  void Distrust() ABSL_LOCKS_EXCLUDED(mu_);

  int64_t used_bytes() const ABSL_LOCKS_EXCLUDED(mu_);  // On disk, and what is pinned but still to come.
  int64_t limit_bytes() const { return options_.limit_bytes; }

 private:
  struct Entry {
    int64_t size_bytes = 0;     // Of the whole chunk, once known (pinned or whole).
    int64_t present_bytes = 0;  // On disk.
    bool whole = false;         // Under its final name.
    bool verified = false;
    int pins = 0;
    std::shared_ptr<RandomAccessFile> open;  // While it is in open_order_.
    std::list<std::string>::iterator use;    // In use_order_.
    int64_t charged_bytes() const { return pins > 0 ? size_bytes : present_bytes; }
  };

  explicit ChunkCache(const Options& options) : options_(options) {}
  absl::Status Load() ABSL_LOCKS_EXCLUDED(mu_);
  std::string Path(const std::string& sha256, bool whole) const;
  void TouchLocked(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Entry* AddLocked(const std::string& sha256) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status DropLocked(const std::string& sha256) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status DropUnreadableLocked(const std::string& sha256, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unpin(const std::vector<std::string>& names) ABSL_LOCKS_EXCLUDED(mu_);
  // Hashes a whole chunk; DataLoss when it is not what its name says, and then it is gone.
  absl::Status Verify(const std::string& sha256) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::list<std::string> use_order_ ABSL_GUARDED_BY(mu_);   // Least recently used first.
  std::list<std::string> open_order_ ABSL_GUARDED_BY(mu_);  // Chunks with an open file, oldest first.
  int64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;             // The sum of charged_bytes.
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_CHUNK_CACHE_H_
