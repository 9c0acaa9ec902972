#include "dataplane/grpc_link.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "dataplane/credentials.h"
#include "dataplane/grpc_status.h"
#include "proto/data.grpc.pb.h"
#include "proto/parameters.grpc.pb.h"

namespace causeway::dataplane {
namespace {

// Each has a thread. An honest worker has three at once, and those that broke until that is noticed.
constexpr int kMaxLinksPerWorker = 16;

// Breaks a call, which must outlive it, and remembers why. Thread-safe.
class Breaker {
 public:
  explicit Breaker(std::function<void()> cancel_call) : cancel_call_(std::move(cancel_call)) {}

  // The first reason wins.
  void Break(absl::Status why) {
    MutexLock lock(&mu_);
    if (!why_.ok()) return;
    why_ = std::move(why);
    // Under the lock, which orders it before the call's end; gRPC's TryCancel neither blocks nor calls back.
    cancel_call_();
  }
  absl::Status why() const {
    MutexLock lock(&mu_);
    return why_;
  }

 private:
  mutable Mutex mu_;
  const std::function<void()> cancel_call_;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

// Breaks calls whose Read, Write or Finish has come to its deadline: gRPC's sync streams know a deadline only for the whole call.
class Watchdog {
 public:
  Watchdog() : thread_([this] { Run(); }) {}
  ~Watchdog() {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.SignalAll();
    }
    thread_.join();
  }

  // Watches one operation while alive.
  class Scope {
   public:
    Scope(Watchdog* watchdog, Breaker* breaker, absl::Time deadline) : watchdog_(watchdog), breaker_(breaker) {
      MutexLock lock(&watchdog_->mu_);
      entry_ = watchdog_->watched_.emplace(deadline, this);
      if (entry_ == watchdog_->watched_.begin()) watchdog_->changed_.SignalAll();
    }
    ~Scope() {
      MutexLock lock(&watchdog_->mu_);
      if (!fired_) watchdog_->watched_.erase(entry_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Watchdog;
    Watchdog* const watchdog_;
    Breaker* const breaker_;
    // Both guarded by watchdog_->mu_.
    std::multimap<absl::Time, Scope*>::iterator entry_;
    bool fired_ = false;
  };

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    SetThreadName("link-watchdog");
    MutexLock lock(&mu_);
    while (!stopping_) {
      if (watched_.empty()) {
        changed_.Wait(&mu_);
        continue;
      }
      const auto first = watched_.begin();
      if (RealClock()->Now() < first->first) {
        RealClock()->AwaitUntil(&mu_, &changed_, first->first);
        continue;
      }
      Scope* scope = first->second;
      scope->fired_ = true;
      watched_.erase(first);
      // Under the lock, so that the scope's end waits for it.
      scope->breaker_->Break(absl::DeadlineExceededError("no progress on the link"));
    }
  }

  Mutex mu_;
  CondVar changed_;
  std::multimap<absl::Time, Scope*> watched_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses the rest.
};

absl::StatusOr<v1::Frame> WithPayload(const v1::Frame& frame, absl::Span<const uint8_t> payload) {
  CAUSEWAY_CHECK(frame.payload().empty());
  if (static_cast<int64_t>(payload.size()) > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a payload of ", payload.size(), " bytes, the limit is ", kMaxPayloadBytes));
  }
  v1::Frame message = frame;
  message.set_payload(payload.data(), payload.size());
  return message;
}

class DialedLink : public Link {
 public:
  using Stream = grpc::ClientReaderWriter<v1::Frame, v1::Frame>;

  explicit DialedLink(Watchdog* watchdog) : watchdog_(watchdog), breaker_([this] { context_.TryCancel(); }) {
    // The headers go with the first frame: opening a stream does not wait for a connection.
    context_.set_initial_metadata_corked(true);
  }
  ~DialedLink() override {
    breaker_.Break(absl::CancelledError("the link was dropped"));
    Finish(absl::InfiniteFuture()).IgnoreError();
  }

  grpc::ClientContext* context() { return &context_; }
  void set_stream(std::unique_ptr<Stream> stream) { stream_ = std::move(stream); }

  absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) override {
    RETURN_IF_ERROR(breaker_.why());
    ASSIGN_OR_RETURN(v1::Frame message, WithPayload(frame, payload));
    Watchdog::Scope scope(watchdog_, &breaker_, deadline);
    if (stream_->Write(message)) return absl::OkStatus();
    RETURN_IF_ERROR(breaker_.why());
    return absl::UnavailableError("the stream is broken, or the peer has ended it");
  }

  absl::StatusOr<v1::Frame> Read(absl::Time deadline) override {
    RETURN_IF_ERROR(breaker_.why());
    v1::Frame frame;
    {
      Watchdog::Scope scope(watchdog_, &breaker_, deadline);
      if (stream_->Read(&frame)) return frame;
    }
    RETURN_IF_ERROR(Finish(deadline));
    return absl::OutOfRangeError("the peer has closed its side");
  }

  absl::Status CloseWrite() override {
    RETURN_IF_ERROR(breaker_.why());
    // gRPC aborts the process when it is told twice.
    if (std::exchange(write_closed_, true)) return absl::OkStatus();
    if (stream_->WritesDone()) return absl::OkStatus();
    RETURN_IF_ERROR(breaker_.why());
    return absl::UnavailableError("the stream is broken, or the peer has ended it");
  }

  absl::Status Finish(absl::Time deadline) override {
    MutexLock lock(&finish_mu_);
    if (!finished_) {
      Watchdog::Scope scope(watchdog_, &breaker_, deadline);
      status_ = FromGrpc(stream_->Finish());
      finished_ = true;
      // Ours, if we have broken it; if not, the peer has, and may be there again soon.
      if (absl::Status why = breaker_.why(); !status_.ok() && !why.ok()) status_ = why;
      if (breaker_.why().ok() && absl::IsCancelled(status_))
        status_ = absl::UnavailableError("the peer has broken the stream");
    }
    return status_;
  }

  void Cancel(absl::string_view reason) override { breaker_.Break(absl::CancelledError(reason)); }

 private:
  Watchdog* const watchdog_;
  grpc::ClientContext context_;
  Breaker breaker_;
  std::unique_ptr<Stream> stream_;
  bool write_closed_ = false;  // Writing side's thread only.
  Mutex finish_mu_;            // Held while waiting for the final status, which every caller wants.
  bool finished_ ABSL_GUARDED_BY(finish_mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(finish_mu_);
};

class GrpcLinkDialer : public LinkDialer {
 public:
  explicit GrpcLinkDialer(const std::shared_ptr<grpc::Channel>& channel)
      : data_(v1::Data::NewStub(channel)), parameters_(v1::Parameters::NewStub(channel)) {}

  absl::StatusOr<std::unique_ptr<Link>> Dial(LinkKind kind, absl::Time) override {
    auto link = std::make_unique<DialedLink>(&watchdog_);
    link->set_stream(Open(kind, link->context()));
    return link;
  }

 private:
  std::unique_ptr<DialedLink::Stream> Open(LinkKind kind, grpc::ClientContext* context) {
    switch (kind) {
      case LinkKind::kFetch: return data_->Fetch(context);
      case LinkKind::kProbe: return data_->Probe(context);
      case LinkKind::kPull: return parameters_->Pull(context);
      case LinkKind::kPush: return parameters_->Push(context);
    }
    return nullptr;
  }

  const std::unique_ptr<v1::Data::Stub> data_;
  const std::unique_ptr<v1::Parameters::Stub> parameters_;
  Watchdog watchdog_;
};

class AcceptedLink : public Link {
 public:
  using Stream = grpc::ServerReaderWriter<v1::Frame, v1::Frame>;

  AcceptedLink(Watchdog* watchdog, grpc::ServerContext* context, Stream* stream)
      : watchdog_(watchdog), context_(context), stream_(stream), breaker_([context] { context->TryCancel(); }) {}

  absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) override {
    RETURN_IF_ERROR(breaker_.why());
    ASSIGN_OR_RETURN(v1::Frame message, WithPayload(frame, payload));
    Watchdog::Scope scope(watchdog_, &breaker_, deadline);
    if (stream_->Write(message)) return absl::OkStatus();
    RETURN_IF_ERROR(breaker_.why());
    return absl::UnavailableError("the peer has gone");
  }

  absl::StatusOr<v1::Frame> Read(absl::Time deadline) override {
    RETURN_IF_ERROR(breaker_.why());
    v1::Frame frame;
    Watchdog::Scope scope(watchdog_, &breaker_, deadline);
    if (stream_->Read(&frame)) return frame;
    RETURN_IF_ERROR(breaker_.why());
    if (context_->IsCancelled()) return absl::UnavailableError("the peer has gone");
    return absl::OutOfRangeError("the peer has closed its side");
  }

  absl::Status CloseWrite() override { return absl::FailedPreconditionError("the listening side closes by returning"); }
  absl::Status Finish(absl::Time) override {
    return absl::FailedPreconditionError("the listening side finishes by returning");
  }
  void Cancel(absl::string_view reason) override { breaker_.Break(absl::CancelledError(reason)); }

 private:
  Watchdog* const watchdog_;
  grpc::ServerContext* const context_;
  Stream* const stream_;
  Breaker breaker_;
};

class GrpcBulkServicesImpl : public GrpcBulkServices {
 public:
  explicit GrpcBulkServicesImpl(LinkHandler* handler) : handler_(handler), data_(this), parameters_(this) {}

  void Register(grpc::ServerBuilder* builder) override {
    builder->RegisterService(&data_);
    builder->RegisterService(&parameters_);
  }

  void CancelAll(absl::string_view reason) override {
    MutexLock lock(&mu_);
    cancelled_ = std::string(reason);
    for (const auto& [link, peer] : links_) link->Cancel(reason);
  }

  void CancelWorker(const std::string& worker, absl::string_view reason) override {
    MutexLock lock(&mu_);
    for (const auto& [link, peer] : links_) {
      if (peer.role == PeerIdentity::Role::kWorker && peer.name == worker) link->Cancel(reason);
    }
  }

 private:
  using Stream = AcceptedLink::Stream;

  class DataService : public v1::Data::Service {
   public:
    explicit DataService(GrpcBulkServicesImpl* owner) : owner_(owner) {}
    grpc::Status Fetch(grpc::ServerContext* context, Stream* stream) override {
      return owner_->Serve(LinkKind::kFetch, context, stream);
    }
    grpc::Status Probe(grpc::ServerContext* context, Stream* stream) override {
      return owner_->Serve(LinkKind::kProbe, context, stream);
    }

   private:
    GrpcBulkServicesImpl* const owner_;
  };

  class ParametersService : public v1::Parameters::Service {
   public:
    explicit ParametersService(GrpcBulkServicesImpl* owner) : owner_(owner) {}
    grpc::Status Pull(grpc::ServerContext* context, Stream* stream) override {
      return owner_->Serve(LinkKind::kPull, context, stream);
    }
    grpc::Status Push(grpc::ServerContext* context, Stream* stream) override {
      return owner_->Serve(LinkKind::kPush, context, stream);
    }

   private:
    GrpcBulkServicesImpl* const owner_;
  };

  grpc::Status Serve(LinkKind kind, grpc::ServerContext* context, Stream* stream) {
    absl::StatusOr<PeerIdentity> peer = GetPeer(*context);
    if (!peer.ok()) return ToGrpc(peer.status());
    AcceptedLink link(&watchdog_, context, stream);
    {
      MutexLock lock(&mu_);
      if (cancelled_.has_value()) return ToGrpc(absl::UnavailableError(*cancelled_));
      const auto same = [&](const auto& entry) {
        return entry.second.role == peer->role && entry.second.name == peer->name;
      };
      if (peer->role == PeerIdentity::Role::kWorker &&
          std::count_if(links_.begin(), links_.end(), same) >= kMaxLinksPerWorker) {
        return ToGrpc(absl::UnavailableError(
            absl::StrCat("worker ", peer->name, " has ", kMaxLinksPerWorker, " bulk streams open already")));
      }
      links_.emplace(&link, *peer);
    }
    absl::Status status = handler_->Serve(kind, *peer, &link);
    if (absl::IsOutOfRange(status)) status = absl::InternalError(status.message());
    MutexLock lock(&mu_);
    links_.erase(&link);
    return ToGrpc(status);
  }

  LinkHandler* const handler_;
  Watchdog watchdog_;
  DataService data_;
  ParametersService parameters_;
  Mutex mu_;
  std::map<AcceptedLink*, PeerIdentity> links_ ABSL_GUARDED_BY(mu_);
  std::optional<std::string> cancelled_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<LinkDialer> MakeGrpcLinkDialer(std::shared_ptr<grpc::Channel> channel) {
  return std::make_unique<GrpcLinkDialer>(channel);
}

std::unique_ptr<GrpcBulkServices> GrpcBulkServices::Create(LinkHandler* handler) {
  return std::make_unique<GrpcBulkServicesImpl>(handler);
}

}  // namespace causeway::dataplane
