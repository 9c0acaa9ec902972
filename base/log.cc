#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/mutex.h"

namespace causeway::log {
namespace {

struct Sink {
  Format format;
  std::string component;
  spdlog::logger logger;
};

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    case Level::kError: break;
  }
  return spdlog::level::err;
}

std::shared_ptr<Sink> MakeSink(const Options& options, spdlog::sink_ptr output) {
  auto sink = std::make_shared<Sink>(Sink{options.format, options.component.empty() ? "-" : options.component,
                                          spdlog::logger("causeway", std::move(output))});
  sink->logger.set_level(ToSpdlog(options.level));
  sink->logger.flush_on(spdlog::level::debug);  // A killed process keeps its last words.
  sink->logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
      options.format == Format::kJson ? R"({"ts":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})"
                                      : "%Y-%m-%dT%H:%M:%S.%eZ %L %v",
      spdlog::pattern_time_type::utc, "\n"));
  return sink;
}

// The process has one log; it is never destroyed, so that lines written while statics are destroyed still come out.
struct Process {
  Mutex mu;
  std::shared_ptr<Sink> sink ABSL_GUARDED_BY(mu) = MakeSink({}, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  std::vector<Field> fields ABSL_GUARDED_BY(mu);
};

Process& TheProcess() {
  static Process* const process = new Process;
  return *process;
}

std::shared_ptr<Sink> CurrentSink() {
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  return process.sink;
}

// With the process's own, where the line has none of that key.
std::vector<Field> AllFields(std::initializer_list<Field> of_line) {
  std::vector<Field> fields(of_line);
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  for (const Field& field : process.fields) {
    if (std::none_of(of_line.begin(), of_line.end(), [&](const Field& own) { return own.key == field.key; }))
      fields.push_back(field);
  }
  return fields;
}

// A JSON string literal in ASCII: no newline, control character or broken UTF-8 gets through.
std::string Quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::string Token(absl::string_view text) {
  std::string token(text);
  std::replace_if(
      token.begin(), token.end(), [](char c) { return !absl::ascii_isgraph(c); }, '_');
  return token;
}

bool NeedsQuotes(const std::string& value) {
  return value.empty() || std::any_of(value.begin(), value.end(), [](char c) {
           return !absl::ascii_isgraph(c) || c == '"' || c == '=' || c == '\\';
         });
}

std::string TextBody(const Sink& sink, absl::string_view event, const std::vector<Field>& fields) {
  std::string line = absl::StrCat(Token(sink.component), " ", Token(event));
  for (const Field& field : fields) {
    absl::StrAppend(&line, " ", Token(field.key), "=", NeedsQuotes(field.value) ? Quote(field.value) : field.value);
  }
  return line;
}

std::string JsonBody(const Sink& sink, absl::string_view event, const std::vector<Field>& fields) {
  std::string line = absl::StrCat("\"component\":", Quote(sink.component), ",\"event\":", Quote(Token(event)));
  for (const Field& field : fields) {
    absl::StrAppend(&line, ",", Quote(Token(field.key)), ":", field.bare ? field.value : Quote(field.value));
  }
  return line;
}

}  // namespace

absl::Status Configure(const Options& options) {
  spdlog::sink_ptr output;
  if (options.file.empty()) {
    output = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    // spdlog would create missing folders and says too little when it cannot open the file.
    if (auto file = RealFileSystem()->OpenForAppend(options.file); !file.ok()) return file.status();
    try {
      output = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    } catch (const spdlog::spdlog_ex& e) {
      return absl::InternalError(absl::StrCat("cannot open the log ", options.file, ": ", e.what()));
    }
  }
  std::shared_ptr<Sink> sink = MakeSink(options, std::move(output));
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  process.sink.swap(sink);
  process.fields.clear();
  return absl::OkStatus();
}

void SetProcessFields(std::vector<Field> fields) {
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  process.fields = std::move(fields);
}

absl::StatusOr<Level> ParseLevel(absl::string_view text) {
  if (text == "debug") return Level::kDebug;
  if (text == "info") return Level::kInfo;
  if (text == "warning") return Level::kWarning;
  if (text == "error") return Level::kError;
  return absl::InvalidArgumentError(absl::StrCat("log level \"", text, "\" is none of debug, info, warning, error"));
}

absl::StatusOr<Format> ParseFormat(absl::string_view text) {
  if (text == "text") return Format::kText;
  if (text == "json") return Format::kJson;
  return absl::InvalidArgumentError(absl::StrCat("log format \"", text, "\" is neither text nor json"));
}

Field::Field(absl::string_view key, absl::string_view value) : key(key), value(value) {}
Field::Field(absl::string_view key, bool value) : key(key), value(value ? "true" : "false"), bare(true) {}
Field::Field(absl::string_view key, int64_t value) : key(key), value(absl::StrCat(value)), bare(true) {}
Field::Field(absl::string_view key, uint64_t value) : key(key), value(absl::StrCat(value)), bare(true) {}
Field::Field(absl::string_view key, double value)
    : key(key),
      value(std::isfinite(value) ? nlohmann::json(value).dump() : absl::StrCat(value)),
      bare(std::isfinite(value)) {}  // JSON has no NaN.
Field::Field(absl::string_view key, const absl::Status& value) : key(key), value(value.ToString()) {}

void Write(Level level, absl::string_view event, std::initializer_list<Field> fields) {
  std::shared_ptr<Sink> sink = CurrentSink();
  spdlog::level::level_enum spdlog_level = ToSpdlog(level);
  if (!sink->logger.should_log(spdlog_level)) return;
  const std::vector<Field> all = AllFields(fields);
  std::string body = sink->format == Format::kJson ? JsonBody(*sink, event, all) : TextBody(*sink, event, all);
  sink->logger.log(spdlog_level, spdlog::string_view_t(body));
}

void CheckFailed(const char* file, int line, const char* condition) {
  Error("check failed", {{"file", file}, {"line", line}, {"condition", condition}});
  std::abort();
}

}  // namespace causeway::log
