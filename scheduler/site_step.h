#ifndef CAUSEWAY_SCHEDULER_SITE_STEP_H_
#define CAUSEWAY_SCHEDULER_SITE_STEP_H_

#include <cstdint>
#include <vector>

#include "scheduler/rate_curve.h"
#include "scheduler/site_program.h"
#include "scheduler/timeline.h"

namespace causeway::scheduler {

// In (-1, 1), of triangular density around 0; a function of the arguments alone, the same on every platform.
double TriangularNoise(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

// The workers that step together, [members] each.
struct StepMembers {
  std::vector<int> workers;
  std::vector<double> ready_s;  // When each can begin; RunStep moves it to when its step has ended.
  std::vector<double>
      scale;  // In this step its computing takes so many times what the program says, at factor 1 of `speed`.
  std::vector<const RateCurve*> speed;
  std::vector<double> exposed_s;  // RunStep adds what it waited within the step.

  void Erase(size_t member);
};

// The link for the collectives among them.
struct StepLink {
  const RateCurve* speed = nullptr;
  double free_s = 0;  // When it has done what it was asked for.
  double jitter = 0;  // Each collective takes 1 + jitter * noise times its duration.
  uint64_t seed = 0;
  uint64_t index = 0;  // Of the link, for the noise.
  double busy_s = 0;   // RunStep adds; likewise bytes.
  double bytes = 0;
};

struct StepNumber {
  int64_t iteration = 0;  // Chooses the iteration of the program; for the noise.
  int64_t step = 0;       // For the timeline; likewise round.
  int64_t round = -1;
};

// One step of all members, layer by layer: forward 1..L, backward L..1, and the program's collectives on the link, each when
// its moment has come on every member and the link is free. O(members * layers).
void RunStep(const SiteProgram& program, const StepNumber& number, StepMembers& members, StepLink& link,
             SpanRecorder& recorder);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_SITE_STEP_H_
