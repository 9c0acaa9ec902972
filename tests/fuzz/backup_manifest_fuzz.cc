// A backup's manifest: what is accepted names only files of a data directory, and can be written and read back.
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "backup/manifest.h"
#include "tests/fuzz/fuzz_require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;          // NOLINT
  using namespace causeway::backup;  // NOLINT
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  CheckPath(text).IgnoreError();
  const absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) {
    Require(absl::IsInvalidArgument(manifest.status()) && absl::StartsWith(manifest.status().message(), kManifestName));
    return 0;
  }
  for (const Manifest::File& file : manifest->files) {
    Require(file.bytes >= 0 && !absl::StartsWith(file.path, "/") && !absl::StrContains(file.path, "/."));
  }
  const absl::StatusOr<Manifest> again = ParseManifest(FormatManifest(*manifest));
  Require(again.ok() && *again == *manifest);
  return 0;
}
