#ifndef CAUSEWAY_DATAPLANE_LAYOUT_H_
#define CAUSEWAY_DATAPLANE_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// proto/common.pb.h is not included here: libtorch brings an old protobuf along, so files that see both may include no generated code.
namespace causeway::v1 {
class Layout;
}

namespace causeway::dataplane {

enum class DataType { kFloat32, kInt64 };
enum class TensorKind { kParameter, kFloatBuffer, kIntegerBuffer };

int64_t ByteSize(DataType dtype);

// One tensor of a job's layout.
struct TensorSpec {
  std::string name;
  DataType dtype = DataType::kFloat32;
  std::vector<int64_t> shape;  // Empty: a scalar.
  TensorKind kind = TensorKind::kParameter;
  int32_t layer = 1;  // 1..L in forward order

  int64_t num_elements() const;
  int64_t size_bytes() const { return num_elements() * ByteSize(dtype); }
};

// The ordered tensors of a job. Packed in this order, without padding, little-endian, they are the model's bytes on the wire and in the
// coordinator's memory (so an element may be unaligned there: use memcpy). Immutable once made; copies are cheap enough (no tensor data).
class Layout {
 public:
  Layout() = default;
  // Checks: at least one tensor, unique non-empty names of at most 256 printable characters, layers that start at 1 and never fall,
  // kinds that fit the dtype, no negative dimension, no overflow of 2^46 bytes in total.
  // Errors: InvalidArgument, naming the tensor.
  static absl::StatusOr<Layout> Create(std::vector<TensorSpec> tensors);
  static absl::StatusOr<Layout> FromProto(const v1::Layout& proto);
  v1::Layout ToProto() const;

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  int64_t byte_offset(int i) const { return byte_offsets_[i]; }  // Of tensor i.
  int64_t element_offset(int i) const {
    return element_offsets_[i];
  }  // Of tensor i, counting elements of all tensors alike.
  int64_t total_bytes() const { return total_bytes_; }
  int64_t total_elements() const { return total_elements_; }
  int num_layers() const { return tensors_.empty() ? 0 : tensors_.back().layer; }

  // SHA-256 (32 raw bytes) over a canonical text form of all fields; frozen by tests/golden.
  const std::string& hash() const { return hash_; }

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<int64_t> byte_offsets_;
  std::vector<int64_t> element_offsets_;
  int64_t total_bytes_ = 0;
  int64_t total_elements_ = 0;
  std::string hash_;
};

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_LAYOUT_H_
