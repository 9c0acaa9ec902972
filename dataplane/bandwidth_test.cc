#include "dataplane/bandwidth.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/emulated_link.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

using ::testing::AllOf;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;

class BandwidthTest : public ::testing::Test, public LinkHandler {
 protected:
  BandwidthTest() : dialer_(this, RealClock()) {
    options_.dialer = &dialer_;
    options_.clock = RealClock();
    options_.max_attempts = 1;
  }

  absl::Status Serve(LinkKind kind, const PeerIdentity&, Link* link) override {
    EXPECT_EQ(kind, LinkKind::kProbe);
    absl::StatusOr<v1::Frame> frame = link->Read(RealClock()->Now() + absl::Seconds(30));
    if (!frame.ok()) return frame.status();
    return ServeProbe(link, frame->probe_request(), {.clock = RealClock()});
  }

  // A line so slow that the machine's speed does not matter.
  void Emulate(double up_bytes_per_s, double down_bytes_per_s) {
    emulated_ = *EmulatedLinkDialer::Create({.dialer = &dialer_,
                                             .clock = RealClock(),
                                             .up_bytes_per_s = up_bytes_per_s,
                                             .down_bytes_per_s = down_bytes_per_s});
    options_.dialer = emulated_.get();
  }

  FakeLinkDialer dialer_;
  std::unique_ptr<EmulatedLinkDialer> emulated_;
  TransferOptions options_;
};

TEST_F(BandwidthTest, FindsTheRateOfTheLine) {
  Emulate(/*up=*/1e6, /*down=*/3e6);
  // A machine that lets a thread wait for the whole probe spoils one measurement, not three.
  const auto one_of_three = [&](const auto& measure, double low, double high) {
    std::vector<double> found;
    for (int i = 0; i < 3; ++i) {
      const absl::StatusOr<double> rate = measure(options_, absl::Milliseconds(300), 1 << 20);
      EXPECT_THAT(rate, IsOk());
      if (rate.ok()) found.push_back(*rate);
      if (rate.ok() && *rate > low && *rate < high) break;
    }
    EXPECT_THAT(found.back(), AllOf(Gt(low), Lt(high))) << testing::PrintToString(found);
  };
  one_of_three(MeasureUp, 0.5e6, 1.3e6);
  one_of_three(MeasureDown, 1.5e6, 3.9e6);
}

TEST_F(BandwidthTest, TimeBoundsASlowProbe) {
  Emulate(1e6, 1e6);
  const absl::Time start = RealClock()->Now();
  EXPECT_THAT(MeasureDown(options_, absl::Milliseconds(100), kMaxProbeBytes), IsOk());
  EXPECT_THAT(MeasureUp(options_, absl::Milliseconds(100), kMaxProbeBytes), IsOk());
  EXPECT_LT(RealClock()->Now() - start, absl::Seconds(5));  // All the bytes would take 9 minutes.
}

TEST_F(BandwidthTest, BytesBoundAFastProbe) {
  const absl::Time start = RealClock()->Now();
  EXPECT_THAT(MeasureDown(options_, kMaxProbeDuration, 1 << 20), IsOkAndHolds(Gt(0)));
  EXPECT_THAT(MeasureUp(options_, kMaxProbeDuration, 1 << 20), IsOkAndHolds(Gt(0)));
  EXPECT_LT(RealClock()->Now() - start, absl::Seconds(5));
}

TEST_F(BandwidthTest, RoundTripIsShort) {
  absl::StatusOr<absl::Duration> round_trip = MeasureRoundTrip(options_);
  ASSERT_THAT(round_trip, IsOk());
  EXPECT_GT(*round_trip, absl::ZeroDuration());
  EXPECT_LT(*round_trip, absl::Seconds(1));
  EXPECT_EQ(dialer_.dials(), 5);
}

TEST_F(BandwidthTest, LimitsAreChecked) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(MeasureUp(options_, absl::Seconds(11), 1), StatusIs(invalid));
  EXPECT_THAT(MeasureDown(options_, absl::Seconds(1), kMaxProbeBytes + 1), StatusIs(invalid));
  // A client that does not check is refused by the server.
  auto ask = [&](double seconds, int64_t bytes, v1::ProbeRequest::Direction direction) {
    std::unique_ptr<Link> link = *dialer_.Dial(LinkKind::kProbe, absl::InfiniteFuture());
    v1::Frame frame;
    frame.mutable_probe_request()->set_seconds(seconds);
    frame.mutable_probe_request()->set_bytes(bytes);
    frame.mutable_probe_request()->set_direction(direction);
    EXPECT_THAT(link->Write(frame, {}, absl::InfiniteFuture()), IsOk());
    return link->Read(absl::InfiniteFuture()).status();
  };
  EXPECT_THAT(ask(1e9, 1, v1::ProbeRequest::DIRECTION_DOWN), StatusIs(invalid));
  EXPECT_THAT(ask(-1, 1, v1::ProbeRequest::DIRECTION_DOWN), StatusIs(invalid));
  EXPECT_THAT(ask(std::numeric_limits<double>::quiet_NaN(), 1, v1::ProbeRequest::DIRECTION_DOWN), StatusIs(invalid));
  EXPECT_THAT(ask(1, int64_t{1} << 60, v1::ProbeRequest::DIRECTION_UP), StatusIs(invalid));
  EXPECT_THAT(ask(1, 1, v1::ProbeRequest::DIRECTION_UNSPECIFIED), StatusIs(invalid));
}

TEST_F(BandwidthTest, ServerStopsWhoSendsNothing) {
  std::unique_ptr<Link> link = *dialer_.Dial(LinkKind::kProbe, absl::InfiniteFuture());
  v1::Frame frame;
  frame.mutable_probe_request()->set_direction(v1::ProbeRequest::DIRECTION_UP);
  ASSERT_THAT(link->Write(frame, {}, absl::InfiniteFuture()), IsOk());
  frame.mutable_data();
  link->Write(frame, {}, absl::InfiniteFuture()).IgnoreError();
  link->CloseWrite().IgnoreError();
  EXPECT_THAT(link->Read(absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("without payload")));
}

TEST_F(BandwidthTest, ServerStopsWhoSendsMoreThanItSaid) {
  std::unique_ptr<Link> link = *dialer_.Dial(LinkKind::kProbe, absl::InfiniteFuture());
  v1::Frame frame;
  frame.mutable_probe_request()->set_direction(v1::ProbeRequest::DIRECTION_UP);
  ASSERT_THAT(link->Write(frame, {}, absl::InfiniteFuture()), IsOk());
  frame.mutable_data();
  for (int i = 0; i < 10; ++i) link->Write(frame, std::vector<uint8_t>(1 << 20), absl::InfiniteFuture()).IgnoreError();
  EXPECT_THAT(link->Read(absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than it said")));
}

}  // namespace
}  // namespace causeway::dataplane
