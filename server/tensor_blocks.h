#ifndef CAUSEWAY_SERVER_TENSOR_BLOCKS_H_
#define CAUSEWAY_SERVER_TENSOR_BLOCKS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace causeway::server::internal {

static_assert(std::endian::native == std::endian::little, "packed models are little-endian");

// Reads `elements` values of type T from byte `offset` of `part` on, a block at a time, and calls use(values, first,
// count) for each, in order: `values` are the elements [first, first + count). `buffer` is only there to be used again.
// Errors: those of reading and of `use`.
template <typename T, typename Use>
absl::Status ForEachBlock(const RandomAccessFile& part, int64_t offset, int64_t elements, std::vector<T>* buffer,
                          Use use) {
  constexpr int64_t kBlockElements = 1 << 16;
  buffer->resize(std::min(elements, kBlockElements));
  for (int64_t first = 0; first < elements; first += kBlockElements) {
    const int64_t count = std::min(elements - first, kBlockElements);
    RETURN_IF_ERROR(part.Read(offset + first * static_cast<int64_t>(sizeof(T)),
                              absl::MakeSpan(reinterpret_cast<uint8_t*>(buffer->data()), count * sizeof(T))));
    RETURN_IF_ERROR(use(static_cast<const T*>(buffer->data()), first, count));
  }
  return absl::OkStatus();
}

}  // namespace causeway::server::internal

#endif  // CAUSEWAY_SERVER_TENSOR_BLOCKS_H_
