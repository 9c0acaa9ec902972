#ifndef CAUSEWAY_BASE_LOG_H_
#define CAUSEWAY_BASE_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway::log {

enum class Level { kDebug, kInfo, kWarning, kError };
enum class Format { kText, kJson };

struct Options {
  Level level = Level::kInfo;
  Format format = Format::kText;
  std::string file;       // Empty: standard error.
  std::string component;  // "coordinator", "worker": the first field of every line.
};

// Sets up the process's logging; call it once, in main, before threads start. Without it, lines go to standard error as text.
// Errors: PermissionDenied, NotFound (the file cannot be opened).
absl::Status Configure(const Options& options);

// Parses "debug|info|warning|error" and "text|json". Errors: InvalidArgument naming what is allowed.
absl::StatusOr<Level> ParseLevel(absl::string_view text);
absl::StatusOr<Format> ParseFormat(absl::string_view text);

// One key=value pair. Values with spaces or quotes are quoted in text, typed (number, bool, string) in JSON.
struct Field {
  Field(absl::string_view key, absl::string_view value);
  Field(absl::string_view key, const char* value) : Field(key, absl::string_view(value)) {}
  Field(absl::string_view key, const std::string& value) : Field(key, absl::string_view(value)) {}
  Field(absl::string_view key, bool value);
  Field(absl::string_view key, int value) : Field(key, static_cast<int64_t>(value)) {}
  Field(absl::string_view key, int64_t value);
  Field(absl::string_view key, uint64_t value);
  Field(absl::string_view key, double value);
  Field(absl::string_view key, const absl::Status& value);

  std::string key;
  std::string value;
  bool bare = false;  // A number or a boolean: no quotes in JSON.
};

// Appended to every line from now on, unless the line has a field of that key itself: who this process is. Configure drops them.
// Thread-safe.
void SetProcessFields(std::vector<Field> fields);

// One line per event: a short, constant name ("round committed") and its fields. Thread-safe.
// In text:  2026-11-30T10:00:00.123Z I coordinator round_committed job=fashion round=3 samples=60000
void Write(Level level, absl::string_view event, std::initializer_list<Field> fields);

inline void Debug(absl::string_view event, std::initializer_list<Field> fields) { Write(Level::kDebug, event, fields); }
inline void Info(absl::string_view event, std::initializer_list<Field> fields) { Write(Level::kInfo, event, fields); }
inline void Warning(absl::string_view event, std::initializer_list<Field> fields) {
  Write(Level::kWarning, event, fields);
}
inline void Error(absl::string_view event, std::initializer_list<Field> fields) { Write(Level::kError, event, fields); }

// Flushes and writes the message of a failed check, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace causeway::log

// For our own bugs only: bytes from the network, the disk or a configuration never abort.
#define CAUSEWAY_CHECK(condition) ((condition) ? (void)0 : ::causeway::log::CheckFailed(__FILE__, __LINE__, #condition))

#endif  // CAUSEWAY_BASE_LOG_H_
