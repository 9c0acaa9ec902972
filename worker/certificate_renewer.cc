#include "worker/certificate_renewer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/identity_file.h"

namespace causeway::worker {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20;
constexpr absl::Duration kCallTimeout = absl::Seconds(2);  // Stop has 5 s and waits for a call.
// Dates are of the wall clock, which may be set: it is looked at again at least so often.
constexpr absl::Duration kLook = absl::Minutes(1);
constexpr absl::Duration kSameRequest = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<CertificateRenewer>> CertificateRenewer::Create(Options options) {
  ASSIGN_OR_RETURN(const std::string pem, options.fs->ReadFile(options.path, kMaxPemBytes));
  std::unique_ptr<CertificateRenewer> renewer(new CertificateRenewer(std::move(options)));
  ASSIGN_OR_RETURN(renewer->identity_, dataplane::ParseCertificate(pem), renewer->options_.path);
  ASSIGN_OR_RETURN(const dataplane::CertificateInfo info, dataplane::DescribeCertificate(pem));
  renewer->renew_at_ = dataplane::RenewalTime(info.validity);
  return renewer;
}

CertificateRenewer::CertificateRenewer(Options options)
    : options_(std::move(options)), backoff_(options_.backoff), executor_("certificate", options_.clock) {}

CertificateRenewer::~CertificateRenewer() { Stop(); }

void CertificateRenewer::Start() {
  executor_.Start();
  executor_.Add([this] { Look(); });
}

void CertificateRenewer::RenewNow() {
  executor_.Add([this] {
    if (asked_ || options_.clock->Now() < renewed_at_ + kSameRequest) return;
    asked_ = true;
    Look();
  });
}

void CertificateRenewer::Stop() { executor_.Stop(); }

void CertificateRenewer::Look() {
  executor_.Cancel(timer_);
  const absl::Time wall_now = options_.clock->WallNow();
  if ((asked_ || wall_now >= renew_at_) && options_.clock->Now() >= try_again_at_) {
    const absl::Status renewed = Renew();
    const absl::Time now = options_.clock->Now();
    if (renewed.ok()) {
      asked_ = false;
      renewed_at_ = now;
      backoff_.Reset();
    } else {
      try_again_at_ = now + backoff_.Next();
      log::Warning("certificate not renewed", {{"then", "trying again"}, {"error", renewed}});
    }
  }
  const absl::Time now = options_.clock->Now();
  absl::Time next = now + kLook;
  if (try_again_at_ > now) {
    next = std::min(next, try_again_at_);
  } else {
    next = std::min(next, now + std::max(absl::ZeroDuration(), renew_at_ - options_.clock->WallNow()));
  }
  timer_ = executor_.AddAt(next, [this] { Look(); });
}

absl::Status CertificateRenewer::Renew() {
  ASSIGN_OR_RETURN(const std::string key, dataplane::GenerateKeyPem());
  v1::RenewCertificateRequest request;
  ASSIGN_OR_RETURN(*request.mutable_csr_pem(), dataplane::CreateCsr(key));
  ASSIGN_OR_RETURN(const v1::RenewCertificateResponse response,
                   options_.client->RenewCertificate(request, options_.clock->Now() + kCallTimeout));
  ASSIGN_OR_RETURN(const dataplane::PeerIdentity identity, dataplane::ParseCertificate(response.certificate_pem()),
                   "the coordinator's answer");
  if (dataplane::IdentityUri(identity) != dataplane::IdentityUri(identity_)) {
    return absl::InvalidArgumentError(absl::StrCat("the coordinator's answer is a certificate of ",
                                                   dataplane::IdentityUri(identity), ", not of ",
                                                   dataplane::IdentityUri(identity_)));
  }
  ASSIGN_OR_RETURN(const dataplane::CertificateInfo info, dataplane::DescribeCertificate(response.certificate_pem()));
  RETURN_IF_ERROR(dataplane::WriteIdentityFile(options_.fs, options_.path, response.certificate_pem(), key));
  identity_ = identity;
  renew_at_ = dataplane::RenewalTime(info.validity);
  try_again_at_ = absl::InfinitePast();
  log::Info("certificate renewed",
            {{"serial", identity.serial}, {"expires", absl::FormatTime(identity.not_after, absl::UTCTimeZone())}});
  if (absl::Status taken = options_.on_renewed(identity); !taken.ok()) {
    log::Error("certificate not taken up", {{"then", "at the next start"}, {"error", taken}});
  }
  return absl::OkStatus();
}

}  // namespace causeway::worker
