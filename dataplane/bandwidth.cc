#include "dataplane/bandwidth.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace causeway::dataplane {
namespace {

constexpr int64_t kProbeFrameBytes = 64 << 10;
constexpr int kMinFrames = 2;

absl::Status CheckLimits(absl::Duration duration, int64_t max_bytes) {
  if (!(duration >= absl::ZeroDuration() && duration <= kMaxProbeDuration)) {
    return absl::InvalidArgumentError(absl::StrCat("a probe lasts at most ", absl::FormatDuration(kMaxProbeDuration)));
  }
  if (max_bytes < 0 || max_bytes > kMaxProbeBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a probe has at most ", kMaxProbeBytes, " bytes"));
  }
  return absl::OkStatus();
}

v1::Frame RequestFrame(v1::ProbeRequest::Direction direction, absl::Duration duration, int64_t max_bytes) {
  v1::Frame frame;
  v1::ProbeRequest* probe = frame.mutable_probe_request();
  probe->set_direction(direction);
  probe->set_seconds(absl::ToDoubleSeconds(duration));
  probe->set_bytes(max_bytes);
  return frame;
}

// Counts what arrives: bytes after the first frame, time between the first and the last.
class Meter {
 public:
  void Add(absl::Time now, int64_t bytes) {
    if (!first_.has_value()) {
      first_ = now;
    } else {
      bytes_ += bytes;
    }
    last_ = now;
    ++frames_;
  }
  int frames() const { return frames_; }
  int64_t bytes() const { return bytes_; }
  double seconds() const { return first_.has_value() ? absl::ToDoubleSeconds(last_ - *first_) : 0; }

 private:
  std::optional<absl::Time> first_;
  absl::Time last_;
  int64_t bytes_ = 0;
  int frames_ = 0;
};

double Rate(int64_t bytes, double seconds) { return static_cast<double>(bytes) / std::max(seconds, 1e-6); }

// Sends data until `duration` has passed or `max_bytes` are sent, but some frames in any case.
absl::Status SendProbe(Link* link, Clock* clock, absl::Duration duration, int64_t max_bytes,
                       absl::Duration progress_timeout) {
  const std::vector<uint8_t> payload(kProbeFrameBytes);
  v1::Frame frame;
  frame.mutable_data();
  const absl::Time end = clock->Now() + duration;
  int64_t sent = 0;
  for (int i = 0; i < kMinFrames || (sent + kProbeFrameBytes <= max_bytes && clock->Now() < end); ++i) {
    RETURN_IF_ERROR(link->Write(frame, payload, clock->Now() + progress_timeout));
    sent += kProbeFrameBytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> MeasureDown(const TransferOptions& options, absl::Duration duration, int64_t max_bytes) {
  RETURN_IF_ERROR(CheckLimits(duration, max_bytes));
  double rate = 0;
  RETURN_IF_ERROR(internal::RunAttempts(options, LinkKind::kProbe, [&](Link* link, bool*) -> absl::Status {
    auto deadline = [&] { return options.clock->Now() + options.progress_timeout; };
    RETURN_IF_ERROR(internal::WriteFrame(link, RequestFrame(v1::ProbeRequest::DIRECTION_DOWN, duration, max_bytes), {},
                                         deadline()));
    link->CloseWrite().IgnoreError();  // The next Read says what broke.
    const absl::Time end = options.clock->Now() + duration;
    Meter meter;
    while (true) {
      absl::StatusOr<v1::Frame> frame = link->Read(deadline());
      if (absl::IsOutOfRange(frame.status())) break;
      RETURN_IF_ERROR(frame.status());
      meter.Add(options.clock->Now(), static_cast<int64_t>(frame->payload().size()));
      // What still lies in buffers on the way would only take time.
      if (meter.frames() >= kMinFrames && options.clock->Now() >= end) {
        link->Cancel("measured");
        break;
      }
    }
    if (meter.bytes() == 0) return absl::DataLossError("the probe brought too little to measure");
    rate = Rate(meter.bytes(), meter.seconds());
    return absl::OkStatus();
  }));
  return rate;
}

absl::StatusOr<double> MeasureUp(const TransferOptions& options, absl::Duration duration, int64_t max_bytes) {
  RETURN_IF_ERROR(CheckLimits(duration, max_bytes));
  double rate = 0;
  RETURN_IF_ERROR(internal::RunAttempts(options, LinkKind::kProbe, [&](Link* link, bool*) -> absl::Status {
    auto deadline = [&] { return options.clock->Now() + options.progress_timeout; };
    RETURN_IF_ERROR(
        internal::WriteFrame(link, RequestFrame(v1::ProbeRequest::DIRECTION_UP, duration, max_bytes), {}, deadline()));
    RETURN_IF_ERROR(SendProbe(link, options.clock, duration, max_bytes, options.progress_timeout));
    link->CloseWrite().IgnoreError();  // The next Read says what broke.
    ASSIGN_OR_RETURN(v1::Frame answer, internal::ReadFrame(link, deadline()));
    const v1::ProbeResult& result = answer.probe_result();
    if (result.bytes() <= 0 || !(result.seconds() >= 0))
      return absl::DataLossError("the probe's result makes no sense");
    rate = Rate(result.bytes(), result.seconds());
    return link->Finish(deadline());
  }));
  return rate;
}

absl::StatusOr<absl::Duration> MeasureRoundTrip(const TransferOptions& options, int repeats) {
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < repeats; ++i) {
    RETURN_IF_ERROR(internal::RunAttempts(options, LinkKind::kProbe, [&](Link* link, bool*) -> absl::Status {
      const absl::Time start = options.clock->Now();
      const absl::Time deadline = start + options.progress_timeout;
      RETURN_IF_ERROR(internal::WriteFrame(link, RequestFrame(v1::ProbeRequest::DIRECTION_UP, absl::ZeroDuration(), 0),
                                           {}, deadline));
      link->CloseWrite().IgnoreError();  // The next Read says what broke.
      RETURN_IF_ERROR(internal::ReadFrame(link, deadline).status());
      best = std::min(best, options.clock->Now() - start);
      return link->Finish(deadline);
    }));
  }
  return best;
}

absl::Status ServeProbe(Link* link, const v1::ProbeRequest& request, const ServeOptions& options) {
  const absl::Duration duration = absl::Seconds(request.seconds());
  RETURN_IF_ERROR(CheckLimits(duration, request.bytes()));
  if (request.direction() == v1::ProbeRequest::DIRECTION_DOWN) {
    return SendProbe(link, options.clock, duration, request.bytes(), options.progress_timeout);
  }
  if (request.direction() != v1::ProbeRequest::DIRECTION_UP)
    return absl::InvalidArgumentError("a probe goes up or down");
  Meter meter;
  while (true) {
    absl::StatusOr<v1::Frame> frame = link->Read(options.clock->Now() + options.progress_timeout);
    if (absl::IsOutOfRange(frame.status())) break;
    RETURN_IF_ERROR(frame.status());
    // They would count for nothing, and could go on without end.
    if (frame->payload().empty()) return absl::InvalidArgumentError("a probe's frame without payload");
    meter.Add(options.clock->Now(), static_cast<int64_t>(frame->payload().size()));
    if (meter.bytes() > request.bytes() + kMinFrames * kProbeFrameBytes) {
      return absl::InvalidArgumentError("the probe sends more than it said");
    }
  }
  v1::Frame answer;
  answer.mutable_probe_result()->set_bytes(meter.bytes());
  answer.mutable_probe_result()->set_seconds(meter.seconds());
  return link->Write(answer, {}, options.clock->Now() + options.progress_timeout);
}

}  // namespace causeway::dataplane
