#include "dataplane/grpc_connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "dataplane/pki.h"
#include "nlohmann/json.hpp"

namespace causeway::dataplane {
namespace {

using nlohmann::json;

// An address in network order, 4 bytes of IPv4 or 16 of IPv6, and a port.
using Endpoint = std::pair<std::string, int>;

// What channelz says in JSON, with the names of its .proto. Null if it says nothing.
json Parse(char* text) {
  std::unique_ptr<char, void (*)(void*)> owned(text, gpr_free);
  return text == nullptr ? json() : json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// json.value() throws on another type; a missing or odd member is null here.
json Member(const json& parent, const char* name) {
  const auto it = parent.is_object() ? parent.find(name) : parent.end();
  return parent.is_object() && it != parent.end() ? *it : json();
}

std::string Text(const json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

// 64-bit numbers come as strings.
int64_t Number(const json& value) {
  int64_t number = 0;
  if (value.is_number()) return value.get<int64_t>();
  return absl::SimpleAtoi(Text(value), &number) ? number : 0;
}

std::string Bytes(const json& base64) {
  std::string bytes;
  return absl::Base64Unescape(Text(base64), &bytes) ? bytes : std::string();
}

std::vector<int64_t> Servers() {
  std::vector<int64_t> ids;
  const json page = Parse(grpc_channelz_get_servers(0));
  for (const json& server : Member(page, "server")) ids.push_back(Number(Member(Member(server, "ref"), "serverId")));
  return ids;
}

std::vector<int64_t> SocketsOf(int64_t server) {
  std::vector<int64_t> ids;
  for (;;) {
    const json page = Parse(grpc_channelz_get_server_sockets(server, ids.empty() ? 0 : ids.back() + 1, 0));
    const json refs = Member(page, "socketRef");
    for (const json& ref : refs) ids.push_back(Number(Member(ref, "socketId")));
    if (refs.empty() || Member(page, "end") == true) return ids;
  }
}

// IPv4 in IPv6's clothes, as of a listener for both, counts as IPv4.
Endpoint EndpointOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return {std::string(reinterpret_cast<const char*>(&v4.sin_addr), sizeof(v4.sin_addr)), ntohs(v4.sin_port)};
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    const std::string ip(reinterpret_cast<const char*>(&v6.sin6_addr), sizeof(v6.sin6_addr));
    return {IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? ip.substr(12) : ip, ntohs(v6.sin6_port)};
  }
  return {};
}

// A descriptor that was closed and opened again since has another peer; in the instant between the two calls another connection would be
// lost, which its peer would make again.
bool ShutDown(int fd, const Endpoint& peer) {
  sockaddr_storage address;
  socklen_t size = sizeof(address);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && EndpointOf(address) == peer &&
         shutdown(fd, SHUT_RDWR) == 0;
}

// `see`: descriptor and peer of each connected internet socket of this process.
void ForEachSocket(const std::function<void(int fd, const Endpoint& peer)>& see) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir("/proc/self/fd"), closedir);
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir.get())) {
    int fd = -1;
    sockaddr_storage address;
    socklen_t size = sizeof(address);
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    if (const Endpoint peer = EndpointOf(address); !peer.first.empty()) see(fd, peer);
  }
}

// What channelz knows of a connection.
struct Connection {
  Endpoint peer;
  std::string certificate;  // PEM; empty: none was shown.
};

Connection Describe(int64_t id) {
  const json socket = Member(Parse(grpc_channelz_get_socket(id)), "socket");
  const json address = Member(Member(socket, "remote"), "tcpip_address");
  return {.peer = {Bytes(Member(address, "ip_address")), static_cast<int>(Number(Member(address, "port")))},
          .certificate = Bytes(Member(Member(Member(socket, "security"), "tls"), "remote_certificate"))};
}

std::vector<int64_t> Connections() {
  std::vector<int64_t> ids;
  for (const int64_t server : Servers()) {
    const std::vector<int64_t> more = SocketsOf(server);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

}  // namespace

int BreakConnections(const std::function<bool(const PeerIdentity& peer)>& whose) {
  std::set<Endpoint> found;
  for (const int64_t id : Connections()) {
    Connection connection = Describe(id);
    PeerIdentity peer;
    if (!connection.certificate.empty()) {
      absl::StatusOr<PeerIdentity> named = ParseCertificate(connection.certificate);
      if (!named.ok()) continue;
      peer = *std::move(named);
    }
    if (whose(peer)) found.insert(std::move(connection.peer));
  }
  int broken = 0;
  if (found.empty()) return broken;
  ForEachSocket([&](int fd, const Endpoint& peer) {
    if (found.contains(peer) && ShutDown(fd, peer)) ++broken;
  });
  return broken;
}

int StrangerWatch::Sweep(absl::Time now) {
  struct Socket {
    int fd;
    int64_t received;
  };
  std::map<Endpoint, Socket> open;
  ForEachSocket([&](int fd, const Endpoint& peer) {
    sockaddr_storage local;
    socklen_t size = sizeof(local);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) != 0) return;
    if (EndpointOf(local).second != options_.port) return;
    tcp_info info = {};
    size = sizeof(info);
    const bool told = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
    open[peer] = {fd, told ? static_cast<int64_t>(info.tcpi_bytes_received) : 0};
  });
  std::erase_if(known_, [&](const Endpoint& peer) { return !open.contains(peer); });
  // Nearly always: gRPC need not be asked.
  if (known_.size() == open.size()) {
    strangers_.clear();
    return 0;
  }
  std::set<int64_t> looked_at;
  for (const int64_t id : Connections()) {
    looked_at.insert(id);
    if (looked_at_.contains(id)) continue;
    if (const Connection connection = Describe(id); !connection.certificate.empty()) known_.insert(connection.peer);
  }
  looked_at_ = std::move(looked_at);
  std::erase_if(strangers_, [&](const auto& one) { return !open.contains(one.first) || known_.contains(one.first); });
  for (const auto& [peer, socket] : open) {
    if (!known_.contains(peer)) strangers_.try_emplace(peer, now);
  }

  std::vector<std::pair<absl::Time, Endpoint>> by_age;
  for (const auto& [peer, since] : strangers_) by_age.emplace_back(since, peer);
  std::sort(by_age.begin(), by_age.end());
  const size_t most = static_cast<size_t>(options_.most_connections);
  const size_t too_many = by_age.size() > most ? by_age.size() - most : 0;
  int broken = 0;
  for (size_t i = 0; i < by_age.size(); ++i) {
    const auto& [since, peer] = by_age[i];
    const Socket& socket = open.at(peer);
    const bool over = i < too_many || now - since >= options_.most_time || socket.received > options_.most_bytes;
    if (over && ShutDown(socket.fd, peer)) ++broken;
  }
  return broken;
}

}  // namespace causeway::dataplane
