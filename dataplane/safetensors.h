#ifndef CAUSEWAY_DATAPLANE_SAFETENSORS_H_
#define CAUSEWAY_DATAPLANE_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "dataplane/layout.h"

namespace causeway::dataplane {

// The safetensors format: 8 bytes little-endian header length, a JSON header, then the tensors' bytes without holes. Only the types that a
// layout has (F32, I64) are known. Pure functions; any thread.

using SafetensorsMetadata = std::map<std::string, std::string>;

inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The size of the file that WriteSafetensors writes.
int64_t SafetensorsFileSize(const Layout& layout, const SafetensorsMetadata& metadata);

// Appends a whole file to `file`; does not sync or close it. `packed` holds the tensors in layout order (layout.total_bytes()) and is
// written from where it is, without a second copy. In the file the wider types come first, since readers want aligned tensors.
// Errors: InvalidArgument (size of `packed`; a tensor called "__metadata__"), those of Append.
absl::Status WriteSafetensors(const Layout& layout, absl::Span<const uint8_t> packed,
                              const SafetensorsMetadata& metadata, WritableFile* file);

struct SafetensorsTensor {
  std::string name;
  DataType dtype = DataType::kFloat32;
  std::vector<int64_t> shape;  // Empty: a scalar.
  int64_t begin = 0;           // Half open, bytes from the start of the file.
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // In order of their bytes.
  SafetensorsMetadata metadata;
};

// Reads and checks the header, whatever the file holds: length, JSON, types, shapes against offsets, neither holes nor overlaps, and the
// file's size. Errors: InvalidArgument (not such a file, a type we do not know), those of Read.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const RandomAccessFile& file);

// Reads the tensors of `layout` into `packed`, in layout order. Errors: also InvalidArgument (a tensor missing, one too many, another
// shape or type; size of `packed`).
absl::Status ReadSafetensorsInto(const RandomAccessFile& file, const Layout& layout, absl::Span<uint8_t> packed);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_SAFETENSORS_H_
