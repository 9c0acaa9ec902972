#ifndef CAUSEWAY_TESTS_FUZZ_FUZZ_REQUIRE_H_
#define CAUSEWAY_TESTS_FUZZ_FUZZ_REQUIRE_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/string_view.h"

namespace causeway {

// What must hold for whatever bytes: a crash, which the fuzzer reports with the input that leads to it.
inline void Require(bool condition, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (condition) return;
  fprintf(stderr, "%s:%d does not hold\n", file, line);
  abort();
}

// Takes a fuzzer's input apart. Running out of bytes gives zeros and empty pieces.
class FuzzInput {
 public:
  explicit FuzzInput(absl::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  unsigned Byte() {
    if (rest_.empty()) return 0;
    const unsigned value = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }
  // A piece with its length, two bytes, before it; cut where the input ends.
  absl::string_view Piece() {
    const size_t high = Byte();
    const size_t size = high << 8 | Byte();
    const absl::string_view piece = rest_.substr(0, size);
    rest_.remove_prefix(piece.size());
    return piece;
  }
  absl::string_view Rest() const { return rest_; }

 private:
  absl::string_view rest_;
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FUZZ_FUZZ_REQUIRE_H_
