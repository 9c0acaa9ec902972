#include "dataplane/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::dataplane {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr char kMetadataKey[] = "__metadata__";

absl::string_view TypeName(DataType dtype) { return dtype == DataType::kFloat32 ? "F32" : "I64"; }

std::optional<DataType> TypeOf(absl::string_view name) {
  for (DataType dtype : {DataType::kFloat32, DataType::kInt64}) {
    if (TypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

// Indices of the layout's tensors in the order of the file: wider types first, else as in the layout.
std::vector<int> FileOrder(const Layout& layout) {
  std::vector<int> order(layout.tensors().size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return ByteSize(layout.tensors()[a].dtype) > ByteSize(layout.tensors()[b].dtype);
  });
  return order;
}

// Length and JSON, padded with spaces so that the data begins at a multiple of 8.
std::string EncodeHeader(const Layout& layout, const SafetensorsMetadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  int64_t offset = 0;
  for (int i : FileOrder(layout)) {
    const TensorSpec& t = layout.tensors()[i];
    header[t.name] = {{"dtype", std::string(TypeName(t.dtype))},
                      {"shape", t.shape},
                      {"data_offsets", {offset, offset + t.size_bytes()}}};
    offset += t.size_bytes();
  }
  // Metadata may hold anything: what is not UTF-8 is replaced.
  std::string json = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string encoded;
  for (int i = 0; i < kLengthBytes; ++i) encoded.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  return encoded + json;
}

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a usable safetensors file: ", what));
}

// Refuses deep nesting, which a recursive parser would pay for with its stack, and repeated keys, of which a parser silently takes one.
std::optional<Json> ParseHeader(const std::string& text) {
  bool refused = false;
  std::vector<std::vector<std::string>> keys;
  Json parsed = Json::parse(
      text,
      [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth > 4) refused = true;
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        if (event == Json::parse_event_t::key) keys.back().push_back(value.get<std::string>());
        if (event == Json::parse_event_t::object_end) {
          std::vector<std::string>& own = keys.back();
          std::sort(own.begin(), own.end());
          if (std::adjacent_find(own.begin(), own.end()) != own.end()) refused = true;
          keys.pop_back();
        }
        return !refused;
      },
      /*allow_exceptions=*/false);
  if (refused || parsed.is_discarded() || !parsed.is_object()) return std::nullopt;
  return parsed;
}

std::optional<int64_t> AsSize(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > (uint64_t{1} << 62)) return std::nullopt;
  return static_cast<int64_t>(value.get<uint64_t>());
}

// Offsets in the result still count from the start of the data.
absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& name, const Json& value, int64_t data_bytes) {
  auto bad = [&](absl::string_view what) { return Bad(absl::StrCat("tensor \"", name, "\": ", what)); };
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    return bad("it needs dtype, shape and data_offsets");
  }
  SafetensorsTensor tensor;
  tensor.name = name;
  const Json& dtype = value["dtype"];
  std::optional<DataType> known = dtype.is_string() ? TypeOf(dtype.get<std::string>()) : std::nullopt;
  if (!known.has_value()) return bad("its type is neither F32 nor I64");
  tensor.dtype = *known;
  const Json& shape = value["shape"];
  if (!shape.is_array()) return bad("its shape is no list");
  int64_t bytes = ByteSize(tensor.dtype);
  for (const Json& dim : shape) {
    std::optional<int64_t> size = AsSize(dim);
    if (!size.has_value()) return bad("its shape has something that is no size");
    if (__builtin_mul_overflow(bytes, *size, &bytes)) return bad("its shape is too large");
    tensor.shape.push_back(*size);
  }
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) return bad("data_offsets needs two numbers");
  std::optional<int64_t> begin = AsSize(offsets[0]);
  std::optional<int64_t> end = AsSize(offsets[1]);
  if (!begin.has_value() || !end.has_value() || *begin > *end || *end > data_bytes)
    return bad("its bytes are outside of the file");
  if (*end - *begin != bytes) return bad("its bytes do not fit its shape");
  tensor.begin = *begin;
  tensor.end = *end;
  return tensor;
}

}  // namespace

int64_t SafetensorsFileSize(const Layout& layout, const SafetensorsMetadata& metadata) {
  return static_cast<int64_t>(EncodeHeader(layout, metadata).size()) + layout.total_bytes();
}

absl::Status WriteSafetensors(const Layout& layout, absl::Span<const uint8_t> packed,
                              const SafetensorsMetadata& metadata, WritableFile* file) {
  if (static_cast<int64_t>(packed.size()) != layout.total_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(packed.size(), " bytes of a model of ", layout.total_bytes()));
  }
  for (const TensorSpec& t : layout.tensors()) {
    if (t.name == kMetadataKey)
      return absl::InvalidArgumentError(absl::StrCat("no tensor can be called ", kMetadataKey));
  }
  RETURN_IF_ERROR(file->Append(AsBytes(EncodeHeader(layout, metadata))));
  for (int i : FileOrder(layout)) {
    RETURN_IF_ERROR(file->Append(packed.subspan(layout.byte_offset(i), layout.tensors()[i].size_bytes())));
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const RandomAccessFile& file) {
  const int64_t file_bytes = file.size_bytes();
  if (file_bytes < kLengthBytes) return Bad(absl::StrCat("it has only ", file_bytes, " bytes"));
  uint8_t length[kLengthBytes];
  RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(length)));
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) header_bytes |= uint64_t{length[i]} << (8 * i);
  if (header_bytes > kMaxSafetensorsHeaderBytes || static_cast<int64_t>(header_bytes) > file_bytes - kLengthBytes) {
    return Bad(absl::StrCat("a header of ", header_bytes, " bytes"));
  }
  std::string text(header_bytes, '\0');
  RETURN_IF_ERROR(file.Read(kLengthBytes, absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), text.size())));
  std::optional<Json> parsed = ParseHeader(text);
  if (!parsed.has_value()) return Bad("the header is no JSON object of the right form");

  const int64_t data_start = kLengthBytes + static_cast<int64_t>(header_bytes);
  const int64_t data_bytes = file_bytes - data_start;
  SafetensorsHeader header;
  for (const auto& [name, value] : parsed->items()) {
    if (name == kMetadataKey) {
      if (!value.is_object()) return Bad("the metadata is no object");
      for (const auto& [key, text_value] : value.items()) {
        if (!text_value.is_string()) return Bad("the metadata has something else than text");
        header.metadata[key] = text_value.get<std::string>();
      }
      continue;
    }
    ASSIGN_OR_RETURN(SafetensorsTensor tensor, ParseTensor(name, value, data_bytes));
    header.tensors.push_back(std::move(tensor));
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = 0;
  for (SafetensorsTensor& tensor : header.tensors) {
    if (tensor.begin != covered) return Bad(absl::StrCat("a hole or an overlap before tensor \"", tensor.name, "\""));
    covered = tensor.end;
    tensor.begin += data_start;
    tensor.end += data_start;
  }
  if (covered != data_bytes) return Bad(absl::StrCat(data_bytes - covered, " bytes at the end belong to no tensor"));
  return header;
}

absl::Status ReadSafetensorsInto(const RandomAccessFile& file, const Layout& layout, absl::Span<uint8_t> packed) {
  if (static_cast<int64_t>(packed.size()) != layout.total_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("room for ", packed.size(), " bytes of a model of ", layout.total_bytes()));
  }
  ASSIGN_OR_RETURN(SafetensorsHeader header, ReadSafetensorsHeader(file));
  std::map<absl::string_view, const SafetensorsTensor*> by_name;
  for (const SafetensorsTensor& tensor : header.tensors) by_name[tensor.name] = &tensor;
  for (const TensorSpec& wanted : layout.tensors()) {
    auto found = by_name.find(wanted.name);
    if (found == by_name.end())
      return absl::InvalidArgumentError(absl::StrCat("the file has no tensor \"", wanted.name, "\""));
    const SafetensorsTensor& tensor = *found->second;
    if (tensor.dtype != wanted.dtype || tensor.shape != wanted.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", wanted.name, "\" is ", TypeName(tensor.dtype), " [", absl::StrJoin(tensor.shape, ", "),
          "] in the file, the model needs ", TypeName(wanted.dtype), " [", absl::StrJoin(wanted.shape, ", "), "]"));
    }
  }
  if (header.tensors.size() != layout.tensors().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has ", header.tensors.size(), " tensors, the model ", layout.tensors().size()));
  }
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const TensorSpec& wanted = layout.tensors()[i];
    RETURN_IF_ERROR(file.Read(by_name[wanted.name]->begin, packed.subspan(layout.byte_offset(i), wanted.size_bytes())));
  }
  return absl::OkStatus();
}

}  // namespace causeway::dataplane
