#include "tests/sim/network.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace causeway::sim {
namespace {

using dataplane::LinkKind;
using dataplane::PeerIdentity;

constexpr char kRegister[] = "/causeway.v1.Membership/Register";
constexpr int64_t kLinkWindowBytes = 1024;
constexpr absl::Duration kHalfOpen = absl::Seconds(3);  // How much later one end may notice a break than the other.
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);  // Of a heartbeat stream into nothing.

// A dead process is told what its code does not try again for.
absl::Status Dead() { return absl::PermissionDeniedError("this process is dead"); }

const char* MethodOf(LinkKind kind) {
  switch (kind) {
    case LinkKind::kFetch: return "/causeway.v1.Data/Fetch";
    case LinkKind::kProbe: return "/causeway.v1.Data/Probe";
    case LinkKind::kPull: return "/causeway.v1.Parameters/Pull";
    case LinkKind::kPush: return "/causeway.v1.Parameters/Push";
  }
  return "";
}

}  // namespace

Network::Network(Options options) : options_(std::move(options)), scheduler_(options_.scheduler) {}
Network::~Network() = default;

bool Network::Send(Process* process, const std::function<void()>& send) {
  if (process->dead()) return false;
  switch (options_.on_send ? options_.on_send(process) : Fate::kSend) {
    case Fate::kSend: send(); return true;
    case Fate::kCrashBefore: return false;
    case Fate::kCrashAfter: send(); return false;
  }
  return false;
}

absl::Duration Network::Delay(const Path& path) { return path.latency + scheduler_->Jitter(path.jitter); }

absl::Duration Network::UntilUp(const Path& path) const {
  return std::max(absl::ZeroDuration(), path.down_until - scheduler_->now());
}

// ---- Unary calls

struct Network::Caller {
  Caller(Scheduler* scheduler, Process* process, Process* server)
      : client(process), server(server), changed(scheduler) {}
  Process* const client;
  Process* const server;
  std::optional<absl::StatusOr<std::string>> answer;
  WaitQueue changed;
  void Set(absl::StatusOr<std::string> result) {
    if (answer.has_value()) return;
    answer = std::move(result);
    changed.WakeAll();
  }
};

absl::StatusOr<std::string> Network::Call(Process* process, const PeerIdentity& peer, Path* path,
                                          const std::string& method, const std::string& request, absl::Time deadline,
                                          const Handle& handle) {
  auto caller = std::make_shared<Caller>(scheduler_, process, server_.process);
  std::erase_if(callers_, [](const auto& known) { return known.expired(); });
  callers_.push_back(caller);
  const bool alive = Send(process, [&] {
    if (!listening()) {
      scheduler_->After(Delay(*path), [caller] { caller->Set(absl::UnavailableError("connection refused")); });
      return;
    }
    const int copies = scheduler_->OneIn(path->repeat_call_one_in) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      if (scheduler_->OneIn(path->lose_call_one_in)) continue;
      scheduler_->After(
          Delay(*path) + UntilUp(*path), [this, server = server_, peer, path, method, request, handle, caller] {
            if (server.process->dead()) return;
            server.executor->Add([=, this] { Answer(server, peer, path, method, request, handle, caller); });
          });
    }
  });
  if (!alive) return Dead();
  while (!caller->answer.has_value()) {
    if (process->dead()) return Dead();
    if (scheduler_->now() >= deadline) return absl::DeadlineExceededError("no answer in time");
    caller->changed.Wait(deadline);
  }
  return *caller->answer;
}

// On the server's executor.
void Network::Answer(const Server& server, const PeerIdentity& peer, Path* path, const std::string& method,
                     const std::string& request, const Handle& handle, const std::shared_ptr<Caller>& caller) {
  absl::StatusOr<std::string> answer;
  if (absl::Status allowed = server.coordinator->Authorize(peer, method); !allowed.ok()) {
    answer = allowed;
  } else {
    answer = handle(server.coordinator, request);
  }
  Send(server.process, [&] {
    if (answer.ok() && method == kRegister) {
      v1::RegisterResponse response;
      CAUSEWAY_CHECK(response.ParseFromString(*answer));
      options_.observer->OnRegistered(peer.name, response);
    }
    if (scheduler_->OneIn(path->lose_call_one_in)) return;
    scheduler_->After(Delay(*path) + UntilUp(*path), [caller, answer] { caller->Set(answer); });
  });
}

// ---- Heartbeat streams

class Network::Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Network* network, Process* client, const PeerIdentity& peer, Path* path,
         worker::CoordinatorClient::HeartbeatEvents events)
      : network_(network), client_(client), peer_(peer), path_(path), events_(std::move(events)) {}

  const std::string& worker() const { return peer_.name; }
  Process* client() const { return client_; }
  Process* server() const { return server_.process; }

  void Open() {
    if (!network_->listening() || network_->UntilUp(*path_) > absl::ZeroDuration()) {
      CloseClientAfter(network_->listening() ? kConnectTimeout : network_->Delay(*path_),
                       absl::UnavailableError("nobody there"));
      return;
    }
    server_ = network_->server_;
    server_open_ = true;
  }

  absl::Status SendRequest(const v1::HeartbeatRequest& request) {
    if (!client_open_) return absl::UnavailableError("the heartbeat stream is closed");
    if (!server_open_) return absl::OkStatus();  // Connecting in vain.
    const bool sent = network_->Send(client_, [&] {
      if (CutHere()) return;
      InOrder(&up_, [self = shared_from_this(), bytes = request.SerializeAsString()] {
        if (!self->server_open_ || self->server_.process->dead()) return;
        self->server_.executor->Add([self, bytes] { self->Handle(bytes); });
      });
    });
    return sent ? absl::OkStatus() : Dead();
  }

  // The client's end goes; nothing is told to it any more.
  void Drop() {
    events_ = {};
    Cancel();
  }
  void Cancel() {
    if (!client_open_) return;
    CloseClientAfter(absl::ZeroDuration(), absl::CancelledError("cancelled"));
    CloseServerAfter(network_->Delay(*path_) + network_->UntilUp(*path_));
  }
  void Cut() {
    Scheduler* const scheduler = network_->scheduler_;
    CloseClientAfter(scheduler->Jitter(kHalfOpen), absl::UnavailableError("the stream was cut"));
    CloseServerAfter(scheduler->Jitter(kHalfOpen));
  }
  void CloseClientAfter(absl::Duration delay, const absl::Status& status) {
    network_->scheduler_->After(delay, [self = shared_from_this(), status] {
      if (!self->client_open_) return;
      self->client_open_ = false;
      if (!self->client_->dead() && self->events_.on_closed) self->events_.on_closed(status);
    });
  }
  void CloseServerAfter(absl::Duration delay) {
    network_->scheduler_->After(delay, [self = shared_from_this()] { self->CloseServer(); });
  }

 private:
  // As control_service.cc does.
  void Handle(const std::string& bytes) {
    if (!server_open_) return;
    v1::HeartbeatRequest request;
    CAUSEWAY_CHECK(request.ParseFromString(bytes));
    absl::Status status = server_.coordinator->Authorize(peer_, "/causeway.v1.Membership/Heartbeat");
    if (status.ok() && stream_ == 0) {
      absl::StatusOr<int64_t> stream =
          server_.coordinator->OpenHeartbeat(peer_, Incarnation(request.incarnation()),
                                             {.send =
                                                  [weak = weak_from_this()](const v1::HeartbeatResponse& response) {
                                                    if (auto self = weak.lock()) self->Respond(response);
                                                  },
                                              .close =
                                                  [weak = weak_from_this()](const absl::Status& s) {
                                                    if (auto self = weak.lock()) self->CloseByServer(s);
                                                  }});
      status = stream.status();
      if (stream.ok()) stream_ = *stream;
    }
    if (status.ok()) status = server_.coordinator->Heartbeat(stream_, request);
    if (!status.ok()) CloseByServer(status);
  }

  void Respond(const v1::HeartbeatResponse& response) {
    if (!server_open_) return;
    network_->Send(server_.process, [&] {
      if (response.has_assignment()) network_->options_.observer->OnAssignment(peer_.name, response.assignment());
      if (CutHere()) return;
      InOrder(&down_, [self = shared_from_this(), bytes = response.SerializeAsString()] {
        if (!self->client_open_ || self->client_->dead() || !self->events_.on_response) return;
        v1::HeartbeatResponse parsed;
        CAUSEWAY_CHECK(parsed.ParseFromString(bytes));
        self->events_.on_response(parsed);
      });
    });
  }

  void CloseByServer(const absl::Status& status) {
    if (!server_open_) return;
    network_->Send(server_.process, [&] {
      InOrder(&down_, [self = shared_from_this(), status] { self->CloseClientAfter(absl::ZeroDuration(), status); });
    });
    CloseServer();
  }

  void CloseServer() {
    if (!server_open_) return;
    server_open_ = false;
    if (server_.process->dead()) return;
    server_.executor->Add([self = shared_from_this()] {
      if (self->stream_ != 0) self->server_.coordinator->HeartbeatClosed(self->stream_);
    });
  }

  bool CutHere() {
    if (!network_->scheduler_->OneIn(path_->cut_one_in)) return false;
    Cut();
    return true;
  }

  void InOrder(absl::Time* last, std::function<void()> deliver) {
    Scheduler* const scheduler = network_->scheduler_;
    *last = std::max(*last, scheduler->now() + network_->Delay(*path_) + network_->UntilUp(*path_));
    scheduler->At(*last, std::move(deliver));
  }

  Network* const network_;
  Process* const client_;
  const PeerIdentity peer_;
  Path* const path_;
  worker::CoordinatorClient::HeartbeatEvents events_;
  Server server_;
  bool client_open_ = true;
  bool server_open_ = false;
  int64_t stream_ = 0;
  absl::Time up_ = absl::InfinitePast();
  absl::Time down_ = absl::InfinitePast();
};

class Network::Client : public worker::CoordinatorClient {
 public:
  Client(Network* network, Process* process, PeerIdentity peer, Path* path)
      : network_(network), process_(process), peer_(std::move(peer)), path_(path) {}

  absl::StatusOr<v1::RegisterResponse> Register(const v1::RegisterRequest& request, absl::Time deadline) override {
    ASSIGN_OR_RETURN(
        const std::string answer,
        network_->Call(
            process_, peer_, path_, kRegister, request.SerializeAsString(), deadline,
            [peer = peer_](server::Coordinator* coordinator, const std::string& bytes) -> absl::StatusOr<std::string> {
              v1::RegisterRequest parsed;
              CAUSEWAY_CHECK(parsed.ParseFromString(bytes));
              ASSIGN_OR_RETURN(const v1::RegisterResponse response, coordinator->Register(peer, parsed, "127.0.0.1:1"));
              return response.SerializeAsString();
            }));
    v1::RegisterResponse response;
    CAUSEWAY_CHECK(response.ParseFromString(answer));
    return response;
  }

  absl::StatusOr<std::unique_ptr<HeartbeatStream>> OpenHeartbeat(HeartbeatEvents events) override {
    class Handle : public HeartbeatStream {
     public:
      explicit Handle(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
      ~Handle() override { stream_->Drop(); }
      absl::Status Send(const v1::HeartbeatRequest& request) override { return stream_->SendRequest(request); }
      void Cancel() override { stream_->Cancel(); }

     private:
      const std::shared_ptr<Stream> stream_;
    };
    if (process_->dead()) return Dead();
    auto stream = std::make_shared<Stream>(network_, process_, peer_, path_, std::move(events));
    std::erase_if(network_->streams_, [](const auto& known) { return known.expired(); });
    network_->streams_.push_back(stream);
    stream->Open();
    return std::make_unique<Handle>(std::move(stream));
  }

  absl::Status ReportModel(const v1::ReportModelRequest& request, absl::Time deadline) override {
    return Report("ReportModel", request, deadline, &server::Coordinator::ReportModel);
  }
  absl::Status ReportProfile(const v1::ReportProfileRequest& request, absl::Time deadline) override {
    return Report("ReportProfile", request, deadline, &server::Coordinator::ReportProfile);
  }
  absl::Status ReportData(const v1::ReportDataRequest& request, absl::Time deadline) override {
    return Report("ReportData", request, deadline, &server::Coordinator::ReportData);
  }
  absl::Status ReportEvaluation(const v1::ReportEvaluationRequest& request, absl::Time deadline) override {
    return Report("ReportEvaluation", request, deadline, &server::Coordinator::ReportEvaluation);
  }
  absl::Status ReportFailure(const v1::ReportFailureRequest& request, absl::Time deadline) override {
    return Report("ReportFailure", request, deadline, &server::Coordinator::ReportFailure);
  }
  absl::Status Leave(const v1::LeaveRequest& request, absl::Time deadline) override {
    return Report("Leave", request, deadline, &server::Coordinator::Leave);
  }
  absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(const v1::RenewCertificateRequest&,
                                                                absl::Time) override {
    return absl::UnimplementedError("nothing here lives long enough");
  }

 private:
  template <typename Request>
  absl::Status Report(const char* name, const Request& request, absl::Time deadline,
                      absl::Status (server::Coordinator::*report)(const PeerIdentity&, const Request&)) {
    return network_
        ->Call(process_, peer_, path_, absl::StrCat("/causeway.v1.Membership/", name), request.SerializeAsString(),
               deadline,
               [peer = peer_, report](server::Coordinator* coordinator,
                                      const std::string& bytes) -> absl::StatusOr<std::string> {
                 Request parsed;
                 CAUSEWAY_CHECK(parsed.ParseFromString(bytes));
                 RETURN_IF_ERROR((coordinator->*report)(peer, parsed));
                 return "";
               })
        .status();
  }

  Network* const network_;
  Process* const process_;
  const PeerIdentity peer_;
  Path* const path_;
};

std::unique_ptr<worker::CoordinatorClient> Network::MakeClient(Process* process, const PeerIdentity& peer, Path* path) {
  return std::make_unique<Client>(this, process, peer, path);
}

// ---- Bulk streams

struct Network::Connection {
  Connection(Network* network, Process* client, Process* server, std::string worker, Path* path, int64_t number)
      : network(network),
        client(client),
        server(server),
        worker(std::move(worker)),
        path(path),
        number(number),
        changed(network->scheduler_) {}

  struct Side {                     // What this end sees.
    std::deque<std::string> inbox;  // Arrived.
    bool peer_closed = false;
    absl::Status broken;                        // Of the network.
    absl::Status cancelled;                     // By itself.
    int64_t under_way = 0;                      // Bytes that it has sent and that the peer has not read.
    absl::Time free_at = absl::InfinitePast();  // When its uplink has sent all that was written.
    absl::Time arrived = absl::InfinitePast();  // The newest arrival at the peer.
  };
  Network* const network;
  Process* const client;
  Process* const server;
  const std::string worker;
  Path* const path;
  const int64_t number;
  Side dialer, handler;
  bool write_closed = false;                 // By the dialer.
  std::optional<absl::Status> final_status;  // Arrived at the dialer.
  WaitQueue changed;

  void BreakAfter(Side* side, absl::Duration delay, const absl::Status& status, std::shared_ptr<Connection> self) {
    network->scheduler_->After(delay, [self = std::move(self), side, status] {
      if (side->broken.ok()) side->broken = status;
      self->changed.WakeAll();
    });
  }
};

class Network::End : public dataplane::Link {
 public:
  End(std::shared_ptr<Connection> connection, bool dialing) : c_(std::move(connection)), dialing_(dialing) {}
  ~End() override {
    if (dialing_) Cancel("the link was dropped");
  }

  absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) override {
    if (static_cast<int64_t>(payload.size()) > dataplane::kMaxPayloadBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a payload of ", payload.size(), " bytes"));
    }
    Network* const network = c_->network;
    v1::Frame message = frame;
    message.set_payload(payload.data(), payload.size());
    while (true) {
      RETURN_IF_ERROR(Usable());
      if (dialing_ && c_->final_status.has_value()) return absl::UnavailableError("the peer has ended the stream");
      if (dialing_ && c_->write_closed) return absl::FailedPreconditionError("written after CloseWrite");
      if (own().under_way < kLinkWindowBytes) break;
      RETURN_IF_ERROR(Wait(deadline));
    }
    const bool alive = network->Send(process(), [&] {
      network->options_.observer->OnFrame(c_->worker, c_->number, dialing_, message);
      if (network->scheduler_->OneIn(c_->path->cut_one_in)) {
        network->Cut(c_);
        return;
      }
      std::string wire = message.SerializeAsString();
      const int64_t size = static_cast<int64_t>(wire.size());
      own().under_way += size;
      Deliver(size, [c = c_, dialing = dialing_, wire = std::move(wire)] {
        Connection::Side& peer = dialing ? c->handler : c->dialer;
        if (peer.broken.ok()) peer.inbox.push_back(wire);
      });
    });
    return alive ? Usable() : Dead();
  }

  absl::StatusOr<v1::Frame> Read(absl::Time deadline) override {
    while (true) {
      if (process()->dead()) return Dead();
      RETURN_IF_ERROR(own().cancelled);
      if (!own().inbox.empty()) break;
      RETURN_IF_ERROR(own().broken);
      if (dialing_ && c_->final_status.has_value()) {
        RETURN_IF_ERROR(*c_->final_status);
        return absl::OutOfRangeError("the peer has closed its side");
      }
      if (own().peer_closed) return absl::OutOfRangeError("the peer has closed its side");
      RETURN_IF_ERROR(Wait(deadline));
    }
    v1::Frame frame;
    CAUSEWAY_CHECK(frame.ParseFromString(own().inbox.front()));
    (dialing_ ? c_->handler : c_->dialer).under_way -= static_cast<int64_t>(own().inbox.front().size());
    own().inbox.pop_front();
    c_->changed.WakeAll();
    return frame;
  }

  absl::Status CloseWrite() override {
    if (c_->write_closed) return absl::OkStatus();
    RETURN_IF_ERROR(Usable());
    c_->write_closed = true;
    Deliver(0, [c = c_] { c->handler.peer_closed = true; });
    return absl::OkStatus();
  }

  absl::Status Finish(absl::Time deadline) override {
    while (!c_->final_status.has_value()) {
      RETURN_IF_ERROR(Usable());
      RETURN_IF_ERROR(Wait(deadline));
    }
    return *c_->final_status;
  }

  void Cancel(absl::string_view reason) override { CancelWith(absl::CancelledError(reason)); }

  // The handler has returned.
  void SetFinalStatus(absl::Status status) {
    if (process()->dead()) return;
    if (absl::IsCancelled(status)) status = absl::UnavailableError("the peer has broken the stream");
    if (absl::IsOutOfRange(status)) status = absl::InternalError(status.message());
    Deliver(0, [c = c_, status] {
      if (c->dialer.broken.ok()) c->final_status = status;
    });
  }

 private:
  Connection::Side& own() { return dialing_ ? c_->dialer : c_->handler; }
  Process* process() const { return dialing_ ? c_->client : c_->server; }

  absl::Status Usable() {
    if (process()->dead()) return Dead();
    RETURN_IF_ERROR(own().cancelled);
    return own().broken;
  }

  void Deliver(int64_t size, std::function<void()> arrive) {
    Scheduler* const scheduler = c_->network->scheduler_;
    Connection::Side& side = own();
    side.free_at =
        std::max(side.free_at, scheduler->now()) + absl::Seconds(static_cast<double>(size) / c_->path->bytes_per_s);
    side.arrived =
        std::max(side.arrived, side.free_at + c_->network->Delay(*c_->path) + c_->network->UntilUp(*c_->path));
    scheduler->At(side.arrived, [c = c_, arrive = std::move(arrive)] {
      arrive();
      c->changed.WakeAll();
    });
  }

  void CancelWith(absl::Status status) {
    if (!own().cancelled.ok()) return;
    own().cancelled = std::move(status);
    c_->changed.WakeAll();
    if (process()->dead()) return;
    Network* const network = c_->network;
    c_->BreakAfter(dialing_ ? &c_->handler : &c_->dialer, network->Delay(*c_->path) + network->UntilUp(*c_->path),
                   absl::UnavailableError("the peer has gone"), c_);
  }

  // Past the deadline the link is dead.
  absl::Status Wait(absl::Time deadline) {
    if (c_->network->scheduler_->now() >= deadline) {
      CancelWith(absl::DeadlineExceededError("no progress on the link"));
      return own().cancelled;
    }
    c_->changed.Wait(deadline);
    return absl::OkStatus();
  }

  const std::shared_ptr<Connection> c_;
  const bool dialing_;
};

void Network::Cut(const std::shared_ptr<Connection>& connection) {
  const absl::Status cut = absl::UnavailableError("the stream was cut");
  connection->BreakAfter(&connection->dialer, scheduler_->Jitter(kHalfOpen) * 0.3, cut, connection);
  connection->BreakAfter(&connection->handler, scheduler_->Jitter(kHalfOpen), cut, connection);
}

class Network::Dialer : public dataplane::LinkDialer {
 public:
  Dialer(Network* network, Process* process, PeerIdentity peer, Path* path)
      : network_(network), process_(process), peer_(std::move(peer)), path_(path) {}

  absl::StatusOr<std::unique_ptr<dataplane::Link>> Dial(LinkKind kind, absl::Time deadline) override {
    Scheduler* const scheduler = network_->scheduler_;
    if (!network_->Send(process_, [] {})) return Dead();
    process_->SleepFor(network_->Delay(*path_));
    const absl::Time up = path_->down_until;
    if (up > scheduler->now()) process_->SleepFor(std::min(up, deadline) - scheduler->now());
    if (process_->dead()) return Dead();
    if (!network_->listening() || path_->down_until > scheduler->now()) return absl::UnavailableError("nobody there");
    const Server server = network_->server_;
    auto connection =
        std::make_shared<Connection>(network_, process_, server.process, peer_.name, path_, ++network_->last_stream_);
    std::erase_if(network_->connections_, [](const auto& known) { return known.expired(); });
    network_->connections_.push_back(connection);
    server.process->Spawn([connection, server, kind, peer = peer_] {
      End end(connection, /*dialing=*/false);
      absl::Status status = server.coordinator->Authorize(peer, MethodOf(kind));
      if (status.ok()) status = server.bulk->Serve(kind, peer, &end);
      end.SetFinalStatus(std::move(status));
    });
    return std::make_unique<End>(std::move(connection), /*dialing=*/true);
  }

 private:
  Network* const network_;
  Process* const process_;
  const PeerIdentity peer_;
  Path* const path_;
};

std::unique_ptr<dataplane::LinkDialer> Network::MakeDialer(Process* process, const PeerIdentity& peer, Path* path) {
  return std::make_unique<Dialer>(this, process, peer, path);
}

// ---- Breaks

void Network::Forget(Process* process, absl::Duration silence) {
  const absl::Status gone = absl::UnavailableError("connection reset");
  for (const auto& weak : callers_) {
    const std::shared_ptr<Caller> caller = weak.lock();
    if (caller == nullptr || caller->server != process) continue;
    scheduler_->After(scheduler_->Jitter(silence), [caller, gone] { caller->Set(gone); });
  }
  for (const auto& weak : streams_) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (stream == nullptr) continue;
    if (stream->server() == process) stream->CloseClientAfter(scheduler_->Jitter(silence), gone);
    if (stream->client() == process) stream->CloseServerAfter(scheduler_->Jitter(silence));
  }
  for (const auto& weak : connections_) {
    const std::shared_ptr<Connection> connection = weak.lock();
    if (connection == nullptr) continue;
    if (connection->server == process)
      connection->BreakAfter(&connection->dialer, scheduler_->Jitter(silence), gone, connection);
    if (connection->client == process)
      connection->BreakAfter(&connection->handler, scheduler_->Jitter(silence), gone, connection);
  }
}

void Network::CutStreams(const std::string& worker) {
  for (const auto& weak : streams_) {
    if (const std::shared_ptr<Stream> stream = weak.lock(); stream != nullptr && stream->worker() == worker)
      stream->Cut();
  }
  for (const auto& weak : connections_) {
    if (const std::shared_ptr<Connection> connection = weak.lock();
        connection != nullptr && connection->worker == worker) {
      Cut(connection);
    }
  }
}

}  // namespace causeway::sim
