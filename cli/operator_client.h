#ifndef CAUSEWAY_CLI_OPERATOR_CLIENT_H_
#define CAUSEWAY_CLI_OPERATOR_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "dataplane/model_stream.h"
#include "proto/operator.pb.h"

namespace causeway::cli {

// The coordinator as an operator calls it. Every call blocks for `timeout` at most (InfiniteDuration: for ever).
//
// Errors common to all: Unavailable (nobody there, connection broken), DeadlineExceeded, Unauthenticated, PermissionDenied,
// and the coordinator's own: NotFound, AlreadyExists, FailedPrecondition, InvalidArgument.
class OperatorClient {
 public:
  virtual ~OperatorClient() = default;

  virtual absl::StatusOr<v1::GetVersionResponse> GetVersion(const v1::GetVersionRequest& request,
                                                            absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::SubmitJobResponse> SubmitJob(const v1::SubmitJobRequest& request,
                                                          absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::GetJobResponse> GetJob(const v1::GetJobRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::AbortJobResponse> AbortJob(const v1::AbortJobRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::PauseJobResponse> PauseJob(const v1::PauseJobRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::ResumeJobResponse> ResumeJob(const v1::ResumeJobRequest& request,
                                                          absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::DrainWorkerResponse> DrainWorker(const v1::DrainWorkerRequest& request,
                                                              absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request,
                                                              absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::RemoveWorkerResponse> RemoveWorker(const v1::RemoveWorkerRequest& request,
                                                                absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::AddSiteResponse> AddSite(const v1::AddSiteRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::ListSitesResponse> ListSites(const v1::ListSitesRequest& request,
                                                          absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::RemoveSiteResponse> RemoveSite(const v1::RemoveSiteRequest& request,
                                                            absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::ListTokensResponse> ListTokens(const v1::ListTokensRequest& request,
                                                            absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::RevokeTokenResponse> RevokeToken(const v1::RevokeTokenRequest& request,
                                                              absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::ListModelsResponse> ListModels(const v1::ListModelsRequest& request,
                                                            absl::Duration timeout) = 0;

  virtual absl::StatusOr<v1::ListCertificatesResponse> ListCertificates(const v1::ListCertificatesRequest& request,
                                                                        absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::RequestRenewalResponse> RequestRenewal(const v1::RequestRenewalRequest& request,
                                                                    absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::RenewCertificateResponse> RenewOperatorCertificate(
      const v1::RenewCertificateRequest& request, absl::Duration timeout) = 0;

  // Calls `on_status` with each status as it comes, on the caller's thread; returns when the coordinator ends the stream (OK) or it breaks.
  virtual absl::Status WatchJob(const v1::GetJobRequest& request, absl::Duration timeout,
                                const std::function<void(const v1::GetJobResponse&)>& on_status) = 0;

  // Errors: also those of dataplane::PullModel.
  virtual absl::StatusOr<dataplane::PulledModel> PullModel(const std::string& job, int64_t version,
                                                           absl::Duration timeout) = 0;
};

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_OPERATOR_CLIENT_H_
