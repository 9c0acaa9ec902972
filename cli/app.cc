#include "cli/app.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/backup_commands.h"
#include "cli/cert_commands.h"
#include "cli/completion.h"
#include "cli/fleet_commands.h"
#include "cli/init.h"
#include "cli/job_commands.h"
#include "cli/model_commands.h"
#include "cli/output.h"
#include "cli/plan_commands.h"
#include "dataplane/protocol_version.h"
#include "jobspec/yaml_reader.h"

namespace causeway::cli {
namespace {

using Action = std::function<absl::Status(Session& session)>;

constexpr char kDescription[] =
    "Trains one model over many sites joined by thin links: the operator's command line.\n"
    "Exit codes: 0 done, 1 failed, 2 usage or a bad file, 3 timed out, 4 refused.";

// Every flag's place; lives as long as the parse.
struct Arguments {
  std::string context;
  std::string output = "table";
  std::string timeout;
  Action action;

  std::string address;
  InitOptions init;
  BackupArguments backup;
  RestoreArguments restore;
  SiteAddOptions site_add;
  std::string lifetime;
  std::string renew_dir;
  std::string name;  // Of the site, token, worker or job that the command is about.
  SubmitOptions submit;
  std::string reason;
  std::string file;
  FetchOptions fetch;
  std::string shell;
  PlanOptions plan;
};

absl::Status RunInit(Session& session, const Arguments& arguments) {
  InitOptions options = arguments.init;
  absl::StatusOr<jobspec::HostPort> address = jobspec::ParseHostPort(arguments.address, /*allow_port_zero=*/false);
  if (!address.ok()) return Annotate(address.status(), "--address");
  options.address = *address;
  options.wall_now = session.env().clock->WallNow();
  ASSIGN_OR_RETURN(options.context_dir, session.ContextFolder());
  ASSIGN_OR_RETURN(InitResult result, InitCoordinator(options, session.env().files));
  session.Print(
      "causeway.init/1",
      {{"config", result.config_path},
       {"data_root", result.data_root},
       {"ca_pin", result.ca_pin},
       {"context", result.context.dir},
       {"operator", result.context.operator_name}},
      absl::StrCat("coordinator  ", result.config_path, "\ndata         ", result.data_root, "\ncredentials  ",
                   result.context.dir, " (operator ", result.context.operator_name, ")\nCA pin       ", result.ca_pin,
                   "\nnext: causeway-coordinator --config ", result.config_path, "\n"));
  return absl::OkStatus();
}

// Answers offline too: the coordinator's version is a plus.
absl::Status RunVersion(Session& session) {
  v1::ProtocolVersion ours = dataplane::OurVersion();
  Json json = {{"client", ToJson(ours)}, {"coordinator", nullptr}, {"coordinator_incarnation", nullptr}};
  std::string text = absl::StrCat("causeway      ", ours.build(), ", protocol ", ours.major(), ".", ours.minor(), "\n");
  absl::StatusOr<OperatorClient*> client = session.Client();
  if (client.ok()) {
    v1::GetVersionRequest request;
    *request.mutable_version() = ours;
    absl::StatusOr<v1::GetVersionResponse> response = (*client)->GetVersion(request, session.timeout(absl::Seconds(5)));
    if (response.ok()) {
      json["coordinator"] = ToJson(response->version());
      json["coordinator_incarnation"] = response->coordinator_incarnation();
      absl::StrAppend(&text, "coordinator   ", response->version().build(), ", protocol ", response->version().major(),
                      ".", response->version().minor(), "\n");
    } else {
      session.Note(session.Explain(response.status()));
    }
  } else if (!absl::IsNotFound(client.status())) {
    session.Note(session.Explain(client.status()));
  }
  session.Print("causeway.version/1", json, text);
  return absl::OkStatus();
}

void CollectCommands(CLI::App* app, const std::string& path, std::vector<CommandWords>* commands) {
  CommandWords command = {path, {}};
  std::vector<CLI::App*> subcommands = app->get_subcommands([](CLI::App*) { return true; });
  for (CLI::App* subcommand : subcommands) command.words.push_back(subcommand->get_name());
  // The global flags fall through to every command.
  for (CLI::App* level = app; level != nullptr; level = level->get_parent()) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        std::string flag = "--" + name;
        if (std::find(command.words.begin(), command.words.end(), flag) == command.words.end())
          command.words.push_back(flag);
      }
    }
  }
  commands->push_back(std::move(command));
  for (CLI::App* subcommand : subcommands) CollectCommands(subcommand, path + " " + subcommand->get_name(), commands);
}

// Adds a command that does something. `example` is shown by its --help.
CLI::App* AddCommand(CLI::App* parent, Arguments* arguments, const std::string& name, const std::string& description,
                     const std::string& example, Action action) {
  CLI::App* command = parent->add_subcommand(name, description);
  command->footer(
      "With every command: --context, --output table|json, --timeout (see `causeway --help`)\n\nExample:\n  " +
      example);
  command->fallthrough();
  command->callback([arguments, action = std::move(action)] { arguments->action = action; });
  return command;
}

// Adds a command that only groups others.
CLI::App* AddGroup(CLI::App* parent, const std::string& name, const std::string& description) {
  CLI::App* group = parent->add_subcommand(name, description);
  group->fallthrough();
  group->require_subcommand(1);
  return group;
}

void AddFleetCommands(CLI::App* app, Arguments* a) {
  CLI::App* site = AddGroup(app, "site", "Sites: groups of workers with a fast network between them");
  CLI::App* add =
      AddCommand(site, a, "add", "Make a site, or a further token for one; prints the line that joins its nodes",
                 "causeway site add eu-west --uses 4", [a](Session& session) -> absl::Status {
                   if (!a->lifetime.empty()) {
                     absl::StatusOr<absl::Duration> lifetime = jobspec::ParseDuration(a->lifetime);
                     if (!lifetime.ok()) return Annotate(lifetime.status(), "--lifetime");
                     a->site_add.lifetime = *lifetime;
                   }
                   return SiteAdd(session, a->site_add);
                 });
  add->add_option("SITE", a->site_add.site, "Its name")->required();
  add->add_option("--uses", a->site_add.uses, "How many workers may join with the token (default 16)")
      ->check(CLI::Range(1, 100000));
  add->add_option("--lifetime", a->lifetime, "How long the token is valid, such as 2h (default 24h)");
  add->add_option("--request-id", a->site_add.request_id,
                  "Asking again with the same id replaces the token that was made before");
  AddCommand(site, a, "list", "List the sites", "causeway site list", [](Session& s) { return SiteList(s); });
  AddCommand(site, a, "remove", "Remove a site without workers, and its tokens", "causeway site remove eu-west",
             [a](Session& s) { return SiteRemove(s, a->name); })
      ->add_option("SITE", a->name, "Its name")
      ->required();

  CLI::App* token = AddGroup(app, "token", "Tokens that let workers join a site");
  AddCommand(token, a, "list", "List the tokens; the secrets themselves are not kept", "causeway token list",
             [](Session& s) { return TokenList(s); });
  AddCommand(token, a, "revoke", "End a token; workers that joined with it stay", "causeway token revoke 3f9a2c",
             [a](Session& s) { return TokenRevoke(s, a->name); })
      ->add_option("TOKEN", a->name, "Its id, from `causeway token list`")
      ->required();

  CLI::App* cert = AddGroup(app, "cert", "Certificates: the authority's, the coordinator's, operators' and workers'");
  AddCommand(cert, a, "show", "Show whose certificates expire when", "causeway cert show --output json",
             [](Session& s) { return CertShow(s); });
  CLI::App* renew = AddCommand(cert, a, "renew",
                               "Renew certificates now; workers and the coordinator else do it by themselves in time",
                               "causeway cert renew operator", [a](Session& s) -> absl::Status {
                                 if (a->renew_dir.empty()) return CertRenew(s, a->name);
                                 if (a->name != "operator")
                                   return absl::InvalidArgumentError("--dir goes with `cert renew operator` only");
                                 return CertRenewOperatorFrom(s, a->renew_dir);
                               });
  renew->add_option("WHO", a->name, "A worker, or `coordinator`, or `operator` (your own); without it all of them");
  renew->add_option("--dir", a->renew_dir,
                    "With `operator`, on the coordinator's machine: its data directory, whose authority makes the "
                    "certificate without asking a coordinator; when yours has expired");

  CLI::App* worker = AddGroup(app, "worker", "Workers: daemons on one device each");
  AddCommand(worker, a, "list", "List the workers", "causeway worker list --output json",
             [](Session& s) { return WorkerList(s); });
  AddCommand(worker, a, "show", "Show one worker", "causeway worker show eu-west-1",
             [a](Session& s) { return WorkerShow(s, a->name); })
      ->add_option("WORKER", a->name, "Its name")
      ->required();
  AddCommand(worker, a, "drain", "Let a worker deliver what it has done and end; it may be started again at any time",
             "causeway worker drain eu-west-1", [a](Session& s) { return WorkerDrain(s, a->name); })
      ->add_option("WORKER", a->name, "Its name")
      ->required();
  AddCommand(worker, a, "remove", "Remove a worker; its certificate is refused from then on",
             "causeway worker remove eu-west-1", [a](Session& s) { return WorkerRemove(s, a->name); })
      ->add_option("WORKER", a->name, "Its name")
      ->required();
}

void AddJobCommands(CLI::App* app, Arguments* a) {
  CLI::App* job = AddGroup(app, "job", "Jobs: training runs");
  CLI::App* submit = AddCommand(job, a, "submit", "Submit a job", "causeway job submit job.yaml --watch",
                                [a](Session& s) { return JobSubmit(s, a->submit); });
  submit->add_option("FILE", a->submit.file, "job.yaml; - is standard input")->required();
  submit->add_option("--request-id", a->submit.request_id, "Submitting again with the same id is the same job");
  submit->add_option("--plan", a->submit.plan_file,
                     "Pin this plan (causeway.plan/1) instead of letting the coordinator make one");
  submit->add_flag("--watch", a->submit.watch, "Then watch it, as `causeway job watch` does");
  AddCommand(job, a, "list", "List the jobs", "causeway job list", [](Session& s) { return JobList(s); });
  AddCommand(job, a, "show", "Show a job: plan, workers, rounds", "causeway job show fashion",
             [a](Session& s) { return JobShow(s, a->name); })
      ->add_option("JOB", a->name, "Its name")
      ->required();
  AddCommand(job, a, "watch", "Follow a job until it ends: 0 if it FINISHED, 1 if it FAILED or was ABORTED",
             "causeway job watch fashion --timeout 2h", [a](Session& s) { return JobWatch(s, a->name); })
      ->add_option("JOB", a->name, "Its name; without it the job that runs, else the newest");
  CLI::App* abort = AddCommand(job, a, "abort", "Abort a job; the committed versions of its model stay",
                               "causeway job abort fashion --reason 'wrong data'",
                               [a](Session& s) { return JobAbort(s, a->name, a->reason); });
  abort->add_option("JOB", a->name, "Its name")->required();
  abort->add_option("--reason", a->reason, "Is shown with the job");
  AddCommand(job, a, "pause", "Commit what the open round's workers have done, then stand still until resumed",
             "causeway job pause fashion", [a](Session& s) { return JobPause(s, a->name); })
      ->add_option("JOB", a->name, "Its name")
      ->required();
  AddCommand(job, a, "resume", "Go on with a paused job", "causeway job resume fashion",
             [a](Session& s) { return JobResume(s, a->name); })
      ->add_option("JOB", a->name, "Its name")
      ->required();
  AddCommand(job, a, "validate", "Check a job.yaml without a coordinator", "causeway job validate job.yaml",
             [a](Session& s) { return JobValidate(s, a->file); })
      ->add_option("FILE", a->file, "job.yaml; - is standard input")
      ->required();

  CLI::App* model = AddGroup(app, "model", "Committed versions of a job's model");
  AddCommand(model, a, "list", "List the versions that are kept", "causeway model list fashion",
             [a](Session& s) { return ModelList(s, a->name); })
      ->add_option("JOB", a->name, "Its name")
      ->required();
  CLI::App* fetch = AddCommand(model, a, "fetch", "Fetch a version as safetensors",
                               "causeway model fetch fashion --out model.safetensors",
                               [a](Session& s) { return ModelFetch(s, a->fetch); });
  fetch->add_option("JOB", a->fetch.job, "Its name")->required();
  fetch->add_option("--out", a->fetch.out, "The file to write; an old one is replaced once the new one is whole")
      ->required();
  fetch->add_option("--version", a->fetch.version, "Which version (default: the final one, else the newest)")
      ->check(CLI::NonNegativeNumber);
}

// FILE, --job and --compare.
void AddPlanOptions(CLI::App* command, Arguments* a) {
  command->add_option("FILE", a->plan.file, "The cluster and the model, causeway.plan-input/1; - is standard input");
  command->add_option("--job", a->plan.job_file,
                      "A job.yaml instead: plan with what the coordinator's workers have measured");
  command->add_flag("--compare", a->plan.compare, "Also by every other method");
}

void AddPlanCommands(CLI::App* app, Arguments* a) {
  AddPlanOptions(AddCommand(app, a, "plan", "Show who would get what, and what is averaged when; starts nothing",
                            "causeway plan cluster.yaml --compare", [a](Session& s) { return Plan(s, a->plan); }),
                 a);
  CLI::App* simulate = AddCommand(app, a, "simulate", "Run the planned job event by event, on paper; starts nothing",
                                  "causeway simulate cluster.yaml --timeline trace.json",
                                  [a](Session& s) { return Simulate(s, a->plan); });
  AddPlanOptions(simulate, a);
  simulate->add_option("--timeline", a->plan.timeline,
                       "Write what happened when, a Chrome trace that Perfetto opens, to this file");
}

void AddBackupCommands(CLI::App* app, Arguments* a) {
  CLI::App* backup = AddCommand(app, a, "backup", "Save a coordinator's data directory, on its machine, while it runs",
                                "causeway backup --dir /var/lib/causeway --out /backup/2026-11-30",
                                [a](Session& s) { return Backup(s, a->backup); });
  backup->add_option("--dir", a->backup.dir, "The coordinator's data directory (default ./causeway)");
  backup->add_option("--out", a->backup.out, "The folder to make; it holds private keys")->required();
  backup->add_option("--config", a->backup.config, "The coordinator's configuration (default DIR/coordinator.yaml)");
  CLI::App* restore =
      AddCommand(app, a, "restore", "Make a data directory from a backup, at another address if wanted",
                 "causeway restore /backup/2026-11-30 --dir /var/lib/causeway --address new.example:7443",
                 [a](Session& s) { return Restore(s, a->restore); });
  restore->add_option("BACKUP", a->restore.backup, "What `causeway backup` made")->required();
  restore->add_option("--dir", a->restore.dir, "The folder to make; an empty one will do")->required();
  restore->add_option("--address", a->restore.address,
                      "HOST:PORT that workers and operators will dial (default: as before)");
}

void AddCommands(CLI::App* app, Arguments* a) {
  CLI::App* init =
      AddCommand(app, a, "init", "Make a coordinator: authority, certificates, first operator, coordinator.yaml",
                 "causeway init --address coord.example:7443 --data-root /srv/datasets",
                 [a](Session& s) { return RunInit(s, *a); });
  a->init.dir = "./causeway";
  init->add_option("--address", a->address, "HOST:PORT that workers and operators dial")->required();
  init->add_option("--dir", a->init.dir, "The coordinator's folder (default ./causeway)");
  init->add_option("--data-root", a->init.data_root, "Data paths of jobs lie below it (default DIR/data)");
  init->add_option("--operator", a->init.operator_name, "The first operator's name (default admin)");
  AddFleetCommands(app, a);
  AddJobCommands(app, a);
  AddPlanCommands(app, a);
  AddBackupCommands(app, a);
  AddCommand(app, a, "version", "Show the versions of this program and of the coordinator", "causeway version",
             [](Session& s) { return RunVersion(s); });
  AddCommand(app, a, "completion", "Print a script that completes commands and flags",
             "source <(causeway completion bash)",
             [app, a](Session& session) -> absl::Status {
               std::vector<CommandWords> commands;
               CollectCommands(app, "causeway", &commands);
               ASSIGN_OR_RETURN(std::string script, CompletionScript(a->shell, commands));
               *session.env().out << script;
               return absl::OkStatus();
             })
      ->add_option("SHELL", a->shell, "bash, zsh or fish")
      ->required();
}

}  // namespace

int RunCli(const std::vector<std::string>& arguments, const Environment& environment) {
  Arguments parsed;
  CLI::App app(kDescription, "causeway");
  app.require_subcommand(1);
  app.set_version_flag("--version", absl::StrCat("causeway ", dataplane::kBuildVersion));
  app.add_option("--context", parsed.context,
                 "Credentials: a name below the configuration folder, or a path with a slash");
  app.add_option("--output", parsed.output, "table or json (default table)")->check(CLI::IsMember({"table", "json"}));
  app.add_option("--timeout", parsed.timeout, "How long to wait, such as 30s (default 30s; watch and fetch: no limit)");
  AddCommands(&app, &parsed);

  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // As CLI11 wants them.
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    bool asked = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);  // --help, --version
    app.exit(error, *environment.out, *environment.err);
    environment.out->flush();
    return asked ? 0 : 2;
  }

  GlobalOptions options;
  options.context = parsed.context;
  options.json = parsed.output == "json";
  absl::Status status;
  if (!parsed.timeout.empty()) {
    absl::StatusOr<absl::Duration> timeout = jobspec::ParseDuration(parsed.timeout);
    status = Annotate(timeout.status(), "--timeout");
    if (timeout.ok()) options.timeout = *timeout;
  }
  Session session(environment, options);
  if (status.ok()) status = parsed.action(session);
  if (!status.ok()) session.Note(absl::StrCat("causeway: ", session.Explain(status)));
  session.WarnOfExpiry();
  return ExitCode(status);
}

}  // namespace causeway::cli
