#ifndef CAUSEWAY_BASE_STATUS_MACROS_H_
#define CAUSEWAY_BASE_STATUS_MACROS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace causeway {

// The same code (and payloads) with "context: " put before the message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

}  // namespace causeway

#define CAUSEWAY_CONCAT_INNER_(a, b) a##b
#define CAUSEWAY_CONCAT_(a, b) CAUSEWAY_CONCAT_INNER_(a, b)

// RETURN_IF_ERROR(expr) or RETURN_IF_ERROR(expr, "context"): returns the error to the caller, annotated.
#define RETURN_IF_ERROR(expr, ...)                                                     \
  do {                                                                                 \
    if (::absl::Status causeway_status_ = (expr); !causeway_status_.ok()) [[unlikely]] \
      return CAUSEWAY_ANNOTATE_(causeway_status_ __VA_OPT__(, ) __VA_ARGS__);          \
  } while (false)

// ASSIGN_OR_RETURN(auto x, StatusOrExpr()) or ASSIGN_OR_RETURN(x, expr, "context").
#define ASSIGN_OR_RETURN(lhs, expr, ...) \
  CAUSEWAY_ASSIGN_OR_RETURN_(CAUSEWAY_CONCAT_(causeway_statusor_, __LINE__), lhs, expr __VA_OPT__(, ) __VA_ARGS__)

#define CAUSEWAY_ASSIGN_OR_RETURN_(var, lhs, expr, ...)                 \
  auto var = (expr);                                                    \
  if (!var.ok()) [[unlikely]]                                           \
    return CAUSEWAY_ANNOTATE_(var.status() __VA_OPT__(, ) __VA_ARGS__); \
  lhs = std::move(var).value()

#define CAUSEWAY_ANNOTATE_(status, ...) \
  CAUSEWAY_ANNOTATE_SELECT_(__VA_OPT__(::causeway::Annotate)(status __VA_OPT__(, ) __VA_ARGS__))
#define CAUSEWAY_ANNOTATE_SELECT_(expr) expr

#endif  // CAUSEWAY_BASE_STATUS_MACROS_H_
