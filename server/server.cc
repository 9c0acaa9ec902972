#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status_macros.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_connections.h"
#include "dataplane/grpc_link.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "server/bulk_service.h"
#include "server/control_service.h"
#include "server/coordinator.h"
#include "server/grpc_call_watch.h"
#include "server/own_certificate.h"

namespace causeway::server {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20;
constexpr std::chrono::seconds kShutdownGrace(2);
// Of a watch over connections, which may come by the ten thousand a second.
constexpr absl::Duration kSweepInterval = absl::Milliseconds(200);

class ServerImpl : public Server {
 public:
  ~ServerImpl() override { Stop(); }

  absl::Status Init(const jobspec::CoordinatorConfig& config) {
    FileSystem* fs = RealFileSystem();
    Clock* clock = RealClock();
    RETURN_IF_ERROR(fs->MakeDirs(config.dir));
    ASSIGN_OR_RETURN(lock_, fs->LockFile(JoinPath(config.dir, "lock")), absl::StrCat("data directory ", config.dir));
    const jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(config.dir);
    Coordinator::Options options;
    ASSIGN_OR_RETURN(options.ca_pem, fs->ReadFile(tls.ca, kMaxPemBytes), "made by `causeway init`");
    ASSIGN_OR_RETURN(options.ca_key_pem, fs->ReadFile(tls.ca_key, kMaxPemBytes), "made by `causeway init`");
    ASSIGN_OR_RETURN(certificate_,
                     OwnCertificate::Create({.fs = fs,
                                             .clock = clock,
                                             .path = tls.certificate,
                                             .key_path = tls.key,
                                             .ca_pem = options.ca_pem,
                                             .ca_key_pem = options.ca_key_pem,
                                             .hosts = {config.advertise.host},
                                             .lifetime = config.certificate_lifetime}),
                     "made by `causeway init`");
    options.certificate = certificate_.get();
    options.certificate_lifetime = config.certificate_lifetime;
    options.cancel_streams = [this](const std::string& worker) {
      bulk_->CancelWorker(worker, "the worker was removed");
    };
    options.break_connections = [this](const dataplane::PeerIdentity& peer) {
      connections_->Add([this, peer] {
        dataplane::BreakConnections([&](const dataplane::PeerIdentity& other) {
          return other.role == peer.role && coordinator_->AccountOf(other).name == peer.name;
        });
      });
    };
    registry_ = MetricRegistry::Create();
    executor_ = std::make_unique<SerialExecutor>("coordinator", clock);
    io_ = std::make_unique<SerialExecutor>("coordinator-io", clock);
    connections_ = std::make_unique<SerialExecutor>("connections", clock);
    options.dir = std::filesystem::absolute(config.dir).lexically_normal().string();
    options.data_root = config.data_root;
    options.advertise = config.advertise.ToString();
    options.heartbeat = config.heartbeat;
    options.lease = config.lease;
    options.broken_stream_grace = config.broken_stream_grace;
    options.profile_duration = config.profile;
    options.spool_limit_bytes = config.spool_limit_bytes;
    options.fs = fs;
    options.clock = clock;
    options.executor = executor_.get();
    options.io = io_.get();
    options.registry = registry_.get();
    ASSIGN_OR_RETURN(coordinator_, Coordinator::Create(options));
    bulk_handler_ = std::make_unique<BulkService>(coordinator_.get(), executor_.get());
    bulk_ = dataplane::GrpcBulkServices::Create(bulk_handler_.get());
    control_ = ControlService::Create(coordinator_.get(), executor_.get(), clock);

    ASSIGN_OR_RETURN(auto credentials,
                     dataplane::MakeServerCredentials(
                         {.certificate = tls.certificate, .key = tls.certificate, .ca = tls.ca},
                         [this](const dataplane::PeerIdentity& peer, absl::string_view method) {
                           return coordinator_->Authorize(peer, method);
                         },
                         [this](const dataplane::PeerIdentity& peer) {
                           return coordinator_->guard()->AdmitConnection(coordinator_->AccountOf(peer));
                         }));
    executor_->Start();
    io_->Start();
    connections_->Start();
    coordinator_->Start();

    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    dataplane::ApplyServerArgs(&builder);
    const std::string address = config.listen.ToString();
    builder.AddListeningPort(address, credentials, &port_);
    control_->Register(&builder);
    bulk_->Register(&builder);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watches;
    watches.push_back(
        MakeCallWatch([this](const dataplane::PeerIdentity& peer, absl::string_view method,
                             const absl::Status& status) { coordinator_->guard()->CallFailed(peer, method, status); }));
    builder.experimental().SetInterceptorCreators(std::move(watches));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address,
                       ": is the port in use, and the address this machine's? (coordinator.yaml: listen)"));
    }
    strangers_ = std::make_unique<dataplane::StrangerWatch>(dataplane::StrangerWatch::Options{.port = port_});
    connections_->Add([this] { WatchStrangers(); });
    HttpServer::Options http;
    http.bind_address = config.http_listen.host;
    http.port = config.http_listen.port;
    http.registry = registry_.get();
    http.ready = [this] { return serving_ ? absl::OkStatus() : absl::UnavailableError("shutting down"); };
    ASSIGN_OR_RETURN(http_, HttpServer::Create(std::move(http)), "coordinator.yaml: http.listen");
    serving_ = true;
    log::Info("coordinator serving", {{"version", dataplane::kBuildVersion},
                                      {"listen", absl::StrCat(config.listen.host, ":", port_)},
                                      {"advertise", options.advertise},
                                      {"http", absl::StrCat(config.http_listen.host, ":", http_->port())},
                                      {"dir", config.dir},
                                      {"incarnation", coordinator_->incarnation().value()}});
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  int http_port() const override { return http_->port(); }

  void Stop() override {
    if (stopped_) return;
    stopped_ = true;
    serving_ = false;
    if (http_ != nullptr) http_->Stop();
    if (server_ != nullptr) {
      control_->CloseStreams();
      bulk_->CancelAll("the coordinator is shutting down");
      server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
      server_->Wait();
    }
    if (connections_ != nullptr) connections_->Stop();
    // What is being committed is finished; what was not begun is taken up at the next start.
    if (io_ != nullptr) io_->Stop();
    if (executor_ != nullptr) executor_->Stop();
    if (http_ != nullptr) log::Info("coordinator stopped", {});
  }

 private:
  void WatchStrangers() {
    const absl::Time now = RealClock()->Now();
    if (const int broken = strangers_->Sweep(now); broken > 0) coordinator_->guard()->StrangersBroken(broken);
    connections_->AddAt(now + kSweepInterval, [this] { WatchStrangers(); });
  }

  std::unique_ptr<FileSystem::Lock> lock_;
  std::unique_ptr<OwnCertificate> certificate_;
  std::unique_ptr<MetricRegistry> registry_;
  std::unique_ptr<SerialExecutor> executor_;
  std::unique_ptr<SerialExecutor> io_;
  std::unique_ptr<SerialExecutor> connections_;
  std::unique_ptr<dataplane::StrangerWatch> strangers_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<BulkService> bulk_handler_;
  std::unique_ptr<dataplane::GrpcBulkServices> bulk_;
  std::unique_ptr<ControlService> control_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<HttpServer> http_;
  int port_ = 0;
  std::atomic<bool> serving_{false};
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const jobspec::CoordinatorConfig& config) {
  auto server = std::make_unique<ServerImpl>();
  RETURN_IF_ERROR(server->Init(config));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace causeway::server
