#ifndef CAUSEWAY_SCHEDULER_RATE_CURVE_H_
#define CAUSEWAY_SCHEDULER_RATE_CURVE_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace causeway::scheduler {

// How fast something is over time: a factor that changes at given times and is 1 before the first. Not thread-safe while it is
// being built.
class RateCurve {
 public:
  // From `time_s` on the factor is `factor` (> 0, finite). Times may come in any order; of equal ones the last counts.
  void Add(double time_s, double factor);

  // O(log(changes)); without changes O(1).
  double FactorAt(double time_s) const;
  // When work that takes `work_s` at factor 1 ends, if it begins at `start_s`: start_s + work_s exactly while the factor is 1.
  double Finish(double start_s, double work_s) const;
  // The first change after `time_s`; infinity without one.
  double NextChange(double time_s) const;

 private:
  size_t FirstAfter(double time_s) const;

  std::vector<std::pair<double, double>> changes_;  // (time, factor), ascending by time.
};

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_RATE_CURVE_H_
