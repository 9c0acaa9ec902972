#include "scheduler/round_steps.h"

#include <algorithm>

#include "scheduler/rounds.h"

namespace causeway::scheduler {

int64_t RoundSteps::RoundStart(int64_t epoch_steps, int64_t round) const {
  if (job_.rounds.steps > 0) return round * job_.rounds.steps;
  const int64_t n = job_.rounds.per_epoch;
  return round / n * epoch_steps + StepsBeforeRound(epoch_steps, n, round % n);
}

int64_t RoundSteps::SendPosition(int64_t epoch_steps, int fragment, int64_t round) const {
  const auto fragments = static_cast<int64_t>(job_.rounds.fragment_bytes.size());
  return RoundStart(epoch_steps, round) + (fragment + 1) * StepsOf(epoch_steps, round) / fragments;
}

double RoundSteps::SamplesOf(int64_t epoch_steps, int64_t round, const std::vector<int>& workers, int64_t steps) const {
  double samples = 0;
  if (job_.rounds.steps > 0) {
    for (const int w : workers) samples += static_cast<double>(job_.workers[static_cast<size_t>(w)].batch_size);
    return samples * static_cast<double>(steps);
  }
  const int64_t epoch_start = round / job_.rounds.per_epoch * epoch_steps;
  const auto first = static_cast<double>(RoundStart(epoch_steps, round) - epoch_start);
  const auto last = first + static_cast<double>(steps);
  for (const int w : workers) {
    const SimulatedWorker& worker = job_.workers[static_cast<size_t>(w)];
    const auto batch = static_cast<double>(worker.batch_size);
    const auto all = static_cast<double>(worker.samples);
    samples += std::min(all, last * batch) - std::min(all, first * batch);
  }
  return samples;
}

}  // namespace causeway::scheduler
