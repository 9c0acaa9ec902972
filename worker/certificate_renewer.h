#ifndef CAUSEWAY_WORKER_CERTIFICATE_RENEWER_H_
#define CAUSEWAY_WORKER_CERTIFICATE_RENEWER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file.h"
#include "dataplane/link.h"
#include "dataplane/pki.h"
#include "worker/coordinator_client.h"

namespace causeway::worker {

// Renews this worker's certificate at two thirds of its life, or when told to: a new key is made here, the coordinator certifies it for the
// identity that the call comes with, and both replace the old pair in one file.
//
// Thread-safe. Call order: Create, Start, RenewNow*, Stop (idempotent; called by the destructor). A thread of its own.
class CertificateRenewer {
 public:
  struct Options {
    std::string path;  // Certificate and key (dataplane/identity_file.h).
    // The new pair lies in the file: connections made from now on are to use it, `identity` is what it says. On the renewer's thread.
    // An error is logged; the connections that are there stay in use.
    std::function<absl::Status(const dataplane::PeerIdentity& identity)> on_renewed;
    Backoff::Options backoff = {.initial = absl::Seconds(1), .max = absl::Minutes(5)};

    // Not owned; outlive this.
    CoordinatorClient* client = nullptr;
    FileSystem* fs = nullptr;
    Clock* clock = nullptr;
  };
  // Errors: those of reading the certificate.
  static absl::StatusOr<std::unique_ptr<CertificateRenewer>> Create(Options options);
  ~CertificateRenewer();

  void Start();
  // Does not wait for it. What comes within seconds of a renewal means that one, and is ignored.
  void RenewNow();
  void Stop();

 private:
  explicit CertificateRenewer(Options options);

  // On the thread.
  void Look();
  absl::Status Renew();

  const Options options_;
  dataplane::PeerIdentity identity_;
  absl::Time renew_at_;                             // Wall.
  absl::Time try_again_at_ = absl::InfinitePast();  // Steady; after a failure.
  absl::Time renewed_at_ = absl::InfinitePast();    // Steady.
  bool asked_ = false;
  Backoff backoff_;
  Executor::TimerId timer_ = 0;
  SerialExecutor executor_;  // Last, so that its thread ends first.
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_CERTIFICATE_RENEWER_H_
