#ifndef CAUSEWAY_BASE_IDS_H_
#define CAUSEWAY_BASE_IDS_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace causeway {

// A distinct type around `T`, so that a round cannot be passed for a generation.
template <typename Tag, typename T>
class StrongId {
 public:
  StrongId() = default;
  explicit StrongId(T value) : value_(std::move(value)) {}
  const T& value() const { return value_; }
  friend auto operator<=>(const StrongId&, const StrongId&) = default;
  friend bool operator==(const StrongId&, const StrongId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& os, const StrongId& id) { return os << id.value_; }

 private:
  T value_{};
};

using JobId = StrongId<struct JobIdTag, std::string>;        // the job's name: unique in a coordinator
using WorkerId = StrongId<struct WorkerIdTag, std::string>;  // the worker's name: unique in a coordinator
using SiteId = StrongId<struct SiteIdTag, std::string>;
using Round = StrongId<struct RoundTag, int64_t>;              // of one fragment; the first is 0 and produces version 1
using Version = StrongId<struct VersionTag, int64_t>;          // of the global model; 0 is the initial one
using Generation = StrongId<struct GenerationTag, int64_t>;    // of a site's membership
using Incarnation = StrongId<struct IncarnationTag, int64_t>;  // of a process's start
using PlanNumber = StrongId<struct PlanNumberTag, int64_t>;    // of a job's plan; the first is 1

// The one pattern for names that come from outside (jobs, sites, workers, operators): [a-z0-9][a-z0-9._-]{0,62}, without "..".
// Such a name is safe as a file name, a label value and a part of a URI.
// Errors: InvalidArgument, naming `what`, the value found and the pattern.
absl::Status ValidateName(absl::string_view what, absl::string_view name);

}  // namespace causeway

#endif  // CAUSEWAY_BASE_IDS_H_
