// Preloaded by tests (LD_PRELOAD): steps its process's wall clock, and nothing else.
//
// CAUSEWAY_CLOCK_FILE: a file of 8 bytes, an int64 in the machine's order, by how many seconds the wall clock is off; a test changes it while the
// process runs. Unlike libfaketime it also steps the deadlines of futexes, which Abseil (and so gRPC) gives on the wall clock: with libfaketime
// an hour ahead each of their waits would last an hour longer.
#include <dlfcn.h>
#include <errno.h>
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

constexpr int64_t kNanosPerSecond = 1'000'000'000;
// How long a wait lasts before it looks whether the clock was stepped meanwhile.
constexpr int64_t kLookNanos = 20'000'000;

int64_t Nanos(const timespec& time) { return time.tv_sec * kNanosPerSecond + time.tv_nsec; }

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
  if (number != SYS_futex || (a[1] & FUTEX_CLOCK_REALTIME) == 0 || (a[1] & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET ||
      a[3] == 0)
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  // As the kernel would: the deadline is of the clock as it is then, so that a step back lengthens a wait that is under way.
  const int64_t deadline = Nanos(*reinterpret_cast<const timespec*>(a[3]));
  for (;;) {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t left = deadline - Nanos(now);
    const int64_t until = Nanos(now) - OffsetSeconds() * kNanosPerSecond + (left < kLookNanos ? left : kLookNanos);
    const timespec real = {until / kNanosPerSecond, until % kNanosPerSecond};
    const long result = next(number, a[0], a[1], a[2], reinterpret_cast<long>(&real), a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT || left <= kLookNanos) return result;
  }
}
}
