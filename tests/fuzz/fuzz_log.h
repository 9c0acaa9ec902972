#ifndef CAUSEWAY_TESTS_FUZZ_FUZZ_LOG_H_
#define CAUSEWAY_TESTS_FUZZ_FUZZ_LOG_H_

#include "base/log.h"
#include "tests/fuzz/fuzz_require.h"

namespace causeway {

// What odd input makes the code log would slow a fuzzer down. The first call counts.
inline void KeepQuiet() {
  static const bool quiet =
      log::Configure({.level = log::Level::kError, .file = "/dev/null", .component = "fuzz"}).ok();
  Require(quiet);
}

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FUZZ_FUZZ_LOG_H_
