#ifndef CAUSEWAY_SERVER_OWN_CERTIFICATE_H_
#define CAUSEWAY_SERVER_OWN_CERTIFICATE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mutex.h"
#include "dataplane/pki.h"

namespace causeway::server {

// The coordinator's own certificate, which it renews itself: it holds the authority. The file (leaf, CA, key) is watched by the server's
// credentials: connections made after a renewal get the new one, those that are open go on. Thread-safe.
class OwnCertificate {
 public:
  struct Options {
    FileSystem* fs = nullptr;  // Not owned; outlives this, as the clock does.
    Clock* clock = nullptr;
    std::string path;      // Leaf and CA, perhaps the key.
    std::string key_path;  // Where the key lies as `causeway init` leaves it.
    std::string ca_pem;
    std::string ca_key_pem;
    std::vector<std::string> hosts;  // Further names of a new one.
    absl::Duration lifetime = absl::Hours(24 * 365);
  };
  // Reads it, puts the key into its file, and renews it if that is due: it may have expired while nobody ran. Blocks.
  // Errors: NotFound, InvalidArgument (no coordinator's certificate, a key that is not its own), those of FileSystem.
  static absl::StatusOr<std::unique_ptr<OwnCertificate>> Create(Options options);

  dataplane::CertificateInfo info() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time renews_at() const ABSL_LOCKS_EXCLUDED(mu_);  // Wall: two thirds of its life.
  bool due() const ABSL_LOCKS_EXCLUDED(mu_);

  // Makes a new key and certificate. Blocks. Errors: those of FileSystem; the old one stays then.
  absl::Status Renew() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit OwnCertificate(Options options) : options_(std::move(options)) {}

  const Options options_;
  mutable Mutex mu_;
  dataplane::CertificateInfo info_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_OWN_CERTIFICATE_H_
