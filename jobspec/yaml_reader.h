#ifndef CAUSEWAY_JOBSPEC_YAML_READER_H_
#define CAUSEWAY_JOBSPEC_YAML_READER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway::jobspec {

// "90s", "10m", "1h30m", "250ms". Errors: InvalidArgument, naming what was found and what is allowed.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);
// "785", "10MB" (1e6), "8GiB" (2^30), "1.5kB". Errors as above; also for what does not fit 63 bits.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);
// As ParseBytes, with or without "/s" behind it.
absl::StatusOr<double> ParseBytesPerSecond(absl::string_view text);

// Shortest text that ParseBytes reads back as the same value: "8GiB", "1500". (For durations: absl::FormatDuration.)
std::string FormatBytes(int64_t bytes);

// Which numbers a field may take.
struct NumberRange {
  double min = -std::numeric_limits<double>::max();
  double max = std::numeric_limits<double>::max();
  bool min_excluded = false;
};

// How large a file may be. What is above is refused before it costs more than reading so much of it.
struct YamlLimits {
  int64_t max_bytes = 1 << 20;
  int max_values = 100000;  // Scalars, lists, maps and keys together.
};

class YamlMap;

// One YAML file, read strictly: every error carries file, line, field, what was found and what is allowed, and all of them are collected.
// Anchors, aliases, tags, merge keys, duplicate keys, several documents, deep nesting and large files are errors. JSON is read as well.
//
// Usage: Parse, then typed getters on root() and its children, then Finish. Getters return a value of the right type even after an error,
// so readers need no checks in between. Not thread-safe.
class YamlDocument {
 public:
  static constexpr int64_t kMaxBytes = YamlLimits().max_bytes;

  // `file_name` only serves the messages. Errors: InvalidArgument (not YAML, not a map at the top, or one of the above).
  static absl::StatusOr<std::unique_ptr<YamlDocument>> Parse(absl::string_view text, absl::string_view file_name,
                                                             const YamlLimits& limits = {});
  ~YamlDocument();

  YamlMap root();
  // Whether there was no error so far. Unknown keys are found by Finish only.
  bool ok() const { return errors_.empty(); }

  // OK, or InvalidArgument with one line per error, in order of lines (the first 20). A key that no getter asked for is unknown; the
  // message proposes the nearest known one.
  absl::Status Finish();

 private:
  friend class YamlMap;
  struct Value;
  struct Error {
    int line;
    std::string text;
  };
  class Builder;

  explicit YamlDocument(std::string file_name);
  void AddError(int line, absl::string_view field, absl::string_view message);
  void CollectUnknownKeys(const Value& value, const std::string& path);

  const std::string file_name_;
  std::unique_ptr<Value> root_;
  std::vector<Error> errors_;
};

// A view of one map of a document, which it must not outlive. An absent optional map reads as an empty one.
//
// In all getters a missing key gives `fallback`; without a fallback the key is required, and missing it is an error.
class YamlMap {
 public:
  bool present() const { return value_ != nullptr; }
  bool Has(absl::string_view key) const;     // Also true when its value is null. Does not make the key known.
  bool IsNull(absl::string_view key) const;  // Or absent.
  bool IsMap(absl::string_view key) const;

  std::string String(absl::string_view key, std::optional<std::string> fallback = std::nullopt);
  // As String; nothing if it is absent (an error if `required`), null or no text (an error).
  std::optional<std::string> OptionalString(absl::string_view key, bool required);
  // One of `allowed`. Those in `later` are refused as not supported yet.
  std::string Choice(absl::string_view key, std::optional<std::string> fallback,
                     const std::vector<std::string>& allowed, const std::vector<std::string>& later = {});
  int64_t Int(absl::string_view key, std::optional<int64_t> fallback, int64_t min, int64_t max);
  double Double(absl::string_view key, std::optional<double> fallback, NumberRange range);
  bool Bool(absl::string_view key, bool fallback);
  // As Int and Double, but absent or null is no number.
  std::optional<int64_t> OptionalInt(absl::string_view key, int64_t min, int64_t max);
  std::optional<double> OptionalDouble(absl::string_view key, NumberRange range);
  absl::Duration Duration(absl::string_view key, std::optional<absl::Duration> fallback, absl::Duration min,
                          absl::Duration max);
  int64_t Bytes(absl::string_view key, std::optional<int64_t> fallback, int64_t min);
  double BytesPerSecond(absl::string_view key, std::optional<double> fallback);  // > 0
  std::vector<std::string> Strings(absl::string_view key);                       // Absent: empty.
  std::vector<double> Doubles(absl::string_view key, NumberRange range);         // Absent: empty.
  YamlMap Map(absl::string_view key);                                            // Optional.
  YamlMap RequiredMap(absl::string_view key);  // After the error for a missing map its children are not missed too.
  std::vector<YamlMap> Maps(absl::string_view key);  // A list of maps. Absent: empty.

  // A key of the schema without effect yet: refused by name unless its value is `default_value` (text, number or duration; "null").
  void Unsupported(absl::string_view key, absl::string_view default_value);
  // A key that is known and not looked into.
  void Ignore(absl::string_view key);

  // Reports an error of meaning at `key`'s line (the map's own line if it is absent or empty); `message` says what was found and what is allowed.
  void AddError(absl::string_view key, absl::string_view message);

 private:
  friend class YamlDocument;
  using Value = YamlDocument::Value;
  YamlMap(YamlDocument* document, Value* value, std::string path, int line, bool missed = false)
      : document_(document), value_(value), path_(std::move(path)), line_(line), missed_(missed) {}

  Value* Find(absl::string_view key) const;
  // The value of a known scalar key, or null after reporting (wrong kind, or missing and required).
  const Value* Scalar(absl::string_view key, bool required, absl::string_view allowed);
  void ReportFound(absl::string_view key, const Value& value, absl::string_view allowed);
  void ReportMissing(absl::string_view key, absl::string_view allowed);
  std::string PathOf(absl::string_view key) const;

  YamlDocument* document_;  // Not owned.
  Value* value_;            // Null: absent.
  std::string path_;
  int line_;
  bool missed_;  // Its absence was reported.
};

}  // namespace causeway::jobspec

#endif  // CAUSEWAY_JOBSPEC_YAML_READER_H_
