#ifndef CAUSEWAY_WORKER_PROGRESS_BOARD_H_
#define CAUSEWAY_WORKER_PROGRESS_BOARD_H_

#include <cstdint>
#include <string>

#include "base/mutex.h"
#include "proto/membership.pb.h"

namespace causeway::worker {

// Where a worker's threads say how far they are, for heartbeats and metrics. Thread-safe.
class ProgressBoard {
 public:
  // A job's first task: nothing has been done. Empty: idle.
  void Reset(const std::string& job);
  // Of the computing thread. Waiting or idle, a fetch shows instead.
  void SetPhase(v1::WorkerPhase phase);
  void StartRound(int64_t round);
  void SetSteps(int64_t done, int64_t planned, int64_t samples, double train_loss);
  void SetFetching(bool fetching, int64_t bytes_done, int64_t bytes_total);
  v1::WorkerProgress Get() const;

  // Whether the coordinator hears this worker.
  void SetConnected(bool connected);
  bool connected() const;

 private:
  mutable Mutex mu_;
  v1::WorkerProgress progress_ ABSL_GUARDED_BY(mu_);
  bool fetching_ ABSL_GUARDED_BY(mu_) = false;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_PROGRESS_BOARD_H_
