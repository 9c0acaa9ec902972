#ifndef CAUSEWAY_SERVER_SPOOL_H_
#define CAUSEWAY_SERVER_SPOOL_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/mutex.h"

namespace causeway::server {

// Whose part of what. No incarnation: a restarted worker goes on with what its former self had sent, if it is the same
// bytes.
struct SpoolKey {
  std::string job;
  int fragment = 0;
  int64_t round = 0;  // -1: the initial model.
  int64_t attempt = 0;
  std::string worker;
  friend auto operator<=>(const SpoolKey&, const SpoolKey&) = default;
};

// Contributions on disk, from their first byte until their round is over:
// DIR/JOB/f0_r12_a1_BYTES_SHA256_WORKER.partial, then .whole. The name says what the file is to hold, so that nothing
// else has to be kept about it.
//
// Thread-safe.
class Spool {
 public:
  struct Options {
    FileSystem* fs = nullptr;  // Not owned; outlives this.
    std::string dir;           // Made if missing.
    int64_t max_bytes = 0;     // Bound on the sizes of all parts together, those still incomplete counted in full. > 0
  };

  // One part on its way in. Lives as long as somebody holds it; the file stays.
  //
  // Thread-safe. Call order: (Append | Sync)* Finish. A later Open or a Remove of the same key takes the part away:
  // every call then returns Aborted. The errors of writing are those of FileSystem, and stick.
  class Upload {
   public:
    Upload(FileSystem* fs, std::string stem, int64_t total_bytes, std::string sha256);

    int64_t total_bytes() const { return total_bytes_; }
    // Where to go on after a break: all before it is on stable storage.
    int64_t durable_bytes() const ABSL_LOCKS_EXCLUDED(mu_);
    int64_t received_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

    // `offset` must be received_bytes(). Errors: also InvalidArgument (another offset, more than total_bytes).
    absl::Status Append(int64_t offset, absl::Span<const uint8_t> data) ABSL_LOCKS_EXCLUDED(mu_);
    // Makes what was received durable; returns durable_bytes().
    absl::StatusOr<int64_t> Sync() ABSL_LOCKS_EXCLUDED(mu_);
    // Verifies the whole and gives it its final name, durably; returns the path. Idempotent.
    // Errors: also FailedPrecondition (incomplete), DataLoss (not the digest that was told: the file is emptied, start
    // again at 0).
    absl::StatusOr<std::string> Finish() ABSL_LOCKS_EXCLUDED(mu_);

   private:
    friend class Spool;
    absl::Status OpenFile() ABSL_LOCKS_EXCLUDED(mu_);
    void TakeAway() ABSL_LOCKS_EXCLUDED(mu_);

    FileSystem* const fs_;
    const std::string stem_;  // Path without .partial or .whole.
    const int64_t total_bytes_;
    const std::string sha256_;
    mutable Mutex mu_;
    std::unique_ptr<WritableFile> file_ ABSL_GUARDED_BY(mu_);  // Null once whole.
    int64_t received_bytes_ ABSL_GUARDED_BY(mu_) = 0;
    int64_t durable_bytes_ ABSL_GUARDED_BY(mu_) = 0;
    bool whole_ ABSL_GUARDED_BY(mu_) = false;
    absl::Status status_ ABSL_GUARDED_BY(mu_);
  };

  struct Entry {
    SpoolKey key;
    int64_t total_bytes = 0;
    std::string sha256;  // 32 raw bytes.
    std::string path;
    bool whole = false;
  };

  // Errors: InvalidArgument (options), and those of FileSystem.
  static absl::StatusOr<std::unique_ptr<Spool>> Create(const Options& options);

  // Goes on with the part of this key if what is there was announced with the same size and digest, and else starts
  // anew in its place (a whole file included: the caller knows that it is not counted).
  // Errors: InvalidArgument (key, total_bytes <= 0, a digest that is not 32 bytes), ResourceExhausted (max_bytes; the
  // disk), and those of FileSystem.
  absl::StatusOr<std::shared_ptr<Upload>> Open(const SpoolKey& key, int64_t total_bytes, const std::string& sha256)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Missing ones are OK.
  absl::Status Remove(const SpoolKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RemoveRound(const std::string& job, int fragment, int64_t round) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RemoveJob(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);

  // All there is, by key: after a start, what the journal does not know is to be removed or sent again.
  std::vector<Entry> List() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t used_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Part {
    int64_t total_bytes = 0;
    std::string sha256;
    std::weak_ptr<Upload> upload;
  };

  explicit Spool(const Options& options) : options_(options) {}
  absl::Status Scan() ABSL_LOCKS_EXCLUDED(mu_);
  std::string Stem(const SpoolKey& key, const Part& part) const;
  absl::Status RemoveLocked(std::map<SpoolKey, Part>::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  std::map<SpoolKey, Part> parts_ ABSL_GUARDED_BY(mu_);
  int64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

// Of all bytes of a file, read block by block. Errors: those of RandomAccessFile::Read.
absl::StatusOr<std::string> Sha256OfFile(const RandomAccessFile& file);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_SPOOL_H_
