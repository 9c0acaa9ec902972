#include "cli/session.h"

#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "dataplane/pki.h"

namespace causeway::cli {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20;
constexpr size_t kPieceBytes = 1 << 16;

absl::Status TooLarge(const std::string& name, int64_t max_bytes) {
  return absl::InvalidArgumentError(absl::StrCat(name, " has more than ", max_bytes, " bytes, which are allowed"));
}

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

void Session::WarnOfExpiry() {
  if (client_ == nullptr) return;
  const absl::StatusOr<std::string> pem = env_.files->ReadFile(context_->certificate_path(), kMaxPemBytes);
  if (!pem.ok()) return;
  const absl::StatusOr<dataplane::CertificateInfo> info = dataplane::DescribeCertificate(*pem);
  if (!info.ok() || env_.clock->WallNow() < dataplane::RenewalTime(info->validity)) return;
  Note(absl::StrCat("causeway: warning: ", context_->certificate_path(), " expires at ",
                    HumanTime(absl::ToUnixMillis(info->validity.not_after)),
                    " UTC: `causeway cert renew operator` renews it until then"));
}

absl::StatusOr<std::string> Session::ReadInput(const std::string& path, int64_t max_bytes) {
  if (path != "-") {
    absl::StatusOr<std::string> text = env_.files->ReadFile(path, max_bytes);
    if (absl::IsResourceExhausted(text.status())) return TooLarge(path, max_bytes);
    return text;
  }
  std::string text;
  while (*env_.in) {
    const size_t had = text.size();
    text.resize(had + kPieceBytes);
    env_.in->read(&text[had], static_cast<std::streamsize>(kPieceBytes));
    text.resize(had + static_cast<size_t>(env_.in->gcount()));
    if (static_cast<int64_t>(text.size()) > max_bytes) return TooLarge(ShownName(path), max_bytes);
  }
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

std::string ShownName(const std::string& path) { return path == "-" ? "(standard input)" : path; }

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
