#include "worker/round_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/fakes/fake_coordinator.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

using testing::SizeIs;

dataplane::Layout MakeLayout(int64_t elements) {
  return *dataplane::Layout::Create({{"weight", dataplane::DataType::kFloat32, {elements}}});
}

class RoundExchangeTest : public testing::Test {
 protected:
  RoundExchangeTest() {
    RoundExchange::Options options;
    options.transfer.dialer = &dialer_;
    options.transfer.clock = RealClock();
    options.transfer.backoff.initial = absl::Milliseconds(1);
    options.transfer.max_attempts = 2;
    options.on_pulled = [this](int64_t bytes, double) { pulled_bytes_ += bytes; };
    options.on_pushed = [this](int64_t bytes, double) { pushed_bytes_ += bytes; };
    exchange_ = std::make_unique<RoundExchange>(std::move(options));
    std::iota(bytes_.begin(), bytes_.end(), 1);
    coordinator_.SetModel(3, layout_, bytes_);
    fence_.set_job("fashion");
    fence_.set_round(3);
    fence_.set_site_generation(1);
  }

  const dataplane::Layout layout_ = MakeLayout(10);
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(40);
  v1::Fence fence_;
  FakeCoordinator coordinator_{RealClock()};
  FakeLinkDialer dialer_{&coordinator_, RealClock()};
  dataplane::Cancellation cancellation_;
  int64_t pulled_bytes_ = 0;
  int64_t pushed_bytes_ = 0;
  std::unique_ptr<RoundExchange> exchange_;
};

TEST_F(RoundExchangeTest, PullsAVersionOnce) {
  auto pulled = exchange_->Pull("fashion", 3, layout_, &cancellation_);
  ASSERT_THAT(pulled, IsOk());
  EXPECT_EQ((*pulled)->bytes, bytes_);
  EXPECT_EQ((*pulled)->version, 3);
  EXPECT_GT((*pulled)->seconds, 0);
  ASSERT_THAT(exchange_->Pull("fashion", 3, layout_, &cancellation_), IsOk());
  EXPECT_EQ(dialer_.dials(), 1);
  EXPECT_EQ(pulled_bytes_, 40);
  EXPECT_THAT(exchange_->Pull("fashion", 4, layout_, &cancellation_), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RoundExchangeTest, RefusesAnotherLayout) {
  EXPECT_THAT(exchange_->Pull("fashion", 3, MakeLayout(11), &cancellation_),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(exchange_->Pull("fashion", 3, MakeLayout(9), &cancellation_),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(RoundExchangeTest, KeepsAContributionAndOffersItAgain) {
  EXPECT_THAT(exchange_->Push(1, &cancellation_), StatusIs(absl::StatusCode::kFailedPrecondition));
  exchange_->Keep("train 3", WholeModelPush(fence_, layout_), bytes_);
  EXPECT_TRUE(exchange_->Holds("train 3"));
  EXPECT_FALSE(exchange_->Holds("train 4"));

  dialer_.FailDials(2);
  EXPECT_THAT(exchange_->Push(1, &cancellation_), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(exchange_->Holds("train 3"));
  auto pushed = exchange_->Push(1, &cancellation_);
  ASSERT_THAT(pushed, IsOk());
  EXPECT_EQ(pushed->result.outcome(), v1::PushResult::OUTCOME_COUNTED);
  EXPECT_GT(pushed->seconds, 0);
  ASSERT_THAT(exchange_->Push(2, &cancellation_), IsOk());

  const auto pushes = coordinator_.pushes();
  ASSERT_THAT(pushes, SizeIs(2));
  EXPECT_EQ(pushes[0].bytes, bytes_);
  EXPECT_EQ(pushes[0].request.elements(0).end(), 10);
  EXPECT_EQ(pushes[0].request.parts(), 1);
  EXPECT_EQ(pushes[0].request.layout_sha256(), layout_.hash());
  EXPECT_EQ(pushes[0].request.fence().site_generation(), 1);
  EXPECT_EQ(pushes[1].request.fence().site_generation(), 2);
  EXPECT_EQ(pushes[1].request.sha256(), pushes[0].request.sha256());
  EXPECT_EQ(pushed_bytes_, 80);

  exchange_->KeepOnly("train 3");
  EXPECT_TRUE(exchange_->Holds("train 3"));
  exchange_->KeepOnly("train 4");
  EXPECT_FALSE(exchange_->Holds("train 3"));
}

TEST_F(RoundExchangeTest, TellsWhatTheCoordinatorThinks) {
  coordinator_.SetPushOutcome(v1::PushResult::OUTCOME_REJECTED);
  exchange_->Keep("train 3", WholeModelPush(fence_, layout_), bytes_);
  auto pushed = exchange_->Push(1, &cancellation_);
  ASSERT_THAT(pushed, IsOk());
  EXPECT_EQ(pushed->result.outcome(), v1::PushResult::OUTCOME_REJECTED);
}

TEST_F(RoundExchangeTest, PushesInitialValues) {
  ASSERT_THAT(exchange_->PushInitial(fence_, layout_, bytes_, &cancellation_), IsOk());
  EXPECT_TRUE(coordinator_.pushes().at(0).request.initial());
}

}  // namespace
}  // namespace causeway::worker
