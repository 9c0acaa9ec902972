#include "dataplane/model_stream.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "base/random.h"
#include "dataplane/digest.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kModelBytes = 20 << 20;  // More than the push window and the sync interval.
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

std::vector<uint8_t> RandomModel() {
  std::vector<uint8_t> bytes(kModelBytes);
  Random random(1);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

Layout ModelLayout() { return *Layout::Create({{.name = "w", .shape = {kModelBytes / 4}}}); }

class MemorySource : public PullSource {
 public:
  explicit MemorySource(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
    info_.set_version(3);
    *info_.mutable_layout() = ModelLayout().ToProto();
    info_.set_layout_sha256(ModelLayout().hash());
    info_.set_total_bytes(static_cast<int64_t>(bytes_.size()));
    info_.set_sha256(Sha256Of(bytes_));
  }
  const v1::PullResponse& info() const override { return info_; }
  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    bytes_read += static_cast<int64_t>(out.size());
    return absl::OkStatus();
  }

  std::vector<uint8_t> bytes_;
  v1::PullResponse info_;
  mutable int64_t bytes_read = 0;
};

// Keeps what is synced over broken links, as a spool does.
class MemorySink : public PushSink {
 public:
  absl::StatusOr<Start> Begin(const PeerIdentity& peer, const v1::PushRequest& request) override {
    log.push_back("begin " + peer.name);
    request_ = request;
    if (begin_status.ok() && done.has_value()) return Start{.result = done};
    if (!begin_status.ok()) return begin_status;
    return Start{.resume_offset = static_cast<int64_t>(bytes.size())};
  }
  absl::Status Append(int64_t offset, absl::Span<const uint8_t> piece) override {
    EXPECT_EQ(offset, static_cast<int64_t>(bytes.size()));
    if (offset >= fail_at) return absl::ResourceExhaustedError("disk full");
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    bytes_appended += static_cast<int64_t>(piece.size());
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Sync() override {
    ++syncs;
    return static_cast<int64_t>(bytes.size());
  }
  absl::StatusOr<v1::PushResult> Finish() override {
    log.push_back("finish");
    v1::PushResult result;
    result.set_outcome(Sha256Of(bytes) == request_.sha256() ? v1::PushResult::OUTCOME_COUNTED
                                                            : v1::PushResult::OUTCOME_REJECTED);
    done = result;
    return result;
  }
  void Abandon(const absl::Status& status) override {
    log.push_back("abandon " + absl::StatusCodeToString(status.code()));
  }

  std::vector<uint8_t> bytes;
  std::vector<std::string> log;
  std::optional<v1::PushResult> done;
  absl::Status begin_status;
  int64_t fail_at = kModelBytes + 1;
  int64_t bytes_appended = 0;
  int syncs = 0;

 private:
  v1::PushRequest request_;
};

class ModelStreamTest : public ::testing::Test, public LinkHandler {
 protected:
  ModelStreamTest() : dialer_(std::make_unique<FakeLinkDialer>(this, RealClock(), PeerIdentity{.name = "a1"})) {
    options_.dialer = dialer_.get();
    options_.clock = RealClock();
    options_.backoff = {.initial = absl::Milliseconds(1), .max = absl::Milliseconds(2)};
    options_.max_attempts = 3;
  }

  absl::Status Serve(LinkKind kind, const PeerIdentity& peer, Link* link) override {
    if (serve_instead) return serve_instead(link);
    absl::StatusOr<v1::Frame> frame = link->Read(RealClock()->Now() + absl::Seconds(30));
    if (!frame.ok()) return frame.status();
    const ServeOptions options = {.clock = RealClock(), .progress_timeout = serve_timeout_};
    if (kind == LinkKind::kPull) return ServePull(link, frame->pull_request(), source_, options);
    // In place of a sink that takes over from the handler of a broken link.
    MutexLock lock(&push_mu_);
    return ServePush(link, peer, frame->push_request(), &sink_, options);
  }

  // Answers a request with frames of the test's own.
  void AnswerWith(std::vector<v1::Frame> frames) {
    serve_instead = [frames = std::move(frames)](Link* link) {
      EXPECT_THAT(link->Read(RealClock()->Now() + absl::Seconds(30)), IsOk());
      for (v1::Frame frame : frames) {
        const std::string payload = std::move(*frame.mutable_payload());
        frame.clear_payload();
        if (!link->Write(frame, AsBytes(payload), RealClock()->Now() + absl::Seconds(30)).ok()) break;
      }
      return absl::OkStatus();
    };
  }

  absl::StatusOr<PulledModel> Pull(int64_t version = -1) { return PullModel(options_, "job", version, kModelBytes); }
  absl::StatusOr<v1::PushResult> Push() { return PushPart(options_, v1::PushRequest(), bytes_); }

  const std::vector<uint8_t> bytes_ = RandomModel();
  Mutex push_mu_;
  MemorySource source_{bytes_};
  MemorySink sink_;
  absl::Duration serve_timeout_ = absl::Seconds(30);
  std::function<absl::Status(Link*)> serve_instead;
  std::unique_ptr<FakeLinkDialer> dialer_;
  TransferOptions options_;
};

TEST_F(ModelStreamTest, PullBringsTheModel) {
  absl::StatusOr<PulledModel> model = Pull();
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->version, 3);
  EXPECT_EQ(model->layout.hash(), ModelLayout().hash());
  EXPECT_TRUE(model->bytes == bytes_);
  EXPECT_EQ(model->sha256, Sha256Of(bytes_));
}

TEST_F(ModelStreamTest, PullGoesOnWhereTheLinkBroke) {
  options_.max_attempts = 4;
  dialer_->AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 20});
  dialer_->AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 2});
  dialer_->AddFault(LinkFault{.direction = LinkDirection::kToHandler, .frame = 1});
  absl::StatusOr<PulledModel> model = Pull();
  ASSERT_THAT(model, IsOk());
  EXPECT_TRUE(model->bytes == bytes_);
  EXPECT_EQ(dialer_->dials(), 4);
  dialer_ = nullptr;  // Joins the handlers.
  // What had arrived did not come again; a cut loses what was under way.
  EXPECT_LT(source_.bytes_read, kModelBytes + (6 << 20));
}

TEST_F(ModelStreamTest, StalledPullIsTriedAgain) {
  options_.progress_timeout = absl::Milliseconds(200);
  dialer_->AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 10, .kind = LinkFault::Kind::kStall});
  absl::StatusOr<PulledModel> model = Pull();
  ASSERT_THAT(model, IsOk());
  EXPECT_TRUE(model->bytes == bytes_);
  EXPECT_EQ(dialer_->dials(), 2);
}

TEST_F(ModelStreamTest, PullGivesUpAtLast) {
  for (int i = 0; i < 3; ++i) dialer_->AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 1});
  EXPECT_THAT(Pull(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gave up")));
}

TEST_F(ModelStreamTest, CorruptedFrameIsFound) {
  dialer_->AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 5, .kind = LinkFault::Kind::kCorrupt});
  EXPECT_THAT(Pull(), StatusIs(kDataLoss, HasSubstr("digest")));
}

TEST_F(ModelStreamTest, CorruptedModelIsFound) {
  source_.bytes_[1000] ^= 1;  // The frames' digests fit it, the model's does not.
  EXPECT_THAT(Pull(), StatusIs(kDataLoss, HasSubstr("SHA-256")));
}

TEST_F(ModelStreamTest, OversizedModelIsRefusedBeforeItComes) {
  EXPECT_THAT(PullModel(options_, "job", -1, kModelBytes - 1),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("limit")));
}

TEST_F(ModelStreamTest, DescriptionsThatDoNotFitAreRefused) {
  v1::Frame good;
  *good.mutable_pull_response() = source_.info();
  auto pull_with = [&](auto change) {
    v1::Frame frame = good;
    change(frame.mutable_pull_response());
    AnswerWith({frame});
    return Pull().status();
  };
  EXPECT_THAT(pull_with([](auto* r) { r->set_total_bytes(8); }), StatusIs(kDataLoss, HasSubstr("8 bytes announced")));
  EXPECT_THAT(pull_with([](auto* r) { r->set_layout_sha256("x"); }), StatusIs(kDataLoss, HasSubstr("hash")));
  EXPECT_THAT(pull_with([](auto* r) { r->clear_layout(); }), StatusIs(kDataLoss));
  EXPECT_THAT(pull_with([](auto* r) { r->clear_sha256(); }), StatusIs(kDataLoss));
  EXPECT_THAT(pull_with([](auto*) {}), StatusIs(kDataLoss, HasSubstr("early")));
  AnswerWith({internal::DataFrame("", 0, 1, {})});
  EXPECT_THAT(Pull(), StatusIs(kDataLoss));
  AnswerWith({good});
  EXPECT_THAT(Pull(4), StatusIs(kDataLoss, HasSubstr("version 3 came where 4")));
}

TEST_F(ModelStreamTest, ModelThatChangesMeanwhileIsRefused) {
  int calls = 0;
  serve_instead = [&](Link* link) {
    EXPECT_THAT(link->Read(RealClock()->Now() + absl::Seconds(30)), IsOk());
    v1::Frame frame;
    *frame.mutable_pull_response() = source_.info();
    if (++calls == 2) frame.mutable_pull_response()->set_sha256(std::string(32, 'x'));
    EXPECT_THAT(link->Write(frame, {}, RealClock()->Now() + absl::Seconds(30)), IsOk());
    return absl::UnavailableError("restarting");
  };
  EXPECT_THAT(Pull(), StatusIs(kDataLoss, HasSubstr("changed")));
}

TEST_F(ModelStreamTest, BadOffsetIsTheClientsFault) {
  absl::StatusOr<std::unique_ptr<Link>> link = dialer_->Dial(LinkKind::kPull, absl::InfiniteFuture());
  v1::Frame request;
  request.mutable_pull_request()->set_offset(kModelBytes + 1);
  ASSERT_THAT((*link)->Write(request, {}, absl::InfiniteFuture()), IsOk());
  EXPECT_THAT((*link)->Read(absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("outside")));
}

TEST_F(ModelStreamTest, CancelStopsAPull) {
  Cancellation cancellation;
  options_.cancellation = &cancellation;
  serve_instead = [&](Link* link) {
    cancellation.Cancel("another job");
    return link->Read(absl::InfiniteFuture()).status();
  };
  EXPECT_THAT(Pull(), StatusIs(absl::StatusCode::kCancelled, "another job"));
}

TEST_F(ModelStreamTest, PushDeliversThePart) {
  absl::StatusOr<v1::PushResult> result = Push();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->outcome(), v1::PushResult::OUTCOME_COUNTED);
  EXPECT_TRUE(sink_.bytes == bytes_);
  EXPECT_THAT(sink_.log, ElementsAre("begin a1", "finish"));
  EXPECT_EQ(sink_.syncs, 1);
  // Again: answered at once.
  EXPECT_THAT(Push(), IsOk());
  EXPECT_EQ(sink_.bytes_appended, kModelBytes);
}

TEST_F(ModelStreamTest, EmptyPartIsFinished) {
  EXPECT_THAT(PushPart(options_, v1::PushRequest(), {}), IsOk());
  EXPECT_THAT(sink_.log, ElementsAre("begin a1", "finish"));
}

TEST_F(ModelStreamTest, PushGoesOnFromWhatIsDurable) {
  dialer_->AddFault(LinkFault{.direction = LinkDirection::kToHandler, .frame = 30});
  dialer_->AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 3});
  absl::StatusOr<v1::PushResult> result = Push();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->outcome(), v1::PushResult::OUTCOME_COUNTED);
  EXPECT_TRUE(sink_.bytes == bytes_);
  EXPECT_EQ(dialer_->dials(), 3);
  EXPECT_EQ(sink_.bytes_appended, kModelBytes) << "nothing came twice";
  EXPECT_THAT(sink_.log,
              ElementsAre("begin a1", "abandon UNAVAILABLE", "begin a1", "abandon UNAVAILABLE", "begin a1", "finish"));
}

TEST_F(ModelStreamTest, LostResultIsAskedForAgain) {
  // Response, acknowledgements for all but the last MiB, result.
  dialer_->AddFault(
      LinkFault{.direction = LinkDirection::kToDialer, .frame = 1 + (kModelBytes / StreamSizes().ack_bytes - 1) + 1});
  absl::StatusOr<v1::PushResult> result = Push();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(dialer_->dials(), 2);
  EXPECT_THAT(sink_.log, ElementsAre("begin a1", "finish", "begin a1"));
}

TEST_F(ModelStreamTest, CorruptedPushIsAbandoned) {
  dialer_->AddFault(LinkFault{.direction = LinkDirection::kToHandler, .frame = 5, .kind = LinkFault::Kind::kCorrupt});
  EXPECT_THAT(Push(), StatusIs(kDataLoss, HasSubstr("digest")));
  EXPECT_THAT(sink_.log, ElementsAre("begin a1", "abandon DATA_LOSS"));
}

TEST_F(ModelStreamTest, SinksErrorsReachTheSender) {
  sink_.fail_at = 12 << 20;
  EXPECT_THAT(Push(), StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  sink_.begin_status = absl::FailedPreconditionError("no such job");
  EXPECT_THAT(Push(), StatusIs(absl::StatusCode::kFailedPrecondition, "no such job"));
}

TEST_F(ModelStreamTest, EarlyResultStopsThePush) {
  v1::Frame start;
  start.mutable_push_response()->set_resume_offset(0);
  v1::Frame result;
  result.mutable_push_result()->set_outcome(v1::PushResult::OUTCOME_NOT_WANTED);
  AnswerWith({start, result});
  absl::StatusOr<v1::PushResult> got = Push();
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(got->outcome(), v1::PushResult::OUTCOME_NOT_WANTED);
}

TEST_F(ModelStreamTest, AnswersThatDoNotFitAreRefused) {
  v1::Frame start;
  start.mutable_push_response()->set_resume_offset(kModelBytes + 1);
  AnswerWith({start});
  EXPECT_THAT(Push(), StatusIs(kDataLoss, HasSubstr("go on at byte")));
  start.mutable_push_response()->set_resume_offset(-1);
  AnswerWith({start});
  EXPECT_THAT(Push(), StatusIs(kDataLoss));
  start.mutable_push_response()->set_resume_offset(0);
  v1::Frame ack;
  ack.mutable_push_ack()->set_received_bytes(kModelBytes + 1);
  AnswerWith({start, ack});
  EXPECT_THAT(Push(), StatusIs(kDataLoss, HasSubstr("acknowledged")));
  v1::Frame empty;
  empty.mutable_push_result();
  AnswerWith({empty});
  EXPECT_THAT(Push(), StatusIs(kDataLoss, HasSubstr("outcome")));
}

TEST_F(ModelStreamTest, WindowBoundsWhatIsUnderWay) {
  options_.max_attempts = 1;
  int64_t received = 0;
  serve_instead = [&](Link* link) {
    EXPECT_THAT(link->Read(absl::InfiniteFuture()), IsOk());
    v1::Frame start;
    start.mutable_push_response();
    EXPECT_THAT(link->Write(start, {}, absl::InfiniteFuture()), IsOk());
    // Takes all that comes, but acknowledges nothing.
    while (true) {
      absl::StatusOr<v1::Frame> frame = link->Read(RealClock()->Now() + absl::Milliseconds(300));
      if (!frame.ok()) return frame.status();
      received += static_cast<int64_t>(frame->payload().size());
    }
  };
  EXPECT_FALSE(Push().ok());
  dialer_ = nullptr;
  EXPECT_EQ(received, StreamSizes().window_bytes);
}

TEST_F(ModelStreamTest, SilentSenderIsGivenUp) {
  serve_timeout_ = absl::Milliseconds(100);
  absl::StatusOr<std::unique_ptr<Link>> link = dialer_->Dial(LinkKind::kPush, absl::InfiniteFuture());
  v1::Frame request;
  request.mutable_push_request()->set_total_bytes(100);
  ASSERT_THAT((*link)->Write(request, {}, absl::InfiniteFuture()), IsOk());
  ASSERT_THAT((*link)->Read(absl::InfiniteFuture()), IsOk());
  EXPECT_FALSE((*link)->Read(absl::InfiniteFuture()).ok());
  dialer_ = nullptr;
  EXPECT_THAT(sink_.log, ElementsAre("begin a1", "abandon DEADLINE_EXCEEDED"));
}

}  // namespace
}  // namespace causeway::dataplane
