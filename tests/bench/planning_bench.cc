// The tables of docs/benchmarks.md, "Planning and simulation": iteration times of every method on the published layer
// profiles, sweeps over layers and bandwidth, the published four-model table, and sharded groups of 512 workers. Prints them as
// Markdown, and writes rows to the file of --benchmark_out=. What is simulated is compared with the closed formulas on the way.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "scheduler/group_planner.h"
#include "scheduler/simulator.h"
#include "scheduler/sync_costs.h"

namespace causeway::scheduler {
namespace {

nlohmann::ordered_json rows_;  // NOLINT: the program's output.

void AddRow(const std::string& name, const std::string& metric, double value, const std::string& reference,
            double reference_value, const std::string& unit = "s") {
  rows_.push_back({{"case", name},
                   {"metric", metric},
                   {"value", value},
                   {"unit", unit},
                   {"reference", reference},
                   {"reference_value", reference_value},
                   {"ratio", reference_value == 0 ? 0 : value / reference_value},
                   {"repeats", 1}});
}

std::vector<LayerProfile> ReadProfiles(const std::string& name) {
  std::ifstream file(absl::StrCat(CAUSEWAY_SOURCE_DIR, "/tests/data/profiles/", name, ".json"));
  const nlohmann::json input = nlohmann::json::parse(file);
  std::vector<LayerProfile> profiles;
  for (const nlohmann::json& layer : input.at("layers")) {
    profiles.push_back({.name = layer.at("name").get<std::string>(),
                        .t_fp_s = layer.at("t_fp_s").get<double>(),
                        .t_bp_s = layer.at("t_bp_s").get<double>(),
                        .t_comm_s = layer.at("t_comm_s").get<double>()});
  }
  return profiles;
}

// The mean iteration of a site under a method, simulated over three periods; aborts where the closed formula says otherwise.
SyncCost Simulated(SyncMethod method, const LayerTimes& times, int period) {
  const SyncOptions options{.period = period};
  SimulatedJob job;
  job.sites = {{.name = "site", .program = *ProgramOf(method, times, options, FillRule::kEnd)}};
  for (const char* name : {"a", "b"}) job.workers.push_back({.name = name});
  job.rounds = {.rounds = 1, .steps = 3 * period};
  const SimulationResult result = *Simulate(job);
  const double steps = static_cast<double>(job.rounds.steps);
  const SyncCost simulated{.iteration_s = result.total_s / steps, .exposed_s = result.workers[0].exposed_s / steps};
  const SyncCost closed = *CostOf(method, times, options);
  if (std::abs(simulated.iteration_s - closed.iteration_s) > 1e-9 * closed.iteration_s) {
    std::fprintf(stderr, "%s: simulated %.17g s, by formula %.17g s\n", std::string(SyncMethodName(method)).c_str(),
                 simulated.iteration_s, closed.iteration_s);
    std::exit(EXIT_FAILURE);
  }
  return simulated;
}

constexpr SyncMethod kMethods[] = {SyncMethod::kSsgd, SyncMethod::kWfbp, SyncMethod::kFlsgd, SyncMethod::kPlsgdEnp,
                                   SyncMethod::kDreamDdp};

void ProfileTable() {
  struct Profile {
    const char* name;
    int period;
    std::optional<std::vector<double>> published;  // In the order of kMethods.
  };
  const Profile profiles[] = {
      {"gpt2-16workers-1gbit", 10, {{5.731, 3.474, .6474, .6217, .5943}}},
      {"gpt2-16workers-5gbit", 10, {{1.282, .7943, .1839, .1572, .1453}}},
      {"llama2-124m-16workers-10gbit", 10, {{1.185, .7333, .1674, .1441, .1290}}},
      {"resnet18-32workers", 5, std::nullopt},
      {"resnet18-32workers", 10, std::nullopt},
  };
  absl::PrintF("| profile | H | | ssgd | wfbp | flsgd | plsgd_enp | dreamddp |\n|---|---|---|---|---|---|---|---|\n");
  for (const Profile& profile : profiles) {
    const LayerTimes times = *LayerTimes::Create(ReadProfiles(profile.name));
    absl::PrintF("| %s | %d | simulated |", profile.name, profile.period);
    for (size_t i = 0; i < std::size(kMethods); ++i) {
      const SyncCost cost = Simulated(kMethods[i], times, profile.period);
      absl::PrintF(" %.4f |", cost.iteration_s);
      AddRow(
          absl::StrCat(profile.name, ", H = ", profile.period, ", ", SyncMethodName(kMethods[i])), "iteration",
          cost.iteration_s, profile.published ? "published" : "ssgd",
          profile.published ? (*profile.published)[i] : ToSeconds(times.total_backward_ns() + times.total_comm_ns()));
    }
    if (profile.published) {
      absl::PrintF("\n| | | published |");
      for (const double published : *profile.published) absl::PrintF(" %.4g |", published);
    }
    absl::PrintF("\n");
  }
}

void SweepTables() {
  const std::vector<LayerProfile> all = ReadProfiles("resnet18-32workers");
  const auto overflow = [](SyncMethod method, const std::vector<LayerProfile>& profiles) {
    const LayerTimes times = *LayerTimes::Create(profiles);
    return 5 * Simulated(method, times, 5).exposed_s;
  };
  const auto print = [&](const std::string& name, const std::vector<LayerProfile>& profiles, double published) {
    const double exact = overflow(SyncMethod::kDreamDdp, profiles);
    absl::PrintF("| %s | %.8f | %.8f | %.6f |\n", name, exact, overflow(SyncMethod::kPlsgdEnp, profiles), published);
    AddRow(absl::StrCat("resnet18-32workers, H = 5, ", name), "overflow", exact, "published", published);
  };
  absl::PrintF("\n| first layers | dreamddp, s | plsgd_enp, s | published |\n|---|---|---|---|\n");
  const std::pair<int, double> layers[] = {{10, .011604}, {15, .011604}, {20, .013953}, {25, .024880}, {30, .089295}};
  for (const auto& [count, published] : layers) {
    print(absl::StrCat(count), {all.begin(), all.begin() + count}, published);
  }
  absl::PrintF("\n| bandwidth | dreamddp, s | plsgd_enp, s | published |\n|---|---|---|---|\n");
  const std::pair<double, double> bandwidths[] = {{1000, .000144}, {100, .001443}, {10, .271788},
                                                  {1, 3.60598},    {.1, 37.0122},  {.01, 371.0747}};
  for (const auto& [bandwidth, published] : bandwidths) {
    std::vector<LayerProfile> profiles(all.begin(), all.begin() + 30);
    for (LayerProfile& layer : profiles) layer.t_comm_s *= 20 / bandwidth;
    print(absl::StrCat(bandwidth), profiles, published);
  }
}

// b and c as printed; the rest from them, by the constants of the authors' code and by the formulas.
void FourModelTable() {
  struct Model {
    const char* name;
    double b, c, ssgd, wfbp, flsgd, plsgd, dreamddp, over_wfbp, over_flsgd;
  };
  const Model models[] = {{"Llama-2", .5524, 4.6843, 5.237, 3.363, 1.016, .7869, .7241, 4.64, 1.40},
                          {"GPT-2", .6478, 4.5698, 5.218, 3.390, 1.100, .8690, .8319, 4.07, 1.32},
                          {"ResNet-18", .0776, .8036, .8812, .5598, .1571, .1248, .1115, 5.02, 1.41},
                          {"ResNet-50", .1347, 1.6431, 1.778, 1.121, .2973, .2288, .1957, 5.73, 1.52}};
  absl::PrintF(
      "\n| model | b + c | ssgd | b + 0.6 c | wfbp | b + 0.099 c | flsgd | b + c / 10 | wfbp / dreamddp | S1 | flsgd / "
      "dreamddp | "
      "S2 |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Model& m : models) {
    absl::PrintF("| %s | %.4g | %.4g | %.4g | %.4g | %.4g | %.4g | %.4g | %.2f | %.2f | %.2f | %.2f |\n", m.name,
                 m.b + m.c, m.ssgd, m.b + .6 * m.c, m.wfbp, m.b + .099 * m.c, m.flsgd, m.b + m.c / 10,
                 m.wfbp / m.dreamddp, m.over_wfbp, m.flsgd / m.dreamddp, m.over_flsgd);
    AddRow(absl::StrCat(m.name, ", 32 workers, ssgd"), "iteration", m.b + m.c, "published", m.ssgd);
    AddRow(absl::StrCat(m.name, ", 32 workers, wfbp"), "iteration, by the constant 0.6", m.b + .6 * m.c, "published",
           m.wfbp);
    AddRow(absl::StrCat(m.name, ", 32 workers, flsgd"), "iteration, by the constant 0.099", m.b + .099 * m.c,
           "published", m.flsgd);
  }
  // Of one of the models the layer profile is there. Its b in the table is twice the profile's.
  const std::vector<LayerProfile> profiles = ReadProfiles("resnet18-32workers");
  absl::PrintF("\n| ResNet-18 | ssgd | wfbp | flsgd | plsgd_enp | dreamddp | wfbp / dreamddp | flsgd / dreamddp |\n");
  absl::PrintF("|---|---|---|---|---|---|---|---|\n");
  for (const double factor : {1.0, 2.0}) {
    std::vector<LayerProfile> scaled = profiles;
    for (LayerProfile& layer : scaled) layer.t_bp_s *= factor;
    const LayerTimes times = *LayerTimes::Create(scaled);
    std::vector<double> seconds;
    for (const SyncMethod method : kMethods) seconds.push_back(Simulated(method, times, 10).iteration_s);
    absl::PrintF("| backward as %s |", factor == 1 ? "profiled" : "in the table, twice the profiled");
    for (const double s : seconds) absl::PrintF(" %.4f |", s);
    absl::PrintF(" %.2f | %.2f |\n", seconds[1] / seconds[4], seconds[2] / seconds[4]);
    AddRow(absl::StrCat("ResNet-18, 32 workers, backward times ", factor, ", wfbp over dreamddp"), "speed-up",
           seconds[1] / seconds[4], "published", 5.02, "");
    AddRow(absl::StrCat("ResNet-18, 32 workers, backward times ", factor, ", flsgd over dreamddp"), "speed-up",
           seconds[2] / seconds[4], "published", 1.41, "");
  }
}

// 512 workers, four to a node. Simulated with layers of equal size, beside the closed cost.
void GroupTables() {
  constexpr int kLayers = 32;
  const GroupModel model{.parameter_bytes = 16.06e9, .layers = kLayers};
  const double compute_s = 3;
  struct Layout {
    const char* name;
    GroupLayout layout;
  };
  const Layout layouts[] = {{"FSDP", {.sites = 1, .workers_per_site = 512, .shards = 512}},
                            {"HSDP, s = 4", {.sites = 1, .workers_per_site = 512, .shards = 4}},
                            {"FL+FSDP, G = 8, K = 64", {.sites = 8, .workers_per_site = 64, .shards = 64}},
                            {"FL+FSDP, G = 128, K = 4", {.sites = 128, .workers_per_site = 4, .shards = 4}},
                            {"FL+HSDP, G = 16, K = 32, s = 4", {.sites = 16, .workers_per_site = 32, .shards = 4}}};
  std::vector<LayerProfile> profiles;
  for (int l = 0; l < kLayers; ++l) {
    profiles.push_back({absl::StrCat("layer", l), compute_s / 3 / kLayers, compute_s * 2 / 3 / kLayers, 0});
  }
  const LayerTimes times = *LayerTimes::Create(profiles);
  for (const double node_bytes_per_s : {50e9, 25e9, 1.25e9}) {
    const Network network{
        {{.name = "gpu", .unit_workers = 1, .bandwidth_bytes_per_s = 300e9, .latency_s = 2e-6},
         {.name = "node", .unit_workers = 4, .bandwidth_bytes_per_s = node_bytes_per_s, .latency_s = 5e-6}}};
    absl::PrintF(
        "\nA node's link: %g GB/s\n\n| | batch | GB a step | inter | T = 1 | 2 | 4 | 8 | 16 | with computing, T = 8 | "
        "of FSDP |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n",
        node_bytes_per_s / 1e9);
    double fsdp_s = 0;
    for (const Layout& l : layouts) {
      std::string seconds;
      GroupCost at_8;
      double step_8_s = 0;
      for (const int64_t period : {1, 2, 4, 8, 16}) {
        GroupLayout layout = l.layout;
        layout.period = period;
        const GroupCost cost = *CostOfGroups(layout, model, network);
        const GroupCost layer = *CostOfGroups(layout, {.parameter_bytes = model.parameter_bytes / kLayers}, network);
        const std::vector<ShardedLayer> sharded(
            kLayers, {layer.gather.seconds, layer.scatter.seconds, layer.replicate.seconds, 0});
        SimulatedJob job;
        for (int g = 0; g < layout.sites; ++g) {
          job.sites.push_back({.name = absl::StrCat("g", g), .program = *ProgramSharded(times, sharded)});
          for (int k = 0; k < layout.workers_per_site; ++k) {
            job.workers.push_back({.name = absl::StrCat("g", g, "k", k), .site = g});
          }
        }
        job.rounds = {.rounds = 2, .steps = period, .all_reduce_s = cost.inter_s};
        const double step_s = Simulate(job)->total_s / static_cast<double>(2 * period);
        if (std::abs(step_s - compute_s - cost.step_s) > 1e-9 * step_s) {
          std::fprintf(stderr, "%s: simulated %.17g s, by formula %.17g s\n", l.name, step_s, compute_s + cost.step_s);
          std::exit(EXIT_FAILURE);
        }
        absl::StrAppend(&seconds, absl::StrFormat(" %.3f |", step_s - compute_s));
        if (period == 8) {
          at_8 = cost;
          step_8_s = step_s;
        }
      }
      if (fsdp_s == 0) fsdp_s = step_8_s;
      absl::PrintF("| %s | %d | %.2f | %.2f %% |%s %.2f | %.2f |\n", l.name, 2 * l.layout.workers_per_site,
                   at_8.step_bytes / 1e9, 100 * at_8.inter_share, seconds, step_8_s, fsdp_s / step_8_s);
      AddRow(absl::StrCat("512 workers, node link ", node_bytes_per_s / 1e9, " GB/s, ", l.name, ", T = 8"), "step",
             step_8_s, "FSDP", fsdp_s);
    }
    const std::vector<GroupChoice> choices = *PlanGroups({.workers = 512,
                                                          .model = {.parameter_bytes = 16.06e9,
                                                                    .state_bytes = 7 * 16.06e9,
                                                                    .largest_layer_bytes = 1.1e9,
                                                                    .activation_bytes = 10e9,
                                                                    .layers = kLayers},
                                                          .network = network,
                                                          .device_memory_bytes = 64e9,
                                                          .max_period = 16,
                                                          .compute_s = compute_s});
    const GroupChoice& best = choices.front();
    absl::PrintF("\nPlanned: G = %d, K = %d, s = %d, T = %d, %.3f s of communication a step, %.1f GB a worker\n",
                 best.layout.sites, best.layout.workers_per_site, best.layout.shards, best.layout.period,
                 best.cost.step_s, best.memory_bytes / 1e9);
  }
}

}  // namespace
}  // namespace causeway::scheduler

int main(int argc, char** argv) {
  causeway::scheduler::ProfileTable();
  causeway::scheduler::SweepTables();
  causeway::scheduler::FourModelTable();
  causeway::scheduler::GroupTables();
  constexpr absl::string_view kOut = "--benchmark_out=";
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (!absl::StartsWith(argument, kOut)) continue;
    std::ofstream file{std::string(argument.substr(kOut.size()))};
    file << nlohmann::ordered_json{{"schema", "causeway.bench/1"}, {"rows", causeway::scheduler::rows_}}.dump(1)
         << "\n";
    if (!file.flush()) return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
