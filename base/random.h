#ifndef CAUSEWAY_BASE_RANDOM_H_
#define CAUSEWAY_BASE_RANDOM_H_

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// A small, fast generator whose stream is fixed for ever and equal on every platform (xoshiro256**, seeded by splitmix64), because
// shuffles and shards depend on it. Not for secrets (see RandomBytes). Satisfies UniformRandomBitGenerator. Not thread-safe.
class Random {
 public:
  using result_type = uint64_t;
  explicit Random(uint64_t seed);
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }
  uint64_t operator()();
  // Uniform in [0, bound), without bias; bound > 0.
  uint64_t Below(uint64_t bound);
  // Uniform in [0, 1), 53 bits.
  double Uniform();
  // Fisher-Yates from the end; the same permutation everywhere for the same seed and size.
  void Shuffle(absl::Span<int64_t> values);
  // The state, so that a restart continues the stream.
  std::array<uint64_t, 4> state() const { return s_; }
  void set_state(const std::array<uint64_t, 4>& s) { s_ = s; }

 private:
  std::array<uint64_t, 4> s_;
};

// One seed out of several parts ("job", "worker", epoch): stable across platforms and versions (FNV-1a over the parts, then mixed).
uint64_t MixSeed(uint64_t seed, absl::Span<const absl::string_view> parts, uint64_t number = 0);

// `n` unpredictable bytes from the operating system, for tokens, keys and incarnations. Never fails (aborts if the system has none).
std::string RandomBytes(int n);

}  // namespace causeway

#endif  // CAUSEWAY_BASE_RANDOM_H_
