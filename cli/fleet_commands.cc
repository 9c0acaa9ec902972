#include "cli/fleet_commands.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "cli/output.h"
#include "dataplane/protocol_version.h"

namespace causeway::cli {
namespace {

std::string WorkerState(const v1::WorkerStatus& worker) {
  if (worker.removed()) return "removed";
  if (worker.draining()) return "draining";
  return worker.live() ? "live" : "lost";
}

std::string DeviceText(const v1::DeviceInfo& device) {
  return absl::StrCat(device.kind(), device.threads() > 0 ? absl::StrCat(", ", device.threads(), " threads") : "");
}

// None of a worker that was removed, or not heard since the coordinator's start (then its device is not known either).
std::string HeartbeatText(const v1::WorkerStatus& worker) {
  if (worker.removed() || !worker.has_device()) return "-";
  return absl::StrCat(HumanSeconds(static_cast<double>(worker.heartbeat_age_ms()) / 1000), " ago");
}

}  // namespace

absl::Status SiteAdd(Session& session, const SiteAddOptions& options) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::AddSiteRequest request;
  request.set_site(options.site);
  request.set_token_uses(options.uses);
  request.set_token_lifetime_s(absl::ToDoubleSeconds(options.lifetime));
  request.set_request_id(options.request_id.empty() ? absl::BytesToHexString(RandomBytes(16)) : options.request_id);
  ASSIGN_OR_RETURN(v1::AddSiteResponse response, client->AddSite(request, session.timeout()));
  std::string join = absl::StrCat("causeway-worker join ", response.address(), " --token ", response.token(),
                                  " --ca-pin ", response.ca_pin());
  Json json = {{"site", options.site}};
  json.update(ToJson(response));
  json["join_command"] = join;
  session.Print("causeway.site-added/1", json, absl::StrCat(join, "\n"));
  session.Note(absl::StrCat("site ", options.site, response.existed() ? " was there; a further token" : " added",
                            "; run the line on each of its nodes (", response.uses(), " uses, until ",
                            HumanTime(response.expires_ms()), " UTC; `causeway token revoke ", response.token_id(),
                            "` ends it). It is shown only now."));
  return absl::OkStatus();
}

absl::Status SiteList(Session& session) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  ASSIGN_OR_RETURN(v1::ListSitesResponse response, client->ListSites({}, session.timeout()));
  Table table({"SITE", "WORKERS", "LIVE", "GENERATION"});
  for (const v1::SiteStatus& site : response.sites()) {
    table.AddRow(
        {site.site(), absl::StrCat(site.workers()), absl::StrCat(site.live()), absl::StrCat(site.generation())});
  }
  session.Print("causeway.sites/1", ToJson(response), table.ToString());
  return absl::OkStatus();
}

absl::Status SiteRemove(Session& session, const std::string& site) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::RemoveSiteRequest request;
  request.set_site(site);
  RETURN_IF_ERROR(client->RemoveSite(request, session.timeout()).status());
  session.Print("causeway.site-removed/1", {{"site", site}}, absl::StrCat("site ", site, " removed\n"));
  return absl::OkStatus();
}

absl::Status TokenList(Session& session) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  ASSIGN_OR_RETURN(v1::ListTokensResponse response, client->ListTokens({}, session.timeout()));
  int64_t now_ms = absl::ToUnixMillis(session.env().clock->WallNow());
  Table table({"TOKEN", "SITE", "USES LEFT", "EXPIRES (UTC)", "STATE"});
  for (const v1::TokenStatus& token : response.tokens()) {
    std::string state = token.revoked()                ? "revoked"
                        : token.expires_ms() <= now_ms ? "expired"
                        : token.uses_left() <= 0       ? "used up"
                                                       : "usable";
    table.AddRow({token.token_id(), token.site(), absl::StrCat(token.uses_left(), " of ", token.uses()),
                  HumanTime(token.expires_ms()), state});
  }
  session.Print("causeway.tokens/1", ToJson(response), table.ToString());
  return absl::OkStatus();
}

absl::Status TokenRevoke(Session& session, const std::string& token_id) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::RevokeTokenRequest request;
  request.set_token_id(token_id);
  RETURN_IF_ERROR(client->RevokeToken(request, session.timeout()).status());
  session.Print("causeway.token-revoked/1", {{"token_id", token_id}},
                absl::StrCat("token ", token_id, " revoked; workers that joined with it stay\n"));
  return absl::OkStatus();
}

absl::Status WorkerList(Session& session) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  ASSIGN_OR_RETURN(v1::ListWorkersResponse response, client->ListWorkers({}, session.timeout()));
  Table table({"WORKER", "SITE", "STATE", "DEVICE", "JOB", "PHASE", "HEARTBEAT", "CACHE", "DISK FREE", "EMULATED"});
  for (const v1::WorkerStatus& worker : response.workers()) {
    table.AddRow({worker.worker(), worker.site(), WorkerState(worker), DeviceText(worker.device()), worker.job(),
                  PhaseName(worker.progress().phase()), HeartbeatText(worker),
                  HumanBytes(static_cast<double>(worker.cache_bytes())),
                  HumanBytes(static_cast<double>(worker.disk_free_bytes())),
                  worker.has_emulation() ? absl::StrCat("yes: ", HumanEmulation(worker.emulation())) : "no"});
  }
  session.Print("causeway.workers/1", ToJson(response), table.ToString());
  return absl::OkStatus();
}

absl::Status WorkerShow(Session& session, const std::string& name) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::ListWorkersRequest request;
  request.set_worker(name);
  ASSIGN_OR_RETURN(v1::ListWorkersResponse response, client->ListWorkers(request, session.timeout()));
  if (response.workers().empty())
    return absl::NotFoundError(absl::StrCat("there is no worker ", name, ": `causeway worker list` shows them"));
  const v1::WorkerStatus& worker = response.workers(0);
  const v1::DeviceInfo& device = worker.device();
  std::string text = absl::StrCat(worker.worker(), "  ", WorkerState(worker), "\n");
  auto add = [&](absl::string_view key, absl::string_view value) {
    absl::StrAppend(&text, "  ", key, std::string(key.size() < 14 ? 14 - key.size() : 1, ' '),
                    value.empty() ? "-" : value, "\n");
  };
  add("site", worker.site());
  add("device", absl::StrCat(DeviceText(device), device.name().empty() ? "" : absl::StrCat(", ", device.name()), ", ",
                             HumanBytes(static_cast<double>(device.memory_bytes()))));
  add("libtorch", device.torch_version());
  add("emulated", worker.has_emulation() ? absl::StrCat("yes: ", HumanEmulation(worker.emulation())) : "no");
  add("job", worker.job());
  add("phase", PhaseName(worker.progress().phase()));
  add("address", worker.address());
  add("http port", absl::StrCat(worker.http_port()));
  add("version", dataplane::VersionText(worker.version()));
  add("incarnation", absl::StrCat(worker.incarnation()));
  add("heartbeat", HeartbeatText(worker));
  add("clock offset", absl::StrCat(HumanNumber(worker.clock_offset_s() * 1000, 1), " ms"));
  add("cache", HumanBytes(static_cast<double>(worker.cache_bytes())));
  add("disk free", HumanBytes(static_cast<double>(worker.disk_free_bytes())));
  add("certificate", absl::StrCat("until ", HumanTime(worker.certificate_expires_ms()), " UTC"));
  session.Print("causeway.worker/1", ToJson(worker), text);
  return absl::OkStatus();
}

absl::Status WorkerDrain(Session& session, const std::string& worker) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::DrainWorkerRequest request;
  request.set_worker(worker);
  RETURN_IF_ERROR(client->DrainWorker(request, session.timeout()).status());
  session.Print("causeway.worker-draining/1", {{"worker", worker}},
                absl::StrCat("worker ", worker, " delivers what it has done and ends\n"));
  return absl::OkStatus();
}

absl::Status WorkerRemove(Session& session, const std::string& worker) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::RemoveWorkerRequest request;
  request.set_worker(worker);
  RETURN_IF_ERROR(client->RemoveWorker(request, session.timeout()).status());
  session.Print("causeway.worker-removed/1", {{"worker", worker}},
                absl::StrCat("worker ", worker, " removed; its certificate is refused from now on\n"));
  return absl::OkStatus();
}

}  // namespace causeway::cli
