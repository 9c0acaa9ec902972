#include "dataplane/layout.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "proto/common.pb.h"

namespace causeway::dataplane {
namespace {

constexpr int64_t kMaxLayoutBytes = int64_t{1} << 46;
constexpr size_t kMaxNameLength = 256;

// In messages only: a name from outside may hold anything.
std::string Quoted(absl::string_view name) {
  std::string shown(name.substr(0, kMaxNameLength));
  for (char& c : shown) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return absl::StrCat("\"", shown, "\"");
}

absl::Status CheckName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxNameLength) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(name), ": a name has 1 to ", kMaxNameLength,
                                                   " characters, this one ", name.size()));
  }
  for (unsigned char c : name) {
    if (!absl::ascii_isprint(c))
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(name), ": a name is printable ASCII"));
  }
  return absl::OkStatus();
}

// num_elements() and size_bytes() are computed from `spec` only after this has found them to be within bounds.
absl::Status CheckShape(const TensorSpec& spec) {
  int64_t bytes = ByteSize(spec.dtype);
  for (int64_t dim : spec.shape) {
    if (dim < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(spec.name), ": dimension ", dim, " is negative"));
    // A zero counts as one here, so that it cannot hide an overflow of the other dimensions.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes) || bytes > kMaxLayoutBytes) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(spec.name), ": the shape is too large"));
    }
  }
  return absl::OkStatus();
}

bool KindFits(TensorKind kind, DataType dtype) {
  return (kind == TensorKind::kIntegerBuffer) == (dtype == DataType::kInt64);
}

absl::string_view DataTypeName(DataType dtype) { return dtype == DataType::kFloat32 ? "f32" : "i64"; }

absl::string_view KindName(TensorKind kind) {
  switch (kind) {
    case TensorKind::kParameter: return "parameter";
    case TensorKind::kFloatBuffer: return "float_buffer";
    case TensorKind::kIntegerBuffer: return "integer_buffer";
  }
  return "";
}

// One line a tensor: layer, kind, type, shape, name. The name is last and has no line break, so the form is unambiguous.
std::string CanonicalText(const std::vector<TensorSpec>& tensors) {
  std::string text = "causeway.layout/1\n";
  for (const TensorSpec& t : tensors) {
    absl::StrAppend(&text, t.layer, " ", KindName(t.kind), " ", DataTypeName(t.dtype), " [",
                    absl::StrJoin(t.shape, ","), "] ", t.name, "\n");
  }
  return text;
}

}  // namespace

int64_t ByteSize(DataType dtype) { return dtype == DataType::kFloat32 ? 4 : 8; }

int64_t TensorSpec::num_elements() const {
  int64_t n = 1;
  for (int64_t dim : shape) n *= dim;
  return n;
}

absl::StatusOr<Layout> Layout::Create(std::vector<TensorSpec> tensors) {
  if (tensors.empty()) return absl::InvalidArgumentError("a layout needs at least one tensor");
  Layout layout;
  absl::flat_hash_set<absl::string_view> names;
  int32_t layer = 1;
  for (const TensorSpec& t : tensors) {
    RETURN_IF_ERROR(CheckName(t.name));
    if (!names.insert(t.name).second)
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(t.name), ": the name is there twice"));
    const bool first = layout.byte_offsets_.empty();
    if (first ? t.layer != 1 : t.layer < layer) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(t.name), ": layer ", t.layer, " comes ",
                       first ? "first, which is layer 1" : absl::StrCat("after layer ", layer)));
    }
    layer = t.layer;
    if (!KindFits(t.kind, t.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(t.name), ": a ", KindName(t.kind),
                                                     " cannot be of type ", DataTypeName(t.dtype)));
    }
    RETURN_IF_ERROR(CheckShape(t));
    layout.byte_offsets_.push_back(layout.total_bytes_);
    layout.element_offsets_.push_back(layout.total_elements_);
    layout.total_bytes_ += t.size_bytes();
    layout.total_elements_ += t.num_elements();
    if (layout.total_bytes_ > kMaxLayoutBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(t.name), ": the layout is larger than ", kMaxLayoutBytes, " bytes"));
    }
  }
  layout.hash_ = Sha256Of(CanonicalText(tensors));
  layout.tensors_ = std::move(tensors);
  return layout;
}

absl::StatusOr<Layout> Layout::FromProto(const v1::Layout& proto) {
  std::vector<TensorSpec> tensors;
  tensors.reserve(proto.tensors_size());
  for (const v1::TensorSpec& p : proto.tensors()) {
    TensorSpec t;
    t.name = p.name();
    t.shape.assign(p.shape().begin(), p.shape().end());
    t.layer = p.layer();
    switch (p.dtype()) {
      case v1::DATA_TYPE_FLOAT32: t.dtype = DataType::kFloat32; break;
      case v1::DATA_TYPE_INT64: t.dtype = DataType::kInt64; break;
      default: return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(t.name), ": unknown type ", p.dtype()));
    }
    switch (p.kind()) {
      case v1::TENSOR_KIND_PARAMETER: t.kind = TensorKind::kParameter; break;
      case v1::TENSOR_KIND_FLOAT_BUFFER: t.kind = TensorKind::kFloatBuffer; break;
      case v1::TENSOR_KIND_INTEGER_BUFFER: t.kind = TensorKind::kIntegerBuffer; break;
      default: return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(t.name), ": unknown kind ", p.kind()));
    }
    tensors.push_back(std::move(t));
  }
  return Create(std::move(tensors));
}

v1::Layout Layout::ToProto() const {
  v1::Layout proto;
  for (const TensorSpec& t : tensors_) {
    v1::TensorSpec* p = proto.add_tensors();
    p->set_name(t.name);
    p->set_dtype(t.dtype == DataType::kFloat32 ? v1::DATA_TYPE_FLOAT32 : v1::DATA_TYPE_INT64);
    p->mutable_shape()->Add(t.shape.begin(), t.shape.end());
    switch (t.kind) {
      case TensorKind::kParameter: p->set_kind(v1::TENSOR_KIND_PARAMETER); break;
      case TensorKind::kFloatBuffer: p->set_kind(v1::TENSOR_KIND_FLOAT_BUFFER); break;
      case TensorKind::kIntegerBuffer: p->set_kind(v1::TENSOR_KIND_INTEGER_BUFFER); break;
    }
    p->set_layer(t.layer);
  }
  return proto;
}

}  // namespace causeway::dataplane
