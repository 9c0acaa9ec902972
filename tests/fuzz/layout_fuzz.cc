// A layout as a worker tells it.
#include <cstddef>
#include <cstdint>

#include "dataplane/layout.h"
#include "proto/common.pb.h"
#include "tests/fuzz/fuzz_require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;             // NOLINT
  using namespace causeway::dataplane;  // NOLINT
  v1::Layout proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return 0;
  const absl::StatusOr<Layout> layout = Layout::FromProto(proto);
  if (!layout.ok()) {
    Require(absl::IsInvalidArgument(layout.status()));
    return 0;
  }
  int64_t bytes = 0;
  for (const TensorSpec& tensor : layout->tensors()) bytes += tensor.size_bytes();
  Require(bytes == layout->total_bytes() && bytes >= 0 && bytes <= int64_t{1} << 46);
  const absl::StatusOr<Layout> again = Layout::FromProto(layout->ToProto());
  Require(again.ok() && again->hash() == layout->hash());
  return 0;
}
