#ifndef CAUSEWAY_TESTS_FAKES_FAKE_LINK_H_
#define CAUSEWAY_TESTS_FAKES_FAKE_LINK_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "dataplane/link.h"

namespace causeway {

enum class LinkDirection { kToHandler, kToDialer };

// What goes wrong on one link. Frames are counted per direction, from 1.
struct LinkFault {
  LinkDirection direction = LinkDirection::kToDialer;
  int frame = 1;  // The frame that it happens to.
  enum class Kind {
    kCut,  // The link breaks in place of this frame: what was sent before still arrives, then both ends get Unavailable.
    kCorrupt,  // One bit of the payload flips.
    kStall,    // Neither this frame nor any later one arrives.
  } kind = Kind::kCut;
};

// Dials straight into a LinkHandler of this process, each link on a thread of its own. Frames are serialised and parsed as on a wire, and
// a sender blocks while 4 MiB are under way. Thread-safe. The destructor cancels what runs and joins.
class FakeLinkDialer : public dataplane::LinkDialer {
 public:
  // Neither `handler` nor `clock` is owned; both outlive this.
  FakeLinkDialer(dataplane::LinkHandler* handler, Clock* clock, dataplane::PeerIdentity peer = {});
  ~FakeLinkDialer() override;

  absl::StatusOr<std::unique_ptr<dataplane::Link>> Dial(dataplane::LinkKind kind, absl::Time deadline) override;

  // The next link without a fault gets this one; further calls are for the links after it. nullopt: one link without a fault.
  void AddFault(std::optional<LinkFault> fault);
  // The next `n` dials fail with Unavailable.
  void FailDials(int n);
  int dials() const;  // That succeeded.

 private:
  struct Pipe;
  struct Connection;
  class End;

  dataplane::LinkHandler* const handler_;
  Clock* const clock_;
  const dataplane::PeerIdentity peer_;
  mutable Mutex mu_;
  std::deque<std::optional<LinkFault>> faults_ ABSL_GUARDED_BY(mu_);
  int failing_dials_ ABSL_GUARDED_BY(mu_) = 0;
  int dials_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FAKES_FAKE_LINK_H_
