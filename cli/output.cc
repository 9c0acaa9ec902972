#include "cli/output.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "dataplane/digest.h"

namespace causeway::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// "JOB_STATE_TRAINING" of enum JobState: "TRAINING".
std::string EnumText(const google::protobuf::EnumValueDescriptor& value) {
  const std::string& type = value.type()->name();
  std::string prefix;
  for (size_t i = 0; i < type.size(); ++i) {
    if (i > 0 && absl::ascii_isupper(type[i])) prefix += '_';
    prefix += absl::ascii_toupper(type[i]);
  }
  return std::string(absl::StripPrefix(value.name(), prefix + "_"));
}

Json ScalarToJson(const Message& m, const FieldDescriptor* f, int index) {
  const Reflection* r = m.GetReflection();
  bool repeated = f->is_repeated();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return repeated ? r->GetRepeatedInt32(m, f, index) : r->GetInt32(m, f);
    case FieldDescriptor::CPPTYPE_INT64: return repeated ? r->GetRepeatedInt64(m, f, index) : r->GetInt64(m, f);
    case FieldDescriptor::CPPTYPE_UINT32: return repeated ? r->GetRepeatedUInt32(m, f, index) : r->GetUInt32(m, f);
    case FieldDescriptor::CPPTYPE_UINT64: return repeated ? r->GetRepeatedUInt64(m, f, index) : r->GetUInt64(m, f);
    case FieldDescriptor::CPPTYPE_DOUBLE: return repeated ? r->GetRepeatedDouble(m, f, index) : r->GetDouble(m, f);
    case FieldDescriptor::CPPTYPE_FLOAT: return repeated ? r->GetRepeatedFloat(m, f, index) : r->GetFloat(m, f);
    case FieldDescriptor::CPPTYPE_BOOL: return repeated ? r->GetRepeatedBool(m, f, index) : r->GetBool(m, f);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*(repeated ? r->GetRepeatedEnum(m, f, index) : r->GetEnum(m, f)));
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = repeated ? r->GetRepeatedString(m, f, index) : r->GetString(m, f);
      return f->type() == FieldDescriptor::TYPE_BYTES ? dataplane::ToHex(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (!repeated && !r->HasField(m, f)) return nullptr;
      return ToJson(repeated ? r->GetRepeatedMessage(m, f, index) : r->GetMessage(m, f));
  }
  return nullptr;
}

bool IsNumber(absl::string_view text) {
  double ignored;
  return text == "-" || absl::SimpleAtod(text, &ignored);
}

}  // namespace

Json ToJson(const Message& message) {
  Json json = Json::object();
  const google::protobuf::Descriptor* descriptor = message.GetDescriptor();
  const Reflection* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (!field->is_repeated()) {
      json[field->name()] = ScalarToJson(message, field, 0);
      continue;
    }
    int count = reflection->FieldSize(message, field);
    if (field->is_map()) {
      Json map = Json::object();
      for (int j = 0; j < count; ++j) {
        Json entry = ToJson(reflection->GetRepeatedMessage(message, field, j));
        map[entry["key"].get<std::string>()] = entry["value"];
      }
      json[field->name()] = std::move(map);
      continue;
    }
    Json list = Json::array();
    for (int j = 0; j < count; ++j) list.push_back(ScalarToJson(message, field, j));
    json[field->name()] = std::move(list);
  }
  return json;
}

std::string JsonDocument(absl::string_view schema, const Json& body) {
  Json document = Json::object();
  document["schema"] = std::string(schema);
  document.update(body);
  // What is not UTF-8 (a worker's message) is replaced rather than thrown for.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void Table::AddRow(std::vector<std::string> cells) {
  CAUSEWAY_CHECK(cells.size() == rows_[0].size());
  for (std::string& cell : cells) {
    if (cell.empty()) cell.push_back('-');
  }
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  size_t columns = rows_[0].size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], rows_[r][c].size());
      if (r > 0 && !IsNumber(rows_[r][c])) right[c] = false;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) {
      std::string padding(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&line, c > 0 ? "  " : "", right[c] ? padding : "", row[c], right[c] ? "" : padding);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

std::string HumanBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (unit < 4 && std::abs(bytes) >= 1023.95) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, bytes, kUnits[unit]);
}

std::string HumanRate(double bytes_per_s) { return bytes_per_s > 0 ? HumanBytes(bytes_per_s) + "/s" : "-"; }

std::string HumanSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 0.995) return absl::StrFormat("%.2fs", seconds);
  if (seconds < 59.95) return absl::StrFormat("%.1fs", seconds);
  int64_t whole = std::llround(std::min(seconds, 1e12));
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
}

std::string HumanTime(int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms), absl::UTCTimeZone());
}

std::string HumanNumber(double value, int digits) {
  return std::isfinite(value) ? absl::StrFormat("%.*f", digits, value) : "-";
}

std::string HumanEmulation(const v1::Emulation& emulation) {
  std::vector<std::string> parts;
  if (emulation.slowdown() > 1) parts.push_back(absl::StrCat("slowdown ", emulation.slowdown()));
  if (emulation.down_bytes_per_s() > 0) parts.push_back(absl::StrCat("down ", HumanRate(emulation.down_bytes_per_s())));
  if (emulation.up_bytes_per_s() > 0) parts.push_back(absl::StrCat("up ", HumanRate(emulation.up_bytes_per_s())));
  return absl::StrJoin(parts, ", ");
}

std::string StateName(v1::JobState state) {
  const auto* value = v1::JobState_descriptor()->FindValueByNumber(state);
  return value != nullptr ? EnumText(*value) : absl::StrCat("STATE ", static_cast<int>(state));
}

std::string PhaseName(v1::WorkerPhase phase) {
  const auto* value = v1::WorkerPhase_descriptor()->FindValueByNumber(phase);
  if (value == nullptr || phase == v1::WORKER_PHASE_UNSPECIFIED) return "-";
  return absl::AsciiStrToLower(EnumText(*value));
}

}  // namespace causeway::cli
