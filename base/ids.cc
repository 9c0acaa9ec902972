#include "base/ids.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace causeway {

absl::Status ValidateName(absl::string_view what, absl::string_view name) {
  auto alphanumeric = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); };
  auto allowed = [&](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; };
  if (!name.empty() && name.size() <= 63 && alphanumeric(name[0]) && std::all_of(name.begin(), name.end(), allowed) &&
      !absl::StrContains(name, "..")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " \"", absl::CHexEscape(name.substr(0, 100)),
                                                 "\" does not match [a-z0-9][a-z0-9._-]{0,62} without \"..\""));
}

}  // namespace causeway
