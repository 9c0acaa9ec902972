#ifndef CAUSEWAY_DATAPLANE_MODEL_STREAM_H_
#define CAUSEWAY_DATAPLANE_MODEL_STREAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dataplane/layout.h"
#include "dataplane/link.h"
#include "dataplane/transfer.h"

namespace causeway::dataplane {

// ---- Pull: the coordinator's committed model to a worker or an operator.

struct PulledModel {
  int64_t version = 0;
  Layout layout;
  std::vector<uint8_t> bytes;  // layout.total_bytes(), in layout order
  std::string sha256;          // Of `bytes`, checked; raw.
};

// Pulls the model of `version` (-1: the newest committed one, fixed by the first answer). Blocks; goes on after broken links.
// Errors: Cancelled; Unavailable, DeadlineExceeded (attempts used up); DataLoss (offsets, sizes or digests that do not fit);
// ResourceExhausted (the model is larger than `max_bytes`; nothing was allocated); the peer's: NotFound, PermissionDenied, ...
absl::StatusOr<PulledModel> PullModel(const TransferOptions& options, const std::string& job, int64_t version,
                                      int64_t max_bytes);

// What a pull reads from. Stays readable until the call that uses it returns.
class PullSource {
 public:
  virtual ~PullSource() = default;
  virtual const v1::PullResponse& info() const = 0;                              // Complete.
  virtual absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const = 0;  // Fills `out`.
};

// Answers one pull; the request was the link's first frame. Errors: InvalidArgument (offset), those of Read and of the link.
absl::Status ServePull(Link* link, const v1::PullRequest& request, const PullSource& source,
                       const ServeOptions& options);

// ---- Push: one part of a contribution (or the initial model) to the coordinator.

// Pushes `bytes` as the part that `request` describes (total_bytes and sha256 are set here). Blocks; after a broken link it goes on from
// what the coordinator has durably. Any PushResult, a rejection too, is a success of this call.
// Errors: Cancelled; Unavailable, DeadlineExceeded (attempts used up); DataLoss (answers that do not fit); the peer's.
absl::StatusOr<v1::PushResult> PushPart(const TransferOptions& options, v1::PushRequest request,
                                        absl::Span<const uint8_t> bytes);

// Where one pushed part goes. One thread; call order: Begin [(Append | Sync)* (Finish | Abandon)]; after a Begin that failed or gave a
// result nothing follows.
class PushSink {
 public:
  struct Start {
    int64_t resume_offset = 0;             // Durable already.
    std::optional<v1::PushResult> result;  // Set: this is the answer, no bytes are wanted.
  };
  virtual ~PushSink() = default;
  // Must check everything in `request` (from outside), total_bytes included. An error ends the stream with it. A sender whose link broke
  // comes back before the handler of the old link has noticed: the new sink of a part must take over from the old one, whose calls then
  // fail.
  virtual absl::StatusOr<Start> Begin(const PeerIdentity& peer, const v1::PushRequest& request) = 0;
  // `offset` is where the last Append ended (or resume_offset), never beyond request.total_bytes.
  virtual absl::Status Append(int64_t offset, absl::Span<const uint8_t> bytes) = 0;
  // Makes durable what was appended; returns how many bytes of the part are.
  virtual absl::StatusOr<int64_t> Sync() = 0;
  // All bytes are appended: makes them durable, checks the digest and counts the part, or says why not.
  virtual absl::StatusOr<v1::PushResult> Finish() = 0;
  // The stream broke with `status`; what is durable may be resumed later.
  virtual void Abandon(const absl::Status& status) = 0;
};

// Answers one push; the request was the link's first frame. Errors: DataLoss (offsets, sizes or digests that do not fit), those of the
// sink and of the link.
absl::Status ServePush(Link* link, const PeerIdentity& peer, const v1::PushRequest& request, PushSink* sink,
                       const ServeOptions& options);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_MODEL_STREAM_H_
