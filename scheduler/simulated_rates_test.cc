#include "scheduler/simulated_rates.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway::scheduler {
namespace {

using ::testing::ElementsAre;
using What = SimulatedChange::What;

SimulatedJob Job() {
  SimulatedJob job;
  job.sites = {{.name = "a", .downlink_bytes_per_s = 1, .uplink_bytes_per_s = 2},
               {.name = "b", .downlink_bytes_per_s = 3, .uplink_bytes_per_s = 4}};
  job.workers = {{.site = 1, .downlink_bytes_per_s = 5, .uplink_bytes_per_s = 6},
                 {.site = 0, .downlink_bytes_per_s = 7, .uplink_bytes_per_s = 8},
                 {.site = 0, .downlink_bytes_per_s = 9, .uplink_bytes_per_s = 10}};
  job.egress_bytes_per_s = 11;
  job.ingress_bytes_per_s = 12;
  job.changes = {
      {What::kCompute, 1, 100, 2},           {What::kDownlink, 0, 100, 3},          {What::kUplink, 2, 100, 4},
      {What::kSiteCollective, 1, 100, 5},    {What::kSiteDownlink, 0, 100, 6},      {What::kSiteUplink, 1, 100, 7},
      {What::kCoordinatorEgress, 9, 100, 8}, {What::kCoordinatorIngress, 9, 100, 9}};
  return job;
}

std::vector<double> Later(const std::vector<RateCurve>& curves) {
  std::vector<double> factors;
  for (const RateCurve& curve : curves) factors.push_back(curve.FactorAt(100));
  return factors;
}

std::vector<double> At(const std::vector<LinkRate>& links, double time_s) {
  std::vector<double> rates;
  for (const LinkRate& link : links) rates.push_back(link.At(time_s));
  return rates;
}

TEST(SimulatedRatesTest, EachChangeMovesItsOwn) {
  const SimulatedJob job = Job();
  EXPECT_THAT(Later(CurvesOf(job, What::kCompute)), ElementsAre(1, 2, 1));
  EXPECT_THAT(Later(CurvesOf(job, What::kSiteCollective)), ElementsAre(1, 5));
  EXPECT_THAT(Later(CurvesOf(job, What::kCoordinatorEgress)), ElementsAre(8));
}

TEST(SimulatedRatesTest, Networks) {
  const TransferNetwork::Options down = NetworkOf(Job(), /*up=*/false);
  EXPECT_THAT(down.site_of_worker, ElementsAre(1, 0, 0));
  EXPECT_THAT(At(down.workers, 0), ElementsAre(5, 7, 9));
  EXPECT_THAT(At(down.workers, 100), ElementsAre(15, 7, 9));
  EXPECT_THAT(At(down.sites, 100), ElementsAre(6, 3));
  EXPECT_EQ(down.coordinator.At(0), 11);
  EXPECT_EQ(down.coordinator.At(100), 88);
  const TransferNetwork::Options up = NetworkOf(Job(), /*up=*/true);
  EXPECT_THAT(At(up.workers, 100), ElementsAre(6, 8, 40));
  EXPECT_THAT(At(up.sites, 100), ElementsAre(2, 28));
  EXPECT_EQ(up.coordinator.At(100), 108);
}

}  // namespace
}  // namespace causeway::scheduler
