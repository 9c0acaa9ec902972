// How long a simulation of 1,024 workers over 1,000 steps of 100 layers takes: as it is planned, and with all that may happen.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/simulator.h"
#include "tests/bench/rows_reporter.h"

namespace causeway::scheduler {
namespace {

constexpr int kRepetitions = 3;
constexpr double kGoalSeconds = 10;

// 50 rounds of 20 steps. `sites` of equal size, all of them under dreamddp; in a site of one nothing is exchanged.
SimulatedJob Job(int sites) {
  std::vector<LayerProfile> layers;
  for (int l = 0; l < 100; ++l) {
    layers.push_back({absl::StrCat("layer", l), 0.001, 0.002, 0.0015 + 0.0001 * (l % 7)});
  }
  const LayerTimes times = *LayerTimes::Create(layers);
  const int per_site = 1024 / sites;
  SimulatedJob job;
  for (int s = 0; s < sites; ++s) {
    job.sites.push_back({.name = absl::StrCat("s", s),
                         .program = per_site == 1
                                        ? *ProgramNone(times)
                                        : *ProgramOf(SyncMethod::kDreamDdp, times, {.period = 5}, FillRule::kEnd)});
    for (int k = 0; k < per_site; ++k) {
      job.workers.push_back({.name = absl::StrCat("s", s, "w", k),
                             .site = s,
                             .downlink_bytes_per_s = 1e8,
                             .uplink_bytes_per_s = 5e7,
                             .slowdown = 1 + 0.01 * (k % 5),
                             .samples = 10000,
                             .batch_size = 32});
    }
  }
  job.sample_bytes = 1000;
  job.rounds = {.rounds = 50, .steps = 20, .fragment_bytes = {1e9}};
  return job;
}

SimulatedJob WithAllThatMayHappen(SimulatedJob job) {
  for (SimulatedSite& site : job.sites) site.uplink_bytes_per_s = 1e9;
  job.egress_bytes_per_s = job.ingress_bytes_per_s = 1e10;
  job.compute_jitter = job.collective_jitter = 0.1;
  job.rounds.fragment_bytes = {5e8, 5e8};
  job.rounds.delay = 5;
  job.rounds.deadline_s = 100;
  for (int i = 0; i < 20; ++i) {
    job.changes.push_back({SimulatedChange::What::kCompute, i * 50, 10.0 * i, 0.5});
    job.absences.push_back({.worker = i * 50 + 1, .stop_s = 10.0 * i, .return_s = 10.0 * i + 50});
  }
  return job;
}

int Main(int argc, char** argv) {
  const std::vector<std::pair<std::string, SimulatedJob>> jobs = {
      {"16 sites", Job(16)},
      {"1,024 workers alone", Job(1024)},
      {"16 sites, all that may happen", WithAllThatMayHappen(Job(16))},
      {"1,024 workers alone, all that may happen", WithAllThatMayHappen(Job(1024))}};
  std::vector<bench::Comparison> comparisons;
  for (const auto& job : jobs) {
    const auto run = [&job](benchmark::State& state) {
      for (auto _ : state) {
        const absl::StatusOr<SimulationResult> result = Simulate(job.second);
        if (!result.ok() || !result->completed) return state.SkipWithError("the job did not end");
        benchmark::DoNotOptimize(result->total_s);
      }
    };
    benchmark::RegisterBenchmark(job.first.c_str(), run)
        ->Iterations(1)
        ->Repetitions(kRepetitions)
        ->Unit(benchmark::kMillisecond);
    comparisons.push_back({job.first, jobs[job.first == jobs[0].first ? 1 : 0].first, kGoalSeconds});
  }
  return bench::RunBenchmarks(argc, argv, std::move(comparisons));
}

}  // namespace
}  // namespace causeway::scheduler

int main(int argc, char** argv) { return causeway::scheduler::Main(argc, argv); }
