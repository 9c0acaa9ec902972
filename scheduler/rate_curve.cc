#include "scheduler/rate_curve.h"

#include <algorithm>
#include <limits>

namespace causeway::scheduler {

size_t RateCurve::FirstAfter(double time_s) const {
  const auto after = std::upper_bound(changes_.begin(), changes_.end(), time_s,
                                      [](double time, const auto& change) { return time < change.first; });
  return static_cast<size_t>(after - changes_.begin());
}

void RateCurve::Add(double time_s, double factor) {
  const size_t after = FirstAfter(time_s);
  if (after > 0 && changes_[after - 1].first == time_s) {
    changes_[after - 1].second = factor;
  } else {
    changes_.insert(changes_.begin() + static_cast<std::ptrdiff_t>(after), {time_s, factor});
  }
}

double RateCurve::FactorAt(double time_s) const {
  if (changes_.empty()) return 1;
  const size_t after = FirstAfter(time_s);
  return after == 0 ? 1 : changes_[after - 1].second;
}

double RateCurve::NextChange(double time_s) const {
  const size_t after = FirstAfter(time_s);
  return after == changes_.size() ? std::numeric_limits<double>::infinity() : changes_[after].first;
}

double RateCurve::Finish(double start_s, double work_s) const {
  if (changes_.empty()) return start_s + work_s;
  size_t next = FirstAfter(start_s);
  double factor = next == 0 ? 1 : changes_[next - 1].second;
  for (; next < changes_.size(); ++next) {
    const double end_s = start_s + work_s / factor;
    if (end_s <= changes_[next].first) return end_s;
    work_s -= (changes_[next].first - start_s) * factor;
    start_s = changes_[next].first;
    factor = changes_[next].second;
  }
  return start_s + std::max(0.0, work_s) / factor;
}

}  // namespace causeway::scheduler
