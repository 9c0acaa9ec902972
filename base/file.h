#ifndef CAUSEWAY_BASE_FILE_H_
#define CAUSEWAY_BASE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// A file open for writing at its end. Not thread-safe. Close is called by the destructor (its error is then lost).
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Appends all of `data` or fails. Errors: ResourceExhausted (disk full, quota), Internal (I/O).
  virtual absl::Status Append(absl::Span<const uint8_t> data) = 0;
  // Returns when what was appended is on stable storage (fdatasync).
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

// A file open for reading at any offset. Thread-safe.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Fills `out` wholly from `offset`. Errors: OutOfRange (the file ends before), Internal (I/O).
  virtual absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const = 0;
  virtual int64_t size_bytes() const = 0;
};

// The file system, injected so that tests can make it fail (tests/fakes/fault_file.h, with the fault issue). Thread-safe.
// Errors common to all: NotFound, AlreadyExists, PermissionDenied, ResourceExhausted (ENOSPC, EDQUOT), Internal (the rest),
// each naming the path.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(
      const std::string& path) = 0;  // Created if missing.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                               int mode = 0644) = 0;  // Truncates.
  // Errors: also InvalidArgument (not a regular file).
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) = 0;

  // The whole file. Errors: also ResourceExhausted when it is larger than `max_bytes`.
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) = 0;
  // Writes `path` so that after a crash it holds either the old or the new content: written aside, synced, renamed, folder synced.
  virtual absl::Status WriteFileAtomically(const std::string& path, absl::string_view content, int mode = 0644) = 0;

  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;        // Both on one file system; syncs the folder.
  virtual absl::Status Remove(const std::string& path) = 0;      // NotFound is an error.
  virtual absl::Status RemoveTree(const std::string& path) = 0;  // A missing one is OK.
  virtual absl::Status MakeDirs(const std::string& path, int mode = 0755) = 0;  // Like mkdir -p.
  virtual absl::Status Truncate(const std::string& path, int64_t size_bytes) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual absl::StatusOr<int64_t> FileSize(const std::string& path) = 0;
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& dir) = 0;  // Names, sorted, without . and ..
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& path) = 0;

  // Takes an exclusive lock that lasts until the returned object is destroyed or the process ends.
  // Errors: FailedPrecondition (another process holds it; the message says which pid if known).
  class Lock {
   public:
    virtual ~Lock() = default;
  };
  virtual absl::StatusOr<std::unique_ptr<Lock>> LockFile(const std::string& path) = 0;
};

// The operating system's files. Not owned by the caller; lives for ever.
FileSystem* RealFileSystem();

// a + "/" + b.
std::string JoinPath(absl::string_view a, absl::string_view b);

// Resolves `relative`, a path from outside, below `root`. Errors: InvalidArgument (absolute, or with a ".." part), PermissionDenied
// (a symbolic link leads out of `root`), NotFound.
absl::StatusOr<std::string> ResolveBelow(const std::string& root, absl::string_view relative);

}  // namespace causeway

#endif  // CAUSEWAY_BASE_FILE_H_
