#ifndef CAUSEWAY_BASE_COMPLETION_H_
#define CAUSEWAY_BASE_COMPLETION_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace causeway {

// A one-shot result: set once by one thread, awaited by others. Copies share the same result.
//
// Thread-safe.
template <typename T>
class Completion {
 public:
  Completion() : state_(std::make_shared<State>()) {}

  // Sets the result; the first call wins and returns true, later ones are ignored.
  bool Set(absl::StatusOr<T> result) {
    MutexLock lock(&state_->mu);
    if (state_->result.has_value()) return false;
    state_->result.emplace(std::move(result));
    state_->done.SignalAll();
    return true;
  }

  // Makes every Await return Cancelled unless a result is there already.
  bool Cancel(absl::string_view reason) { return Set(absl::CancelledError(reason)); }

  bool IsSet() const {
    MutexLock lock(&state_->mu);
    return state_->result.has_value();
  }

  // Blocks until the result is there or `deadline` (steady time of `clock`) has passed. T must be copyable.
  // Errors: those of the result; DeadlineExceeded, naming `what` was waited for.
  absl::StatusOr<T> Await(Clock* clock, absl::Time deadline, absl::string_view what) const {
    MutexLock lock(&state_->mu);
    while (!state_->result.has_value()) {
      if (clock->AwaitUntil(&state_->mu, &state_->done, deadline) && !state_->result.has_value() &&
          clock->Now() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat("waited in vain for ", what));
      }
    }
    return *state_->result;
  }

 private:
  struct State {
    Mutex mu;
    CondVar done;
    std::optional<absl::StatusOr<T>> result ABSL_GUARDED_BY(mu);
  };
  std::shared_ptr<State> state_;
};

}  // namespace causeway

#endif  // CAUSEWAY_BASE_COMPLETION_H_
