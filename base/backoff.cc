#include "base/backoff.h"

#include <algorithm>
#include <cmath>

namespace causeway {

Backoff::Backoff(const Options& options) : options_(options), random_(options.seed) {}

absl::Duration Backoff::Next() {
  absl::Duration bound = std::min(options_.max, options_.initial * std::pow(options_.factor, attempts_));
  if (bound < options_.max) ++attempts_;
  return bound * (0.25 + 0.75 * random_.Uniform());
}

void Backoff::Reset() { attempts_ = 0; }

bool IsRetryable(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status); }

}  // namespace causeway
