// A Google Benchmark program's result as causeway.bench/1 (docs/benchmarks.md): each benchmark's median beside that of the
// one it is compared with, measured in the same run.
#ifndef CAUSEWAY_TESTS_BENCH_ROWS_REPORTER_H_
#define CAUSEWAY_TESTS_BENCH_ROWS_REPORTER_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "nlohmann/json.hpp"

namespace causeway::bench {

struct Comparison {
  std::string name;       // Of the benchmark, as registered.
  std::string reference;  // The other's.
  std::optional<double> max_s;
};

// The file's reporter. The benchmarks must run with repetitions.
class RowsReporter : public benchmark::BenchmarkReporter {
 public:
  explicit RowsReporter(std::vector<Comparison> comparisons) : comparisons_(std::move(comparisons)) {}

  bool ReportContext(const Context& context) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.aggregate_name != "median") continue;
      const double seconds = run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit);
      medians_[run.run_name.function_name] = {.seconds = seconds, .repeats = run.repetitions};
    }
  }

  void Finalize() override {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Comparison& comparison : comparisons_) {
      // --benchmark_filter may have left either out.
      const auto measured = medians_.find(comparison.name), reference = medians_.find(comparison.reference);
      if (measured == medians_.end() || reference == medians_.end()) continue;
      nlohmann::ordered_json row = {{"case", comparison.name},
                                    {"metric", "time"},
                                    {"value", measured->second.seconds},
                                    {"unit", "s"},
                                    {"reference", comparison.reference},
                                    {"reference_value", reference->second.seconds},
                                    {"ratio", measured->second.seconds / reference->second.seconds},
                                    {"repeats", measured->second.repeats}};
      if (comparison.max_s) row["goal"] = {{"max", *comparison.max_s}};
      rows.push_back(std::move(row));
    }
    GetOutputStream() << nlohmann::ordered_json{{"schema", "causeway.bench/1"}, {"rows", rows}}.dump(1) << "\n";
  }

 private:
  struct Median {
    double seconds = 0;
    int64_t repeats = 0;
  };

  const std::vector<Comparison> comparisons_;
  std::map<std::string, Median> medians_;
};

// What a benchmark program's main does when all benchmarks are registered.
inline int RunBenchmarks(int argc, char** argv, std::vector<Comparison> comparisons) {
  // The library refuses a file's reporter where no file is asked for.
  const bool has_file = std::any_of(
      argv, argv + argc, [](const char* argument) { return std::string(argument).rfind("--benchmark_out=", 0) == 0; });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  benchmark::ConsoleReporter console;
  RowsReporter rows(std::move(comparisons));
  benchmark::RunSpecifiedBenchmarks(&console, has_file ? &rows : nullptr);
  benchmark::Shutdown();
  return EXIT_SUCCESS;
}

}  // namespace causeway::bench

#endif  // CAUSEWAY_TESTS_BENCH_ROWS_REPORTER_H_
