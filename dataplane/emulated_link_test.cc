#include "dataplane/emulated_link.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

// The smallest burst of the limiter, less a frame's header.
constexpr int64_t kFirstPayload = 4096 - 64;

// Takes frames until the dialing side closes, then sends two.
class Handler : public LinkHandler {
 public:
  absl::Status Serve(LinkKind, const PeerIdentity&, Link* link) override {
    while (true) {
      absl::StatusOr<v1::Frame> frame = link->Read(absl::InfiniteFuture());
      if (absl::IsOutOfRange(frame.status())) break;
      if (!frame.ok()) return frame.status();
    }
    for (int i = 0; i < 2; ++i) {
      absl::Status status = link->Write(Data(), std::vector<uint8_t>(kFirstPayload), absl::InfiniteFuture());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  static v1::Frame Data() {
    v1::Frame frame;
    frame.mutable_data();
    return frame;
  }
};

class EmulatedLinkTest : public ::testing::Test {
 protected:
  std::unique_ptr<Link> Dial(double up_bytes_per_s, double down_bytes_per_s) {
    emulated_ = *EmulatedLinkDialer::Create(
        {.dialer = &dialer_, .clock = &clock_, .up_bytes_per_s = up_bytes_per_s, .down_bytes_per_s = down_bytes_per_s});
    return *emulated_->Dial(LinkKind::kPush, absl::InfiniteFuture());
  }

  FakeClock clock_;       // Of the emulation,
  FakeClock link_clock_;  // and of the link below it.
  Handler handler_;
  FakeLinkDialer dialer_{&handler_, &link_clock_};
  std::unique_ptr<EmulatedLinkDialer> emulated_;
};

TEST_F(EmulatedLinkTest, OptionsAreChecked) {
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(EmulatedLinkDialer::Create({.dialer = &dialer_, .clock = &clock_, .up_bytes_per_s = -1}).status(),
              invalid);
  EXPECT_THAT(EmulatedLinkDialer::Create({.dialer = &dialer_, .clock = &clock_, .down_bytes_per_s = -1}).status(),
              invalid);
  EXPECT_THAT(EmulatedLinkDialer::Create({.clock = &clock_}).status(), invalid);
}

TEST_F(EmulatedLinkTest, WritesPassAtTheRate) {
  std::unique_ptr<Link> link = Dial(1000, 0);
  ASSERT_THAT(link->Write(Handler::Data(), std::vector<uint8_t>(kFirstPayload), absl::InfiniteFuture()), IsOk());
  absl::Time done;
  const absl::Time start = clock_.Now();
  std::thread writer([&] {
    EXPECT_THAT(link->Write(Handler::Data(), std::vector<uint8_t>(936), absl::InfiniteFuture()), IsOk());
    done = clock_.Now();
  });
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  clock_.Advance(absl::Milliseconds(999));
  ASSERT_TRUE(clock_.AwaitWaiters(1)) << "936 bytes and a header take a second";
  clock_.Advance(absl::Milliseconds(2));
  writer.join();
  EXPECT_GE(done - start, absl::Seconds(1));
}

TEST_F(EmulatedLinkTest, ReadsPassAtTheRate) {
  std::unique_ptr<Link> link = Dial(0, 4096);
  ASSERT_THAT(link->CloseWrite(), IsOk());
  ASSERT_THAT(link->Read(absl::InfiniteFuture()), IsOk());
  std::thread reader([&] { EXPECT_THAT(link->Read(absl::InfiniteFuture()), IsOk()); });
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  clock_.Advance(absl::Milliseconds(1001));
  reader.join();
  EXPECT_THAT(link->Finish(absl::InfiniteFuture()), IsOk());
}

TEST_F(EmulatedLinkTest, AllLinksShareTheLine) {
  std::unique_ptr<Link> first = Dial(1000, 0);
  std::unique_ptr<Link> second = *emulated_->Dial(LinkKind::kPull, absl::InfiniteFuture());
  ASSERT_THAT(first->Write(Handler::Data(), std::vector<uint8_t>(kFirstPayload), absl::InfiniteFuture()), IsOk());
  EXPECT_THAT(second->Write(Handler::Data(), {}, clock_.Now()), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(second->Write(Handler::Data(), {}, absl::InfiniteFuture()), StatusIs(absl::StatusCode::kCancelled))
      << "the link is dead";
}

TEST_F(EmulatedLinkTest, CancelIsHeardBetweenPieces) {
  std::unique_ptr<Link> link = Dial(1000, 0);
  std::thread writer([&] {
    EXPECT_THAT(link->Write(Handler::Data(), std::vector<uint8_t>(1 << 20), absl::InfiniteFuture()),
                StatusIs(absl::StatusCode::kCancelled));
  });
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  link->Cancel("enough");
  clock_.Advance(absl::Seconds(5));
  writer.join();
}

}  // namespace
}  // namespace causeway::dataplane
