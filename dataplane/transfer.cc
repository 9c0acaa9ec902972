#include "dataplane/transfer.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::dataplane {

void Cancellation::Cancel(absl::string_view reason) {
  MutexLock lock(&mu_);
  if (!status_.ok()) return;
  status_ = absl::CancelledError(reason);
  cancelled_.SignalAll();
  // Under the lock, so that no link goes away meanwhile. A link's Cancel neither blocks nor calls back.
  for (Link* link : links_) link->Cancel(reason);
}

absl::Status Cancellation::status() const {
  MutexLock lock(&mu_);
  return status_;
}

absl::Status Cancellation::SleepUntil(Clock* clock, absl::Time deadline) {
  MutexLock lock(&mu_);
  while (status_.ok() && clock->Now() < deadline) clock->AwaitUntil(&mu_, &cancelled_, deadline);
  return status_;
}

Cancellation::LinkScope::LinkScope(Cancellation* cancellation, Link* link) : cancellation_(cancellation), link_(link) {
  if (cancellation_ == nullptr) return;
  MutexLock lock(&cancellation_->mu_);
  cancellation_->links_.insert(link_);
  if (!cancellation_->status_.ok()) link_->Cancel(cancellation_->status_.message());
}

Cancellation::LinkScope::~LinkScope() {
  if (cancellation_ == nullptr) return;
  MutexLock lock(&cancellation_->mu_);
  cancellation_->links_.erase(link_);
}

namespace internal {
namespace {

absl::Status RunAttempt(const TransferOptions& options, LinkKind kind,
                        const std::function<absl::Status(Link* link, bool* progress)>& attempt, bool* progress) {
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link,
                   options.dialer->Dial(kind, options.clock->Now() + options.progress_timeout));
  Cancellation::LinkScope scope(options.cancellation, link.get());
  absl::Status status = attempt(link.get(), progress);
  if (!status.ok()) link->Cancel(status.message());
  return status;
}

}  // namespace

absl::Status RunAttempts(const TransferOptions& options, LinkKind kind,
                         const std::function<absl::Status(Link* link, bool* progress)>& attempt) {
  Cancellation never;
  Cancellation* cancellation = options.cancellation != nullptr ? options.cancellation : &never;
  Backoff backoff(options.backoff);
  int failures = 0;
  while (true) {
    RETURN_IF_ERROR(cancellation->status());
    bool progress = false;
    absl::Status status = RunAttempt(options, kind, attempt, &progress);
    if (status.ok()) return status;
    RETURN_IF_ERROR(cancellation->status());
    if (!IsRetryable(status)) return status;
    if (progress) {
      failures = 0;
      backoff.Reset();
    }
    if (++failures >= options.max_attempts) {
      return Annotate(status, absl::StrCat("gave up after ", failures, " attempts without progress"));
    }
    log::Debug("transfer_interrupted", {{"attempt", failures}, {"error", status}});
    RETURN_IF_ERROR(cancellation->SleepUntil(options.clock, options.clock->Now() + backoff.Next()));
  }
}

absl::Status WriteFrame(Link* link, const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) {
  absl::Status written = link->Write(frame, payload, deadline);
  while (absl::IsUnavailable(written)) {
    absl::Status read = link->Read(deadline).status();
    if (absl::IsOutOfRange(read)) break;
    if (!read.ok()) return read;
  }
  return written;
}

absl::StatusOr<v1::Frame> ReadFrame(Link* link, absl::Time deadline) {
  absl::StatusOr<v1::Frame> frame = link->Read(deadline);
  if (absl::IsOutOfRange(frame.status())) return absl::DataLossError("the peer ended the stream early");
  return frame;
}

v1::Frame DataFrame(absl::string_view sha256, int64_t offset, int64_t total_bytes, absl::Span<const uint8_t> payload) {
  v1::Frame frame;
  v1::DataHeader* data = frame.mutable_data();
  data->set_sha256(std::string(sha256));
  data->set_offset(offset);
  data->set_total_bytes(total_bytes);
  data->set_xxh3(Xxh3(payload));
  return frame;
}

absl::Status CheckDataFrame(const v1::Frame& frame, int64_t offset, int64_t total_bytes) {
  if (!frame.has_data()) return absl::DataLossError("a frame without data where data was due");
  const v1::DataHeader& data = frame.data();
  const int64_t size = static_cast<int64_t>(frame.payload().size());
  if (data.offset() != offset) {
    return absl::DataLossError(absl::StrCat("data of offset ", data.offset(), " where ", offset, " was due"));
  }
  if (data.total_bytes() != total_bytes) {
    return absl::DataLossError(
        absl::StrCat("data of ", data.total_bytes(), " bytes in total where ", total_bytes, " were due"));
  }
  if (size > total_bytes - offset) {
    return absl::DataLossError(absl::StrCat(size, " bytes of data at ", offset, " of ", total_bytes, " are too many"));
  }
  if (size == 0 && offset != total_bytes) return absl::DataLossError("an empty frame before the end of the data");
  if (data.xxh3() != Xxh3(AsBytes(frame.payload()))) {
    return absl::DataLossError(absl::StrCat("wrong digest of ", size, " bytes at ", offset));
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace causeway::dataplane
