#ifndef CAUSEWAY_WORKER_ROUND_EXCHANGE_H_
#define CAUSEWAY_WORKER_ROUND_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/layout.h"
#include "dataplane/transfer.h"
#include "proto/bulk.pb.h"

namespace causeway::worker {

// Exchanges models with the coordinator: pulls committed versions, pushes this worker's contribution and keeps it until its round has
// passed, so that it can be offered again. One thread.
class RoundExchange {
 public:
  struct Pulled {
    int64_t version = 0;
    std::vector<uint8_t> bytes;  // In layout order.
    double seconds = 0;
  };
  struct Pushed {
    v1::PushResult result;
    double seconds = 0;
  };
  struct Options {
    dataplane::TransferOptions transfer;                           // Its cancellation is given per call.
    std::function<void(int64_t bytes, double seconds)> on_pulled;  // Over the wire; may be empty.
    std::function<void(int64_t bytes, double seconds)> on_pushed;
  };
  explicit RoundExchange(Options options) : options_(std::move(options)) {}

  // The model of `version`, whose layout must be `layout`. The newest one is kept: pulling it again costs nothing, and `seconds` is what
  // it cost the first time. The result is valid until the next Pull. Blocks.
  // Errors: FailedPrecondition (another layout), those of dataplane::PullModel.
  absl::StatusOr<const Pulled*> Pull(const std::string& job, int64_t version, const dataplane::Layout& layout,
                                     dataplane::Cancellation* cancellation);

  // What was trained for a task, kept under the task's id. The one before is dropped.
  void Keep(const std::string& task_id, v1::PushRequest request, std::vector<uint8_t> bytes);
  // Whether that task's contribution is here.
  bool Holds(const std::string& task_id) const { return kept_.has_value() && kept_->task_id == task_id; }
  // Drops the contribution unless it is that task's.
  void KeepOnly(const std::string& task_id);

  // Offers the kept contribution, its fence's generation set to `site_generation`. Blocks; resumes. Any result is a success of this call.
  // Errors: FailedPrecondition (none is kept), those of dataplane::PushPart.
  absl::StatusOr<Pushed> Push(int64_t site_generation, dataplane::Cancellation* cancellation);

  // The initial values as version 0. Errors: those of dataplane::PushPart.
  absl::StatusOr<Pushed> PushInitial(const v1::Fence& fence, const dataplane::Layout& layout,
                                     const std::vector<uint8_t>& bytes, dataplane::Cancellation* cancellation);

 private:
  struct Contribution {
    std::string task_id;
    v1::PushRequest request;
    std::vector<uint8_t> bytes;
  };
  absl::StatusOr<Pushed> PushBytes(const v1::PushRequest& request, const std::vector<uint8_t>& bytes,
                                   dataplane::Cancellation* cancellation);

  const Options options_;
  std::optional<Pulled> pulled_;
  std::optional<Contribution> kept_;
};

// A push of all of a model's elements as one part, its sender's figures to be filled in.
v1::PushRequest WholeModelPush(const v1::Fence& fence, const dataplane::Layout& layout);

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_ROUND_EXCHANGE_H_
