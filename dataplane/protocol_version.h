#ifndef CAUSEWAY_DATAPLANE_PROTOCOL_VERSION_H_
#define CAUSEWAY_DATAPLANE_PROTOCOL_VERSION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dataplane/build_version.h"  // CAUSEWAY_BUILD_VERSION, from versions.env
#include "proto/common.pb.h"

namespace causeway::dataplane {

// Peers with another major refuse each other; a newer minor only adds.
inline constexpr uint32_t kProtocolMajor = 1;
inline constexpr uint32_t kProtocolMinor = 0;
inline constexpr char kBuildVersion[] = CAUSEWAY_BUILD_VERSION;

inline v1::ProtocolVersion OurVersion() {
  v1::ProtocolVersion version;
  version.set_major(kProtocolMajor);
  version.set_minor(kProtocolMinor);
  version.set_build(kBuildVersion);
  return version;
}

// "1.0 (build 0.1.0)"
inline std::string VersionText(const v1::ProtocolVersion& version) {
  return absl::StrCat(version.major(), ".", version.minor(), " (build ",
                      version.build().empty() ? "unknown" : version.build(), ")");
}

// Errors: FailedPrecondition, with both versions; `peer_role` says who the peer is ("the coordinator", "worker a1").
inline absl::Status CheckCompatible(const v1::ProtocolVersion& peer, absl::string_view peer_role) {
  if (peer.major() == kProtocolMajor) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("incompatible protocol versions: ", peer_role, " speaks ",
                                                    VersionText(peer), ", this side speaks ", VersionText(OurVersion()),
                                                    "; run the same release on both"));
}

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_PROTOCOL_VERSION_H_
