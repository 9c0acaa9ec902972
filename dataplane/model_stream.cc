#include "dataplane/model_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::dataplane {
namespace {

using internal::CheckDataFrame;
using internal::DataFrame;
using internal::ReadFrame;
using internal::RunAttempts;
using internal::WriteFrame;

// A pull over as many links as it takes.
class Pull {
 public:
  Pull(const TransferOptions& options, const std::string& job, int64_t version, int64_t max_bytes)
      : options_(options), max_bytes_(max_bytes) {
    request_.set_job(job);
    request_.set_version(version);
  }

  absl::Status Attempt(Link* link, bool* progress) {
    v1::Frame frame;
    request_.set_offset(received_);
    *frame.mutable_pull_request() = request_;
    RETURN_IF_ERROR(WriteFrame(link, frame, {}, Deadline()));
    link->CloseWrite().IgnoreError();  // The next Read says what broke.
    ASSIGN_OR_RETURN(v1::Frame answer, ReadFrame(link, Deadline()));
    if (!answer.has_pull_response()) return absl::DataLossError("no description of the model came first");
    if (!described_) {
      RETURN_IF_ERROR(TakeDescription(answer.pull_response()));
    } else if (answer.pull_response().version() != model_.version || answer.pull_response().sha256() != model_.sha256) {
      return absl::DataLossError(absl::StrCat("version ", model_.version, " has changed while it was pulled"));
    }
    const int64_t total = model_.layout.total_bytes();
    while (received_ < total) {
      ASSIGN_OR_RETURN(v1::Frame data, ReadFrame(link, Deadline()));
      RETURN_IF_ERROR(CheckDataFrame(data, received_, total));
      std::memcpy(model_.bytes.data() + received_, data.payload().data(), data.payload().size());
      received_ += static_cast<int64_t>(data.payload().size());
      *progress = true;
    }
    // All is here: how the stream ends no longer matters.
    link->Finish(Deadline()).IgnoreError();
    return absl::OkStatus();
  }

  absl::StatusOr<PulledModel> Result() && {
    if (Sha256Of(model_.bytes) != model_.sha256) {
      return absl::DataLossError(absl::StrCat("the SHA-256 of version ", model_.version, " does not fit its bytes"));
    }
    return std::move(model_);
  }

 private:
  absl::Time Deadline() const { return options_.clock->Now() + options_.progress_timeout; }

  absl::Status TakeDescription(const v1::PullResponse& info) {
    if (request_.version() >= 0 && info.version() != request_.version()) {
      return absl::DataLossError(
          absl::StrCat("version ", info.version(), " came where ", request_.version(), " was asked for"));
    }
    absl::StatusOr<Layout> layout = Layout::FromProto(info.layout());
    if (!layout.ok()) return absl::DataLossError(layout.status().message());
    if (layout->hash() != info.layout_sha256()) return absl::DataLossError("the layout's hash does not fit it");
    if (layout->total_bytes() != info.total_bytes()) {
      return absl::DataLossError(
          absl::StrCat(info.total_bytes(), " bytes announced, the layout has ", layout->total_bytes()));
    }
    if (info.total_bytes() > max_bytes_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the model has ", info.total_bytes(), " bytes, the limit is ", max_bytes_));
    }
    if (info.sha256().size() != kSha256Bytes) return absl::DataLossError("no SHA-256 of the model came");
    model_.version = info.version();
    model_.layout = *std::move(layout);
    model_.sha256 = info.sha256();
    model_.bytes.resize(info.total_bytes());
    request_.set_version(info.version());
    described_ = true;
    return absl::OkStatus();
  }

  const TransferOptions& options_;
  const int64_t max_bytes_;
  v1::PullRequest request_;
  bool described_ = false;
  PulledModel model_;
  int64_t received_ = 0;
};

// A push over as many links as it takes.
class Push {
 public:
  Push(const TransferOptions& options, v1::PushRequest request, absl::Span<const uint8_t> bytes)
      : options_(options), bytes_(bytes) {
    *request_.mutable_push_request() = std::move(request);
    request_.mutable_push_request()->set_total_bytes(static_cast<int64_t>(bytes.size()));
    request_.mutable_push_request()->set_sha256(Sha256Of(bytes));
  }

  absl::Status Attempt(Link* link, bool* progress) {
    const int64_t total = static_cast<int64_t>(bytes_.size());
    RETURN_IF_ERROR(WriteFrame(link, request_, {}, Deadline()));
    ASSIGN_OR_RETURN(v1::Frame answer, ReadFrame(link, Deadline()));
    if (answer.has_push_result()) return TakeResult(link, answer);
    if (!answer.has_push_response()) return absl::DataLossError("no answer to the push request came first");
    int64_t sent = answer.push_response().resume_offset();
    if (sent < 0 || sent > total)
      return absl::DataLossError(absl::StrCat("asked to go on at byte ", sent, " of ", total));
    acknowledged_ = sent;
    NoteProgress(progress);

    while (sent < total) {
      const int64_t size = std::min(options_.sizes.frame_bytes, total - sent);
      while (sent + size - acknowledged_ > options_.sizes.window_bytes) {
        ASSIGN_OR_RETURN(answer, ReadFrame(link, Deadline()));
        RETURN_IF_ERROR(TakeAnswer(link, answer, sent, progress));
        if (result_.has_value()) return absl::OkStatus();
      }
      absl::Span<const uint8_t> payload = bytes_.subspan(sent, size);
      absl::Status written = link->Write(DataFrame("", sent, total, payload), payload, Deadline());
      // The peer may have said why before it closed: that is worth more than "closed".
      if (!written.ok()) return absl::IsUnavailable(written) ? TakeLastWords(link, sent, written) : written;
      sent += size;
    }
    link->CloseWrite().IgnoreError();  // The next Read says what broke.
    while (!result_.has_value()) {
      ASSIGN_OR_RETURN(answer, ReadFrame(link, Deadline()));
      RETURN_IF_ERROR(TakeAnswer(link, answer, sent, progress));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<v1::PushResult> Result() && { return *std::move(result_); }

 private:
  absl::Time Deadline() const { return options_.clock->Now() + options_.progress_timeout; }

  void NoteProgress(bool* progress) {
    if (acknowledged_ <= furthest_) return;
    furthest_ = acknowledged_;
    *progress = true;
  }

  // An acknowledgement or the result.
  absl::Status TakeAnswer(Link* link, const v1::Frame& answer, int64_t sent, bool* progress) {
    if (answer.has_push_result()) return TakeResult(link, answer);
    if (!answer.has_push_ack()) return absl::DataLossError("neither an acknowledgement nor a result of the push");
    const int64_t received = answer.push_ack().received_bytes();
    if (received < acknowledged_ || received > sent) {
      return absl::DataLossError(absl::StrCat(received, " bytes acknowledged, ", sent, " sent"));
    }
    acknowledged_ = received;
    NoteProgress(progress);
    return absl::OkStatus();
  }

  absl::Status TakeResult(Link* link, const v1::Frame& frame) {
    if (frame.push_result().outcome() == v1::PushResult::OUTCOME_UNSPECIFIED) {
      return absl::DataLossError("a result of the push without an outcome");
    }
    result_ = frame.push_result();
    // The result is here: how the stream ends no longer matters.
    link->CloseWrite().IgnoreError();
    link->Finish(Deadline()).IgnoreError();
    return absl::OkStatus();
  }

  absl::Status TakeLastWords(Link* link, int64_t sent, const absl::Status& written) {
    bool ignored = false;
    while (!result_.has_value()) {
      absl::StatusOr<v1::Frame> answer = link->Read(Deadline());
      if (absl::IsOutOfRange(answer.status())) return written;
      RETURN_IF_ERROR(answer.status());
      RETURN_IF_ERROR(TakeAnswer(link, *answer, sent, &ignored));
    }
    return absl::OkStatus();
  }

  const TransferOptions& options_;
  const absl::Span<const uint8_t> bytes_;
  v1::Frame request_;
  int64_t acknowledged_ = 0;  // Bytes that the peer has, on this link or durably.
  int64_t furthest_ = 0;      // The most of these over all links.
  std::optional<v1::PushResult> result_;
};

// Receives the bytes of a push up to the last one.
absl::Status ReceivePart(Link* link, int64_t received, int64_t total, PushSink* sink, const ServeOptions& options) {
  int64_t durable = received;
  int64_t acknowledged = received;
  while (received < total) {
    ASSIGN_OR_RETURN(v1::Frame data, ReadFrame(link, options.clock->Now() + options.progress_timeout));
    RETURN_IF_ERROR(CheckDataFrame(data, received, total));
    RETURN_IF_ERROR(sink->Append(received, AsBytes(data.payload())));
    received += static_cast<int64_t>(data.payload().size());
    if (received - durable >= options.sizes.sync_bytes) {
      ASSIGN_OR_RETURN(durable, sink->Sync());
    }
    if (received - acknowledged >= options.sizes.ack_bytes && received < total) {
      v1::Frame ack;
      ack.mutable_push_ack()->set_received_bytes(received);
      ack.mutable_push_ack()->set_durable_bytes(durable);
      RETURN_IF_ERROR(link->Write(ack, {}, options.clock->Now() + options.progress_timeout));
      acknowledged = received;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PulledModel> PullModel(const TransferOptions& options, const std::string& job, int64_t version,
                                      int64_t max_bytes) {
  Pull pull(options, job, version, max_bytes);
  RETURN_IF_ERROR(
      RunAttempts(options, LinkKind::kPull, [&](Link* link, bool* progress) { return pull.Attempt(link, progress); }));
  return std::move(pull).Result();
}

absl::Status ServePull(Link* link, const v1::PullRequest& request, const PullSource& source,
                       const ServeOptions& options) {
  auto deadline = [&] { return options.clock->Now() + options.progress_timeout; };
  const int64_t total = source.info().total_bytes();
  int64_t offset = request.offset();
  if (offset < 0 || offset > total) {
    return absl::InvalidArgumentError(absl::StrCat("offset ", offset, " is outside of the model's ", total, " bytes"));
  }
  v1::Frame answer;
  *answer.mutable_pull_response() = source.info();
  RETURN_IF_ERROR(link->Write(answer, {}, deadline()));
  std::vector<uint8_t> buffer(std::min(options.sizes.frame_bytes, total));
  while (offset < total) {
    absl::Span<uint8_t> piece = absl::MakeSpan(buffer).subspan(0, std::min<int64_t>(buffer.size(), total - offset));
    RETURN_IF_ERROR(source.Read(offset, piece));
    RETURN_IF_ERROR(link->Write(DataFrame("", offset, total, piece), piece, deadline()));
    offset += static_cast<int64_t>(piece.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::PushResult> PushPart(const TransferOptions& options, v1::PushRequest request,
                                        absl::Span<const uint8_t> bytes) {
  Push push(options, std::move(request), bytes);
  RETURN_IF_ERROR(
      RunAttempts(options, LinkKind::kPush, [&](Link* link, bool* progress) { return push.Attempt(link, progress); }));
  return std::move(push).Result();
}

absl::Status ServePush(Link* link, const PeerIdentity& peer, const v1::PushRequest& request, PushSink* sink,
                       const ServeOptions& options) {
  auto deadline = [&] { return options.clock->Now() + options.progress_timeout; };
  if (request.total_bytes() < 0) return absl::InvalidArgumentError("total_bytes is negative");
  ASSIGN_OR_RETURN(PushSink::Start start, sink->Begin(peer, request));
  v1::Frame answer;
  if (start.result.has_value()) {
    *answer.mutable_push_result() = *std::move(start.result);
    return link->Write(answer, {}, deadline());
  }
  CAUSEWAY_CHECK(start.resume_offset >= 0 && start.resume_offset <= request.total_bytes());
  answer.mutable_push_response()->set_resume_offset(start.resume_offset);
  absl::Status status = link->Write(answer, {}, deadline());
  if (status.ok()) status = ReceivePart(link, start.resume_offset, request.total_bytes(), sink, options);
  if (!status.ok()) {
    // What came before the break need not come again.
    sink->Sync().status().IgnoreError();
    sink->Abandon(status);
    return status;
  }
  ASSIGN_OR_RETURN(*answer.mutable_push_result(), sink->Finish());
  return link->Write(answer, {}, deadline());
}

}  // namespace causeway::dataplane
