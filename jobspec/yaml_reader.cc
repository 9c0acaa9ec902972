#include "jobspec/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace causeway::jobspec {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxErrorsShown = 20;
constexpr char kDurationAllowed[] = "a duration such as 500ms, 60s, 10m, 1h30m";
constexpr char kBytesAllowed[] = "bytes such as 4096, 10MB, 8GiB";
constexpr char kRateAllowed[] = "bytes per second such as 1000000, 10MB/s, 1MiB/s";

std::string Quote(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text.substr(0, 100)), text.size() > 100 ? "..." : "", "\"");
}

std::string OneOf(const std::vector<std::string>& values) { return absl::StrJoin(values, ", "); }

// Levenshtein distance.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string DescribeRange(const NumberRange& range) {
  constexpr double kUnbounded = std::numeric_limits<double>::max();
  std::string text = "a number";
  bool has_min = range.min > -kUnbounded;
  if (has_min) absl::StrAppend(&text, range.min_excluded ? " above " : " of at least ", range.min);
  if (range.max < kUnbounded) absl::StrAppend(&text, has_min ? " and at most " : " of at most ", range.max);
  return text;
}

bool ParseFiniteDouble(absl::string_view text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value);
}

bool InRange(double value, const NumberRange& range) {
  return (range.min_excluded ? value > range.min : value >= range.min) && value <= range.max;
}

// Whether two spellings mean the same: equal texts, numbers or durations.
bool SameScalar(absl::string_view a, absl::string_view b) {
  double x, y;
  if (ParseFiniteDouble(a, &x) && ParseFiniteDouble(b, &y)) return x == y;
  absl::Duration s, t;
  if (absl::ParseDuration(a, &s) && absl::ParseDuration(b, &t)) return s == t;
  return a == b;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", Quote(text), "; allowed: ", kDurationAllowed));
  }
  return duration;
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  absl::Status error = absl::InvalidArgumentError(absl::StrCat("found ", Quote(text), "; allowed: ", kBytesAllowed));
  struct Unit {
    absl::string_view suffix;
    double factor;
  };
  constexpr Unit kUnits[] = {{"KiB", 1024.0},       {"MiB", 1024.0 * 1024},
                             {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
                             {"kB", 1e3},           {"KB", 1e3},
                             {"MB", 1e6},           {"GB", 1e9},
                             {"TB", 1e12},          {"B", 1}};
  absl::string_view number = text;
  double factor = 1;
  for (const Unit& unit : kUnits) {
    if (absl::ConsumeSuffix(&number, unit.suffix)) {
      factor = unit.factor;
      break;
    }
  }
  int64_t whole;
  if (factor == 1 && absl::SimpleAtoi(number, &whole) && whole >= 0) return whole;
  double value;
  if (!ParseFiniteDouble(number, &value) || value < 0 || value * factor >= 9.2e18) return error;
  return static_cast<int64_t>(std::llround(value * factor));
}

absl::StatusOr<double> ParseBytesPerSecond(absl::string_view text) {
  absl::string_view amount = absl::StripSuffix(text, "/s");
  absl::StatusOr<int64_t> bytes = ParseBytes(amount);
  if (!bytes.ok()) return absl::InvalidArgumentError(absl::StrCat("found ", Quote(text), "; allowed: ", kRateAllowed));
  return static_cast<double>(*bytes);
}

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kSuffixes[] = {"", "KiB", "MiB", "GiB", "TiB"};
  int power = 0;
  while (power < 4 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++power;
  }
  return absl::StrCat(bytes, kSuffixes[power]);
}

struct YamlDocument::Value {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kNull;
  int line = 0;
  bool quoted = false;
  std::string scalar;
  std::vector<Value> items;    // Of a list.
  std::vector<Entry> entries;  // Of a map.
  // The keys that getters asked for. Null until a YamlMap was made for this map.
  std::unique_ptr<std::vector<std::string>> known;
};
struct YamlDocument::Value::Entry {
  std::string key;
  int line;
  Value value;
};

// Builds the tree of values from the parser's events. After the first error it ignores the rest of the file.
class YamlDocument::Builder : public YAML::EventHandler {
 public:
  // Leaves the parser, which cannot be told to stop otherwise.
  struct Stop {};

  Builder(YamlDocument* document, int max_values) : document_(document), max_values_(max_values) {
    stack_.reserve(kMaxDepth);
  }

  bool failed() const { return failed_; }
  void Fail(int line, absl::string_view message, absl::string_view field = "") {
    if (failed_) return;
    failed_ = true;
    document_->AddError(line, field, message);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (std::exchange(has_document_, true))
      Fail(mark.line + 1, "found a second document (\"---\"); allowed: one document in a file");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    Fail(mark.line + 1, absl::StrCat("found the anchor ", Quote("&" + name), "; anchors and aliases are not allowed"));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Fail(mark.line + 1, "found an alias; anchors and aliases are not allowed");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Scalar(mark, "", "", Value::Kind::kNull); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& text) override {
    bool null = tag == "?" && (text == "null" || text == "~" || text == "Null" || text == "NULL");
    Scalar(mark, tag, text, null ? Value::Kind::kNull : Value::Kind::kScalar);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, Value::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    Open(mark, tag, Value::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Frame {
    Value* value;
    bool has_key = false;
    std::string key;
    int key_line = 0;
  };

  bool Check(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      Fail(mark.line + 1, absl::StrCat("found the tag ", Quote(tag), "; tags are not allowed"));
    if (!failed_ && ++values_ > max_values_) {
      Fail(mark.line + 1, absl::StrCat("found more than ", max_values_, " values in the file"), CurrentPath());
      throw Stop();
    }
    return !failed_;
  }

  // The field that is being read.
  std::string CurrentPath() const {
    std::string path;
    for (const Frame& frame : stack_) {
      const bool innermost = &frame == &stack_.back();
      if (frame.value->kind == Value::Kind::kList) {
        absl::StrAppend(&path, "[", frame.value->items.size() - (innermost ? 0 : 1), "]");
      } else if (frame.has_key || !innermost) {
        absl::StrAppend(&path, path.empty() ? "" : ".",
                        absl::Utf8SafeCHexEscape(frame.has_key ? frame.key : frame.value->entries.back().key));
      }
    }
    return path;
  }

  void Scalar(const YAML::Mark& mark, const std::string& tag, const std::string& text, Value::Kind kind) {
    if (!Check(mark, tag)) return;
    if (!stack_.empty() && stack_.back().value->kind == Value::Kind::kMap && !stack_.back().has_key) {
      Frame& frame = stack_.back();
      for (const Value::Entry& entry : frame.value->entries) {
        if (entry.key == text) {
          Fail(mark.line + 1, absl::StrCat("found the key ", Quote(text), " again; it was set in line ", entry.line));
          return;
        }
      }
      // Keys are compared one by one above, which is quadratic.
      if (frame.value->entries.size() >= 1000) Fail(mark.line + 1, "found a map of more than 1000 keys");
      frame.has_key = true;
      frame.key = text;
      frame.key_line = mark.line + 1;
      return;
    }
    if (Value* value = Place(mark, kind)) {
      value->quoted = tag == "!";
      value->scalar = text;
    }
  }

  void Open(const YAML::Mark& mark, const std::string& tag, Value::Kind kind) {
    if (!Check(mark, tag)) return;
    if (stack_.size() >= kMaxDepth)
      return Fail(mark.line + 1, absl::StrCat("found more than ", kMaxDepth, " levels of nesting"));
    if (Value* value = Place(mark, kind)) stack_.push_back({value});
  }

  void Close() {
    if (!failed_) stack_.pop_back();
  }

  // Where the next value goes: the top, the open list, or behind the open map's key.
  Value* Place(const YAML::Mark& mark, Value::Kind kind) {
    Value* value = nullptr;
    if (stack_.empty()) {
      document_->root_ = std::make_unique<Value>();
      value = document_->root_.get();
    } else if (Frame& frame = stack_.back(); frame.value->kind == Value::Kind::kList) {
      value = &frame.value->items.emplace_back();
    } else if (!frame.has_key) {
      Fail(mark.line + 1, "found a list or a map as a key; allowed: a word");
      return nullptr;
    } else {
      frame.has_key = false;
      frame.value->entries.push_back({std::move(frame.key), frame.key_line, {}});
      value = &frame.value->entries.back().value;
    }
    value->kind = kind;
    value->line = mark.line + 1;
    return value;
  }

  YamlDocument* const document_;  // Not owned.
  const int max_values_;
  std::vector<Frame> stack_;
  int values_ = 0;
  bool has_document_ = false;
  bool failed_ = false;
};

YamlDocument::YamlDocument(std::string file_name) : file_name_(std::move(file_name)) {}
YamlDocument::~YamlDocument() = default;

absl::StatusOr<std::unique_ptr<YamlDocument>> YamlDocument::Parse(absl::string_view text, absl::string_view file_name,
                                                                  const YamlLimits& limits) {
  std::unique_ptr<YamlDocument> document(new YamlDocument(std::string(file_name)));
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    document->AddError(1, "", absl::StrCat("found ", text.size(), " bytes; allowed: at most ", limits.max_bytes));
    return document->Finish();
  }
  Builder builder(document.get(), limits.max_values);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    // Two calls at most: the second finds the end, or a second document and with it an error.
    for (int i = 0; i < 2 && !builder.failed() && parser.HandleNextDocument(builder); ++i) {
    }
  } catch (const Builder::Stop&) {
  } catch (const YAML::Exception& e) {
    builder.Fail(e.mark.is_null() ? 1 : e.mark.line + 1, absl::StrCat("not valid YAML: ", e.msg));
  } catch (const std::exception& e) {
    builder.Fail(1, absl::StrCat("not valid YAML: ", e.what()));
  }
  if (!builder.failed() && (document->root_ == nullptr || document->root_->kind != Value::Kind::kMap)) {
    builder.Fail(document->root_ == nullptr ? 1 : document->root_->line,
                 absl::StrCat("found ",
                              document->root_ == nullptr || document->root_->kind == Value::Kind::kNull ? "nothing"
                              : document->root_->kind == Value::Kind::kList                             ? "a list"
                                                                            : "a single value",
                              "; allowed: a map of keys and values"));
  }
  if (builder.failed()) return document->Finish();
  return document;
}

YamlMap YamlDocument::root() {
  if (root_->known == nullptr) root_->known = std::make_unique<std::vector<std::string>>();
  return YamlMap(this, root_.get(), "", root_->line);
}

void YamlDocument::AddError(int line, absl::string_view field, absl::string_view message) {
  errors_.push_back({line, absl::StrCat(field, field.empty() ? "" : ": ", message)});
}

void YamlDocument::CollectUnknownKeys(const Value& value, const std::string& path) {
  for (size_t i = 0; i < value.items.size(); ++i) CollectUnknownKeys(value.items[i], absl::StrCat(path, "[", i, "]"));
  if (value.known == nullptr) return;
  for (const Value::Entry& entry : value.entries) {
    std::string entry_path =
        absl::StrCat(path, path.empty() ? "" : ".", absl::Utf8SafeCHexEscape(entry.key.substr(0, 100)));
    if (std::find(value.known->begin(), value.known->end(), entry.key) != value.known->end()) {
      CollectUnknownKeys(entry.value, entry_path);
      continue;
    }
    std::vector<std::string> known = *value.known;
    std::sort(known.begin(), known.end());
    const std::string* nearest = nullptr;
    size_t best = 3;
    for (const std::string& candidate : known) {
      size_t distance = entry.key.size() > 64 ? best : EditDistance(entry.key, candidate);
      if (distance < best && distance < candidate.size()) {
        best = distance;
        nearest = &candidate;
      }
    }
    std::string hint = nearest != nullptr ? absl::StrCat("; did you mean ", *nearest, "?") : "";
    AddError(entry.line, entry_path, absl::StrCat("unknown key", hint, "; allowed: ", OneOf(known)));
  }
}

absl::Status YamlDocument::Finish() {
  if (root_ != nullptr) CollectUnknownKeys(*root_, "");
  root_.reset();  // A second call adds nothing.
  if (errors_.empty()) return absl::OkStatus();
  std::stable_sort(errors_.begin(), errors_.end(), [](const Error& a, const Error& b) { return a.line < b.line; });
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(errors_.size(), kMaxErrorsShown); ++i) {
    lines.push_back(absl::StrCat(file_name_, ":", errors_[i].line, ": ", errors_[i].text));
  }
  if (errors_.size() > kMaxErrorsShown)
    lines.push_back(absl::StrCat("and ", errors_.size() - kMaxErrorsShown, " errors more"));
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

std::string YamlMap::PathOf(absl::string_view key) const {
  return absl::StrCat(path_, path_.empty() || key.empty() ? "" : ".", key);
}

YamlDocument::Value* YamlMap::Find(absl::string_view key) const {
  if (value_ == nullptr) return nullptr;
  for (Value::Entry& entry : value_->entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

bool YamlMap::Has(absl::string_view key) const { return Find(key) != nullptr; }
bool YamlMap::IsNull(absl::string_view key) const {
  const Value* value = Find(key);
  return value == nullptr || value->kind == Value::Kind::kNull;
}
bool YamlMap::IsMap(absl::string_view key) const {
  const Value* value = Find(key);
  return value != nullptr && value->kind == Value::Kind::kMap;
}

void YamlMap::Ignore(absl::string_view key) {
  if (value_ != nullptr) value_->known->push_back(std::string(key));
}

void YamlMap::ReportFound(absl::string_view key, const Value& value, absl::string_view allowed) {
  std::string found;
  switch (value.kind) {
    case Value::Kind::kNull: found = "nothing"; break;
    case Value::Kind::kScalar: found = absl::StrCat(value.quoted ? "the text " : "", Quote(value.scalar)); break;
    case Value::Kind::kList: found = "a list"; break;
    case Value::Kind::kMap: found = "a map"; break;
  }
  document_->AddError(value.line, PathOf(key), absl::StrCat("found ", found, "; allowed: ", allowed));
}

void YamlMap::ReportMissing(absl::string_view key, absl::string_view allowed) {
  if (!missed_) document_->AddError(line_, PathOf(key), absl::StrCat("missing; allowed: ", allowed));
}

void YamlMap::AddError(absl::string_view key, absl::string_view message) {
  const Value* value = Find(key);
  document_->AddError(value != nullptr ? value->line : line_, PathOf(key), message);
}

const YamlDocument::Value* YamlMap::Scalar(absl::string_view key, bool required, absl::string_view allowed) {
  Ignore(key);
  const Value* value = Find(key);
  if (value == nullptr) {
    if (required) ReportMissing(key, allowed);
    return nullptr;
  }
  if (value->kind == Value::Kind::kScalar) return value;
  ReportFound(key, *value, allowed);
  return nullptr;
}

std::string YamlMap::String(absl::string_view key, std::optional<std::string> fallback) {
  return OptionalString(key, !fallback.has_value()).value_or(fallback.value_or(""));
}

std::optional<std::string> YamlMap::OptionalString(absl::string_view key, bool required) {
  const Value* value = Scalar(key, required, "a text");
  return value == nullptr ? std::nullopt : std::optional(value->scalar);
}

std::string YamlMap::Choice(absl::string_view key, std::optional<std::string> fallback,
                            const std::vector<std::string>& allowed, const std::vector<std::string>& later) {
  const Value* value = Scalar(key, !fallback.has_value(), OneOf(allowed));
  if (value == nullptr) return fallback.value_or(allowed.front());
  if (std::find(allowed.begin(), allowed.end(), value->scalar) != allowed.end()) return value->scalar;
  if (std::find(later.begin(), later.end(), value->scalar) != later.end()) {
    AddError(key, absl::StrCat("found ", value->scalar, ", which is not supported yet; allowed: ", OneOf(allowed)));
  } else {
    ReportFound(key, *value, OneOf(allowed));
  }
  return allowed.front();
}

int64_t YamlMap::Int(absl::string_view key, std::optional<int64_t> fallback, int64_t min, int64_t max) {
  std::string allowed = max == std::numeric_limits<int64_t>::max()
                            ? absl::StrCat("a whole number of at least ", min)
                            : absl::StrCat("a whole number from ", min, " to ", max);
  const Value* value = Scalar(key, !fallback.has_value(), allowed);
  if (value == nullptr) return fallback.value_or(min);
  int64_t number;
  if (!value->quoted && absl::SimpleAtoi(value->scalar, &number) && number >= min && number <= max) return number;
  ReportFound(key, *value, allowed);
  return min;
}

double YamlMap::Double(absl::string_view key, std::optional<double> fallback, NumberRange range) {
  std::string allowed = DescribeRange(range);
  const Value* value = Scalar(key, !fallback.has_value(), allowed);
  if (value == nullptr) return fallback.value_or(range.min);
  double number;
  if (!value->quoted && ParseFiniteDouble(value->scalar, &number) && InRange(number, range)) return number;
  ReportFound(key, *value, allowed);
  return range.min;
}

bool YamlMap::Bool(absl::string_view key, bool fallback) {
  const Value* value = Scalar(key, /*required=*/false, "true, false");
  if (value == nullptr) return fallback;
  if (!value->quoted && (value->scalar == "true" || value->scalar == "false")) return value->scalar == "true";
  ReportFound(key, *value, "true, false");
  return fallback;
}

std::optional<int64_t> YamlMap::OptionalInt(absl::string_view key, int64_t min, int64_t max) {
  if (!IsNull(key)) return Int(key, std::nullopt, min, max);
  Ignore(key);
  return std::nullopt;
}

std::optional<double> YamlMap::OptionalDouble(absl::string_view key, NumberRange range) {
  if (!IsNull(key)) return Double(key, std::nullopt, range);
  Ignore(key);
  return std::nullopt;
}

absl::Duration YamlMap::Duration(absl::string_view key, std::optional<absl::Duration> fallback, absl::Duration min,
                                 absl::Duration max) {
  std::string allowed =
      absl::StrCat(kDurationAllowed, ", from ", absl::FormatDuration(min), " to ", absl::FormatDuration(max));
  const Value* value = Scalar(key, !fallback.has_value(), allowed);
  if (value == nullptr) return fallback.value_or(min);
  absl::StatusOr<absl::Duration> duration = ParseDuration(value->scalar);
  if (duration.ok() && *duration >= min && *duration <= max) return *duration;
  ReportFound(key, *value, allowed);
  return min;
}

int64_t YamlMap::Bytes(absl::string_view key, std::optional<int64_t> fallback, int64_t min) {
  std::string allowed = absl::StrCat(kBytesAllowed, ", at least ", min);
  const Value* value = Scalar(key, !fallback.has_value(), allowed);
  if (value == nullptr) return fallback.value_or(min);
  absl::StatusOr<int64_t> bytes = ParseBytes(value->scalar);
  if (bytes.ok() && *bytes >= min) return *bytes;
  ReportFound(key, *value, allowed);
  return min;
}

double YamlMap::BytesPerSecond(absl::string_view key, std::optional<double> fallback) {
  const Value* value = Scalar(key, !fallback.has_value(), kRateAllowed);
  if (value == nullptr) return fallback.value_or(1);
  absl::StatusOr<double> rate = ParseBytesPerSecond(value->scalar);
  if (rate.ok() && *rate > 0) return *rate;
  ReportFound(key, *value, kRateAllowed);
  return 1;
}

std::vector<std::string> YamlMap::Strings(absl::string_view key) {
  Ignore(key);
  const Value* value = Find(key);
  if (value == nullptr) return {};
  std::vector<std::string> texts;
  if (value->kind != Value::Kind::kList) {
    ReportFound(key, *value, "a list of texts, such as [a, b]");
    return {};
  }
  for (const Value& item : value->items) {
    if (item.kind == Value::Kind::kScalar) {
      texts.push_back(item.scalar);
    } else {
      ReportFound(key, item, "a text in each place of the list");
    }
  }
  return texts;
}

std::vector<double> YamlMap::Doubles(absl::string_view key, NumberRange range) {
  Ignore(key);
  const Value* value = Find(key);
  if (value == nullptr) return {};
  std::vector<double> numbers;
  if (value->kind != Value::Kind::kList) {
    ReportFound(key, *value, "a list of numbers, such as [0.5]");
    return {};
  }
  for (const Value& item : value->items) {
    double number;
    if (item.kind == Value::Kind::kScalar && !item.quoted && ParseFiniteDouble(item.scalar, &number) &&
        InRange(number, range)) {
      numbers.push_back(number);
    } else {
      ReportFound(key, item, absl::StrCat(DescribeRange(range), " in each place of the list"));
    }
  }
  return numbers;
}

YamlMap YamlMap::Map(absl::string_view key) {
  Ignore(key);
  Value* value = Find(key);
  if (value == nullptr) return YamlMap(document_, nullptr, PathOf(key), line_);
  if (value->kind != Value::Kind::kMap) {
    ReportFound(key, *value, "a map of keys and values");
    return YamlMap(document_, nullptr, PathOf(key), value->line, /*missed=*/true);
  }
  if (value->known == nullptr) value->known = std::make_unique<std::vector<std::string>>();
  return YamlMap(document_, value, PathOf(key), value->line);
}

YamlMap YamlMap::RequiredMap(absl::string_view key) {
  if (!Has(key)) {
    ReportMissing(key, "a map of keys and values");
    Ignore(key);
    return YamlMap(document_, nullptr, PathOf(key), line_, /*missed=*/true);
  }
  return Map(key);
}

std::vector<YamlMap> YamlMap::Maps(absl::string_view key) {
  Ignore(key);
  Value* value = Find(key);
  if (value == nullptr) return {};
  std::vector<YamlMap> maps;
  if (value->kind != Value::Kind::kList) {
    ReportFound(key, *value, "a list of maps");
    return {};
  }
  for (size_t i = 0; i < value->items.size(); ++i) {
    Value& item = value->items[i];
    if (item.kind != Value::Kind::kMap) {
      ReportFound(key, item, "a map of keys and values in each place of the list");
      continue;
    }
    if (item.known == nullptr) item.known = std::make_unique<std::vector<std::string>>();
    maps.push_back(YamlMap(document_, &item, absl::StrCat(PathOf(key), "[", i, "]"), item.line));
  }
  return maps;
}

void YamlMap::Unsupported(absl::string_view key, absl::string_view default_value) {
  Ignore(key);
  const Value* value = Find(key);
  if (value == nullptr) return;
  if (value->kind == Value::Kind::kNull
          ? default_value == "null"
          : value->kind == Value::Kind::kScalar && SameScalar(value->scalar, default_value)) {
    return;
  }
  ReportFound(key, *value, absl::StrCat("only ", default_value, " (", PathOf(key), " is not supported yet)"));
}

}  // namespace causeway::jobspec
