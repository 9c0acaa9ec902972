#include "cli/session.h"

#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace causeway::cli {
namespace {

constexpr int64_t kMaxInputBytes = 1 << 20;

}  // namespace

absl::StatusOr<OperatorClient*> Session::Client() {
  if (client_ == nullptr) {
    ASSIGN_OR_RETURN(std::string dir, ContextFolder());
    ASSIGN_OR_RETURN(context_, LoadContext(dir, env_.files));
    ASSIGN_OR_RETURN(client_, env_.connect(*context_), absl::StrCat("credentials in ", dir));
  }
  return client_.get();
}

void Session::Print(absl::string_view schema, const Json& json, absl::string_view text) {
  *env_.out << (options_.json ? JsonDocument(schema, json) : std::string(text)) << std::flush;
}

void Session::Note(absl::string_view text) { *env_.err << std::string(text) << std::endl; }

absl::StatusOr<std::string> Session::ReadInput(const std::string& path) {
  if (path != "-") return env_.files->ReadFile(path, kMaxInputBytes);
  std::string text(kMaxInputBytes + 1, '\0');
  env_.in->read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(env_.in->gcount()));
  if (text.size() > kMaxInputBytes)
    return absl::ResourceExhaustedError(absl::StrCat("standard input has more than ", kMaxInputBytes, " bytes"));
  return text;
}

std::string Session::Explain(const absl::Status& error) const {
  std::string address = context_.has_value() ? context_->coordinator.ToString() : "";
  std::string dir = context_.has_value() ? context_->dir : "";
  if (context_.has_value() && absl::IsUnavailable(error)) {
    return absl::StrCat("cannot reach the coordinator at ", address,
                        ": is it running there, is the port open, and are the credentials in ", dir, " its own? (",
                        error.message(), ")");
  }
  if (context_.has_value() && absl::IsUnauthenticated(error)) {
    return absl::StrCat("the coordinator at ", address, " does not accept the credentials in ", dir, ": ",
                        error.message());
  }
  if (absl::IsDeadlineExceeded(error)) return absl::StrCat("timed out: ", error.message(), "; --timeout allows more");
  return std::string(error.message());
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 0;
    case absl::StatusCode::kInvalidArgument: return 2;
    case absl::StatusCode::kDeadlineExceeded: return 3;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists: return 4;
    default: return 1;
  }
}

}  // namespace causeway::cli
