#include "worker/progress_board.h"

namespace causeway::worker {

void ProgressBoard::Reset(const std::string& job) {
  MutexLock lock(&mu_);
  progress_.Clear();
  progress_.set_job(job);
  progress_.set_round(-1);
  progress_.set_phase(v1::WORKER_PHASE_IDLE);
  fetching_ = false;
}

void ProgressBoard::SetPhase(v1::WorkerPhase phase) {
  MutexLock lock(&mu_);
  progress_.set_phase(phase);
}

void ProgressBoard::StartRound(int64_t round) {
  MutexLock lock(&mu_);
  progress_.set_round(round);
  progress_.clear_steps_done();
  progress_.clear_steps_planned();
  progress_.clear_samples_done();
  progress_.clear_train_loss();
}

void ProgressBoard::SetSteps(int64_t done, int64_t planned, int64_t samples, double train_loss) {
  MutexLock lock(&mu_);
  progress_.set_steps_done(done);
  progress_.set_steps_planned(planned);
  progress_.set_samples_done(samples);
  progress_.set_train_loss(train_loss);
}

void ProgressBoard::SetFetching(bool fetching, int64_t bytes_done, int64_t bytes_total) {
  MutexLock lock(&mu_);
  fetching_ = fetching;
  progress_.set_fetch_bytes_done(bytes_done);
  progress_.set_fetch_bytes_total(bytes_total);
}

v1::WorkerProgress ProgressBoard::Get() const {
  MutexLock lock(&mu_);
  v1::WorkerProgress progress = progress_;
  const v1::WorkerPhase phase = progress.phase();
  if (phase == v1::WORKER_PHASE_UNSPECIFIED) progress.set_phase(v1::WORKER_PHASE_IDLE);
  if (fetching_ &&
      (phase == v1::WORKER_PHASE_UNSPECIFIED || phase == v1::WORKER_PHASE_IDLE || phase == v1::WORKER_PHASE_WAITING)) {
    progress.set_phase(v1::WORKER_PHASE_FETCHING);
  }
  return progress;
}

void ProgressBoard::SetConnected(bool connected) {
  MutexLock lock(&mu_);
  connected_ = connected;
}

bool ProgressBoard::connected() const {
  MutexLock lock(&mu_);
  return connected_;
}

}  // namespace causeway::worker
