#ifndef CAUSEWAY_SERVER_LOG_BUDGET_H_
#define CAUSEWAY_SERVER_LOG_BUDGET_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace causeway::server {

// How many log lines one worker may cause, so that a broken or hostile one does not fill the disk: `at_once` of a key in a period, and once that
// was too few one a period, which tells how many it stands for. A period without a line that was kept back gives all of them again.
//
// Thread-safe; does not block. Keys are kept for ever: they are made of workers' names and words of ours.
class LogBudget {
 public:
  struct Options {
    int at_once = 20;  // > 0. An honest worker restarts, loses its link and reports a few times a minute.
    absl::Duration period = absl::Minutes(1);
  };
  explicit LogBudget(const Options& options) : options_(options) {}
  LogBudget() : LogBudget(Options()) {}

  // A line of this key is due. 0: it is kept back. Else write it; it stands for so many, those kept back since the line before included.
  int64_t Take(const std::string& key, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);  // now: steady

 private:
  struct Line {
    absl::Time period_began = absl::InfinitePast();
    int left = 0;           // In this period.
    int64_t kept_back = 0;  // Since the last line that was written.
  };

  const Options options_;
  Mutex mu_;
  std::map<std::string, Line> lines_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_LOG_BUDGET_H_
