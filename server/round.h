#ifndef CAUSEWAY_SERVER_ROUND_H_
#define CAUSEWAY_SERVER_ROUND_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace causeway::server {

// One open round of one fragment: who is to contribute, who has, and when it may be committed.
//
// Pure state, no I/O; takes `now` (steady). Not thread-safe. It commits when every participant that is there is in, or
// the deadline and the grace for those who are late have passed, and the quorum holds; below the quorum it waits until
// `replan_after` past the deadline and is then dropped. Who has contributed fewer samples than planned counts towards
// the quorum with all of them: it guards against deciding without the others, and nobody is missing.
class RoundBook {
 public:
  struct Participant {
    WorkerId worker;
    int64_t planned_samples = 0;  // > 0; its weight may not be more
    int rank = 0;                 // by worker name, for what is taken from the lowest contributor
  };
  struct Options {
    Round round;
    int64_t attempt = 1;
    Version base;  // the version it starts from
    std::vector<Participant> participants;
    double quorum = 0.67;   // fraction of `quorum_of`, in (0, 1]
    int64_t quorum_of = 0;  // what the plan has for this round, absent workers' included; 0: what the participants have
    absl::Duration deadline;
    // How much longer those are waited for who were asked at the deadline for what they have done so far.
    absl::Duration late_grace;
    absl::Duration replan_after;
    absl::Time opened;
  };
  explicit RoundBook(Options options);

  enum class State {
    kOutstanding,  // expected, nothing settled
    kAdding,       // verified and journaled, being added to the sum
    kCounted,
    kRejected,
  };

  // Someone is (not) there any more. Unknown workers are ignored.
  void SetPresent(const WorkerId& worker, bool present);
  // Someone is not there any more and has said so: unlike the lost it is not expected back.
  void SetGone(const WorkerId& worker);

  // Whether this worker may (still) contribute that many samples. OK: its bytes are wanted.
  // Errors: NotFound (not a participant), AlreadyExists (settled; see Settled), InvalidArgument (negative, or more than
  // planned).
  absl::Status CheckWanted(const WorkerId& worker, int64_t samples) const;

  // The deadline is not before this.
  void Postpone(absl::Time deadline);

  // Moves kOutstanding -> kAdding -> kCounted, or kOutstanding -> kRejected. False if the move is not one of these.
  bool MarkAdding(const WorkerId& worker, int64_t samples, const std::string& sha256);
  bool MarkCounted(const WorkerId& worker);
  void CancelAdding(const WorkerId& worker);  // kAdding -> kOutstanding
  bool MarkRejected(const WorkerId& worker, const std::string& reason, const std::string& sha256);

  enum class Verdict {
    kWait,
    kCommit,
    kDropMissing,   // the quorum was not reached in time, or cannot be any more
    kDropRejected,  // not reached, and contributions were rejected
    kZeroWeight,    // everybody is in and no sample was counted
  };
  Verdict Decide(absl::Time now) const;

  // Present participants that have not settled, or, when only absent ones could still reach the quorum, those.
  std::vector<WorkerId> WaitingFor() const;

  struct Entry {
    Participant participant;
    bool present = true;
    bool gone = false;
    State state = State::kOutstanding;
    int64_t samples = 0;
    std::string sha256;  // of the settled contribution
    std::string reason;  // of the rejection
  };
  const Entry* Find(const WorkerId& worker) const;
  const std::map<WorkerId, Entry>& entries() const { return entries_; }
  const Options& options() const { return options_; }
  int64_t planned_samples() const { return planned_samples_; }
  int64_t counted_samples() const;
  int counted() const;
  absl::Time deadline() const { return options_.opened + options_.deadline; }

 private:
  Options options_;
  int64_t planned_samples_ = 0;
  std::map<WorkerId, Entry> entries_;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_ROUND_H_
