#include "cli/context.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "jobspec/yaml_reader.h"

namespace causeway::cli {
namespace {

std::string ContextYamlPath(const std::string& dir) { return JoinPath(dir, "context.yaml"); }

}  // namespace

std::string ConfigHome(absl::string_view xdg_config_home, absl::string_view home) {
  // The XDG specification: what is not absolute is ignored.
  if (absl::StartsWith(xdg_config_home, "/")) return JoinPath(xdg_config_home, "causeway");
  return home.empty() ? "" : JoinPath(home, ".config/causeway");
}

absl::StatusOr<std::string> ContextDir(absl::string_view flag, const std::string& config_home) {
  if (absl::StrContains(flag, '/') || flag == "." || flag == "..") return std::string(flag);
  if (config_home.empty()) {
    return absl::InvalidArgumentError(
        "neither HOME nor XDG_CONFIG_HOME is set: say with --context DIR/ where the credentials are");
  }
  if (flag.empty()) return config_home;
  RETURN_IF_ERROR(ValidateName("--context", flag));
  return JoinPath(config_home, flag);
}

absl::StatusOr<Context> LoadContext(const std::string& dir, FileSystem* files) {
  std::string path = ContextYamlPath(dir);
  absl::StatusOr<std::string> text = files->ReadFile(path, jobspec::YamlDocument::kMaxBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat("no credentials in ", dir, " (no context.yaml): `causeway init` makes them on the coordinator's ",
                     "machine; from elsewhere copy that folder here, or name it with --context"));
  }
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(std::unique_ptr<jobspec::YamlDocument> document, jobspec::YamlDocument::Parse(*text, path));
  jobspec::YamlMap root = document->root();
  Context context;
  context.dir = dir;
  context.operator_name = root.String("operator");
  absl::StatusOr<jobspec::HostPort> coordinator =
      jobspec::ParseHostPort(root.String("coordinator"), /*allow_port_zero=*/false);
  if (coordinator.ok()) {
    context.coordinator = *coordinator;
  } else if (root.Has("coordinator")) {
    root.AddError("coordinator", coordinator.status().message());
  }
  RETURN_IF_ERROR(document->Finish());
  return context;
}

std::string ContextYaml(const Context& context) {
  return absl::StrCat(
      "# An operator's credentials; `causeway --context DIR` uses them. Keep operator.key secret.\ncoordinator: \"",
      context.coordinator.ToString(), "\"\noperator: ", context.operator_name, "\n");
}

}  // namespace causeway::cli
