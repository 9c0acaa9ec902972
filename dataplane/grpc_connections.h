#ifndef CAUSEWAY_DATAPLANE_GRPC_CONNECTIONS_H_
#define CAUSEWAY_DATAPLANE_GRPC_CONNECTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "dataplane/link.h"

namespace causeway::dataplane {

// Breaks the connections, to the gRPC servers of this process, of those peers for whom `whose` is true; to both ends it is as if the network
// had. Returns how many. Those that are still being made are not among them.
//
// gRPC refuses a call at some 40 us of CPU and has no call to be rid of who makes them. So the connections are taken from channelz, which
// knows each one's certificate and address, and their sockets, found by the address, are shut down under gRPC's hands. Any thread; some 10 us
// a connection.
int BreakConnections(const std::function<bool(const PeerIdentity& peer)>& whose);

// Bounds what those may hold of a server who have shown no certificate: connections before and during their handshake, which gRPC keeps for two
// minutes and lets take descriptors until its listener dies of the lack of them, and anonymous ones, whose only use is to join. They are found
// among the process's sockets. Not thread-safe.
class StrangerWatch {
 public:
  struct Options {
    int port = 0;  // The server's.
    // Joining takes some kilobytes and less than a second on a fast line.
    absl::Duration most_time = absl::Seconds(30);
    int64_t most_bytes = 1 << 20;  // That it has sent.
    int most_connections = 256;    // Beyond, the oldest go.
  };
  explicit StrangerWatch(const Options& options) : options_(options) {}

  // To be called several times a second; `now`: steady. Returns how many connections it has broken.
  int Sweep(absl::Time now);

 private:
  // An address in network order, 4 bytes of IPv4 or 16 of IPv6, and a port.
  using Endpoint = std::pair<std::string, int>;

  const Options options_;
  std::map<Endpoint, absl::Time> strangers_;  // Since when.
  std::set<Endpoint> known_;                  // Who have shown a certificate.
  std::set<int64_t> looked_at_;               // gRPC's numbers of connections.
};

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_GRPC_CONNECTIONS_H_
