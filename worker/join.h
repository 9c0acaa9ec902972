#ifndef CAUSEWAY_WORKER_JOIN_H_
#define CAUSEWAY_WORKER_JOIN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "jobspec/config.h"
#include "proto/membership.pb.h"

namespace causeway::worker {

// Where a worker's credentials lie below its folder, and its configuration.
std::string CaPath(const std::string& dir);           // DIR/tls/ca.pem
std::string CertificatePath(const std::string& dir);  // DIR/tls/worker.pem
std::string KeyPath(const std::string& dir);          // DIR/tls/worker.key, mode 0600
std::string ConfigPath(const std::string& dir);       // DIR/worker.yaml

struct JoinOptions {
  std::string token;
  std::string ca_pin;  // "sha256:..."
  std::string name;    // Wished for; empty: the coordinator chooses.
  std::string dir;
  jobspec::WorkerConfig config;  // What worker.yaml is to hold; its dir is left to the default.
  absl::Duration timeout = absl::Seconds(20);

  FileSystem* fs = nullptr;  // Not owned.
  Clock* clock = nullptr;    // Not owned.
  // The network: dataplane::FetchServerChain, and the call itself (grpc_coordinator_client.h).
  std::function<absl::StatusOr<std::vector<std::string>>(const std::string& host, int port, absl::Time deadline)>
      fetch_chain;
  std::function<absl::StatusOr<v1::JoinResponse>(const std::string& address, const std::string& ca_pem,
                                                 const v1::JoinRequest& request, absl::Time deadline)>
      call_join;
};

struct Joined {
  std::string site;
  std::string worker;
  std::string config_path;
};

// Makes this folder a worker's: checks the coordinator against the pin before the token leaves the machine, makes the key here, has it
// certified, and stores credentials and worker.yaml, the latter last. A try that ends before that may be repeated in the same folder: it
// uses the same key, by which the coordinator knows it. Blocks.
// Errors: AlreadyExists (the folder is a worker's; or the coordinator: the name is taken), PermissionDenied (the pin does not fit, or the
// coordinator refuses the token), FailedPrecondition (versions), InvalidArgument (pin, name, an answer that does not fit),
// DeadlineExceeded, Unavailable, those of the file system.
absl::StatusOr<Joined> Join(const JoinOptions& options);

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_JOIN_H_
