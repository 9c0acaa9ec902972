#include "server/log_budget.h"

#include <utility>

namespace causeway::server {

int64_t LogBudget::Take(const std::string& key, absl::Time now) {
  MutexLock lock(&mu_);
  Line& line = lines_[key];
  if (now >= line.period_began + options_.period) {
    line.period_began = now;
    line.left = line.kept_back > 0 ? 1 : options_.at_once;
  }
  if (line.left == 0) {
    ++line.kept_back;
    return 0;
  }
  --line.left;
  return 1 + std::exchange(line.kept_back, 0);
}

}  // namespace causeway::server
