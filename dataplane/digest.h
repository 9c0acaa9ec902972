#ifndef CAUSEWAY_DATAPLANE_DIGEST_H_
#define CAUSEWAY_DATAPLANE_DIGEST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX.

namespace causeway::dataplane {

inline constexpr int kSha256Bytes = 32;

// SHA-256 of bytes that come in pieces. Not thread-safe. Call order: Update* Finish, and again from the start.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void Update(absl::Span<const uint8_t> bytes);
  std::string Finish();  // 32 raw bytes

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string Sha256Of(absl::Span<const uint8_t> bytes);  // 32 raw bytes
std::string Sha256Of(absl::string_view bytes);

// XXH3-64 with seed 0, as frames carry it.
uint64_t Xxh3(absl::Span<const uint8_t> bytes);

// Lower-case hexadecimal.
std::string ToHex(absl::string_view raw);
// Errors: InvalidArgument (odd length, another character than 0-9 a-f A-F).
absl::StatusOr<std::string> FromHex(absl::string_view hex);

// The same memory as bytes; valid as long as `text` is.
absl::Span<const uint8_t> AsBytes(absl::string_view text);
absl::string_view AsText(absl::Span<const uint8_t> bytes);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_DIGEST_H_
