#include "cli/cert_commands.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "cli/init.h"
#include "cli/output.h"
#include "dataplane/identity_file.h"
#include "dataplane/pki.h"

namespace causeway::cli {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20;
constexpr char kCoordinator[] = "coordinator";
constexpr char kOperator[] = "operator";

std::string HolderName(v1::CertificateStatus::Holder holder) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::CertificateStatus::Holder_Name(holder), "HOLDER_"));
}

std::string StateOf(const v1::CertificateStatus& certificate, int64_t now_ms) {
  if (certificate.expires_ms() <= now_ms) return "expired";
  return certificate.renewal_asked() ? "renewal asked for" : "valid";
}

// "81 days"; below two days hours, minutes or seconds.
std::string LeftText(int64_t expires_ms, int64_t now_ms) {
  if (expires_ms <= now_ms) return "";
  const double seconds = static_cast<double>(expires_ms - now_ms) / 1000;
  return seconds >= 2 * 86400 ? absl::StrCat(static_cast<int64_t>(seconds / 86400), " days") : HumanSeconds(seconds);
}

// From then on the key lies with the certificate.
absl::Status StoreOperator(FileSystem* files, const Context& context, const std::string& certificate_pem,
                           const std::string& key_pem) {
  RETURN_IF_ERROR(dataplane::WriteIdentityFile(files, context.certificate_path(), certificate_pem, key_pem));
  const absl::Status removed = files->Remove(context.key_path());
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::Status RenewOperator(Session& session, OperatorClient* client) {
  FileSystem* const files = session.env().files;
  ASSIGN_OR_RETURN(const std::string dir, session.ContextFolder());
  ASSIGN_OR_RETURN(const Context context, LoadContext(dir, files));
  ASSIGN_OR_RETURN(const std::string key, dataplane::GenerateKeyPem());
  v1::RenewCertificateRequest request;
  ASSIGN_OR_RETURN(*request.mutable_csr_pem(), dataplane::CreateCsr(key));
  ASSIGN_OR_RETURN(const v1::RenewCertificateResponse response,
                   client->RenewOperatorCertificate(request, session.timeout()));
  const absl::StatusOr<dataplane::PeerIdentity> identity = dataplane::ParseCertificate(response.certificate_pem());
  if (!identity.ok() || identity->role != dataplane::PeerIdentity::Role::kOperator) {
    return absl::InternalError("the coordinator's answer is no operator's certificate");
  }
  return StoreOperator(files, context, response.certificate_pem(), key);
}

}  // namespace

absl::Status CertShow(Session& session) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  ASSIGN_OR_RETURN(v1::ListCertificatesResponse response, client->ListCertificates({}, session.timeout()));
  const int64_t now_ms = absl::ToUnixMillis(session.env().clock->WallNow());
  Table table({"HOLDER", "NAME", "SITE", "EXPIRES (UTC)", "LEFT", "STATE", "SERIAL", "FINGERPRINT"});
  for (const v1::CertificateStatus& c : response.certificates()) {
    table.AddRow({HolderName(c.holder()), c.name(), c.site(), HumanTime(c.expires_ms()),
                  LeftText(c.expires_ms(), now_ms), StateOf(c, now_ms), c.serial(), c.sha256()});
  }
  session.Print("causeway.certificates/1", ToJson(response), table.ToString());
  return absl::OkStatus();
}

absl::Status CertRenewOperatorFrom(Session& session, const std::string& dir) {
  FileSystem* const files = session.env().files;
  ASSIGN_OR_RETURN(const std::string context_dir, session.ContextFolder());
  ASSIGN_OR_RETURN(const Context context, LoadContext(context_dir, files));
  ASSIGN_OR_RETURN(const std::string trusted, files->ReadFile(context.ca_path(), kMaxPemBytes));
  const jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(dir);
  Credential ca;
  ASSIGN_OR_RETURN(ca.certificate_pem, files->ReadFile(tls.ca, kMaxPemBytes), "the authority");
  ASSIGN_OR_RETURN(ca.key_pem, files->ReadFile(tls.ca_key, kMaxPemBytes), "the authority");
  ASSIGN_OR_RETURN(const std::string pin, dataplane::CaPin(ca.certificate_pem), tls.ca);
  ASSIGN_OR_RETURN(const std::string trusted_pin, dataplane::CaPin(trusted), context.ca_path());
  if (pin != trusted_pin) {
    return absl::FailedPreconditionError(absl::StrCat(tls.ca, " is not the authority that ", context.ca_path(),
                                                      " names: the credentials are for another coordinator"));
  }
  ASSIGN_OR_RETURN(const Credential made,
                   MakeOperatorCredential(ca, context.operator_name, session.env().clock->WallNow()));
  RETURN_IF_ERROR(StoreOperator(files, context, made.certificate_pem, made.key_pem));
  session.Print("causeway.certificate-renewal/1", {{"operator_renewed", true}, {"asked", Json::array()}},
                "the operator's certificate was renewed\n");
  return absl::OkStatus();
}

absl::Status CertRenew(Session& session, const std::string& who) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  const bool all = who.empty();
  v1::RequestRenewalRequest request;
  request.set_coordinator(all || who == kCoordinator);
  request.set_all_workers(all);
  if (!all && who != kCoordinator && who != kOperator) request.set_worker(who);
  std::vector<std::string> asked;
  if (who != kOperator) {
    ASSIGN_OR_RETURN(const v1::RequestRenewalResponse response, client->RequestRenewal(request, session.timeout()));
    if (request.coordinator()) asked.push_back(kCoordinator);
    asked.insert(asked.end(), response.workers().begin(), response.workers().end());
  }
  const bool own = all || who == kOperator;
  if (own) RETURN_IF_ERROR(RenewOperator(session, client));
  session.Print(
      "causeway.certificate-renewal/1", {{"operator_renewed", own}, {"asked", asked}},
      absl::StrCat(
          own ? "the operator's certificate was renewed\n" : "",
          asked.empty() ? "" : absl::StrCat("asked: ", absl::StrJoin(asked, ", "), "; see `causeway cert show`\n")));
  return absl::OkStatus();
}

}  // namespace causeway::cli
