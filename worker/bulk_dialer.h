#ifndef CAUSEWAY_WORKER_BULK_DIALER_H_
#define CAUSEWAY_WORKER_BULK_DIALER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "dataplane/link.h"
#include "proto/membership.pb.h"

namespace causeway::worker {

// Opens bulk links to where the coordinator says that it serves them. Thread-safe. Outlives its links.
class BulkDialer : public dataplane::LinkDialer {
 public:
  // Makes the dialer of one address (host:port).
  using Factory = std::function<std::unique_ptr<dataplane::LinkDialer>(const std::string& address)>;

  // `address`, the one in the worker's configuration, serves until the coordinator has named another.
  BulkDialer(Factory factory, std::string address);

  // Links dialed from now on go to the endpoint of `response` that serves the whole layout, else to the configured address; links that
  // are open stay.
  void Follow(const v1::RegisterResponse& response) ABSL_LOCKS_EXCLUDED(mu_);
  std::string address() const ABSL_LOCKS_EXCLUDED(mu_);

  // Links dialed from now on get dialers made anew, and with them connections; links that are open stay.
  void Reconnect() ABSL_LOCKS_EXCLUDED(mu_);

  absl::StatusOr<std::unique_ptr<dataplane::Link>> Dial(dataplane::LinkKind kind, absl::Time deadline) override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const Factory factory_;
  const std::string configured_;
  mutable Mutex mu_;
  std::string address_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::unique_ptr<dataplane::LinkDialer>> dialers_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<dataplane::LinkDialer>> former_ ABSL_GUARDED_BY(mu_);  // Kept for their links.
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_BULK_DIALER_H_
