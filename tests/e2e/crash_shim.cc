// Preloaded by tests (LD_PRELOAD): stops its process with SIGSTOP at an exact instant, so that a test can then kill it there, or let it go on.
//
// CAUSEWAY_STOP_AT: CALL:PART. The process stops, once in its life, when it has renamed a file to a name with PART in it (rename), or is about to
// remove one (unlink).
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

void At(std::string_view call, std::string_view path) {
  static std::atomic<bool> stopped{false};
  static const char* const text = std::getenv("CAUSEWAY_STOP_AT");
  const std::string_view wanted = text == nullptr ? "" : text;
  const size_t colon = wanted.find(':');
  if (colon == std::string_view::npos || wanted.substr(0, colon) != call) return;
  if (path.find(wanted.substr(colon + 1)) != std::string_view::npos && !stopped.exchange(true)) raise(SIGSTOP);
}

}  // namespace

extern "C" {

int rename(const char* from, const char* to) noexcept {
  static const auto next = reinterpret_cast<int (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "rename"));
  const int result = next(from, to);
  if (result == 0) At("rename", to);
  return result;
}

int unlink(const char* path) noexcept {
  static const auto next = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_NEXT, "unlink"));
  At("unlink", path);
  return next(path);
}
}
