#ifndef CAUSEWAY_SERVER_STORED_JOB_H_
#define CAUSEWAY_SERVER_STORED_JOB_H_

#include "absl/status/status.h"
#include "server/job.h"

namespace causeway::server {

// Whether a worker can have measured this: sizes within bounds, figures positive and finite. Errors: InvalidArgument.
absl::Status CheckProfile(const v1::DeviceProfile& profile);
// The same of what it has fetched, in how long; either may be 0.
absl::Status CheckFetched(const v1::ReportDataRequest& request);

// Whether a plan that an operator gives can be followed: samples and batches within bounds. Errors: InvalidArgument.
absl::Status CheckPinnedPlan(const v1::Plan& plan);

// Whether what was read from the journal can have been written there: SQLite finds damaged pages, not a row that says something impossible.
// A Job takes only what has passed. Errors: DataLoss, naming what cannot be.
absl::Status CheckStoredJob(const Job::Options& options, const Job::Stored& stored);

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_STORED_JOB_H_
