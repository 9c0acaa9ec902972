#include "dataplane/transfer.h"

#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/digest.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

using ::testing::HasSubstr;

class SilentHandler : public LinkHandler {
 public:
  absl::Status Serve(LinkKind, const PeerIdentity&, Link* link) override {
    return link->Read(absl::InfiniteFuture()).status();
  }
};

class TransferTest : public ::testing::Test {
 protected:
  TransferTest() : dialer_(&handler_, RealClock()) {
    options_.dialer = &dialer_;
    options_.clock = RealClock();
    options_.backoff = {.initial = absl::Milliseconds(1), .max = absl::Milliseconds(2)};
    options_.max_attempts = 3;
  }

  SilentHandler handler_;
  FakeLinkDialer dialer_;
  TransferOptions options_;
};

TEST_F(TransferTest, RetryableErrorsAreTriedAgain) {
  int calls = 0;
  EXPECT_THAT(internal::RunAttempts(
                  options_, LinkKind::kPull,
                  [&](Link*, bool*) { return ++calls < 3 ? absl::UnavailableError("gone") : absl::OkStatus(); }),
              IsOk());
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(dialer_.dials(), 3);
}

TEST_F(TransferTest, AttemptsAreBoundedUnlessThereIsProgress) {
  int calls = 0;
  EXPECT_THAT(internal::RunAttempts(options_, LinkKind::kPull,
                                    [&](Link*, bool* progress) {
                                      *progress = ++calls <= 5;
                                      return absl::UnavailableError("gone");
                                    }),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gave up after 3 attempts without progress: gone")));
  EXPECT_EQ(calls, 5 + 2);
}

TEST_F(TransferTest, FailedDialsCountAsAttempts) {
  dialer_.FailDials(2);
  EXPECT_THAT(internal::RunAttempts(options_, LinkKind::kPull, [](Link*, bool*) { return absl::OkStatus(); }), IsOk());
  dialer_.FailDials(3);
  EXPECT_THAT(internal::RunAttempts(options_, LinkKind::kPull, [](Link*, bool*) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(TransferTest, AnAnswerIsNotTriedAgain) {
  int calls = 0;
  EXPECT_THAT(internal::RunAttempts(options_, LinkKind::kPull,
                                    [&](Link*, bool*) {
                                      ++calls;
                                      return absl::NotFoundError("no such version");
                                    }),
              StatusIs(absl::StatusCode::kNotFound, "no such version"));
  EXPECT_EQ(calls, 1);
}

TEST_F(TransferTest, CancelBreaksTheLinkInUse) {
  Cancellation cancellation;
  options_.cancellation = &cancellation;
  std::thread canceller;
  EXPECT_THAT(internal::RunAttempts(options_, LinkKind::kPull,
                                    [&](Link* link, bool*) {
                                      canceller = std::thread([&] { cancellation.Cancel("not wanted any more"); });
                                      return link->Read(absl::InfiniteFuture()).status();
                                    }),
              StatusIs(absl::StatusCode::kCancelled, "not wanted any more"));
  canceller.join();
  EXPECT_THAT(internal::RunAttempts(options_, LinkKind::kPull, [](Link*, bool*) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kCancelled, "not wanted any more"));
}

TEST_F(TransferTest, CancelEndsTheWaitBetweenAttempts) {
  FakeClock clock;
  Cancellation cancellation;
  options_.clock = &clock;
  options_.cancellation = &cancellation;
  options_.backoff.initial = absl::Hours(1);
  absl::Status status;
  std::thread transfer([&] {
    status =
        internal::RunAttempts(options_, LinkKind::kPull, [](Link*, bool*) { return absl::UnavailableError("gone"); });
  });
  ASSERT_TRUE(clock.AwaitWaiters(1));
  cancellation.Cancel("enough");
  transfer.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, "enough"));
}

TEST_F(TransferTest, DataFramesAreChecked) {
  const std::string payload = "payload";
  v1::Frame good = internal::DataFrame("", 10, 100, AsBytes(payload));
  good.set_payload(payload);
  EXPECT_THAT(internal::CheckDataFrame(good, 10, 100), IsOk());
  EXPECT_THAT(internal::CheckDataFrame(good, 11, 100),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("offset 10 where 11")));
  EXPECT_THAT(internal::CheckDataFrame(good, 10, 101), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("total")));

  v1::Frame bad = good;
  bad.set_payload("pAyload");
  EXPECT_THAT(internal::CheckDataFrame(bad, 10, 100), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("digest")));

  bad = internal::DataFrame("", 10, 16, AsBytes(payload));
  bad.set_payload(payload);
  EXPECT_THAT(internal::CheckDataFrame(bad, 10, 16), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("too many")));

  EXPECT_THAT(internal::CheckDataFrame(internal::DataFrame("", 10, 100, {}), 10, 100),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("empty")));
  EXPECT_THAT(internal::CheckDataFrame(internal::DataFrame("", 100, 100, {}), 100, 100), IsOk());
  EXPECT_THAT(internal::CheckDataFrame(v1::Frame(), 0, 100), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace causeway::dataplane
