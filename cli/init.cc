#include "cli/init.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "dataplane/link.h"
#include "dataplane/pki.h"

namespace causeway::cli {
namespace {

using dataplane::PeerIdentity;

constexpr absl::Duration kCaLifetime = absl::Hours(24 * 3650);
constexpr absl::Duration kLeafLifetime = absl::Hours(24 * 365);
// Other machines' clocks may be behind this one's.
constexpr absl::Duration kClockTolerance = absl::Hours(1);

absl::StatusOr<Credential> MakeCredential(const Credential& ca, dataplane::LeafOptions options) {
  Credential credential;
  ASSIGN_OR_RETURN(credential.key_pem, dataplane::GenerateKeyPem());
  ASSIGN_OR_RETURN(std::string csr, dataplane::CreateCsr(credential.key_pem));
  ASSIGN_OR_RETURN(credential.certificate_pem, dataplane::SignCsr(csr, ca.certificate_pem, ca.key_pem, options));
  return credential;
}

}  // namespace

absl::StatusOr<Credential> MakeOperatorCredential(const Credential& ca, const std::string& name, absl::Time wall_now) {
  PeerIdentity identity;
  identity.role = PeerIdentity::Role::kOperator;
  identity.name = name;
  return MakeCredential(
      ca, {.identity = identity, .hosts = {}, .validity = {wall_now - kClockTolerance, wall_now + kLeafLifetime}});
}

absl::StatusOr<InitResult> InitCoordinator(const InitOptions& options, FileSystem* files) {
  RETURN_IF_ERROR(ValidateName("operator name", options.operator_name));
  jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(options.dir);
  InitResult result;
  result.config_path = JoinPath(options.dir, "coordinator.yaml");
  result.context = {.dir = options.context_dir, .coordinator = options.address, .operator_name = options.operator_name};
  std::string context_yaml_path = JoinPath(options.context_dir, "context.yaml");
  for (const std::string& path : {result.config_path, tls.ca, tls.ca_key, tls.certificate, tls.key}) {
    if (files->Exists(path)) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, " is there already: a second authority would lock out every worker of the first; ",
                       "choose another --dir, or remove ", options.dir, " if it is of no use any more"));
    }
  }
  for (const std::string& path :
       {context_yaml_path, result.context.ca_path(), result.context.certificate_path(), result.context.key_path()}) {
    if (files->Exists(path)) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, " is there already: credentials for another coordinator; choose another --context"));
    }
  }

  absl::Time not_before = options.wall_now - kClockTolerance;
  Credential ca;
  ASSIGN_OR_RETURN(ca.key_pem, dataplane::GenerateKeyPem());
  ASSIGN_OR_RETURN(ca.certificate_pem, dataplane::CreateCaCertificate(ca.key_pem, "Causeway CA",
                                                                      {not_before, options.wall_now + kCaLifetime}));
  ASSIGN_OR_RETURN(result.ca_pin, dataplane::CaPin(ca.certificate_pem));
  dataplane::Validity leaf_validity = {not_before, options.wall_now + kLeafLifetime};
  PeerIdentity coordinator_identity;
  coordinator_identity.role = PeerIdentity::Role::kCoordinator;
  ASSIGN_OR_RETURN(Credential coordinator, MakeCredential(ca, {.identity = coordinator_identity,
                                                               .hosts = {options.address.host},
                                                               .validity = leaf_validity}));
  ASSIGN_OR_RETURN(Credential first_operator, MakeOperatorCredential(ca, options.operator_name, options.wall_now));

  RETURN_IF_ERROR(files->MakeDirs(options.dir));
  RETURN_IF_ERROR(files->MakeDirs(JoinPath(options.dir, "tls"), 0700));
  RETURN_IF_ERROR(files->WriteFileAtomically(tls.ca_key, ca.key_pem, 0600));
  RETURN_IF_ERROR(files->WriteFileAtomically(tls.ca, ca.certificate_pem));
  RETURN_IF_ERROR(files->WriteFileAtomically(tls.key, coordinator.key_pem, 0600));
  RETURN_IF_ERROR(files->WriteFileAtomically(tls.certificate, coordinator.certificate_pem + ca.certificate_pem));

  RETURN_IF_ERROR(files->MakeDirs(options.context_dir, 0700));
  RETURN_IF_ERROR(files->WriteFileAtomically(result.context.key_path(), first_operator.key_pem, 0600));
  RETURN_IF_ERROR(files->WriteFileAtomically(result.context.certificate_path(), first_operator.certificate_pem));
  RETURN_IF_ERROR(files->WriteFileAtomically(result.context.ca_path(), ca.certificate_pem));
  RETURN_IF_ERROR(files->WriteFileAtomically(context_yaml_path, ContextYaml(result.context)));

  jobspec::CoordinatorConfig config;
  config.advertise = options.address;
  config.listen.port = options.address.port;
  // Relative to the working folder here, but to coordinator.yaml in the file.
  if (!options.data_root.empty())
    config.data_root = std::filesystem::absolute(options.data_root).lexically_normal().string();
  result.data_root = config.data_root.empty() ? JoinPath(options.dir, "data") : config.data_root;
  RETURN_IF_ERROR(files->MakeDirs(result.data_root));
  RETURN_IF_ERROR(files->WriteFileAtomically(result.config_path, jobspec::FormatCoordinatorYaml(config)));
  return result;
}

}  // namespace causeway::cli
