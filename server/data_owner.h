#ifndef CAUSEWAY_SERVER_DATA_OWNER_H_
#define CAUSEWAY_SERVER_DATA_OWNER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/mutex.h"
#include "dataplane/sample_stream.h"
#include "proto/membership.pb.h"

namespace causeway::server {

// Reads datasets once, cuts them into chunks named by their SHA-256, and serves those.
//
// A record is the pixels of one image and its label, a byte. Chunk i holds as many whole records as fit into 1 MiB; the
// manifest, the names of the chunks in order, is stored beside them as one more chunk.
//
// Thread-safe. Build and Open block as long as the files need; serving goes on meanwhile.
class DataOwner : public dataplane::ChunkSource {
 public:
  struct Options {
    FileSystem* fs = nullptr;  // Not owned; outlives this.
    std::string data_root;     // The sources lie below it.
    std::string chunk_dir;     // Chunks are stored as ab/SHA256 in it; made if missing.
  };

  // Where a dataset comes from: two idx files, each plain or gzip, whatever its name.
  struct Source {
    std::string images;  // Below data_root; unsigned bytes, [n, height, width] or [n, channels, height, width].
    std::string labels;  // Below data_root; unsigned bytes, [n].
    std::optional<uint64_t> seed;  // Of the permutation, as it is for base/random.h; absent: the order of the files.
  };

  struct Dataset {
    v1::DatasetInfo info;
    int64_t max_label = 0;
  };

  // Errors: InvalidArgument (options), and those of FileSystem.
  static absl::StatusOr<std::unique_ptr<DataOwner>> Create(const Options& options);

  // Reads the source, stores what is not stored yet, and serves it from then on. Takes memory for the source's bytes
  // and one chunk.
  // Errors, naming the file, what was found and what was expected: InvalidArgument (not an idx file of the right kind,
  // empty, label count, a record that does not fit into a chunk, a path that is not below the root), DataLoss
  // (truncated, longer than its header says, corrupt gzip), NotFound, PermissionDenied, and the others of FileSystem.
  absl::StatusOr<Dataset> Build(const Source& source) ABSL_LOCKS_EXCLUDED(mu_);

  // Serves what an earlier Build has stored, if all of it is there with the right sizes; else builds it again.
  // Errors: those of Build; FailedPrecondition (the source no longer gives the same dataset).
  absl::Status Open(const v1::DatasetInfo& info, const Source& source) ABSL_LOCKS_EXCLUDED(mu_);

  // Takes one Build or Open of this dataset back. What no open dataset has is not served any more; the files stay.
  void Close(const v1::DatasetInfo& info) ABSL_LOCKS_EXCLUDED(mu_);

  // ChunkSource. NotFound for what belongs to no open dataset, wherever it is on the disk. The first Read of a chunk
  // compares it with its name; a damaged or missing one is built again from its source. Errors of Read: also OutOfRange
  // (beyond the chunk's end), DataLoss (damaged, and the source does not give it any more).
  absl::StatusOr<int64_t> Size(absl::string_view sha256) const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Read(absl::string_view sha256, int64_t offset, absl::Span<uint8_t> out) const override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Chunk {
    int64_t size_bytes = 0;
    int users = 0;  // Open datasets that it belongs to.
    bool verified = false;
  };
  struct OpenDataset {
    Source source;
    std::vector<std::string> chunks;  // Names, raw, in order.
    int users = 0;
  };

  explicit DataOwner(const Options& options) : options_(options) {}

  absl::StatusOr<Dataset> ReadAndStore(const Source& source) const;
  absl::StatusOr<std::string> Store(absl::Span<const uint8_t> chunk) const;
  absl::StatusOr<std::vector<std::string>> CheckStored(const v1::DatasetInfo& info) const;
  void Serve(const v1::DatasetInfo& info, const Source& source, std::vector<std::string> chunks)
      ABSL_LOCKS_EXCLUDED(mu_);
  bool IsIntact(const std::string& sha256, int64_t size_bytes) const;
  absl::Status VerifyOrRebuild(const std::string& sha256, int64_t size_bytes) const
      ABSL_LOCKS_EXCLUDED(mu_, rebuild_mu_);
  std::string PathOf(absl::string_view sha256) const;

  const Options options_;
  mutable Mutex rebuild_mu_;  // Held while a damaged dataset is built again; taken before mu_.
  mutable Mutex mu_;
  mutable absl::flat_hash_map<std::string, Chunk> chunks_ ABSL_GUARDED_BY(mu_);  // By name, raw.
  std::map<std::string, OpenDataset> datasets_ ABSL_GUARDED_BY(mu_);             // By the manifest's name, raw.
};

// What a job's training and test set are made of; the training set is permuted by the job's seed.
DataOwner::Source TrainSource(const v1::JobSpec& spec);
DataOwner::Source TestSource(const v1::JobSpec& spec);
bool HasTestSet(const v1::JobSpec& spec);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_DATA_OWNER_H_
