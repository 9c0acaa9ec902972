#include "cli/completion.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace causeway::cli {
namespace {

std::string BashScript(const std::vector<CommandWords>& commands) {
  std::vector<std::string> paths;
  std::string cases;
  for (const CommandWords& command : commands) {
    paths.push_back(absl::StrCat("\"", command.path, "\""));
    absl::StrAppend(&cases, "    \"", command.path, "\") words=\"", absl::StrJoin(command.words, " "), "\" ;;\n");
  }
  return absl::StrCat(R"(_causeway() {
  local cur="${COMP_WORDS[COMP_CWORD]}" path=causeway words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${COMP_WORDS[i]}" in
      )",
                      absl::StrJoin(paths, "|"), R"() path="$path ${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path" in
)",
                      cases, R"(  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _causeway causeway
)");
}

std::string FishScript(const std::vector<CommandWords>& commands) {
  std::string script;
  for (const CommandWords& command : commands) {
    std::vector<std::string> path = absl::StrSplit(command.path, ' ');
    std::vector<std::string> subcommands;
    std::vector<std::string> flags;
    for (const std::string& word : command.words) (absl::StartsWith(word, "-") ? flags : subcommands).push_back(word);
    std::string condition =
        path.size() == 1 ? "__fish_use_subcommand" : absl::StrCat("__fish_seen_subcommand_from ", path[1]);
    if (path.size() > 2) absl::StrAppend(&condition, "; and __fish_seen_subcommand_from ", path[2]);
    if (path.size() == 2 && !subcommands.empty()) {
      absl::StrAppend(&condition, "; and not __fish_seen_subcommand_from ", absl::StrJoin(subcommands, " "));
    }
    if (!subcommands.empty())
      absl::StrAppend(&script, "complete -c causeway -f -n '", condition, "' -a '", absl::StrJoin(subcommands, " "),
                      "'\n");
    for (const std::string& flag : flags) {
      if (!absl::StartsWith(flag, "--")) continue;
      absl::StrAppend(&script, "complete -c causeway -n '", condition, "' -l ", flag.substr(2), "\n");
    }
  }
  return script;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(absl::string_view shell, const std::vector<CommandWords>& commands) {
  if (shell == "bash") return BashScript(commands);
  if (shell == "zsh")
    return absl::StrCat("#compdef causeway\nautoload -U +X bashcompinit && bashcompinit\n", BashScript(commands));
  if (shell == "fish") return FishScript(commands);
  return absl::InvalidArgumentError(absl::StrCat("found shell \"", shell, "\"; allowed: bash, zsh, fish"));
}

}  // namespace causeway::cli
