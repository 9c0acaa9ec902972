#ifndef CAUSEWAY_TESTS_FAKES_FAKE_OPERATOR_CLIENT_H_
#define CAUSEWAY_TESTS_FAKES_FAKE_OPERATOR_CLIENT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/operator_client.h"

namespace causeway::cli {

// A coordinator that answers what the test has put into `answers`, or `error` to everything. It remembers what it was asked, and with what
// time limit. One thread.
struct FakeCoordinator {
  struct Watch {
    std::vector<v1::GetJobResponse> statuses;
    absl::Status end;
  };
  struct Answers {
    v1::GetVersionResponse GetVersion;
    v1::SubmitJobResponse SubmitJob;
    v1::ListJobsResponse ListJobs;
    v1::GetJobResponse GetJob;
    v1::AbortJobResponse AbortJob;
    v1::PauseJobResponse PauseJob;
    v1::ResumeJobResponse ResumeJob;
    v1::DrainWorkerResponse DrainWorker;
    v1::ListWorkersResponse ListWorkers;
    v1::RemoveWorkerResponse RemoveWorker;
    v1::AddSiteResponse AddSite;
    v1::ListSitesResponse ListSites;
    v1::RemoveSiteResponse RemoveSite;
    v1::ListTokensResponse ListTokens;
    v1::RevokeTokenResponse RevokeToken;
    v1::ListModelsResponse ListModels;
    v1::ListCertificatesResponse ListCertificates;
    v1::RequestRenewalResponse RequestRenewal;
  };

  Answers answers;
  std::function<std::string(const std::string& csr_pem)> sign;  // Operators' certificates.
  absl::Status error;
  std::deque<Watch> watches;  // One per call of WatchJob; after the last one it is Unavailable.
  absl::StatusOr<dataplane::PulledModel> model = absl::NotFoundError("no model");
  std::vector<std::string> calls;  // "AbortJob job: \"x\""
  absl::Duration last_timeout;
};

// Calls a FakeCoordinator, which outlives it.
class FakeOperatorClient : public OperatorClient {
 public:
  explicit FakeOperatorClient(FakeCoordinator* coordinator) : coordinator_(coordinator) {}

#define CAUSEWAY_FAKE_CALL(Method)                                                                                   \
  absl::StatusOr<v1::Method##Response> Method(const v1::Method##Request& request, absl::Duration timeout) override { \
    Record(absl::StrCat(#Method " ", request.ShortDebugString()), timeout);                                          \
    if (!coordinator_->error.ok()) return coordinator_->error;                                                       \
    return coordinator_->answers.Method;                                                                             \
  }
  CAUSEWAY_FAKE_CALL(GetVersion)
  CAUSEWAY_FAKE_CALL(SubmitJob)
  CAUSEWAY_FAKE_CALL(ListJobs)
  CAUSEWAY_FAKE_CALL(GetJob)
  CAUSEWAY_FAKE_CALL(AbortJob)
  CAUSEWAY_FAKE_CALL(PauseJob)
  CAUSEWAY_FAKE_CALL(ResumeJob)
  CAUSEWAY_FAKE_CALL(DrainWorker)
  CAUSEWAY_FAKE_CALL(ListWorkers)
  CAUSEWAY_FAKE_CALL(RemoveWorker)
  CAUSEWAY_FAKE_CALL(AddSite)
  CAUSEWAY_FAKE_CALL(ListSites)
  CAUSEWAY_FAKE_CALL(RemoveSite)
  CAUSEWAY_FAKE_CALL(ListTokens)
  CAUSEWAY_FAKE_CALL(RevokeToken)
  CAUSEWAY_FAKE_CALL(ListModels)
  CAUSEWAY_FAKE_CALL(ListCertificates)
  CAUSEWAY_FAKE_CALL(RequestRenewal)
#undef CAUSEWAY_FAKE_CALL
  absl::StatusOr<v1::RenewCertificateResponse> RenewOperatorCertificate(const v1::RenewCertificateRequest& request,
                                                                        absl::Duration timeout) override {
    Record(absl::StrCat("RenewOperatorCertificate ", request.ShortDebugString()), timeout);
    if (!coordinator_->error.ok()) return coordinator_->error;
    v1::RenewCertificateResponse response;
    if (coordinator_->sign) response.set_certificate_pem(coordinator_->sign(request.csr_pem()));
    return response;
  }

  absl::Status WatchJob(const v1::GetJobRequest& request, absl::Duration timeout,
                        const std::function<void(const v1::GetJobResponse&)>& on_status) override {
    Record(absl::StrCat("WatchJob ", request.ShortDebugString()), timeout);
    if (!coordinator_->error.ok()) return coordinator_->error;
    if (coordinator_->watches.empty()) return absl::UnavailableError("connection refused");
    FakeCoordinator::Watch watch = std::move(coordinator_->watches.front());
    coordinator_->watches.pop_front();
    for (const v1::GetJobResponse& status : watch.statuses) on_status(status);
    return watch.end;
  }

  absl::StatusOr<dataplane::PulledModel> PullModel(const std::string& job, int64_t version,
                                                   absl::Duration timeout) override {
    Record(absl::StrCat("PullModel ", job, " ", version), timeout);
    if (!coordinator_->error.ok()) return coordinator_->error;
    return coordinator_->model;
  }

 private:
  void Record(std::string call, absl::Duration timeout) {
    coordinator_->calls.push_back(std::string(absl::StripTrailingAsciiWhitespace(call)));
    coordinator_->last_timeout = timeout;
  }

  FakeCoordinator* const coordinator_;
};

}  // namespace causeway::cli

#endif  // CAUSEWAY_TESTS_FAKES_FAKE_OPERATOR_CLIENT_H_
