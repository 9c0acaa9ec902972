#ifndef CAUSEWAY_DATAPLANE_GRPC_CHANNEL_H_
#define CAUSEWAY_DATAPLANE_GRPC_CHANNEL_H_

#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>

namespace causeway::dataplane {

// Control and bulk run on connections of their own, so that a heartbeat never waits behind a model.
enum class ChannelKind { kControl, kBulk };

inline constexpr int kMaxMessageBytes = 2 << 20;  // Either kind, either way.

// First thing in main, before any other use of gRPC: only TLS 1.3 is spoken from then on, whatever the environment says, and gRPC stays
// initialised until the process ends.
void ConfigureGrpcProcess();

// First thing in main of a program that moves models: keeps freed megabytes for reuse.
void TuneMalloc();

// A channel with a connection of its own, and keepalive. Connects lazily. `address` is host:port. The server's certificate must name
// kCoordinatorDnsName; http_proxy is ignored.
std::shared_ptr<grpc::Channel> MakeChannel(ChannelKind kind, const std::string& address,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// What every server of ours needs: keepalive, bounds on message sizes, on calls at once over a connection and on how long it may be idle, and
// an error when the port is in use.
void ApplyServerArgs(grpc::ServerBuilder* builder);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_GRPC_CHANNEL_H_
