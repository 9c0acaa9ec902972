// A safetensors file: header, and tensors of a known layout.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/layout.h"
#include "dataplane/safetensors.h"
#include "tests/fakes/memory_file.h"
#include "tests/fuzz/fuzz_require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;             // NOLINT
  using namespace causeway::dataplane;  // NOLINT
  const MemoryFile file(std::vector<uint8_t>(data, data + size));
  const absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(file);
  if (!header.ok()) {
    Require(absl::IsInvalidArgument(header.status()));
    return 0;
  }
  std::vector<TensorSpec> tensors;
  for (const SafetensorsTensor& tensor : header->tensors) {
    Require(tensor.begin >= 0 && tensor.begin <= tensor.end && tensor.end <= static_cast<int64_t>(size));
    tensors.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .kind = tensor.dtype == DataType::kInt64 ? TensorKind::kIntegerBuffer : TensorKind::kParameter});
  }
  const absl::StatusOr<Layout> layout = Layout::Create(tensors);
  if (!layout.ok()) return 0;  // Names that no layout takes.
  std::vector<uint8_t> packed(layout->total_bytes());
  Require(ReadSafetensorsInto(file, *layout, absl::MakeSpan(packed)).ok());
  return 0;
}
