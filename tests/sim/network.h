#ifndef CAUSEWAY_TESTS_SIM_NETWORK_H_
#define CAUSEWAY_TESTS_SIM_NETWORK_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "dataplane/link.h"
#include "proto/bulk.pb.h"
#include "proto/membership.pb.h"
#include "server/bulk_service.h"
#include "server/coordinator.h"
#include "tests/sim/scheduler.h"
#include "worker/coordinator_client.h"

namespace causeway::sim {

// The path between one worker and the coordinator, as it is now. The world changes it; what is under way goes on under the new figures.
struct Path {
  absl::Duration latency = absl::Milliseconds(5);
  absl::Duration jitter = absl::Milliseconds(2);  // Of every message by itself: unary calls overtake each other.
  double bytes_per_s = 1e6;                       // Of every bulk stream, each way.
  // One in so many is hit; 0: none.
  uint64_t lose_call_one_in = 0;                 // A request or an answer of a unary call.
  uint64_t repeat_call_one_in = 0;               // A request arrives twice.
  uint64_t cut_one_in = 0;                       // Messages of a stream: it breaks there.
  absl::Time down_until = absl::InfinitePast();  // Nothing passes; streams stall.
};

// Hears every message at the moment that it leaves, before the network does anything to it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnRegistered(const std::string& worker, const v1::RegisterResponse& response) = 0;
  virtual void OnAssignment(const std::string& worker, const v1::Assignment& assignment) = 0;
  // A frame of the bulk stream `stream`, numbered from 1.
  virtual void OnFrame(const std::string& worker, int64_t stream, bool from_worker, const v1::Frame& frame) = 0;
};

// Carries the control calls, heartbeat streams and bulk streams between workers and the coordinator, everything as bytes.
class Network {
 public:
  enum class Fate { kSend, kCrashBefore, kCrashAfter };
  struct Options {
    Scheduler* scheduler = nullptr;  // Not owned.
    Observer* observer = nullptr;    // Not owned.
    // Asked at every message that a process sends. A crash: the process has been killed when it returns.
    std::function<Fate(Process*)> on_send;
  };
  explicit Network(Options options);
  ~Network();

  // What listens now. All of it is gone when its process is dead.
  struct Server {
    Process* process = nullptr;
    Executor* executor = nullptr;
    server::Coordinator* coordinator = nullptr;
    server::BulkService* bulk = nullptr;
  };
  void Listen(const Server& server) { server_ = server; }
  // After `process` was killed: its peers learn of it, at the latest after `silence`, and nothing here refers to it any more.
  void Forget(Process* process, absl::Duration silence);
  // Breaks all open streams of a worker, each end when it notices.
  void CutStreams(const std::string& worker);

  // One worker's life. `path` is not owned.
  std::unique_ptr<worker::CoordinatorClient> MakeClient(Process* process, const dataplane::PeerIdentity& peer,
                                                        Path* path);
  std::unique_ptr<dataplane::LinkDialer> MakeDialer(Process* process, const dataplane::PeerIdentity& peer, Path* path);

  bool listening() const { return server_.process != nullptr && !server_.process->dead(); }

 private:
  class Client;
  class Stream;
  class Dialer;
  struct Connection;
  class End;
  struct Caller;

  // Serves a call on the coordinator's executor: bytes in, bytes out.
  using Handle = std::function<absl::StatusOr<std::string>(server::Coordinator*, const std::string&)>;
  absl::StatusOr<std::string> Call(Process* process, const dataplane::PeerIdentity& peer, Path* path,
                                   const std::string& method, const std::string& request, absl::Time deadline,
                                   const Handle& handle);
  void Answer(const Server& server, const dataplane::PeerIdentity& peer, Path* path, const std::string& method,
              const std::string& request, const Handle& handle, const std::shared_ptr<Caller>& caller);
  void Cut(const std::shared_ptr<Connection>& connection);

  // False: the process is dead, whether it died before sending or after.
  bool Send(Process* process, const std::function<void()>& send);
  absl::Duration Delay(const Path& path);
  absl::Duration UntilUp(const Path& path) const;

  const Options options_;
  Scheduler* const scheduler_;
  Server server_;
  int64_t last_stream_ = 0;
  std::list<std::weak_ptr<Caller>> callers_;
  std::list<std::weak_ptr<Stream>> streams_;
  std::list<std::weak_ptr<Connection>> connections_;
};

}  // namespace causeway::sim

#endif  // CAUSEWAY_TESTS_SIM_NETWORK_H_
