#ifndef CAUSEWAY_CLI_PROGRESS_H_
#define CAUSEWAY_CLI_PROGRESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/operator.pb.h"

namespace causeway::cli {

// FINISHED, FAILED or ABORTED.
bool HasEnded(v1::JobState state);

// Turns a job's successive statuses into lines about what is new: state, plan, committed rounds, evaluations, lost workers, rejected
// contributions, waiting past the deadline. A first status gives the state, the plan and the newest evaluation, not the past rounds.
class JobEvents {
 public:
  std::vector<std::string> Update(const v1::GetJobResponse& status);

 private:
  bool first_ = true;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string reason_;
  int64_t plan_ = 0;
  int64_t round_ = -1;
  int64_t evaluated_ = -1;
  std::map<std::string, bool> live_;
  std::map<std::string, std::string> excluded_;  // Why each is left out.
  std::map<std::string, int64_t> rejected_;
  std::string waiting_for_;
};

// The block that a terminal shows: the job in two lines, then a bar per worker. No line is longer than `columns`.
std::vector<std::string> RenderProgress(const v1::GetJobResponse& status, int columns);

// A share of `width` characters: "[####----]"; `fraction` is cut to [0, 1].
std::string Bar(double fraction, int width);

// Where the statuses of a watched job go. Not thread-safe.
class WatchView {
 public:
  virtual ~WatchView() = default;
  virtual void Show(const v1::GetJobResponse& status) = 0;
  // A remark between two statuses ("trying again").
  virtual void Note(absl::string_view text) = 0;
};

// Events as lines. Streams are not owned and outlive the view, here and below. Notes go to `err`.
std::unique_ptr<WatchView> MakePlainView(std::ostream* out, std::ostream* err);
// Events as lines, and under them the block of RenderProgress, redrawn in place.
std::unique_ptr<WatchView> MakeTerminalView(std::ostream* out, int columns);
// Each status that differs from the one before as one line of JSON (schema causeway.job/1).
std::unique_ptr<WatchView> MakeJsonView(std::ostream* out, std::ostream* err);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_PROGRESS_H_
