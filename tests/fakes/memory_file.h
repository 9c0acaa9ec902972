#ifndef CAUSEWAY_TESTS_FAKES_MEMORY_FILE_H_
#define CAUSEWAY_TESTS_FAKES_MEMORY_FILE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/file.h"

namespace causeway {

// A file that is a vector; reading fails from `fail_at` on. Thread-safe as long as nobody writes the members.
class MemoryFile : public RandomAccessFile {
 public:
  explicit MemoryFile(std::vector<uint8_t> bytes) : bytes(std::move(bytes)) {}

  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    if (offset + static_cast<int64_t>(out.size()) > fail_at) return absl::InternalError("the disk is broken");
    if (offset + static_cast<int64_t>(out.size()) > size_bytes()) return absl::OutOfRangeError("the file ends before");
    std::copy_n(bytes.begin() + offset, out.size(), out.begin());
    return absl::OkStatus();
  }
  int64_t size_bytes() const override { return static_cast<int64_t>(bytes.size()); }

  std::vector<uint8_t> bytes;
  int64_t fail_at = std::numeric_limits<int64_t>::max();
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FAKES_MEMORY_FILE_H_
