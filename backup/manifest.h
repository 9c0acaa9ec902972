#ifndef CAUSEWAY_BACKUP_MANIFEST_H_
#define CAUSEWAY_BACKUP_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway::backup {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kJournalName[] = "journal.db";
inline constexpr char kConfigName[] = "coordinator.yaml";
inline constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

// What a backup holds (docs/reference.md, schema causeway.backup/1).
struct Manifest {
  struct File {
    std::string path;  // Below the backup's folder; see CheckPath.
    int64_t bytes = 0;
    std::string sha256;  // 64 lower-case hexadecimal digits.
    friend bool operator==(const File&, const File&) = default;
  };
  std::string program;      // Version of the program that wrote it.
  int64_t created_ms = 0;   // Unix time.
  int64_t incarnation = 0;  // Of the coordinator whose journal it is.
  std::vector<File> files;  // Ascending by path; the manifest itself is not among them.
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// OK if `path` is one of those that a data directory may have: coordinator.yaml, journal.db, tls/F, jobs/JOB/F, chunks/D/F, spool/JOB/F, each
// part of letters, digits, dot, dash and underscore, none of them starting with a dot.
// Errors: InvalidArgument.
absl::Status CheckPath(absl::string_view path);

// Both check the same. Errors of ParseManifest: InvalidArgument (not JSON, another schema, a field missing or of another type, a bad path,
// digest or size, a path twice or out of order, no journal.db or coordinator.yaml), the message starts with manifest.json.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);
std::string FormatManifest(const Manifest& manifest);

}  // namespace causeway::backup

#endif  // CAUSEWAY_BACKUP_MANIFEST_H_
