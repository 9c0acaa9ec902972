#include "base/random.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "base/log.h"

namespace causeway {
namespace {

uint64_t MixBits(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(uint64_t seed) {
  for (uint64_t& word : s_) word = MixBits(seed += 0x9e3779b97f4a7c15);
}

uint64_t Random::operator()() {
  const uint64_t result = std::rotl(s_[1] * 5, 7) * 9;
  const uint64_t t = s_[1] << 17;
  s_[2] ^= s_[0];
  s_[3] ^= s_[1];
  s_[1] ^= s_[2];
  s_[0] ^= s_[3];
  s_[2] ^= t;
  s_[3] = std::rotl(s_[3], 45);
  return result;
}

uint64_t Random::Below(uint64_t bound) {
  CAUSEWAY_CHECK(bound > 0);
  const uint64_t rejected =
      -bound % bound;  // 2^64 mod bound: as many of the smallest values would come once too often.
  uint64_t value;
  do {
    value = (*this)();
  } while (value < rejected);
  return value % bound;
}

double Random::Uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

void Random::Shuffle(absl::Span<int64_t> values) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[Below(i)]);
}

uint64_t MixSeed(uint64_t seed, absl::Span<const absl::string_view> parts, uint64_t number) {
  uint64_t hash = 0xcbf29ce484222325;
  auto add_byte = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  auto add_number = [&](uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<uint8_t>(value >> shift));
  };
  add_number(seed);
  for (absl::string_view part : parts) {
    add_number(part.size());  // So that ("ab", "c") and ("a", "bc") differ.
    for (char c : part) add_byte(static_cast<uint8_t>(c));
  }
  add_number(number);
  return MixBits(hash);
}

std::string RandomBytes(int n) {
  std::string bytes(n, '\0');
  for (size_t done = 0; done < bytes.size();) {
    ssize_t got = getrandom(bytes.data() + done, bytes.size() - done, 0);
    CAUSEWAY_CHECK(got >= 0 || errno == EINTR);
    if (got > 0) done += got;
  }
  return bytes;
}

}  // namespace causeway
