#ifndef CAUSEWAY_BACKUP_COPY_H_
#define CAUSEWAY_BACKUP_COPY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"

namespace causeway::backup {

struct Digest {
  int64_t bytes = 0;
  std::string sha256;  // 32 raw bytes.
  friend bool operator==(const Digest&, const Digest&) = default;
};

// Of a whole file. Errors: those of reading.
absl::StatusOr<Digest> DigestOf(FileSystem* files, const std::string& path);

// Copies a file, durably, into folders that are made if missing; returns the digest of what was written, which is what was read. Takes
// memory for one block. Errors: those of FileSystem, InvalidArgument (not a regular file).
absl::StatusOr<Digest> CopyFile(FileSystem* files, const std::string& from, const std::string& to, int mode);

// 0600 for what holds keys, 0644 for the rest.
int ModeOf(absl::string_view path);

}  // namespace causeway::backup

#endif  // CAUSEWAY_BACKUP_COPY_H_
