#ifndef CAUSEWAY_SERVER_PARAMETER_STORE_H_
#define CAUSEWAY_SERVER_PARAMETER_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "dataplane/layout.h"
#include "dataplane/safetensors.h"

namespace causeway::server {

// A model's packed bytes, shared with the transfers that read them.
using PackedModel = std::shared_ptr<const std::vector<uint8_t>>;

// The versions of one job's model: the newest committed one in memory, all kept ones as DIR/model-000012.safetensors.
//
// A version is written (WriteCheckpoint), journaled by the caller, then announced (Publish); one that was written and
// not journaled before a crash is overwritten by the next attempt. Thread-safe.
class ParameterStore {
 public:
  struct Options {
    FileSystem* fs = nullptr;  // Not owned; outlives this and every Reader.
    std::string dir;           // Of the job's models; made if missing.
    dataplane::Layout layout;
  };

  // Reads one version, which stays on disk as long as a reader of it lives. Thread-safe.
  class Reader {
   public:
    virtual ~Reader() = default;
    virtual Version version() const = 0;
    virtual const std::string& sha256() const = 0;  // Of all packed bytes, 32 raw bytes.
    // Fills `out` with the packed bytes from `offset` on. Errors: OutOfRange (beyond the end), those of reading.
    virtual absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const = 0;
  };

  struct Checkpoint {
    std::string path;
    std::string sha256;  // Of the packed bytes, 32 raw bytes.
  };

  // Errors: InvalidArgument (options), and those of FileSystem.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(const Options& options);

  // Writes the file of `version`, durably when it returns, in place of one that is there. `metadata` goes into its
  // header, beside the digest.
  // Errors: InvalidArgument (version < 0, size of `packed`), and those of FileSystem.
  absl::StatusOr<Checkpoint> WriteCheckpoint(Version version, absl::Span<const uint8_t> packed,
                                             dataplane::SafetensorsMetadata metadata);

  // Reads a version from disk and checks it against its digest.
  // Errors: NotFound; DataLoss (damaged: no safetensors file, another layout, another digest), and those of reading.
  absl::StatusOr<PackedModel> Load(Version version) const;

  // Makes `packed` the newest committed model. Its size is that of the layout (CHECK).
  void Publish(Version version, PackedModel packed, const std::string& sha256) ABSL_LOCKS_EXCLUDED(mu_);
  // Version -1 and null before the first Publish.
  struct Newest {
    Version version{-1};
    PackedModel packed;
    std::string sha256;
  };
  Newest newest() const ABSL_LOCKS_EXCLUDED(mu_);

  // A reader of the newest version (from memory) or of any that is kept (from disk, not checked: the receiver compares
  // the digest).
  // Errors: NotFound (naming the version), DataLoss (damaged header), and those of reading.
  absl::StatusOr<std::shared_ptr<const Reader>> OpenVersion(Version version) ABSL_LOCKS_EXCLUDED(mu_);

  // The versions on disk, ascending. Errors: those of FileSystem.
  absl::StatusOr<std::vector<Version>> List() const;

  // Removes all versions but: the newest `keep` multiples of `every_rounds`, the newest published one and all above it,
  // those being read and those in `protect`. every_rounds, keep >= 1. Errors: those of FileSystem.
  absl::Status Prune(int64_t every_rounds, int64_t keep, const std::set<Version>& protect) ABSL_LOCKS_EXCLUDED(mu_);

  std::string PathOf(Version version) const;

 private:
  // Shared with the readers, which may outlive the store.
  struct Pins {
    Mutex mu;
    std::map<Version, int> counts ABSL_GUARDED_BY(mu);
  };
  static void Unpin(Pins* pins, Version version);
  class MemoryReader;
  class FileReader;

  explicit ParameterStore(const Options& options) : options_(options), pins_(std::make_shared<Pins>()) {}

  const Options options_;
  const std::shared_ptr<Pins> pins_;
  mutable Mutex mu_;
  Newest newest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_PARAMETER_STORE_H_
