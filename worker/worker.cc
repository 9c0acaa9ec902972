#include "worker/worker.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "dataplane/credentials.h"
#include "dataplane/emulated_link.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_link.h"
#include "dataplane/identity_file.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "worker/agent.h"
#include "worker/bulk_dialer.h"
#include "worker/certificate_renewer.h"
#include "worker/chunk_cache.h"
#include "worker/grpc_coordinator_client.h"
#include "worker/join.h"
#include "worker/local_state.h"
#include "worker/metrics.h"
#include "worker/progress_board.h"

namespace causeway::worker {
namespace {

constexpr int64_t kMaxPemBytes = 64 << 10;

// Errors: InvalidArgument (no worker's), Unauthenticated (expired), those of reading.
absl::StatusOr<dataplane::PeerIdentity> ReadIdentity(FileSystem* fs, Clock* clock, const std::string& dir) {
  ASSIGN_OR_RETURN(const std::string pem, fs->ReadFile(CertificatePath(dir), kMaxPemBytes));
  ASSIGN_OR_RETURN(dataplane::PeerIdentity identity, dataplane::ParseCertificate(pem), CertificatePath(dir));
  if (identity.role != dataplane::PeerIdentity::Role::kWorker) {
    return absl::InvalidArgumentError(
        absl::StrCat(CertificatePath(dir), " is no worker's certificate: ", dataplane::IdentityUri(identity)));
  }
  if (identity.not_after < clock->WallNow()) {
    return absl::UnauthenticatedError(absl::StrCat(
        CertificatePath(dir), " has expired at ", absl::FormatTime(identity.not_after, absl::UTCTimeZone()),
        "; remove the worker on the coordinator and let it join again in a new folder"));
  }
  return identity;
}

// What connections are made with: the files as they were read last. Thread-safe.
class Credentials {
 public:
  explicit Credentials(dataplane::TlsFiles files) : files_(std::move(files)) {}
  absl::Status Read() {
    ASSIGN_OR_RETURN(auto credentials, dataplane::MakeClientCredentials(files_));
    MutexLock lock(&mu_);
    newest_ = std::move(credentials);
    return absl::OkStatus();
  }
  std::shared_ptr<grpc::ChannelCredentials> newest() {
    MutexLock lock(&mu_);
    return newest_;
  }

 private:
  const dataplane::TlsFiles files_;
  Mutex mu_;
  std::shared_ptr<grpc::ChannelCredentials> newest_ ABSL_GUARDED_BY(mu_);
};

v1::RegisterRequest MakeRegistration(const jobspec::WorkerConfig& config, const ModelFactory& factory, int threads,
                                     Incarnation incarnation, int http_port) {
  v1::RegisterRequest request;
  *request.mutable_version() = dataplane::OurVersion();
  request.set_incarnation(incarnation.value());
  v1::DeviceInfo* device = request.mutable_device();
  device->set_kind(factory.device_kind());
  device->set_name(factory.device_name());
  device->set_threads(threads);
  device->set_memory_bytes(int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
  device->set_torch_version(factory.library_version());
  if (config.emulate.any()) {
    request.mutable_emulation()->set_slowdown(config.emulate.slowdown);
    request.mutable_emulation()->set_down_bytes_per_s(config.emulate.down_bytes_per_s);
    request.mutable_emulation()->set_up_bytes_per_s(config.emulate.up_bytes_per_s);
  }
  request.set_http_port(http_port);
  const std::string random = RandomBytes(sizeof(uint64_t));
  uint64_t process = 0;
  std::memcpy(&process, random.data(), sizeof(process));
  request.set_process(process);
  return request;
}

absl::Status Run(const jobspec::WorkerConfig& config, ModelFactory* factory, StopSignals stop, bool* refused) {
  Clock* const clock = RealClock();
  FileSystem* const fs = RealFileSystem();
  if (config.device != "auto" && config.device != factory->device_kind()) {
    return absl::InvalidArgumentError(absl::StrCat("device: this worker can compute on \"", factory->device_kind(),
                                                   "\", not on \"", config.device, "\""));
  }
  RETURN_IF_ERROR(fs->MakeDirs(config.dir));
  const absl::StatusOr<std::unique_ptr<FileSystem::Lock>> lock = fs->LockFile(JoinPath(config.dir, "lock"));
  if (!lock.ok()) {
    *refused = absl::IsFailedPrecondition(lock.status());
    return Annotate(lock.status(), absl::StrCat("worker folder ", config.dir));
  }
  if (!fs->Exists(CertificatePath(config.dir))) {
    return absl::InvalidArgumentError(absl::StrCat("there is no ", CertificatePath(config.dir),
                                                   ": join first (`causeway-worker join`, with the line that ",
                                                   "`causeway site add` prints)"));
  }
  RETURN_IF_ERROR(dataplane::MergeIdentityFile(fs, CertificatePath(config.dir), KeyPath(config.dir)));
  const absl::StatusOr<dataplane::PeerIdentity> read = ReadIdentity(fs, clock, config.dir);
  *refused = absl::IsUnauthenticated(read.status());
  RETURN_IF_ERROR(read.status());
  const dataplane::PeerIdentity& identity = *read;
  log::SetProcessFields({{"worker", identity.name}, {"site", identity.site}});
  Credentials credentials({CertificatePath(config.dir), CertificatePath(config.dir), CaPath(config.dir)});
  RETURN_IF_ERROR(credentials.Read());
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalState> local_state, LocalState::Open(fs, config.dir, clock->WallNow()));
  ASSIGN_OR_RETURN(const std::unique_ptr<ChunkCache> cache,
                   ChunkCache::Open({fs, JoinPath(config.dir, "cache"), config.cache_limit_bytes}));

  ProgressBoard board;
  const std::unique_ptr<MetricRegistry> registry = MetricRegistry::Create();
  WorkerMetrics::Options metric_options;
  metric_options.registry = registry.get();
  metric_options.clock = clock;
  metric_options.site = identity.site;
  metric_options.worker = identity.name;
  metric_options.version = dataplane::kBuildVersion;
  metric_options.torch_version = factory->library_version();
  metric_options.certificate_expires = identity.not_after;
  metric_options.cache_used_bytes = [&cache] { return cache->used_bytes(); };
  metric_options.disk_free_bytes = [&] { return fs->FreeBytes(config.dir).value_or(0); };
  metric_options.phase = [&board] { return board.Get().phase(); };
  metric_options.cache_limit_bytes = cache->limit_bytes();
  WorkerMetrics metrics(metric_options);
  HttpServer::Options http_options;
  http_options.bind_address = config.http_listen.host;
  http_options.port = config.http_listen.port;
  http_options.registry = registry.get();
  http_options.ready = [&board] {
    return board.connected() ? absl::OkStatus() : absl::UnavailableError("not connected to the coordinator");
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> http, HttpServer::Create(std::move(http_options)));

  const std::string address = config.coordinator.ToString();
  // Workers that lose their coordinator at the same time do not all come back at the same time.
  const uint64_t seed = MixSeed(0, {identity.site, identity.name}, local_state->incarnation().value());
  const auto control_channel = [&] {
    return dataplane::MakeChannel(dataplane::ChannelKind::kControl, address, credentials.newest());
  };
  const std::unique_ptr<GrpcCoordinatorClient> client = MakeGrpcCoordinatorClient(control_channel(), clock);
  BulkDialer dialer(
      [&credentials](const std::string& at) {
        return dataplane::MakeGrpcLinkDialer(
            dataplane::MakeChannel(dataplane::ChannelKind::kBulk, at, credentials.newest()));
      },
      address);
  // Open streams end where they are; whatever is begun from now on goes over a connection with the new certificate.
  CertificateRenewer::Options renewer_options;
  renewer_options.path = CertificatePath(config.dir);
  renewer_options.on_renewed = [&](const dataplane::PeerIdentity& renewed) -> absl::Status {
    metrics.SetCertificateExpiry(renewed.not_after);
    RETURN_IF_ERROR(credentials.Read());
    client->UseChannel(control_channel());
    dialer.Reconnect();
    return absl::OkStatus();
  };
  renewer_options.backoff.seed = seed;
  renewer_options.client = client.get();
  renewer_options.fs = fs;
  renewer_options.clock = clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<CertificateRenewer> renewer,
                   CertificateRenewer::Create(std::move(renewer_options)));
  dataplane::EmulatedLinkDialer::Options emulated;
  emulated.dialer = &dialer;
  emulated.clock = clock;
  emulated.down_bytes_per_s = config.emulate.down_bytes_per_s;
  emulated.up_bytes_per_s = config.emulate.up_bytes_per_s;
  ASSIGN_OR_RETURN(const std::unique_ptr<dataplane::EmulatedLinkDialer> emulated_dialer,
                   dataplane::EmulatedLinkDialer::Create(emulated));

  const int threads =
      config.threads > 0 ? config.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Agent::Options agent_options;
  agent_options.worker = identity.name;
  agent_options.registration = MakeRegistration(config, *factory, threads, local_state->incarnation(), http->port());
  agent_options.slowdown = config.emulate.slowdown;
  agent_options.dir = config.dir;
  agent_options.transfer.dialer =
      config.emulate.any() ? static_cast<dataplane::LinkDialer*>(emulated_dialer.get()) : &dialer;
  agent_options.transfer.clock = clock;
  agent_options.transfer.backoff.seed = seed;
  agent_options.state.reconnect.seed = seed;
  agent_options.state.retry_task.seed = seed;
  agent_options.report_backoff.seed = seed;
  agent_options.renew_certificate = [&renewer] { renewer->RenewNow(); };
  agent_options.on_give_up = [stop](const absl::Status& status) mutable { stop.SetBoth(status); };
  agent_options.on_drained = [stop]() mutable { stop.SetBoth(true); };
  agent_options.client = client.get();
  agent_options.bulk = &dialer;
  agent_options.factory = factory;
  agent_options.cache = cache.get();
  agent_options.local_state = local_state.get();
  agent_options.fs = fs;
  agent_options.metrics = &metrics;
  agent_options.board = &board;
  agent_options.clock = clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<Agent> agent, Agent::Create(std::move(agent_options)));
  log::Info("worker started", {{"coordinator", address},
                               {"dir", config.dir},
                               {"http", absl::StrCat(config.http_listen.host, ":", http->port())},
                               {"incarnation", local_state->incarnation().value()},
                               {"device", factory->device_name()},
                               {"threads", threads},
                               {"emulated", config.emulate.any()},
                               {"version", dataplane::kBuildVersion}});
  agent->Start();
  renewer->Start();

  absl::Status status = stop.drain.Await(clock, absl::InfiniteFuture(), "the end").status();
  if (status.ok()) {
    agent->Drain();
    status = stop.end.Await(clock, clock->Now() + config.drain_timeout, "what is done to be delivered").status();
    if (absl::IsDeadlineExceeded(status)) {
      log::Warning("not drained", {{"error", status}, {"then", "ends without"}});
      status = absl::OkStatus();
    }
  }
  http->Stop();
  agent->Stop();
  renewer->Stop();
  *refused = !status.ok();
  log::Info("worker stopped", {{"refused", *refused}});
  return status;
}

}  // namespace

WorkerEnd RunWorker(const jobspec::WorkerConfig& config, ModelFactory* factory, StopSignals stop) {
  WorkerEnd result;
  result.status = Run(config, factory, std::move(stop), &result.refused);
  return result;
}

}  // namespace causeway::worker
