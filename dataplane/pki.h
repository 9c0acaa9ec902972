#ifndef CAUSEWAY_DATAPLANE_PKI_H_
#define CAUSEWAY_DATAPLANE_PKI_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "dataplane/link.h"

namespace causeway::dataplane {

// Keys (EC P-256) and certificates, in PEM, over OpenSSL. An identity is a certificate's only URI name:
//   causeway://coordinator   causeway://operator/NAME   causeway://worker/SITE/NAME
// Pure functions, any thread. Errors common to all: Internal (OpenSSL failed, with its message).

// The name that every coordinator's certificate has and every client checks, so that a coordinator may change its address.
inline constexpr char kCoordinatorDnsName[] = "coordinator.causeway";

struct Validity {
  absl::Time not_before;
  absl::Time not_after;
};

// Of a certificate made at `wall_now` for `lifetime`. It begins earlier, since other machines' clocks may be behind: by an hour, or a tenth of a
// shorter life.
Validity ValidityFrom(absl::Time wall_now, absl::Duration lifetime);

// When to renew: at two thirds of its life.
absl::Time RenewalTime(const Validity& validity);

absl::StatusOr<std::string> GenerateKeyPem();

// A certificate of its own authority. Errors: InvalidArgument (the key, a validity that ends before it begins).
absl::StatusOr<std::string> CreateCaCertificate(absl::string_view key_pem, absl::string_view common_name,
                                                const Validity& validity);

// A PKCS#10 request that proves possession of the key. Errors: InvalidArgument (the key).
absl::StatusOr<std::string> CreateCsr(absl::string_view key_pem);

struct LeafOptions {
  PeerIdentity identity;           // role, name and site are used; not kAnonymous.
  std::vector<std::string> hosts;  // Coordinator only: further DNS names and IP addresses.
  Validity validity;
};

// Signs the public key of `csr_pem`; nothing else of it is used. Workers and operators may only be clients, coordinators only servers.
// Errors: InvalidArgument (the request or its proof, another key than P-256, the identity's names, the CA, the validity).
absl::StatusOr<std::string> SignCsr(absl::string_view csr_pem, absl::string_view ca_pem, absl::string_view ca_key_pem,
                                    const LeafOptions& options);

// SHA-256 of a request's public key (SubjectPublicKeyInfo, DER), 32 raw bytes: tells whether two requests are of one key.
// Errors: InvalidArgument (the request or its proof, another key than P-256).
absl::StatusOr<std::string> CsrKeySha256(absl::string_view csr_pem);

// The URI of an identity, and back. Errors of the latter: InvalidArgument (no such form, a bad name).
std::string IdentityUri(const PeerIdentity& identity);
absl::StatusOr<PeerIdentity> ParseIdentityUri(absl::string_view uri);

// Who a certificate names; the first one in `pem` is taken. Checks no signature and no date.
// Errors: InvalidArgument (not a certificate, no identity, more than one).
absl::StatusOr<PeerIdentity> ParseCertificate(absl::string_view pem);

// OK if both belong together. Errors: InvalidArgument.
absl::Status CheckKeyMatches(absl::string_view certificate_pem, absl::string_view key_pem);

struct CertificateInfo {
  std::string serial;  // Hexadecimal, lower case.
  std::string sha256;  // As CaPin.
  Validity validity;
};
// The first one in `pem`, an authority's too. Errors: InvalidArgument (not a certificate).
absl::StatusOr<CertificateInfo> DescribeCertificate(absl::string_view pem);

// "sha256:" and 64 hexadecimal digits, of the certificate's DER form. Errors: InvalidArgument (not a certificate).
absl::StatusOr<std::string> CaPin(absl::string_view ca_pem);

// The certificates, leaf first, that a server presents in a TLS 1.3 handshake without a client certificate. Nothing is checked: see
// VerifyChainAgainstPin. Blocks until `deadline` (of RealClock()) at most.
// Errors: Unavailable (nobody there, connection broken), DeadlineExceeded, FailedPrecondition (it does not speak TLS 1.3).
absl::StatusOr<std::vector<std::string>> FetchServerChain(const std::string& host, int port, absl::Time deadline);

// Returns the CA certificate (PEM) of a chain from outside if it has this pin, has signed the leaf, both are valid at `wall_now`, and the
// leaf names the coordinator. Errors: InvalidArgument (the pin's form), PermissionDenied (all else; the message says what does not fit).
absl::StatusOr<std::string> VerifyChainAgainstPin(const std::vector<std::string>& chain, absl::string_view pin,
                                                  absl::Time wall_now);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_PKI_H_
