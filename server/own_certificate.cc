#include "server/own_certificate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/identity_file.h"

namespace causeway::server {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<OwnCertificate>> OwnCertificate::Create(Options options) {
  std::unique_ptr<OwnCertificate> own(new OwnCertificate(std::move(options)));
  const Options& o = own->options_;
  RETURN_IF_ERROR(dataplane::MergeIdentityFile(o.fs, o.path, o.key_path));
  ASSIGN_OR_RETURN(const std::string pem, o.fs->ReadFile(o.path, kMaxPemBytes));
  ASSIGN_OR_RETURN(const dataplane::PeerIdentity identity, dataplane::ParseCertificate(pem), o.path);
  if (identity.role != dataplane::PeerIdentity::Role::kCoordinator) {
    return absl::InvalidArgumentError(absl::StrCat(o.path, " is not a coordinator's certificate"));
  }
  RETURN_IF_ERROR(dataplane::CheckKeyMatches(pem, pem), o.path);
  ASSIGN_OR_RETURN(dataplane::CertificateInfo info, dataplane::DescribeCertificate(pem), o.path);
  {
    MutexLock lock(&own->mu_);
    own->info_ = std::move(info);
  }
  if (own->due()) RETURN_IF_ERROR(own->Renew());
  return own;
}

dataplane::CertificateInfo OwnCertificate::info() const {
  MutexLock lock(&mu_);
  return info_;
}

absl::Time OwnCertificate::renews_at() const { return dataplane::RenewalTime(info().validity); }

bool OwnCertificate::due() const { return options_.clock->WallNow() >= renews_at(); }

absl::Status OwnCertificate::Renew() {
  ASSIGN_OR_RETURN(const std::string key, dataplane::GenerateKeyPem());
  ASSIGN_OR_RETURN(const std::string csr, dataplane::CreateCsr(key));
  dataplane::LeafOptions leaf;
  leaf.identity.role = dataplane::PeerIdentity::Role::kCoordinator;
  leaf.hosts = options_.hosts;
  leaf.validity = dataplane::ValidityFrom(options_.clock->WallNow(), options_.lifetime);
  ASSIGN_OR_RETURN(const std::string certificate, dataplane::SignCsr(csr, options_.ca_pem, options_.ca_key_pem, leaf));
  ASSIGN_OR_RETURN(dataplane::CertificateInfo info, dataplane::DescribeCertificate(certificate));
  RETURN_IF_ERROR(
      dataplane::WriteIdentityFile(options_.fs, options_.path, absl::StrCat(certificate, options_.ca_pem), key));
  log::Info("certificate renewed", {{"holder", "coordinator"},
                                    {"serial", info.serial},
                                    {"expires", absl::FormatTime(info.validity.not_after, absl::UTCTimeZone())}});
  MutexLock lock(&mu_);
  info_ = std::move(info);
  return absl::OkStatus();
}

}  // namespace causeway::server
