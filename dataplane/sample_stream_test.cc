#include "dataplane/sample_stream.h"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/digest.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

using ::testing::HasSubstr;

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

class MemoryChunks : public ChunkSource {
 public:
  std::string Add(int64_t size_bytes, char fill) {
    std::string chunk(size_bytes, fill);
    std::string name = Sha256Of(chunk);
    chunks_[name] = std::move(chunk);
    return name;
  }
  absl::StatusOr<int64_t> Size(absl::string_view sha256) const override {
    auto found = chunks_.find(std::string(sha256));
    if (found == chunks_.end()) return absl::NotFoundError("no such chunk");
    return static_cast<int64_t>(found->second.size());
  }
  absl::Status Read(absl::string_view sha256, int64_t offset, absl::Span<uint8_t> out) const override {
    std::memcpy(out.data(), chunks_.at(std::string(sha256)).data() + offset, out.size());
    return absl::OkStatus();
  }
  std::map<std::string, std::string> chunks_;
};

class SampleStreamTest : public ::testing::Test, public LinkHandler {
 protected:
  SampleStreamTest() : dialer_(this, RealClock()) {
    options_.dialer = &dialer_;
    options_.clock = RealClock();
    options_.backoff = {.initial = absl::Milliseconds(1), .max = absl::Milliseconds(2)};
    options_.max_attempts = 3;
  }

  absl::Status Serve(LinkKind, const PeerIdentity&, Link* link) override {
    absl::StatusOr<v1::Frame> frame = link->Read(RealClock()->Now() + absl::Seconds(30));
    if (!frame.ok()) return frame.status();
    if (answer_.has_value()) return link->Write(*answer_, {}, RealClock()->Now() + absl::Seconds(30));
    EXPECT_EQ(frame->fetch_request().job(), "job");
    return ServeFetch(link, frame->fetch_request(), chunks_, {.clock = RealClock()});
  }

  absl::Status Fetch(const std::vector<FetchItem>& items) {
    return FetchChunks(options_, "job", items, 1 << 20, [&](const ChunkPiece& piece) {
      std::string& chunk = got_[std::string(piece.sha256)];
      EXPECT_EQ(piece.offset, static_cast<int64_t>(chunk.size())) << "pieces are contiguous";
      chunk.append(AsText(piece.bytes).data(), piece.bytes.size());
      ++pieces_;
      return absl::OkStatus();
    });
  }

  MemoryChunks chunks_;
  std::optional<v1::Frame> answer_;
  std::map<std::string, std::string> got_;
  int pieces_ = 0;
  FakeLinkDialer dialer_;
  TransferOptions options_;
};

TEST_F(SampleStreamTest, ChunksArriveWhole) {
  const std::string a = chunks_.Add(1 << 20, 'a');
  const std::string b = chunks_.Add(100, 'b');
  const std::string empty = chunks_.Add(0, ' ');
  ASSERT_THAT(Fetch({{a}, {b}, {empty}}), IsOk());
  EXPECT_EQ(got_, chunks_.chunks_);
  EXPECT_EQ(pieces_, 4 + 1 + 1);
  EXPECT_THAT(Fetch({}), IsOk());
}

TEST_F(SampleStreamTest, MoreItemsThanOneRequestHolds) {
  std::vector<FetchItem> items;
  for (int i = 0; i < 2500; ++i) items.push_back({chunks_.Add(i + 1, 'x')});
  ASSERT_THAT(Fetch(items), IsOk());
  EXPECT_EQ(got_, chunks_.chunks_);
  EXPECT_EQ(dialer_.dials(), 3);
}

TEST_F(SampleStreamTest, GoesOnFromAnOffset) {
  const std::string a = chunks_.Add(1 << 20, 'a');
  got_[a] = std::string(1000, 'a');
  ASSERT_THAT(Fetch({{a, 1000}}), IsOk());
  EXPECT_EQ(got_, chunks_.chunks_);
  // Nothing left: one empty piece tells so.
  pieces_ = 0;
  ASSERT_THAT(Fetch({{a, 1 << 20}}), IsOk());
  EXPECT_EQ(pieces_, 1);
}

TEST_F(SampleStreamTest, GoesOnWhereTheLinkBroke) {
  const std::string a = chunks_.Add(1 << 20, 'a');
  const std::string b = chunks_.Add(1 << 20, 'b');
  dialer_.AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 3});
  dialer_.AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 4});
  ASSERT_THAT(Fetch({{a}, {b}}), IsOk());
  EXPECT_EQ(got_, chunks_.chunks_);
  EXPECT_EQ(pieces_, 8) << "no piece came twice";
  EXPECT_GE(dialer_.dials(), 3);
}

TEST_F(SampleStreamTest, CorruptedPieceIsFound) {
  const std::string a = chunks_.Add(1 << 20, 'a');
  dialer_.AddFault(LinkFault{.direction = LinkDirection::kToDialer, .frame = 2, .kind = LinkFault::Kind::kCorrupt});
  EXPECT_THAT(Fetch({{a}}), StatusIs(kDataLoss, HasSubstr("digest")));
  EXPECT_EQ(pieces_, 1);
}

TEST_F(SampleStreamTest, PeersErrorsArrive) {
  const std::string a = chunks_.Add(10, 'a');
  EXPECT_THAT(Fetch({{a}, {std::string(32, 'x')}}), StatusIs(absl::StatusCode::kNotFound, "no such chunk"));
  EXPECT_EQ(got_, chunks_.chunks_);
  got_[a] = std::string(11, 'a');
  EXPECT_THAT(Fetch({{a, 11}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("outside")));
  EXPECT_THAT(Fetch({{"short"}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("32 bytes")));
  EXPECT_THAT(Fetch({{a, -1}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("negative")));
}

TEST_F(SampleStreamTest, ReceiversErrorEndsTheTransfer) {
  const std::string a = chunks_.Add(1 << 20, 'a');
  int calls = 0;
  // A code that a broken link has too: it must not be tried again all the same.
  EXPECT_THAT(FetchChunks(options_, "job", {{a}}, 1 << 20,
                          [&](const ChunkPiece&) {
                            ++calls;
                            return absl::UnavailableError("no disk");
                          }),
              StatusIs(absl::StatusCode::kUnavailable, "no disk"));
  EXPECT_EQ(calls, 1);
}

TEST_F(SampleStreamTest, HostileAnswersAreRefused) {
  const std::string a = chunks_.Add(10, 'a');
  answer_ = internal::DataFrame(std::string(32, 'x'), 0, 0, {});
  EXPECT_THAT(Fetch({{a}}), StatusIs(kDataLoss, HasSubstr("was due")));
  answer_ = internal::DataFrame(a, 0, (1 << 20) + 1, {});
  EXPECT_THAT(Fetch({{a}}), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("limit")));
  answer_ = internal::DataFrame(a, 0, -1, {});
  EXPECT_THAT(Fetch({{a}}), StatusIs(kDataLoss));
  answer_ = internal::DataFrame(a, 0, 10, {});
  EXPECT_THAT(Fetch({{a}}), StatusIs(kDataLoss, HasSubstr("empty")));
  answer_ = v1::Frame();
  answer_->mutable_push_ack();
  EXPECT_THAT(Fetch({{a}}), StatusIs(kDataLoss));
}

}  // namespace
}  // namespace causeway::dataplane
