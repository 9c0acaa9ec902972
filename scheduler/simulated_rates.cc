#include "scheduler/simulated_rates.h"

#include <utility>

namespace causeway::scheduler {

using What = SimulatedChange::What;

std::vector<RateCurve> CurvesOf(const SimulatedJob& job, What what) {
  const bool of_worker = what == What::kCompute || what == What::kDownlink || what == What::kUplink;
  const bool of_coordinator = what == What::kCoordinatorEgress || what == What::kCoordinatorIngress;
  std::vector<RateCurve> curves(of_coordinator ? 1 : of_worker ? job.workers.size() : job.sites.size());
  for (const SimulatedChange& change : job.changes) {
    if (change.what != what) continue;
    curves[of_coordinator ? 0 : static_cast<size_t>(change.index)].Add(change.time_s, change.factor);
  }
  return curves;
}

TransferNetwork::Options NetworkOf(const SimulatedJob& job, bool up) {
  std::vector<RateCurve> workers = CurvesOf(job, up ? What::kUplink : What::kDownlink);
  std::vector<RateCurve> sites = CurvesOf(job, up ? What::kSiteUplink : What::kSiteDownlink);
  std::vector<RateCurve> coordinator = CurvesOf(job, up ? What::kCoordinatorIngress : What::kCoordinatorEgress);
  TransferNetwork::Options options;
  for (size_t w = 0; w < job.workers.size(); ++w) {
    const SimulatedWorker& worker = job.workers[w];
    options.site_of_worker.push_back(worker.site);
    options.workers.push_back({up ? worker.uplink_bytes_per_s : worker.downlink_bytes_per_s, std::move(workers[w])});
  }
  for (size_t i = 0; i < job.sites.size(); ++i) {
    const SimulatedSite& site = job.sites[i];
    options.sites.push_back({up ? site.uplink_bytes_per_s : site.downlink_bytes_per_s, std::move(sites[i])});
  }
  options.coordinator = {up ? job.ingress_bytes_per_s : job.egress_bytes_per_s, std::move(coordinator[0])};
  return options;
}

}  // namespace causeway::scheduler
