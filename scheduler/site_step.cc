#include "scheduler/site_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace causeway::scheduler {
namespace {

using When = ProgramCollective::When;

uint64_t Mix(uint64_t x) {  // The finalizer of SplitMix64.
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// One step in the making.
class Step {
 public:
  Step(const SiteProgram& program, const StepNumber& number, StepMembers& members, StepLink& link,
       SpanRecorder& recorder)
      : program_(program),
        number_(number),
        members_(members),
        link_(link),
        recorder_(recorder),
        collectives_(program.iterations[static_cast<size_t>(number.iteration % Period())]) {
    // Where a speed does not change any more it is one factor; only else each layer asks for it.
    for (size_t k = 0; k < members_.ready_s.size(); ++k) {
      if (std::isfinite(members_.speed[k]->NextChange(members_.ready_s[k]))) changing_ = true;
    }
    if (!changing_) {
      for (size_t k = 0; k < members_.ready_s.size(); ++k) {
        members_.scale[k] /= members_.speed[k]->FactorAt(members_.ready_s[k]);
      }
    }
  }

  void Run() {
    for (int layer = 1; layer <= program_.layers(); ++layer) {
      WaitFor(When::kBeforeForward, layer);
      Compute(program_.forward_s, SpanKind::kForward, layer);
    }
    for (int layer = program_.layers(); layer >= 1; --layer) {
      WaitFor(When::kBeforeBackward, layer);
      Compute(program_.backward_s, SpanKind::kBackward, layer);
      while (Next(When::kAfterBackward, layer)) RunCollective();
    }
    while (next_ < collectives_.size()) RunCollective();
    if (!collectives_.empty()) WaitUntil(link_.free_s);
  }

 private:
  int64_t Period() const { return static_cast<int64_t>(program_.iterations.size()); }

  bool Next(When when, int layer) const {
    return next_ < collectives_.size() && collectives_[next_].when == when && collectives_[next_].layer == layer;
  }

  void Compute(const std::vector<double>& seconds, SpanKind kind, int layer) {
    const double work_s = seconds[static_cast<size_t>(layer - 1)];
    double* const ready_s = members_.ready_s.data();
    const double* const scale = members_.scale.data();
    const size_t members = members_.ready_s.size();
    if (!changing_ && !recorder_.enabled()) {
      for (size_t k = 0; k < members; ++k) ready_s[k] += work_s * scale[k];
      return;
    }
    for (size_t k = 0; k < members; ++k) {
      const double start_s = ready_s[k];
      ready_s[k] = changing_ ? members_.speed[k]->Finish(start_s, work_s * scale[k]) : start_s + work_s * scale[k];
      recorder_.Add({.kind = kind,
                     .worker = members_.workers[k],
                     .layer = layer,
                     .step = number_.step,
                     .round = number_.round,
                     .start_s = start_s,
                     .duration_s = ready_s[k] - start_s});
    }
  }

  // The next collective, now that every member has come to its moment.
  void RunCollective() {
    const ProgramCollective& collective = collectives_[next_];
    double start_s = link_.free_s;
    for (const double ready_s : members_.ready_s) start_s = std::max(start_s, ready_s);
    double work_s = collective.duration_s;
    if (link_.jitter > 0) {
      work_s *= 1 + link_.jitter *
                        TriangularNoise(link_.seed, link_.index, static_cast<uint64_t>(number_.iteration), next_ + 1);
    }
    link_.free_s = link_.speed->Finish(start_s, work_s);
    link_.busy_s += link_.free_s - start_s;
    link_.bytes += collective.bytes;
    if (recorder_.enabled()) {
      for (const int worker : members_.workers) {
        recorder_.Add({.kind = SpanKind::kCollective,
                       .worker = worker,
                       .layer = collective.layer,
                       .step = number_.step,
                       .round = number_.round,
                       .bytes = collective.bytes,
                       .start_s = start_s,
                       .duration_s = link_.free_s - start_s});
      }
    }
    ++next_;
  }

  void WaitFor(When when, int layer) {
    while (Next(when, layer)) {
      RunCollective();
      WaitUntil(link_.free_s);
    }
  }

  void WaitUntil(double time_s) {
    for (size_t k = 0; k < members_.ready_s.size(); ++k) {
      const double waited_s = time_s - members_.ready_s[k];
      if (waited_s <= 0) continue;
      recorder_.Add({.kind = SpanKind::kWait,
                     .worker = members_.workers[k],
                     .step = number_.step,
                     .round = number_.round,
                     .start_s = members_.ready_s[k],
                     .duration_s = waited_s});
      members_.exposed_s[k] += waited_s;
      members_.ready_s[k] = time_s;
    }
  }

  const SiteProgram& program_;
  const StepNumber& number_;
  StepMembers& members_;
  StepLink& link_;
  SpanRecorder& recorder_;
  const std::vector<ProgramCollective>& collectives_;
  size_t next_ = 0;
  bool changing_ = false;
};

}  // namespace

double TriangularNoise(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t bits = Mix(Mix(Mix(Mix(seed) ^ a) ^ b) ^ c);
  // Two independent numbers in (0, 1), of 32 bits each.
  const double u = (static_cast<double>(bits >> 32) + 0.5) / 4294967296.0;
  const double v = (static_cast<double>(bits & 0xffffffffu) + 0.5) / 4294967296.0;
  return u + v - 1;
}

void StepMembers::Erase(size_t member) {
  const auto erase = [&](auto& values) { values.erase(values.begin() + static_cast<std::ptrdiff_t>(member)); };
  erase(workers);
  erase(ready_s);
  erase(scale);
  erase(speed);
  erase(exposed_s);
}

void RunStep(const SiteProgram& program, const StepNumber& number, StepMembers& members, StepLink& link,
             SpanRecorder& recorder) {
  Step(program, number, members, link, recorder).Run();
}

}  // namespace causeway::scheduler
