// The spans of a timeline: what happened when, on which worker.
#ifndef CAUSEWAY_SCHEDULER_TIMELINE_H_
#define CAUSEWAY_SCHEDULER_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/string_view.h"

namespace causeway::scheduler {

enum class SpanKind {
  kSend,     // The worker receives its samples.
  kForward,  // Of `layer`; waiting for a collective in the midst of it (fsdp) not included.
  kBackward,
  kCollective,  // Of `layer` on the site's link.
  kPush,        // Of `fragment`; likewise kPull. Before the first round `fragment` is -1: the whole model.
  kPull,
  kWait,  // Of the worker for others: for a collective, a commit, a transfer.
};

// "send", "forward", "backward", "collective", "push", "pull", "wait".
absl::string_view SpanKindName(SpanKind kind);

// What runs at the same time on one worker: computing and waiting, its site's link, its link to the coordinator out and in. A
// timeline shows each as a row of its own, so that spans of one row never overlap.
enum class SpanLane { kCompute, kCollective, kPush, kPull };
// "compute", "collective", "push", "pull".
absl::string_view SpanLaneName(SpanLane lane);
SpanLane LaneOf(SpanKind kind);

// One event of the timeline: a complete event ("ph": "X") of a Chrome or Perfetto trace, pid the site, tid worker and lane.
struct Span {
  SpanKind kind = SpanKind::kForward;
  int worker = 0;      // An index into SimulatedJob::workers.
  int layer = 0;       // 1..L; 0: none.
  int fragment = -1;   // -1: none.
  int64_t step = -1;   // The participant's, counted from 0 over the job; -1: none.
  int64_t round = -1;  // -1: none.
  double bytes = 0;
  double start_s = 0;
  double duration_s = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

// Collects the spans that are wanted. Not thread-safe.
class SpanRecorder {
 public:
  struct Options {
    int64_t max_spans = 0;  // 0: none is wanted.
    double from_s = 0;      // Wanted are those that begin in [from_s, until_s)
    double until_s = std::numeric_limits<double>::infinity();
    int workers = std::numeric_limits<int>::max();  // of the workers below this number.
  };
  explicit SpanRecorder(const Options& options) : options_(options) {}

  bool enabled() const { return options_.max_spans > 0; }
  // Spans without duration are never wanted. Once max_spans are there, further ones are only counted.
  void Add(const Span& span);
  // How many there are; for Cut.
  size_t size() const { return spans_.size(); }
  // At `time_s` all that was recorded from number `first` on was broken off: what would have begun later goes, the rest is
  // shortened.
  void Cut(size_t first, double time_s) { CutIf(first, time_s, -1); }
  // The same for all spans of one worker.
  void CutWorker(int worker, double time_s) { CutIf(0, time_s, worker); }

  int64_t left_out() const { return left_out_; }
  // All, by worker, lane and start. Call once, last.
  std::vector<Span> Take();

 private:
  void CutIf(size_t first, double time_s, int worker);  // -1: of all workers.

  const Options options_;
  std::vector<Span> spans_;
  int64_t left_out_ = 0;
};

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_TIMELINE_H_
