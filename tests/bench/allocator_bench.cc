// How long the allocators take for a thousand devices and ten million samples, and how far the published solver stays from
// the exact one as the samples grow.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "scheduler/allocate.h"
#include "scheduler/test_problems.h"

namespace causeway::scheduler {
namespace {

constexpr int kRepeats = 3;
constexpr AllocationObjective kObjectives[] = {AllocationObjective::kSeparable, AllocationObjective::kBarrier,
                                               AllocationObjective::kPipelined};

std::string Name(absl::string_view name) { return std::string(name.data(), name.size()); }

// The median processor time: nothing here waits, and other work on the machine does not count.
double MedianSeconds(AllocationMethod method, const AllocationProblem& problem, int repeats) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t start = std::clock();
    if (!Allocate(method, problem).ok()) return std::nan("");
    seconds.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[repeats / 2];
}

void AddTimes(nlohmann::ordered_json* rows) {
  std::map<AllocationObjective, double> auglag_s;  // Without an egress cap.
  for (double egress_bytes_per_s : {0.0, 1e8, 1e9, 1e10}) {
    for (AllocationObjective objective : kObjectives) {
      AllocationProblem problem = MakeLargeProblem(1000, 10'000'000, objective, 1);
      if (egress_bytes_per_s > 0) problem.egress_bytes_per_s = egress_bytes_per_s;
      const double exact_s = MedianSeconds(AllocationMethod::kExact, problem, kRepeats);
      if (egress_bytes_per_s == 0) auglag_s[objective] = MedianSeconds(AllocationMethod::kAuglag, problem, 1);
      const std::string name =
          absl::StrCat("exact, ", Name(AllocationObjectiveName(objective)), ", N = 1000, D = 1e7",
                       egress_bytes_per_s > 0 ? absl::StrCat(", egress ", egress_bytes_per_s, " B/s") : "");
      rows->push_back({{"case", name},
                       {"metric", "cpu_time"},
                       {"value", exact_s},
                       {"unit", "s"},
                       {"reference", "auglag, no egress cap, once"},
                       {"reference_value", auglag_s[objective]},
                       {"ratio", exact_s / auglag_s[objective]},
                       {"repeats", kRepeats},
                       {"goal", {{"max", 1}}}});
      std::printf("%-60s %8.3f s, auglag %8.3f s\n", name.c_str(), exact_s, auglag_s[objective]);
    }
  }
}

void AddGaps(nlohmann::ordered_json* rows) {
  for (AllocationObjective objective : kObjectives) {
    for (int64_t samples = 1000; samples <= 10'000'000; samples *= 10) {
      const AllocationProblem problem = MakeRigProblem(samples, objective);
      const double exact_s = PlanAllocation(AllocationMethod::kExact, problem)->evaluation.total_s;
      const AllocationPlan auglag = *PlanAllocation(AllocationMethod::kAuglag, problem);
      const std::string name =
          absl::StrCat("auglag, ", Name(AllocationObjectiveName(objective)), ", N = 8, D = ", samples);
      // The surrogate's floor, and what whole samples and whole steps may cost.
      const double floor = std::pow(8, 0.01) - 1 + RoundingSeconds(problem) / exact_s;
      rows->push_back({{"case", name},
                       {"metric", "total"},
                       {"value", auglag.evaluation.total_s},
                       {"unit", "s"},
                       {"reference", "exact"},
                       {"reference_value", exact_s},
                       {"ratio", auglag.evaluation.total_s / exact_s},
                       {"repeats", 1},
                       {"goal", {{"max", exact_s * (1 + floor)}}}});
      std::printf("%-60s gap %8.4f %%, allowed %8.4f %%; even split %.2f times exact\n", name.c_str(),
                  100 * (auglag.evaluation.total_s / exact_s - 1), 100 * floor, auglag.even_split_total_s / exact_s);
    }
  }
}

}  // namespace
}  // namespace causeway::scheduler

// --benchmark_out=FILE, as the other programs have it.
int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  causeway::scheduler::AddTimes(&rows);
  causeway::scheduler::AddGaps(&rows);
  const std::string option = "--benchmark_out=";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(option, 0) != 0) continue;
    std::ofstream file(argument.substr(option.size()));
    file << nlohmann::ordered_json{{"schema", "causeway.bench/1"}, {"rows", rows}}.dump(1) << "\n";
    if (!file.flush()) return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
