// Preloaded by tests (LD_PRELOAD): steps its process's wall clock, and nothing else.
//
// CAUSEWAY_CLOCK_FILE: a file of 8 bytes, an int64 in the machine's order, by how many seconds the wall clock is off; a test changes it while the
// process runs. Unlike libfaketime it also steps the deadlines of futexes, which Abseil (and so gRPC) gives on the wall clock: with libfaketime
// an hour ahead each of their waits would last an hour longer.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>

namespace {

int64_t OffsetSeconds() {
  static const std::atomic<int64_t>* const offset = [] {
    static const std::atomic<int64_t> none{0};
    const char* path = std::getenv("CAUSEWAY_CLOCK_FILE");
    const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void* mapped = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? &none : static_cast<const std::atomic<int64_t>*>(mapped);
  }();
  return offset->load();
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

timespec Real(const timespec* deadline) { return {deadline->tv_sec - OffsetSeconds(), deadline->tv_nsec}; }

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += OffsetSeconds();
  return result;
}

int gettimeofday(timeval* now, void* zone) noexcept {
  static const auto next = Next<int (*)(timeval*, void*)>("gettimeofday");
  const int result = next(now, zone);
  if (result == 0) now->tv_sec += OffsetSeconds();
  return result;
}

time_t time(time_t* now) noexcept {
  static const auto next = Next<time_t (*)(time_t*)>("time");
  const time_t result = next(nullptr) + OffsetSeconds();
  if (now != nullptr) *now = result;
  return result;
}

long syscall(long number, ...) noexcept {
  static const auto next = Next<long (*)(long, ...)>("syscall");
  long a[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  timespec real;
  if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
      a[3] != 0) {
    real = Real(reinterpret_cast<const timespec*>(a[3]));
    a[3] = reinterpret_cast<long>(&real);
  }
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
}
