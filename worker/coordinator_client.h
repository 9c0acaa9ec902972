#ifndef CAUSEWAY_WORKER_COORDINATOR_CLIENT_H_
#define CAUSEWAY_WORKER_COORDINATOR_CLIENT_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/membership.pb.h"

namespace causeway::worker {

// The control calls of a worker to its coordinator. Thread-safe. Every call blocks at most until `deadline` (steady time).
// Errors common to all: Unavailable, DeadlineExceeded (retry), Unauthenticated and PermissionDenied (removed or foreign: do not retry),
// FailedPrecondition (incompatible version; the message has both), Aborted (fenced: an older incarnation).
class CoordinatorClient {
 public:
  // An open heartbeat stream. Send and Cancel are thread-safe.
  class HeartbeatStream {
   public:
    virtual ~HeartbeatStream() = default;
    virtual absl::Status Send(const v1::HeartbeatRequest& request) = 0;
    virtual void Cancel() = 0;
  };
  struct HeartbeatEvents {
    std::function<void(const v1::HeartbeatResponse&)> on_response;
    std::function<void(const absl::Status&)> on_closed;  // Once; nothing follows. Both are called on a library thread.
  };

  virtual ~CoordinatorClient() = default;
  virtual absl::StatusOr<v1::RegisterResponse> Register(const v1::RegisterRequest& request, absl::Time deadline) = 0;
  virtual absl::StatusOr<std::unique_ptr<HeartbeatStream>> OpenHeartbeat(HeartbeatEvents events) = 0;
  virtual absl::Status ReportModel(const v1::ReportModelRequest& request, absl::Time deadline) = 0;
  virtual absl::Status ReportProfile(const v1::ReportProfileRequest& request, absl::Time deadline) = 0;
  virtual absl::Status ReportData(const v1::ReportDataRequest& request, absl::Time deadline) = 0;
  virtual absl::Status ReportEvaluation(const v1::ReportEvaluationRequest& request, absl::Time deadline) = 0;
  virtual absl::Status ReportFailure(const v1::ReportFailureRequest& request, absl::Time deadline) = 0;
  virtual absl::Status Leave(const v1::LeaveRequest& request, absl::Time deadline) = 0;
  virtual absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(const v1::RenewCertificateRequest& request,
                                                                        absl::Time deadline) = 0;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_COORDINATOR_CLIENT_H_
