#include "worker/round_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "dataplane/model_stream.h"

namespace causeway::worker {

absl::StatusOr<const RoundExchange::Pulled*> RoundExchange::Pull(const std::string& job, int64_t version,
                                                                 const dataplane::Layout& layout,
                                                                 dataplane::Cancellation* cancellation) {
  if (pulled_.has_value() && pulled_->version == version) return &*pulled_;
  pulled_.reset();
  dataplane::TransferOptions transfer = options_.transfer;
  transfer.cancellation = cancellation;
  const absl::Time start = transfer.clock->Now();
  ASSIGN_OR_RETURN(dataplane::PulledModel model, dataplane::PullModel(transfer, job, version, layout.total_bytes()));
  if (model.layout.hash() != layout.hash()) {
    return absl::FailedPreconditionError(
        absl::StrCat("version ", version, " of job ", job, " has another layout than this worker's model"));
  }
  pulled_ = Pulled{version, std::move(model.bytes), absl::ToDoubleSeconds(transfer.clock->Now() - start)};
  if (options_.on_pulled) options_.on_pulled(layout.total_bytes(), pulled_->seconds);
  return &*pulled_;
}

void RoundExchange::Keep(const std::string& task_id, v1::PushRequest request, std::vector<uint8_t> bytes) {
  kept_ = Contribution{task_id, std::move(request), std::move(bytes)};
}

void RoundExchange::KeepOnly(const std::string& task_id) {
  if (!Holds(task_id)) kept_.reset();
}

absl::StatusOr<RoundExchange::Pushed> RoundExchange::Push(int64_t site_generation,
                                                          dataplane::Cancellation* cancellation) {
  if (!kept_.has_value()) return absl::FailedPreconditionError("no contribution to push");
  kept_->request.mutable_fence()->set_site_generation(site_generation);
  return PushBytes(kept_->request, kept_->bytes, cancellation);
}

absl::StatusOr<RoundExchange::Pushed> RoundExchange::PushInitial(const v1::Fence& fence,
                                                                 const dataplane::Layout& layout,
                                                                 const std::vector<uint8_t>& bytes,
                                                                 dataplane::Cancellation* cancellation) {
  v1::PushRequest request = WholeModelPush(fence, layout);
  request.set_initial(true);
  return PushBytes(request, bytes, cancellation);
}

absl::StatusOr<RoundExchange::Pushed> RoundExchange::PushBytes(const v1::PushRequest& request,
                                                               const std::vector<uint8_t>& bytes,
                                                               dataplane::Cancellation* cancellation) {
  dataplane::TransferOptions transfer = options_.transfer;
  transfer.cancellation = cancellation;
  const absl::Time start = transfer.clock->Now();
  ASSIGN_OR_RETURN(v1::PushResult result, dataplane::PushPart(transfer, request, bytes));
  Pushed pushed{std::move(result), absl::ToDoubleSeconds(transfer.clock->Now() - start)};
  if (options_.on_pushed) options_.on_pushed(static_cast<int64_t>(bytes.size()), pushed.seconds);
  return pushed;
}

v1::PushRequest WholeModelPush(const v1::Fence& fence, const dataplane::Layout& layout) {
  v1::PushRequest request;
  *request.mutable_fence() = fence;
  request.set_layout_sha256(layout.hash());
  request.set_parts(1);
  request.add_elements()->set_end(layout.total_elements());
  return request;
}

}  // namespace causeway::worker
