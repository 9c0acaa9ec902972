#include "dataplane/sample_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::dataplane {
namespace {

// Keeps a request well below the largest message.
constexpr size_t kItemsPerRequest = 1024;

absl::Status CheckItem(absl::string_view sha256, int64_t offset) {
  if (sha256.size() != kSha256Bytes)
    return absl::InvalidArgumentError(absl::StrCat("a chunk's name has 32 bytes, not ", sha256.size()));
  if (offset < 0) return absl::InvalidArgumentError(absl::StrCat("offset ", offset, " is negative"));
  return absl::OkStatus();
}

// One request's items over as many links as it takes.
class Fetch {
 public:
  Fetch(const TransferOptions& options, const std::string& job, absl::Span<const FetchItem> items,
        int64_t max_chunk_bytes, const std::function<absl::Status(const ChunkPiece&)>& on_piece)
      : options_(options), job_(job), items_(items), max_chunk_bytes_(max_chunk_bytes), on_piece_(on_piece) {
    StartItem();
  }

  absl::Status Attempt(Link* link, bool* progress) {
    RETURN_IF_ERROR(internal::WriteFrame(link, Request(), {}, Deadline()));
    link->CloseWrite().IgnoreError();  // The next Read says what broke.
    while (!items_.empty()) {
      ASSIGN_OR_RETURN(v1::Frame frame, internal::ReadFrame(link, Deadline()));
      RETURN_IF_ERROR(CheckPiece(frame));
      ChunkPiece piece{
          .sha256 = items_[0].sha256, .offset = offset_, .total_bytes = total_, .bytes = AsBytes(frame.payload())};
      callback_status_ = on_piece_(piece);
      // Whatever its code: what the caller cannot take is not worth another attempt.
      if (!callback_status_.ok()) return absl::AbortedError("the receiver gave up");
      *progress = true;
      offset_ += static_cast<int64_t>(piece.bytes.size());
      if (offset_ == total_) {
        items_.remove_prefix(1);
        StartItem();
      }
    }
    // All is here: how the stream ends no longer matters.
    link->Finish(Deadline()).IgnoreError();
    return absl::OkStatus();
  }

  const absl::Status& callback_status() const { return callback_status_; }

 private:
  absl::Time Deadline() const { return options_.clock->Now() + options_.progress_timeout; }

  void StartItem() {
    total_ = -1;
    if (!items_.empty()) offset_ = items_[0].offset;
  }

  v1::Frame Request() const {
    v1::Frame frame;
    v1::FetchRequest* request = frame.mutable_fetch_request();
    request->set_job(job_);
    for (const FetchItem& item : items_) {
      v1::FetchRequest::Item* wanted = request->add_items();
      wanted->set_sha256(item.sha256);
      wanted->set_offset(item.offset);
    }
    request->mutable_items(0)->set_offset(offset_);
    return frame;
  }

  absl::Status CheckPiece(const v1::Frame& frame) {
    if (frame.has_data() && frame.data().sha256() != items_[0].sha256) {
      return absl::DataLossError(
          absl::StrCat("data of chunk ", ToHex(frame.data().sha256()), " where ", ToHex(items_[0].sha256), " was due"));
    }
    if (total_ < 0) {
      const int64_t total = frame.data().total_bytes();
      if (total < offset_)
        return absl::DataLossError(absl::StrCat("a chunk of ", total, " bytes cannot go on at ", offset_));
      if (total > max_chunk_bytes_) {
        return absl::ResourceExhaustedError(
            absl::StrCat("a chunk has ", total, " bytes, the limit is ", max_chunk_bytes_));
      }
      total_ = total;
    }
    return internal::CheckDataFrame(frame, offset_, total_);
  }

  const TransferOptions& options_;
  const std::string& job_;
  absl::Span<const FetchItem> items_;  // Those not complete; the first one is under way.
  const int64_t max_chunk_bytes_;
  const std::function<absl::Status(const ChunkPiece&)>& on_piece_;
  int64_t offset_ = 0;
  int64_t total_ = -1;  // -1: not known yet
  absl::Status callback_status_;
};

}  // namespace

absl::Status FetchChunks(const TransferOptions& options, const std::string& job, const std::vector<FetchItem>& items,
                         int64_t max_chunk_bytes, const std::function<absl::Status(const ChunkPiece&)>& on_piece) {
  for (const FetchItem& item : items) RETURN_IF_ERROR(CheckItem(item.sha256, item.offset));
  absl::Span<const FetchItem> rest(items);
  while (!rest.empty()) {
    absl::Span<const FetchItem> batch = rest.subspan(0, kItemsPerRequest);
    Fetch fetch(options, job, batch, max_chunk_bytes, on_piece);
    absl::Status status = internal::RunAttempts(
        options, LinkKind::kFetch, [&](Link* link, bool* progress) { return fetch.Attempt(link, progress); });
    RETURN_IF_ERROR(fetch.callback_status());
    RETURN_IF_ERROR(status);
    rest.remove_prefix(batch.size());
  }
  return absl::OkStatus();
}

absl::Status ServeFetch(Link* link, const v1::FetchRequest& request, const ChunkSource& source,
                        const ServeOptions& options) {
  std::vector<uint8_t> buffer(options.sizes.frame_bytes);
  for (const v1::FetchRequest::Item& item : request.items()) {
    RETURN_IF_ERROR(CheckItem(item.sha256(), item.offset()));
    ASSIGN_OR_RETURN(const int64_t total, source.Size(item.sha256()));
    int64_t offset = item.offset();
    if (offset > total) {
      return absl::InvalidArgumentError(
          absl::StrCat("offset ", offset, " is outside of the chunk's ", total, " bytes"));
    }
    do {
      absl::Span<uint8_t> piece =
          absl::MakeSpan(buffer).subspan(0, std::min(options.sizes.frame_bytes, total - offset));
      RETURN_IF_ERROR(source.Read(item.sha256(), offset, piece));
      RETURN_IF_ERROR(link->Write(internal::DataFrame(item.sha256(), offset, total, piece), piece,
                                  options.clock->Now() + options.progress_timeout));
      offset += static_cast<int64_t>(piece.size());
    } while (offset < total);
  }
  return absl::OkStatus();
}

}  // namespace causeway::dataplane
