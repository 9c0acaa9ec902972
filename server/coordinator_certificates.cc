// Certificates: renewed at the holder's request, shown to operators. Part of Coordinator.

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/pki.h"
#include "server/coordinator.h"

namespace causeway::server {
namespace {

constexpr absl::Duration kRenewAgain = absl::Minutes(1);  // After a failure.

}  // namespace

absl::StatusOr<std::string> Coordinator::SignFor(const dataplane::PeerIdentity& holder,
                                                 const std::string& csr_pem) const {
  dataplane::LeafOptions leaf;
  leaf.identity = holder;
  leaf.validity = dataplane::ValidityFrom(options_.clock->WallNow(), options_.certificate_lifetime);
  return dataplane::SignCsr(csr_pem, options_.ca_pem, options_.ca_key_pem, leaf);
}

absl::StatusOr<v1::RenewCertificateResponse> Coordinator::RenewCertificate(const dataplane::PeerIdentity& peer,
                                                                           const v1::RenewCertificateRequest& request) {
  const WorkerId name(peer.name);
  // It may have been removed, or have joined again, since the call was let in.
  RETURN_IF_ERROR(membership_.CheckCertificate(name, SiteId(peer.site), peer.serial));
  ASSIGN_OR_RETURN(const std::string key_sha256, dataplane::CsrKeySha256(request.csr_pem()));
  v1::RenewCertificateResponse response;
  ASSIGN_OR_RETURN(*response.mutable_certificate_pem(), SignFor(peer, request.csr_pem()));
  ASSIGN_OR_RETURN(const dataplane::PeerIdentity identity, dataplane::ParseCertificate(response.certificate_pem()));
  Membership trial = membership_;
  trial.RenewCertificate(name, peer.serial, identity.serial, identity.not_after, key_sha256);
  RETURN_IF_ERROR(PutWorker(*trial.Find(name)));
  membership_ = std::move(trial);
  UpdateRoster();
  renewal_asked_.erase(name);
  log::Info("certificate renewed", {{"holder", "worker"},
                                    {"worker", peer.name},
                                    {"serial", identity.serial},
                                    {"replaces", peer.serial},
                                    {"expires", absl::FormatTime(identity.not_after, absl::UTCTimeZone())}});
  return response;
}

absl::StatusOr<v1::RenewCertificateResponse> Coordinator::RenewOperatorCertificate(
    const dataplane::PeerIdentity& peer, const v1::RenewCertificateRequest& request) const {
  v1::RenewCertificateResponse response;
  ASSIGN_OR_RETURN(*response.mutable_certificate_pem(), SignFor(peer, request.csr_pem()));
  ASSIGN_OR_RETURN(const dataplane::PeerIdentity identity, dataplane::ParseCertificate(response.certificate_pem()));
  log::Info("certificate renewed", {{"holder", "operator"},
                                    {"operator", peer.name},
                                    {"serial", identity.serial},
                                    {"replaces", peer.serial},
                                    {"expires", absl::FormatTime(identity.not_after, absl::UTCTimeZone())}});
  return response;
}

absl::StatusOr<v1::ListCertificatesResponse> Coordinator::ListCertificates(const dataplane::PeerIdentity& peer) const {
  v1::ListCertificatesResponse response;
  v1::CertificateStatus* ca = response.add_certificates();
  ca->set_holder(v1::CertificateStatus::HOLDER_CA);
  ASSIGN_OR_RETURN(const dataplane::CertificateInfo ca_info, dataplane::DescribeCertificate(options_.ca_pem));
  ca->set_serial(ca_info.serial);
  ca->set_sha256(ca_info.sha256);
  ca->set_expires_ms(absl::ToUnixMillis(ca_info.validity.not_after));
  if (options_.certificate != nullptr) {
    const dataplane::CertificateInfo info = options_.certificate->info();
    v1::CertificateStatus* own = response.add_certificates();
    own->set_holder(v1::CertificateStatus::HOLDER_COORDINATOR);
    own->set_serial(info.serial);
    own->set_sha256(info.sha256);
    own->set_expires_ms(absl::ToUnixMillis(info.validity.not_after));
    own->set_renews_ms(absl::ToUnixMillis(dataplane::RenewalTime(info.validity)));
    own->set_renewal_asked(renewing_);
  }
  v1::CertificateStatus* asker = response.add_certificates();
  asker->set_holder(v1::CertificateStatus::HOLDER_OPERATOR);
  asker->set_name(peer.name);
  asker->set_serial(peer.serial);
  asker->set_expires_ms(absl::ToUnixMillis(peer.not_after));
  for (const auto& [name, worker] : membership_.workers()) {
    if (worker.removed) continue;
    v1::CertificateStatus* w = response.add_certificates();
    w->set_holder(v1::CertificateStatus::HOLDER_WORKER);
    w->set_name(name.value());
    w->set_site(worker.site.value());
    w->set_serial(worker.certificate_serial);
    w->set_expires_ms(absl::ToUnixMillis(worker.certificate_expires));
    w->set_renewal_asked(renewal_asked_.contains(name));
    w->set_live(worker.live);
  }
  return response;
}

absl::StatusOr<v1::RequestRenewalResponse> Coordinator::RequestRenewal(const v1::RequestRenewalRequest& request) {
  if (request.coordinator() && options_.certificate == nullptr) {
    return absl::FailedPreconditionError("this coordinator does not look after its own certificate");
  }
  if (!request.worker().empty()) {
    const Worker* worker = membership_.Find(WorkerId(request.worker()));
    if (worker == nullptr) return absl::NotFoundError(absl::StrCat("no worker ", request.worker()));
    if (worker->removed) {
      return absl::FailedPreconditionError(absl::StrCat("worker ", request.worker(), " was removed"));
    }
  }
  v1::RequestRenewalResponse response;
  for (const auto& [name, worker] : membership_.workers()) {
    if (worker.removed || (name.value() != request.worker() && !request.all_workers())) continue;
    renewal_asked_.insert(name);
    response.add_workers(name.value());
  }
  if (request.coordinator()) {
    renew_again_at_ = absl::InfinitePast();
    RenewOwnCertificate();
  }
  return response;
}

void Coordinator::RenewOwnCertificate() {
  if (renewing_ || options_.clock->Now() < renew_again_at_) return;
  renewing_ = true;
  options_.io->Add([this] {
    const absl::Status renewed = options_.certificate->Renew();
    options_.executor->Add([this, renewed] {
      renewing_ = false;
      if (renewed.ok()) return;
      renew_again_at_ = options_.clock->Now() + kRenewAgain;
      log::Error("certificate not renewed", {{"then", "trying again"}, {"holder", "coordinator"}, {"status", renewed}});
    });
  });
}

}  // namespace causeway::server
