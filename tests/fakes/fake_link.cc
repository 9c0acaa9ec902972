#include "tests/fakes/fake_link.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace causeway {

using dataplane::Link;
using dataplane::LinkKind;

namespace {

constexpr int64_t kWindowBytes = 4 << 20;

}  // namespace

// One direction. All fields are guarded by the connection's mutex.
struct FakeLinkDialer::Pipe {
  std::deque<std::string> frames;
  int64_t bytes = 0;
  int written = 0;  // Frames, ever.
  bool closed = false;
  bool stalled = false;
};

struct FakeLinkDialer::Connection {
  Clock* clock = nullptr;
  std::optional<LinkFault> fault;
  Mutex mu;
  CondVar changed;
  Pipe to_handler ABSL_GUARDED_BY(mu);
  Pipe to_dialer ABSL_GUARDED_BY(mu);
  absl::Status broken ABSL_GUARDED_BY(mu);  // Of the network: for both ends.
  absl::Status dialer_cancelled ABSL_GUARDED_BY(mu);
  absl::Status handler_cancelled ABSL_GUARDED_BY(mu);
  std::optional<absl::Status> final_status ABSL_GUARDED_BY(mu);  // What the handler returned.
};

class FakeLinkDialer::End : public Link {
 public:
  End(std::shared_ptr<Connection> connection, bool dialing) : connection_(std::move(connection)), dialing_(dialing) {}
  ~End() override {
    if (dialing_) Cancel("the link was dropped");
  }

  absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) override {
    CAUSEWAY_CHECK(frame.payload().empty());
    if (static_cast<int64_t>(payload.size()) > dataplane::kMaxPayloadBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a payload of ", payload.size(), " bytes"));
    }
    v1::Frame message = frame;
    message.set_payload(payload.data(), payload.size());
    MutexLock lock(&connection_->mu);
    Pipe& out = Outgoing();
    while (true) {
      RETURN_IF_ERROR(BrokenLocked());
      if (connection_->final_status.has_value()) return absl::UnavailableError("the peer has ended the stream");
      if (out.closed) return absl::FailedPreconditionError("written after CloseWrite");
      if (out.bytes < kWindowBytes) break;
      RETURN_IF_ERROR(WaitLocked(deadline));
    }
    ++out.written;
    const bool faulty = connection_->fault.has_value() &&
                        (connection_->fault->direction == LinkDirection::kToHandler) == dialing_ &&
                        connection_->fault->frame == out.written;
    if (faulty) {
      switch (connection_->fault->kind) {
        case LinkFault::Kind::kCut:
          connection_->broken = absl::UnavailableError("the fake link was cut");
          connection_->changed.SignalAll();
          return connection_->broken;
        case LinkFault::Kind::kCorrupt:
          if (!message.payload().empty()) message.mutable_payload()->back() ^= 1;
          break;
        case LinkFault::Kind::kStall: out.stalled = true; break;
      }
    }
    std::string wire = message.SerializeAsString();
    out.bytes += static_cast<int64_t>(wire.size());
    if (!out.stalled) out.frames.push_back(std::move(wire));
    connection_->changed.SignalAll();
    return absl::OkStatus();
  }

  absl::StatusOr<v1::Frame> Read(absl::Time deadline) override {
    MutexLock lock(&connection_->mu);
    Pipe& in = Incoming();
    while (true) {
      RETURN_IF_ERROR(CancelledLocked());
      if (!in.frames.empty()) break;
      RETURN_IF_ERROR(connection_->broken);
      if (dialing_ && connection_->final_status.has_value()) {
        RETURN_IF_ERROR(*connection_->final_status);
        return absl::OutOfRangeError("the peer has closed its side");
      }
      if (in.closed && !in.stalled) return absl::OutOfRangeError("the peer has closed its side");
      RETURN_IF_ERROR(WaitLocked(deadline));
    }
    v1::Frame frame;
    CAUSEWAY_CHECK(frame.ParseFromString(in.frames.front()));
    in.bytes -= static_cast<int64_t>(in.frames.front().size());
    in.frames.pop_front();
    connection_->changed.SignalAll();
    return frame;
  }

  absl::Status CloseWrite() override {
    if (!dialing_) return absl::FailedPreconditionError("the listening side closes by returning");
    MutexLock lock(&connection_->mu);
    if (Outgoing().closed) return absl::OkStatus();
    RETURN_IF_ERROR(BrokenLocked());
    if (connection_->final_status.has_value()) return absl::UnavailableError("the peer has ended the stream");
    Outgoing().closed = true;
    connection_->changed.SignalAll();
    return absl::OkStatus();
  }

  absl::Status Finish(absl::Time deadline) override {
    if (!dialing_) return absl::FailedPreconditionError("the listening side finishes by returning");
    MutexLock lock(&connection_->mu);
    RETURN_IF_ERROR(CancelledLocked());
    while (!connection_->final_status.has_value()) {
      RETURN_IF_ERROR(BrokenLocked());
      RETURN_IF_ERROR(WaitLocked(deadline));
    }
    return *connection_->final_status;
  }

  void Cancel(absl::string_view reason) override {
    MutexLock lock(&connection_->mu);
    CancelLocked(absl::CancelledError(reason));
  }

  // Handler's side: the stream ends with what the handler returned, as link.h says.
  void SetFinalStatus(absl::Status status) {
    if (absl::IsCancelled(status)) status = absl::UnavailableError("the peer has broken the stream");
    if (absl::IsOutOfRange(status)) status = absl::InternalError(status.message());
    MutexLock lock(&connection_->mu);
    connection_->final_status = std::move(status);
    connection_->changed.SignalAll();
  }

 private:
  Pipe& Outgoing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) {
    return dialing_ ? connection_->to_handler : connection_->to_dialer;
  }
  Pipe& Incoming() ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) {
    return dialing_ ? connection_->to_dialer : connection_->to_handler;
  }

  const absl::Status& CancelledLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) {
    return dialing_ ? connection_->dialer_cancelled : connection_->handler_cancelled;
  }
  absl::Status BrokenLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) {
    RETURN_IF_ERROR(CancelledLocked());
    return connection_->broken;
  }

  void CancelLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) {
    absl::Status& own = dialing_ ? connection_->dialer_cancelled : connection_->handler_cancelled;
    if (!own.ok()) return;
    own = std::move(status);
    if (connection_->broken.ok() && !connection_->final_status.has_value())
      connection_->broken = absl::UnavailableError("the peer has gone");
    connection_->changed.SignalAll();
  }

  // Past the deadline the link is dead.
  absl::Status WaitLocked(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) {
    if (connection_->clock->Now() >= deadline) {
      CancelLocked(absl::DeadlineExceededError("no progress on the link"));
      return BrokenLocked();
    }
    connection_->clock->AwaitUntil(&connection_->mu, &connection_->changed, deadline);
    return absl::OkStatus();
  }

  const std::shared_ptr<Connection> connection_;
  const bool dialing_;
};

FakeLinkDialer::FakeLinkDialer(dataplane::LinkHandler* handler, Clock* clock, dataplane::PeerIdentity peer)
    : handler_(handler), clock_(clock), peer_(std::move(peer)) {}

FakeLinkDialer::~FakeLinkDialer() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mu_);
    for (const auto& connection : connections_) {
      MutexLock connection_lock(&connection->mu);
      if (connection->broken.ok()) connection->broken = absl::UnavailableError("the network has gone");
      connection->changed.SignalAll();
    }
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

absl::StatusOr<std::unique_ptr<Link>> FakeLinkDialer::Dial(LinkKind kind, absl::Time) {
  MutexLock lock(&mu_);
  if (failing_dials_ > 0) {
    --failing_dials_;
    return absl::UnavailableError("nobody there");
  }
  ++dials_;
  auto connection = std::make_shared<Connection>();
  connection->clock = clock_;
  if (!faults_.empty()) {
    connection->fault = faults_.front();
    faults_.pop_front();
  }
  connections_.push_back(connection);
  threads_.emplace_back([this, kind, connection] {
    End end(connection, /*dialing=*/false);
    end.SetFinalStatus(handler_->Serve(kind, peer_, &end));
  });
  return std::make_unique<End>(connection, /*dialing=*/true);
}

void FakeLinkDialer::AddFault(std::optional<LinkFault> fault) {
  MutexLock lock(&mu_);
  faults_.push_back(fault);
}

void FakeLinkDialer::FailDials(int n) {
  MutexLock lock(&mu_);
  failing_dials_ = n;
}

int FakeLinkDialer::dials() const {
  MutexLock lock(&mu_);
  return dials_;
}

}  // namespace causeway
