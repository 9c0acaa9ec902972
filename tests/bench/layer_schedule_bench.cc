// How long the schedulers take to plan, beside the ways that need no thought: every cut, and the dynamic programme as one
// writes it down first. The results are compared too.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/layer_schedulers.h"
#include "tests/bench/rows_reporter.h"

namespace causeway::scheduler {
namespace {

constexpr int kRepetitions = 9;

// Backward takes a second in all, communication `ratio` seconds; single layers differ by a factor of up to a hundred.
LayerTimes MakeTimes(int layers, double ratio) {
  std::mt19937 random(1);
  std::vector<LayerProfile> profiles;
  double backward_s = 0, comm_s = 0;
  for (int layer = 1; layer <= layers; ++layer) {
    profiles.push_back({.name = absl::StrCat(layer),
                        .t_fp_s = 0,
                        .t_bp_s = static_cast<double>(1 + random() % 100),
                        .t_comm_s = static_cast<double>(1 + random() % 100)});
    backward_s += profiles.back().t_bp_s;
    comm_s += profiles.back().t_comm_s;
  }
  for (LayerProfile& profile : profiles) {
    profile.t_bp_s /= backward_s;
    profile.t_comm_s *= ratio / comm_s;
  }
  return *LayerTimes::Create(profiles);
}

// The optimum over contiguous cuts in O(period * layers^2).
int64_t PlainDynamicProgramme(const LayerTimes& times, int period) {
  const int layers = times.layers();
  const int64_t backward_ns = times.total_backward_ns();
  // cost[first][left]: of the piece {first, ..., left + 1}.
  std::vector<std::vector<int64_t>> cost(layers + 1, std::vector<int64_t>(layers + 1, backward_ns));
  for (int first = 1; first <= layers; ++first) {
    int64_t end_ns = 0;
    for (int layer = first; layer >= 1; --layer) {
      end_ns = std::max(end_ns, times.backward_end_ns(layer)) + times.comm_ns(layer);
      cost[first][layer - 1] = std::max(backward_ns, end_ns);
    }
  }
  std::vector<int64_t> best = cost[layers];
  for (int piece = 2; piece <= period; ++piece) {
    std::vector<int64_t> next(layers + 1, std::numeric_limits<int64_t>::max());
    for (int left = 0; left <= layers; ++left) {
      for (int first = left; first <= layers; ++first)
        next[left] = std::min(next[left], best[first] + cost[first][left]);
    }
    best = std::move(next);
  }
  return best[0];
}

std::string Name(const std::string& solver, int layers, int period, double ratio) {
  return absl::StrCat(solver, "/L=", layers, "/H=", period, "/c=", ratio, "b");
}

void Register(const std::string& name, const std::function<int64_t()>& objective_ns, int64_t expected_ns) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 for (auto _ : state) {
                                   if (objective_ns() > expected_ns) state.SkipWithError("not the optimum");
                                 }
                               })
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.05)
      ->Repetitions(kRepetitions)
      ->ReportAggregatesOnly();
}

void RegisterScheduler(LayerScheduler scheduler, int layers, int period, double ratio) {
  const LayerTimes times = MakeTimes(layers, ratio);
  Register(
      Name(std::string(LayerSchedulerName(scheduler)), layers, period, ratio),
      [=] { return ScheduleLayers(scheduler, times, period)->objective_ns; }, PlainDynamicProgramme(times, period));
}

void RegisterPlain(int layers, int period, double ratio) {
  const LayerTimes times = MakeTimes(layers, ratio);
  Register(
      Name("plain", layers, period, ratio), [=] { return PlainDynamicProgramme(times, period); },
      PlainDynamicProgramme(times, period));
}

}  // namespace
}  // namespace causeway::scheduler

int main(int argc, char** argv) {
  using causeway::scheduler::LayerScheduler;
  using causeway::scheduler::Name;
  std::vector<causeway::bench::Comparison> comparisons;
  // Communication that is nearly hidden, and that by far is not.
  for (const double ratio : {4., 60.}) {
    for (const auto& [layers, period] : {std::pair(125, 10), {1000, 64}}) {
      causeway::scheduler::RegisterPlain(layers, period, ratio);
      const std::string plain = Name("plain", layers, period, ratio);
      causeway::scheduler::RegisterScheduler(LayerScheduler::kExact, layers, period, ratio);
      comparisons.push_back({.name = Name("exact", layers, period, ratio), .reference = plain});
      if (layers == 1000) comparisons.back().max_s = 0.05;
      causeway::scheduler::RegisterScheduler(LayerScheduler::kDreamDdp, layers, period, ratio);
      comparisons.push_back({.name = Name("dreamddp", layers, period, ratio), .reference = plain});
      if (layers == 125) comparisons.back().max_s = 0.01;
      causeway::scheduler::RegisterScheduler(LayerScheduler::kFree, layers, period, ratio);
      comparisons.push_back({.name = Name("free", layers, period, ratio), .reference = plain});
    }
  }
  causeway::scheduler::RegisterScheduler(LayerScheduler::kBrute, 30, 5, 4);
  causeway::scheduler::RegisterScheduler(LayerScheduler::kExact, 30, 5, 4);
  causeway::scheduler::RegisterScheduler(LayerScheduler::kDreamDdp, 30, 5, 4);
  for (const char* solver : {"exact", "dreamddp"}) {
    comparisons.push_back({.name = Name(solver, 30, 5, 4), .reference = Name("brute", 30, 5, 4)});
  }
  return causeway::bench::RunBenchmarks(argc, argv, std::move(comparisons));
}
