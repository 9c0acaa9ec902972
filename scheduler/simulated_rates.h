#ifndef CAUSEWAY_SCHEDULER_SIMULATED_RATES_H_
#define CAUSEWAY_SCHEDULER_SIMULATED_RATES_H_

#include <vector>

#include "scheduler/rate_curve.h"
#include "scheduler/simulated_job.h"
#include "scheduler/transfer_network.h"

namespace causeway::scheduler {

// How a job's changes of one kind move its workers or sites over time: [workers], [sites], or one for the coordinator. Here and
// below the job must be valid.
std::vector<RateCurve> CurvesOf(const SimulatedJob& job, SimulatedChange::What what);

// The links between coordinator and workers: to the coordinator (`up`) or from it.
TransferNetwork::Options NetworkOf(const SimulatedJob& job, bool up);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_SIMULATED_RATES_H_
