#ifndef CAUSEWAY_DATAPLANE_LINK_H_
#define CAUSEWAY_DATAPLANE_LINK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/bulk.pb.h"

namespace causeway::dataplane {

// The bulk calls, each a stream of frames both ways.
enum class LinkKind { kFetch, kProbe, kPull, kPush };

inline constexpr int64_t kMaxPayloadBytes = 1 << 20;

// One end of an open bulk stream. The transport behind it (gRPC today) can be replaced without touching callers.
//
// One thread may read while another writes; Cancel may be called from any thread at any time and wakes both.
// Call order, dialing side: (Write | Read)* [CloseWrite] Read* Finish. Listening side: (Write | Read)*, then the handler returns.
class Link {
 public:
  virtual ~Link() = default;

  // Sends `frame` with `payload` in the place of frame.payload (which must be empty; `payload` is only read during the call).
  // Blocks while the transport's window is full. Errors: Unavailable (peer or network gone), Cancelled, DeadlineExceeded (no progress
  // until `deadline`, steady time; the link is then dead), InvalidArgument (payload larger than kMaxPayloadBytes).
  virtual absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) = 0;

  // The next frame. Errors: OutOfRange (the peer has closed its side in order), and those of Write; on the dialing side the peer's
  // status (PermissionDenied, ...) instead of OutOfRange when it ended with an error.
  virtual absl::StatusOr<v1::Frame> Read(absl::Time deadline) = 0;

  // Dialing side: no more writes; the peer's Read then gives OutOfRange. Idempotent.
  virtual absl::Status CloseWrite() = 0;

  // Dialing side: waits for the peer's final status. Idempotent.
  virtual absl::Status Finish(absl::Time deadline) = 0;

  // Breaks the stream at once; later calls return Cancelled with this reason.
  virtual void Cancel(absl::string_view reason) = 0;
};

// Opens links to the coordinator. Thread-safe.
class LinkDialer {
 public:
  virtual ~LinkDialer() = default;
  // Errors: Unavailable (nobody there before `deadline`), Unauthenticated, PermissionDenied (may come with the first Read instead).
  virtual absl::StatusOr<std::unique_ptr<Link>> Dial(LinkKind kind, absl::Time deadline) = 0;
};

// Who is at the other end, from its certificate.
struct PeerIdentity {
  enum class Role { kAnonymous, kWorker, kOperator, kCoordinator };
  Role role = Role::kAnonymous;
  std::string name;    // Worker's or operator's name.
  std::string site;    // Workers only.
  std::string serial;  // Of the certificate, hexadecimal.
  absl::Time not_after = absl::InfinitePast();
};

// Serves links on the listening side. Each call runs on a thread of its own and may block; the returned status ends the stream.
// OutOfRange, which would look like an orderly end there, reaches the dialing side as Internal, Cancelled as Unavailable.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  virtual absl::Status Serve(LinkKind kind, const PeerIdentity& peer, Link* link) = 0;
};

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_LINK_H_
