#include "dataplane/digest.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "base/log.h"

namespace causeway::dataplane {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

// OpenSSL's digest calls fail only when memory or the algorithm itself is missing.
Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CAUSEWAY_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(absl::Span<const uint8_t> bytes) {
  CAUSEWAY_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Finish() {
  std::string digest(kSha256Bytes, '\0');
  CAUSEWAY_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1);
  CAUSEWAY_CHECK(EVP_DigestInit_ex(context_.get(), nullptr, nullptr) == 1);
  return digest;
}

std::string Sha256Of(absl::Span<const uint8_t> bytes) {
  Sha256 sha256;
  sha256.Update(bytes);
  return sha256.Finish();
}

std::string Sha256Of(absl::string_view bytes) { return Sha256Of(AsBytes(bytes)); }

uint64_t Xxh3(absl::Span<const uint8_t> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string ToHex(absl::string_view raw) { return absl::BytesToHexString(raw); }

absl::StatusOr<std::string> FromHex(absl::string_view hex) {
  if (hex.size() % 2 != 0) return absl::InvalidArgumentError("hexadecimal text has an even number of digits");
  for (unsigned char c : hex) {
    if (!absl::ascii_isxdigit(c)) return absl::InvalidArgumentError("hexadecimal text has only the digits 0-9 and a-f");
  }
  return absl::HexStringToBytes(hex);
}

absl::Span<const uint8_t> AsBytes(absl::string_view text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

absl::string_view AsText(absl::Span<const uint8_t> bytes) {
  return absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace causeway::dataplane
