#include "dataplane/grpc_connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
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

// A descriptor that is closed and opened again in between would lose another connection, which its peer would make again.
int ShutDown(const std::set<Endpoint>& peers) {
  int broken = 0;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir("/proc/self/fd"), closedir);
  if (dir == nullptr) return 0;
  while (const dirent* entry = readdir(dir.get())) {
    int fd = -1;
    sockaddr_storage address;
    socklen_t size = sizeof(address);
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    if (peers.count(EndpointOf(address)) != 0 && shutdown(fd, SHUT_RDWR) == 0) ++broken;
  }
  return broken;
}

}  // namespace

int BreakConnections(const std::function<bool(const PeerIdentity& peer)>& whose) {
  std::set<Endpoint> found;
  for (const int64_t server : Servers()) {
    for (const int64_t id : SocketsOf(server)) {
      const json socket = Member(Parse(grpc_channelz_get_socket(id)), "socket");
      const std::string pem = Bytes(Member(Member(Member(socket, "security"), "tls"), "remote_certificate"));
      PeerIdentity peer;
      if (!pem.empty()) {
        absl::StatusOr<PeerIdentity> named = ParseCertificate(pem);
        if (!named.ok()) continue;
        peer = *std::move(named);
      }
      if (!whose(peer)) continue;
      const json address = Member(Member(socket, "remote"), "tcpip_address");
      std::string ip = Bytes(Member(address, "ip_address"));
      found.emplace(std::move(ip), static_cast<int>(Number(Member(address, "port"))));
    }
  }
  return found.empty() ? 0 : ShutDown(found);
}

}  // namespace causeway::dataplane
