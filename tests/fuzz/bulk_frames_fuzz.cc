// Frames on a bulk stream, as the listening and as the dialing side read them. Input: one byte of who reads, then frames,
// each with its length in two bytes before it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/memory/memory.h"
#include "dataplane/bandwidth.h"
#include "dataplane/digest.h"
#include "dataplane/model_stream.h"
#include "dataplane/sample_stream.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fuzz/fuzz_require.h"

namespace {

using namespace causeway;             // NOLINT
using namespace causeway::dataplane;  // NOLINT

constexpr int64_t kModelBytes = 64;
const char kChunkName[] = "0123456789abcdef0123456789abcdef";  // 32 bytes

// Reads what the fuzzer made up; what is written goes nowhere.
class ScriptedLink : public Link {
 public:
  ScriptedLink(FuzzInput* input, FakeClock* clock) : input_(input), clock_(clock) {}

  absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) override {
    Require(frame.payload().empty() && static_cast<int64_t>(payload.size()) <= kMaxPayloadBytes);
    Require((written_bytes_ += static_cast<int64_t>(payload.size())) <= int64_t{64} << 20);
    clock_->Advance(absl::Milliseconds(10));  // So that probes end.
    return absl::OkStatus();
  }
  absl::StatusOr<v1::Frame> Read(absl::Time deadline) override {
    if (input_->empty()) return absl::OutOfRangeError("the end");
    const std::string bytes(input_->Piece());
    v1::Frame frame;
    if (!frame.ParseFromString(bytes)) return absl::InternalError("not a frame");
    // The fuzzer cannot compute digests: half of the time they are right.
    if (frame.has_data() && frame.data().xxh3() % 2 == 0)
      frame.mutable_data()->set_xxh3(Xxh3(AsBytes(frame.payload())));
    return frame;
  }
  absl::Status CloseWrite() override { return absl::OkStatus(); }
  absl::Status Finish(absl::Time deadline) override { return absl::OkStatus(); }
  void Cancel(absl::string_view reason) override {}

 private:
  FuzzInput* const input_;
  FakeClock* const clock_;
  int64_t written_bytes_ = 0;
};

class OneLink : public LinkDialer {
 public:
  explicit OneLink(std::unique_ptr<Link> link) : link_(std::move(link)) {}
  absl::StatusOr<std::unique_ptr<Link>> Dial(LinkKind kind, absl::Time deadline) override {
    if (link_ == nullptr) return absl::PermissionDeniedError("no more links");
    return std::move(link_);
  }

 private:
  std::unique_ptr<Link> link_;
};

class Chunk : public ChunkSource {
 public:
  absl::StatusOr<int64_t> Size(absl::string_view sha256) const override {
    if (sha256 != absl::string_view(kChunkName, kSha256Bytes)) return absl::NotFoundError("no such chunk");
    return kModelBytes;
  }
  absl::Status Read(absl::string_view sha256, int64_t offset, absl::Span<uint8_t> out) const override {
    Require(offset >= 0 && offset + static_cast<int64_t>(out.size()) <= kModelBytes);
    std::fill(out.begin(), out.end(), 7);
    return absl::OkStatus();
  }
};

class Model : public PullSource {
 public:
  Model() { info_.set_total_bytes(kModelBytes); }
  const v1::PullResponse& info() const override { return info_; }
  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    Require(offset >= 0 && offset + static_cast<int64_t>(out.size()) <= kModelBytes);
    std::fill(out.begin(), out.end(), 7);
    return absl::OkStatus();
  }

 private:
  v1::PullResponse info_;
};

// As the coordinator's: the size is checked when the push begins; everything afterwards must stay within it.
class Sink : public PushSink {
 public:
  absl::StatusOr<Start> Begin(const PeerIdentity& peer, const v1::PushRequest& request) override {
    if (request.total_bytes() < 1 || request.total_bytes() > 4096) return absl::InvalidArgumentError("its size");
    total_ = request.total_bytes();
    return Start{};
  }
  absl::Status Append(int64_t offset, absl::Span<const uint8_t> bytes) override {
    Require(offset == received_ && !bytes.empty());
    received_ += static_cast<int64_t>(bytes.size());
    Require(received_ <= total_);
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Sync() override { return received_; }
  absl::StatusOr<v1::PushResult> Finish() override {
    Require(received_ == total_);
    v1::PushResult result;
    result.set_outcome(v1::PushResult::OUTCOME_COUNTED);
    return result;
  }
  void Abandon(const absl::Status& status) override { Require(!status.ok()); }

 private:
  int64_t total_ = 0;
  int64_t received_ = 0;
};

void Serve(Link* link, FakeClock* clock) {
  const ServeOptions options = {.clock = clock, .sizes = {.frame_bytes = 16, .ack_bytes = 16, .sync_bytes = 32}};
  const absl::StatusOr<v1::Frame> first = link->Read(absl::InfiniteFuture());
  if (!first.ok()) return;
  absl::Status status;
  if (first->has_fetch_request()) status = ServeFetch(link, first->fetch_request(), Chunk(), options);
  if (first->has_pull_request()) status = ServePull(link, first->pull_request(), Model(), options);
  if (first->has_probe_request()) status = ServeProbe(link, first->probe_request(), options);
  if (first->has_push_request()) {
    Sink sink;
    status = ServePush(link, {}, first->push_request(), &sink, options);
  }
  status.IgnoreError();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FakeClock clock;
  FuzzInput input(absl::string_view(reinterpret_cast<const char*>(data), size));
  const unsigned who = input.Byte() % 4;
  auto link = std::make_unique<ScriptedLink>(&input, &clock);
  if (who == 0) {
    Serve(link.get(), &clock);
    return 0;
  }
  OneLink dialer(std::move(link));
  const TransferOptions options = {
      .dialer = &dialer, .clock = &clock, .max_attempts = 2, .backoff = {.initial = absl::ZeroDuration()}};
  if (who == 1) {
    const absl::StatusOr<PulledModel> model = PullModel(options, "job", -1, 4096);
    if (model.ok()) Require(Sha256Of(model->bytes) == model->sha256);
  } else if (who == 2) {
    int64_t got = 0;
    const absl::Status fetched =
        FetchChunks(options, "job", {{std::string(kChunkName, kSha256Bytes), 0}}, 4096, [&](const ChunkPiece& piece) {
          Require(piece.offset == got && piece.total_bytes <= 4096);
          got += static_cast<int64_t>(piece.bytes.size());
          Require(got <= piece.total_bytes);
          return absl::OkStatus();
        });
    fetched.IgnoreError();
  } else {
    const std::vector<uint8_t> part(100, 7);
    PushPart(options, v1::PushRequest(), part).status().IgnoreError();
  }
  return 0;
}
