#include "scheduler/timeline.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace causeway::scheduler {

absl::string_view SpanKindName(SpanKind kind) {
  switch (kind) {
    case SpanKind::kSend: return "send";
    case SpanKind::kForward: return "forward";
    case SpanKind::kBackward: return "backward";
    case SpanKind::kCollective: return "collective";
    case SpanKind::kPush: return "push";
    case SpanKind::kPull: return "pull";
    case SpanKind::kWait: return "wait";
  }
  return "";
}

absl::string_view SpanLaneName(SpanLane lane) {
  switch (lane) {
    case SpanLane::kCompute: return "compute";
    case SpanLane::kCollective: return "collective";
    case SpanLane::kPush: return "push";
    case SpanLane::kPull: return "pull";
  }
  return "";
}

SpanLane LaneOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
    case SpanKind::kBackward:
    case SpanKind::kWait: return SpanLane::kCompute;
    case SpanKind::kCollective: return SpanLane::kCollective;
    case SpanKind::kPush: return SpanLane::kPush;
    case SpanKind::kSend:
    case SpanKind::kPull: return SpanLane::kPull;
  }
  return SpanLane::kCompute;
}

void SpanRecorder::Add(const Span& span) {
  if (!(span.duration_s > 0) || span.worker >= options_.workers) return;
  if (span.start_s < options_.from_s || span.start_s >= options_.until_s) return;
  if (static_cast<int64_t>(spans_.size()) < options_.max_spans) {
    spans_.push_back(span);
  } else if (enabled()) {
    ++left_out_;
  }
}

void SpanRecorder::CutIf(size_t first, double time_s, int worker) {
  size_t kept = first;
  for (size_t i = first; i < spans_.size(); ++i) {
    Span& span = spans_[i];
    if (worker == -1 || span.worker == worker) {
      if (span.start_s >= time_s) continue;
      span.duration_s = std::min(span.duration_s, time_s - span.start_s);
    }
    spans_[kept++] = span;
  }
  spans_.resize(kept);
}

std::vector<Span> SpanRecorder::Take() {
  const auto key = [](const Span& span) { return std::tuple(span.worker, LaneOf(span.kind), span.start_s); };
  std::stable_sort(spans_.begin(), spans_.end(), [&](const Span& a, const Span& b) { return key(a) < key(b); });
  return std::move(spans_);
}

}  // namespace causeway::scheduler
