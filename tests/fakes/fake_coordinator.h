#ifndef CAUSEWAY_TESTS_FAKES_FAKE_COORDINATOR_H_
#define CAUSEWAY_TESTS_FAKES_FAKE_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "dataplane/layout.h"
#include "dataplane/link.h"
#include "proto/membership.pb.h"
#include "worker/coordinator_client.h"

namespace causeway {

// A coordinator for one worker, by script: it hands out what the test assigns, serves models and chunks, takes contributions, and
// remembers all it was told. Thread-safe. Outlives its streams and links.
class FakeCoordinator : public worker::CoordinatorClient, public dataplane::LinkHandler {
 public:
  explicit FakeCoordinator(Clock* clock);

  // ---- Script
  // From now on this is what the worker is to do; sent at once over an open stream. The sequence is set here.
  void Assign(v1::Assignment assignment);
  // Ends the heartbeat stream.
  void BreakStream(const absl::Status& status);
  // As a restarted process: the stream ends, the incarnation grows, what is assigned stays.
  void Restart();
  // Fails each of the next `count` calls of this name ("Register", "ReportModel", ...) with `status`.
  void FailCalls(const std::string& name, int count, const absl::Status& status);
  // Answers no heartbeat any more.
  void Mute();
  void SetProtocolMajor(uint32_t major);
  // What registrations from now on are told of where bulk is served; empty (the default): nothing.
  void SetEndpoint(const std::string& address);

  // Answers the next heartbeats with the request for a new certificate.
  void AskForRenewal(bool ask);
  // The certificate for a request.
  void SignCertificates(std::function<absl::StatusOr<std::string>(const std::string& csr_pem)> sign);

  void SetModel(int64_t version, const dataplane::Layout& layout, std::vector<uint8_t> bytes);
  // Cuts records (whose count is records.size() / record_bytes) into chunks that can be fetched from then on.
  v1::DatasetInfo AddDataset(const std::vector<uint8_t>& records, std::vector<int64_t> sample_shape,
                             int64_t records_per_chunk);
  // The answer to pushes from now on; COUNTED by default. Counted initial models become version 0.
  void SetPushOutcome(v1::PushResult::Outcome outcome);
  // Whether pushes are taken but not answered; those under way are answered once this is lifted, before the end of the test.
  void HoldPushAnswers(bool hold);

  // ---- What was told
  struct Push {
    v1::PushRequest request;
    std::vector<uint8_t> bytes;
  };
  std::vector<Push> pushes() const;
  std::vector<v1::RegisterRequest> registrations() const;
  std::vector<v1::HeartbeatRequest> heartbeats() const;
  std::vector<v1::ReportModelRequest> models() const;
  std::vector<v1::ReportProfileRequest> profiles() const;
  std::vector<v1::ReportDataRequest> data() const;
  std::vector<v1::ReportEvaluationRequest> evaluations() const;
  std::vector<v1::ReportFailureRequest> failures() const;
  int leaves() const;
  int64_t served_chunks() const;

  // Blocks until `condition`, which may use the above, holds after something was told. False: it did not within 10 s of real time.
  [[nodiscard]] bool Await(const std::function<bool()>& condition) const;

  // ---- CoordinatorClient
  absl::StatusOr<v1::RegisterResponse> Register(const v1::RegisterRequest& request, absl::Time deadline) override;
  absl::StatusOr<std::unique_ptr<HeartbeatStream>> OpenHeartbeat(HeartbeatEvents events) override;
  absl::Status ReportModel(const v1::ReportModelRequest& request, absl::Time deadline) override;
  absl::Status ReportProfile(const v1::ReportProfileRequest& request, absl::Time deadline) override;
  absl::Status ReportData(const v1::ReportDataRequest& request, absl::Time deadline) override;
  absl::Status ReportEvaluation(const v1::ReportEvaluationRequest& request, absl::Time deadline) override;
  absl::Status ReportFailure(const v1::ReportFailureRequest& request, absl::Time deadline) override;
  absl::Status Leave(const v1::LeaveRequest& request, absl::Time deadline) override;
  // What SignCertificates has set; until then FailedPrecondition.
  absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(const v1::RenewCertificateRequest& request,
                                                                absl::Time deadline) override;

  // ---- LinkHandler
  absl::Status Serve(dataplane::LinkKind kind, const dataplane::PeerIdentity& peer, dataplane::Link* link) override;

 private:
  class Stream;
  class Sink;
  class Chunks;
  struct Model {
    dataplane::Layout layout;
    std::vector<uint8_t> bytes;
  };
  // The events of the open stream, callable while it is open.
  struct StreamState;

  template <typename Request>
  absl::Status Record(const std::string& name, const Request& request, std::vector<Request>* into)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakeFailure(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);
  void OnHeartbeat(const std::shared_ptr<StreamState>& stream, const v1::HeartbeatRequest& request);
  void Changed() ABSL_LOCKS_EXCLUDED(mu_);

  Clock* const clock_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  v1::Assignment assignment_ ABSL_GUARDED_BY(mu_);
  int64_t incarnation_ ABSL_GUARDED_BY(mu_) = 1;
  uint32_t protocol_major_ ABSL_GUARDED_BY(mu_);
  std::string endpoint_ ABSL_GUARDED_BY(mu_);
  bool mute_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<StreamState> stream_ ABSL_GUARDED_BY(mu_);
  struct FailureToCome {
    int count = 0;
    // Each call gets a status of its own: the thread sanitizer does not see the reference counts of shared ones.
    absl::StatusCode code = absl::StatusCode::kOk;
    std::string message;
  };
  std::map<std::string, FailureToCome> failures_to_come_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, Model> served_models_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::vector<uint8_t>> chunks_ ABSL_GUARDED_BY(mu_);
  v1::PushResult::Outcome push_outcome_ ABSL_GUARDED_BY(mu_) = v1::PushResult::OUTCOME_COUNTED;
  bool hold_push_answers_ ABSL_GUARDED_BY(mu_) = false;
  int64_t served_chunks_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Push> pushes_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::RegisterRequest> registrations_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::HeartbeatRequest> heartbeats_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ReportModelRequest> models_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ReportProfileRequest> profiles_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ReportDataRequest> data_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ReportEvaluationRequest> evaluations_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ReportFailureRequest> failures_ ABSL_GUARDED_BY(mu_);
  int leaves_ ABSL_GUARDED_BY(mu_) = 0;
  bool ask_for_renewal_ ABSL_GUARDED_BY(mu_) = false;
  std::function<absl::StatusOr<std::string>(const std::string&)> sign_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FAKES_FAKE_COORDINATOR_H_
