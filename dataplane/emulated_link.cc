#include "dataplane/emulated_link.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/memory/memory.h"
#include "base/status_macros.h"

namespace causeway::dataplane {
namespace {

// What a frame costs besides its payload: its own header and those below it.
constexpr int64_t kHeaderBytes = 64;

class EmulatedLink : public Link {
 public:
  EmulatedLink(std::unique_ptr<Link> link, RateLimiter* up, RateLimiter* down)
      : link_(std::move(link)), up_(up), down_(down) {}

  absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) override {
    RETURN_IF_ERROR(Pass(up_, static_cast<int64_t>(payload.size()), deadline));
    return link_->Write(frame, payload, deadline);
  }

  absl::StatusOr<v1::Frame> Read(absl::Time deadline) override {
    ASSIGN_OR_RETURN(v1::Frame frame, link_->Read(deadline));
    RETURN_IF_ERROR(Pass(down_, static_cast<int64_t>(frame.payload().size()), deadline));
    return frame;
  }

  absl::Status CloseWrite() override { return link_->CloseWrite(); }
  absl::Status Finish(absl::Time deadline) override { return link_->Finish(deadline); }

  void Cancel(absl::string_view reason) override {
    cancelled_ = true;
    link_->Cancel(reason);
  }

 private:
  // Piece by piece, so that the links of a worker share the line fairly and Cancel is heard soon.
  absl::Status Pass(RateLimiter* limiter, int64_t payload_bytes, absl::Time deadline) {
    if (limiter == nullptr) return absl::OkStatus();
    int64_t left = payload_bytes + kHeaderBytes;
    while (left > 0) {
      if (cancelled_) return absl::CancelledError("the link was cancelled");
      const int64_t piece = std::min(left, limiter->burst_bytes());
      if (absl::Status status = limiter->Acquire(piece, /*priority=*/0, deadline); !status.ok()) {
        Cancel(status.message());
        return status;
      }
      left -= piece;
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<Link> link_;
  RateLimiter* const up_;    // Null: no limit.
  RateLimiter* const down_;  // Null: no limit.
  std::atomic<bool> cancelled_ = false;
};

absl::StatusOr<std::unique_ptr<RateLimiter>> MakeLimiter(double bytes_per_s, Clock* clock) {
  if (bytes_per_s == 0) return nullptr;
  RateLimiter::Options options;
  options.rate_bytes_per_s = bytes_per_s;
  // 20 ms of the line: more than a thread oversleeps, less than anybody notices.
  options.burst_bytes = static_cast<int64_t>(std::clamp(bytes_per_s * 0.02, 4096.0, 1048576.0));
  options.clock = clock;
  return RateLimiter::Create(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmulatedLinkDialer>> EmulatedLinkDialer::Create(const Options& options) {
  if (options.dialer == nullptr || options.clock == nullptr) {
    return absl::InvalidArgumentError("an emulated link needs a dialer and a clock");
  }
  auto dialer = absl::WrapUnique(new EmulatedLinkDialer(options));
  ASSIGN_OR_RETURN(dialer->up_, MakeLimiter(options.up_bytes_per_s, options.clock), "up");
  ASSIGN_OR_RETURN(dialer->down_, MakeLimiter(options.down_bytes_per_s, options.clock), "down");
  return dialer;
}

absl::StatusOr<std::unique_ptr<Link>> EmulatedLinkDialer::Dial(LinkKind kind, absl::Time deadline) {
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link, options_.dialer->Dial(kind, deadline));
  return std::make_unique<EmulatedLink>(std::move(link), up_.get(), down_.get());
}

}  // namespace causeway::dataplane
