#include "server/shares.h"

#include <algorithm>
#include <cmath>

#include "scheduler/rounds.h"

namespace causeway::server {

int64_t Count(const Ranges& ranges) {
  int64_t n = 0;
  for (const auto& range : ranges) n += range.end - range.begin;
  return n;
}

Steps StepsOf(const v1::WorkerPlan& worker, int64_t round, int64_t rounds_per_epoch) {
  const int64_t j = round % rounds_per_epoch;
  Steps steps{.first = scheduler::StepsBeforeRound(worker.steps_per_epoch(), rounds_per_epoch, j),
              .last = scheduler::StepsBeforeRound(worker.steps_per_epoch(), rounds_per_epoch, j + 1)};
  steps.samples = std::min(steps.last * worker.batch_size(), worker.samples()) -
                  std::min(steps.first * worker.batch_size(), worker.samples());
  return steps;
}

std::vector<Ranges> Split(const Ranges& all, const std::vector<double>& speeds) {
  double total_speed = 0;
  for (double s : speeds) total_speed += s;
  const int64_t total = Count(all);
  std::vector<Ranges> parts(speeds.size());
  double cumulative = 0;
  int64_t given = 0;
  size_t at = 0;
  int64_t offset = all.empty() ? 0 : all[0].begin;
  for (size_t i = 0; i < speeds.size(); ++i) {
    cumulative += total_speed > 0 ? speeds[i] / total_speed : 1.0 / static_cast<double>(speeds.size());
    const int64_t until = i + 1 == speeds.size() ? total : std::llround(cumulative * static_cast<double>(total));
    while (given < until) {
      const int64_t take = std::min(until - given, all[at].end - offset);
      parts[i].push_back({offset, offset + take});
      given += take;
      offset += take;
      if (offset == all[at].end && ++at < all.size()) offset = all[at].begin;
    }
  }
  return parts;
}

}  // namespace causeway::server
