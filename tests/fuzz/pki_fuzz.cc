// Requests, certificates and chains from outside. Input: one byte of what it is, then PEM.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "dataplane/pki.h"
#include "tests/fuzz/fuzz_require.h"

namespace {

using namespace causeway;             // NOLINT
using namespace causeway::dataplane;  // NOLINT

struct Ca {
  std::string key = *GenerateKeyPem();
  Validity validity = {absl::FromUnixSeconds(1'700'000'000), absl::FromUnixSeconds(2'000'000'000)};
  std::string certificate = *CreateCaCertificate(key, "fuzz", validity);
  std::string pin = *CaPin(certificate);
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Ca* const ca = new Ca;
  FuzzInput input(absl::string_view(reinterpret_cast<const char*>(data), size));
  const unsigned what = input.Byte() % 3;
  const absl::string_view pem = input.Rest();
  if (what == 0) {
    const absl::StatusOr<std::string> key = CsrKeySha256(pem);
    LeafOptions options;
    options.identity.role = PeerIdentity::Role::kWorker;
    options.identity.name = "w1";
    options.identity.site = "lab";
    options.validity = ca->validity;
    const absl::StatusOr<std::string> leaf = SignCsr(pem, ca->certificate, ca->key, options);
    Require(key.ok() == leaf.ok());
    if (leaf.ok()) {
      // Whatever the request says of itself.
      const absl::StatusOr<PeerIdentity> identity = ParseCertificate(*leaf);
      Require(identity.ok() && identity->name == "w1" && identity->role == PeerIdentity::Role::kWorker);
    }
  } else if (what == 1) {
    ParseCertificate(pem).status().IgnoreError();
    CaPin(pem).status().IgnoreError();
    CheckKeyMatches(pem, pem).IgnoreError();
  } else {
    // A chain that is not from the pinned authority is never taken.
    const std::string text(pem);
    for (const std::vector<std::string>& chain :
         {std::vector<std::string>{text}, {text, text}, {text, ca->certificate}, {ca->certificate, text}}) {
      Require(!VerifyChainAgainstPin(chain, ca->pin, absl::FromUnixSeconds(1'800'000'000)).ok());
    }
    VerifyChainAgainstPin({ca->certificate}, pem, absl::FromUnixSeconds(1'800'000'000)).status().IgnoreError();
  }
  return 0;
}
