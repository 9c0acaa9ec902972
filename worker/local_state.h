#ifndef CAUSEWAY_WORKER_LOCAL_STATE_H_
#define CAUSEWAY_WORKER_LOCAL_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/ids.h"
#include "proto/membership.pb.h"

namespace causeway::worker {

// What a restarted worker goes on with: DIR/incarnation, and per job DIR/jobs/NAME/{optimizer-ROUND, datasets}. All writes are durable when they
// return and leave old or new content after a crash. Thread-safe as long as one thread at a time writes for a job; the
// caller holds the folder's lock.
class LocalState {
 public:
  // Adds one to the incarnation, durably. Where its file is lost or damaged it goes on from the clock. Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<LocalState>> Open(FileSystem* fs, const std::string& dir, absl::Time wall_now);

  Incarnation incarnation() const { return incarnation_; }

  // The optimizer's state after a round.
  struct OptimizerState {
    int64_t plan = 0;
    int64_t round = 0;
    int64_t version = 0;  // The round's, from which it trained.
    std::vector<uint8_t> bytes;
  };
  // The two newest rounds are kept: a round may have to be done again, and then begins where it began before. Those of later rounds go.
  absl::Status SaveOptimizer(const JobId& job, const OptimizerState& state);
  // The newest state after a round below `before_round`; nothing if there is none or it is damaged. Errors: those of the file system.
  absl::StatusOr<std::optional<OptimizerState>> LoadOptimizer(const JobId& job, int64_t before_round) const;
  // The round of that state, whether or not it is damaged.
  std::optional<int64_t> NewestOptimizer(const JobId& job, int64_t before_round) const;
  bool HasOptimizer(const JobId& job) const;

  // The job's datasets, since an assignment to train or evaluate names only samples. Only `train` and `test` of `datasets` count.
  absl::Status SaveDatasets(const JobId& job, const v1::ShardTask& datasets);
  // Errors: NotFound, DataLoss, those of the file system.
  absl::StatusOr<v1::ShardTask> LoadDatasets(const JobId& job) const;

  // Removes what belongs to other jobs.
  absl::Status KeepOnly(const JobId& job);

 private:
  LocalState(FileSystem* fs, std::string dir, Incarnation incarnation)
      : fs_(fs), dir_(std::move(dir)), incarnation_(incarnation) {}
  std::string JobDir(const JobId& job) const;
  std::string OptimizerPath(const JobId& job, int64_t round) const;
  std::vector<int64_t> OptimizerRounds(const JobId& job) const;  // Ascending.

  FileSystem* const fs_;
  const std::string dir_;
  const Incarnation incarnation_;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_LOCAL_STATE_H_
