// The published layer profiles, simulated, against their expected figures (tests/data/profiles/README.md, and the figures
// of the published experiments).
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/simulator.h"
#include "scheduler/test_layers.h"

namespace causeway::scheduler {
namespace {

struct Simulated {
  double iteration_s;
  double overflow_s;  // Over a period.
};

Simulated Simulate(SyncMethod method, const std::vector<LayerProfile>& profiles, int period) {
  SimulatedJob job;
  job.sites = {
      {.name = "site", .program = *ProgramOf(method, MakeTimes(profiles), {.period = period}, FillRule::kEnd)}};
  job.workers = {{.name = "a"}, {.name = "b"}};
  job.rounds.steps = 3 * period;
  const absl::StatusOr<SimulationResult> result = Simulate(job);
  EXPECT_TRUE(result.ok()) << result.status();
  return {result->total_s / (3 * period), result->workers[0].exposed_s / 3};
}

struct Profile {
  std::string name;
  int period;
  double backward_s, comm_s, dreamddp_s, overflow_s, flsgd_s;
};

const Profile kProfiles[] = {{"resnet18-32workers", 5, .038783, .803647, .169832, .655246, .199512},
                             {"gpt2-16workers-1gbit", 10, .088830, 5.642374, .598994, 5.101636, .653067},
                             {"gpt2-16workers-5gbit", 10, .063226, 1.218459, .145729, .825028, .185072},
                             {"llama2-124m-16workers-10gbit", 10, .055574, 1.129478, .129717, .741424, .168522}};

TEST(PublishedProfilesTest, IterationTimes) {
  for (const Profile& p : kProfiles) {
    const std::vector<LayerProfile> profiles = ReadProfiles(p.name);
    EXPECT_NEAR(Simulate(SyncMethod::kSsgd, profiles, p.period).iteration_s, p.backward_s + p.comm_s, 2e-6) << p.name;
    EXPECT_NEAR(Simulate(SyncMethod::kFlsgd, profiles, p.period).iteration_s, p.flsgd_s, 2e-6) << p.name;
    const Simulated dreamddp = Simulate(SyncMethod::kDreamDdp, profiles, p.period);
    EXPECT_NEAR(dreamddp.iteration_s, p.dreamddp_s, 2e-6) << p.name;
    EXPECT_NEAR(dreamddp.overflow_s, p.overflow_s, 2e-6) << p.name;
    // What the order of the methods is on each of them.
    const double plsgd_s = Simulate(SyncMethod::kPlsgdEnp, profiles, p.period).iteration_s;
    EXPECT_LT(dreamddp.iteration_s, plsgd_s) << p.name;
    EXPECT_LT(plsgd_s, p.flsgd_s) << p.name;
    const double wfbp_s = Simulate(SyncMethod::kWfbp, profiles, p.period).iteration_s;
    EXPECT_LT(p.flsgd_s, wfbp_s) << p.name;
    EXPECT_LT(wfbp_s, p.backward_s + p.comm_s) << p.name;
  }
}

TEST(PublishedProfilesTest, MoreLayers) {
  const std::vector<LayerProfile> all = ReadProfiles("resnet18-32workers");
  const std::pair<int, double> expected[] = {
      {10, .01156961}, {15, .01160427}, {20, .01395334}, {25, .02487955}, {30, .08826199}};
  for (const auto& [layers, overflow_s] : expected) {
    EXPECT_NEAR(Simulate(SyncMethod::kDreamDdp, {all.begin(), all.begin() + layers}, 5).overflow_s, overflow_s, 5e-8)
        << layers;
  }
}

TEST(PublishedProfilesTest, MoreBandwidth) {
  const std::vector<LayerProfile> all = ReadProfiles("resnet18-32workers");
  const std::pair<double, double> expected[] = {{1000, .00014427}, {100, .00169144}, {10, .27178827}, {1, 3.60598088}};
  for (const auto& [bandwidth, overflow_s] : expected) {
    std::vector<LayerProfile> profiles(all.begin(), all.begin() + 30);
    for (LayerProfile& layer : profiles) layer.t_comm_s *= 20 / bandwidth;
    EXPECT_NEAR(Simulate(SyncMethod::kDreamDdp, profiles, 5).overflow_s, overflow_s, 5e-8) << bandwidth;
  }
}

// The published columns that can be recomputed: b + c; with a profile, the speed-up over flsgd of ResNet-18, whose b in the
// published table is twice the profile's.
TEST(PublishedProfilesTest, FourModelTable) {
  std::vector<LayerProfile> profiles = ReadProfiles("resnet18-32workers");
  for (LayerProfile& layer : profiles) layer.t_bp_s *= 2;
  EXPECT_NEAR(Simulate(SyncMethod::kSsgd, profiles, 10).iteration_s, .8812, 5e-5);
  const double dreamddp_s = Simulate(SyncMethod::kDreamDdp, profiles, 10).iteration_s;
  EXPECT_NEAR(dreamddp_s, .1115, 1e-3);
  EXPECT_NEAR(Simulate(SyncMethod::kPlsgdEnp, profiles, 10).iteration_s, .1248, 1e-3);
  EXPECT_NEAR(Simulate(SyncMethod::kFlsgd, profiles, 10).iteration_s / dreamddp_s, 1.41, 0.005);
}

}  // namespace
}  // namespace causeway::scheduler
