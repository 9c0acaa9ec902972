#ifndef CAUSEWAY_DATAPLANE_GRPC_CONNECTIONS_H_
#define CAUSEWAY_DATAPLANE_GRPC_CONNECTIONS_H_

#include <functional>

#include "dataplane/link.h"

namespace causeway::dataplane {

// Breaks the connections, to the gRPC servers of this process, of those peers for whom `whose` is true; to both ends it is as if the network
// had. Returns how many. Those that are still being made are not among them.
//
// gRPC refuses a call at some 40 us of CPU and has no call to be rid of who makes them. So the connections are taken from channelz, which
// knows each one's certificate and address, and their sockets, found by the address, are shut down under gRPC's hands. Any thread; some 10 us
// a connection.
int BreakConnections(const std::function<bool(const PeerIdentity& peer)>& whose);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_GRPC_CONNECTIONS_H_
