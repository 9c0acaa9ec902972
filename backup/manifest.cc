#include "backup/manifest.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace causeway::backup {
namespace {

using Json = nlohmann::json;

constexpr char kSchema[] = "causeway.backup/1";
constexpr size_t kMaxPartLength = 255;
constexpr int kMaxDepth = 3;

bool IsPart(absl::string_view part) {
  return !part.empty() && part.size() <= kMaxPartLength && part[0] != '.' &&
         std::all_of(part.begin(), part.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; });
}

bool IsSha256(absl::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat(kManifestName, ": ", what)); }

std::optional<std::string> Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<int64_t> Size(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() || found->get<uint64_t>() > (uint64_t{1} << 62)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(found->get<uint64_t>());
}

// Nesting costs the parser its stack, so it is bounded.
Json ParseShallow(absl::string_view text) {
  bool too_deep = false;
  Json parsed = Json::parse(
      text.begin(), text.end(),
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep |= depth > kMaxDepth;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  return too_deep ? Json() : parsed;
}

}  // namespace

absl::Status CheckPath(absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  bool fits = std::all_of(parts.begin(), parts.end(), IsPart);
  if (parts.size() == 1) {
    fits &= path == kJournalName || path == kConfigName;
  } else if (parts.size() == 2) {
    fits &= parts[0] == "tls";
  } else {
    fits &= parts.size() == 3 && (parts[0] == "jobs" || parts[0] == "chunks" || parts[0] == "spool");
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::Utf8SafeCHexEscape(path.substr(0, 300)), "\" is no file of a coordinator's"));
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  const Json json = ParseShallow(text);
  if (!json.is_object()) return Bad("not a JSON object of this form");
  const std::optional<std::string> schema = Text(json, "schema");
  if (schema != kSchema) {
    return Bad(
        absl::StrCat("found schema \"", absl::Utf8SafeCHexEscape(schema.value_or("")), "\", expected ", kSchema));
  }
  const std::optional<std::string> program = Text(json, "program");
  const std::optional<int64_t> created_ms = Size(json, "created_ms");
  const std::optional<int64_t> incarnation = Size(json, "incarnation");
  const auto files = json.find("files");
  if (!program || !created_ms || !incarnation || files == json.end() || !files->is_array()) {
    return Bad("program, created_ms, incarnation and files are needed");
  }
  Manifest manifest = {.program = *program, .created_ms = *created_ms, .incarnation = *incarnation};
  bool journal = false, config = false;
  for (const Json& entry : *files) {
    if (!entry.is_object()) return Bad("a file is no object");
    const std::optional<std::string> path = Text(entry, "path");
    const std::optional<int64_t> bytes = Size(entry, "bytes");
    const std::optional<std::string> sha256 = Text(entry, "sha256");
    if (!path || !bytes || !sha256 || !IsSha256(*sha256)) return Bad("a file needs path, bytes and sha256");
    if (absl::Status fits = CheckPath(*path); !fits.ok()) return Bad(fits.message());
    if (!manifest.files.empty() && *path <= manifest.files.back().path) {
      return Bad(absl::StrCat(*path, " is there twice or out of order"));
    }
    journal |= *path == kJournalName;
    config |= *path == kConfigName;
    manifest.files.push_back({*path, *bytes, *sha256});
  }
  if (!journal || !config) return Bad(absl::StrCat("it has no ", journal ? kConfigName : kJournalName));
  return manifest;
}

std::string FormatManifest(const Manifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const Manifest::File& file : manifest.files) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  const nlohmann::ordered_json json = {{"schema", kSchema},
                                       {"program", manifest.program},
                                       {"created_ms", manifest.created_ms},
                                       {"incarnation", manifest.incarnation},
                                       {"files", std::move(files)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace causeway::backup
