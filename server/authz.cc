#include "server/authz.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "dataplane/digest.h"

namespace causeway::server {
namespace {

constexpr size_t kMaxTokenLength = 64;

using Role = dataplane::PeerIdentity::Role;

constexpr RpcRule kRules[] = {
    {.method = "/causeway.v1.Membership/Join", .anonymous = true},
    {.method = "/causeway.v1.Membership/Register", .worker = true},
    {.method = "/causeway.v1.Membership/Heartbeat", .worker = true},
    {.method = "/causeway.v1.Membership/ReportModel", .worker = true},
    {.method = "/causeway.v1.Membership/ReportProfile", .worker = true},
    {.method = "/causeway.v1.Membership/ReportData", .worker = true},
    {.method = "/causeway.v1.Membership/ReportEvaluation", .worker = true},
    {.method = "/causeway.v1.Membership/ReportFailure", .worker = true},
    {.method = "/causeway.v1.Membership/Leave", .worker = true},
    {.method = "/causeway.v1.Membership/RenewCertificate", .worker = true},
    {.method = "/causeway.v1.Data/Fetch", .worker = true},
    {.method = "/causeway.v1.Data/Probe", .worker = true},
    {.method = "/causeway.v1.Parameters/Pull", .worker = true, .operator_ = true},
    {.method = "/causeway.v1.Parameters/Push", .worker = true},
    {.method = "/causeway.v1.Operator/GetVersion", .operator_ = true},
    {.method = "/causeway.v1.Operator/SubmitJob", .operator_ = true},
    {.method = "/causeway.v1.Operator/ListJobs", .operator_ = true},
    {.method = "/causeway.v1.Operator/GetJob", .operator_ = true},
    {.method = "/causeway.v1.Operator/WatchJob", .operator_ = true},
    {.method = "/causeway.v1.Operator/AbortJob", .operator_ = true},
    {.method = "/causeway.v1.Operator/PauseJob", .operator_ = true},
    {.method = "/causeway.v1.Operator/ResumeJob", .operator_ = true},
    {.method = "/causeway.v1.Operator/ListWorkers", .operator_ = true},
    {.method = "/causeway.v1.Operator/DrainWorker", .operator_ = true},
    {.method = "/causeway.v1.Operator/RemoveWorker", .operator_ = true},
    {.method = "/causeway.v1.Operator/AddSite", .operator_ = true},
    {.method = "/causeway.v1.Operator/ListSites", .operator_ = true},
    {.method = "/causeway.v1.Operator/RemoveSite", .operator_ = true},
    {.method = "/causeway.v1.Operator/ListTokens", .operator_ = true},
    {.method = "/causeway.v1.Operator/RevokeToken", .operator_ = true},
    {.method = "/causeway.v1.Operator/ListModels", .operator_ = true},
    {.method = "/causeway.v1.Operator/ListCertificates", .operator_ = true},
    {.method = "/causeway.v1.Operator/RequestRenewal", .operator_ = true},
    {.method = "/causeway.v1.Operator/RenewOperatorCertificate", .operator_ = true},
    {.method = "/grpc.health.v1.Health/Check", .worker = true, .operator_ = true},
    {.method = "/grpc.health.v1.Health/Watch", .worker = true, .operator_ = true},
    {.method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", .operator_ = true},
};

}  // namespace

absl::Span<const RpcRule> RpcRules() { return kRules; }

absl::Status Authorize(const dataplane::PeerIdentity& peer, absl::string_view method, absl::Time wall_now) {
  const RpcRule* rule = nullptr;
  for (const RpcRule& r : kRules) {
    if (r.method == method) rule = &r;
  }
  if (peer.role == Role::kAnonymous) {
    if (rule != nullptr && rule->anonymous) return absl::OkStatus();
    return absl::UnauthenticatedError("this call needs a client certificate; without one only Join is open");
  }
  if (peer.not_after <= wall_now) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate expired at ", absl::FormatTime(peer.not_after, absl::UTCTimeZone())));
  }
  const bool allowed = rule != nullptr && ((peer.role == Role::kWorker && rule->worker) ||
                                           (peer.role == Role::kOperator && rule->operator_));
  if (allowed) return absl::OkStatus();
  const char* role = peer.role == Role::kWorker     ? "a worker"
                     : peer.role == Role::kOperator ? "an operator"
                                                    : "this certificate";
  return absl::PermissionDeniedError(absl::StrCat(role, " may not call ", method));
}

std::string JoinToken::ToString() const { return absl::StrCat("cw1.", id, ".", secret); }

JoinToken NewJoinToken() {
  JoinToken token;
  token.id = absl::BytesToHexString(RandomBytes(6));
  token.secret = absl::WebSafeBase64Escape(RandomBytes(32));
  return token;
}

absl::StatusOr<JoinToken> ParseJoinToken(absl::string_view text) {
  // Anybody may send one: what is too long is not taken apart first.
  std::vector<std::string> parts;
  if (text.size() <= kMaxTokenLength) parts = absl::StrSplit(text, '.');
  if (parts.size() != 3 || parts[0] != "cw1" || parts[1].size() != 12 || parts[2].size() != 43) {
    return absl::InvalidArgumentError(
        "not a join token: it has the form cw1.ID.SECRET, as `causeway site add` prints it");
  }
  return JoinToken{.id = parts[1], .secret = parts[2]};
}

std::string HashTokenSecret(absl::string_view secret) { return dataplane::Sha256Of(secret); }

bool SameHash(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace causeway::server
