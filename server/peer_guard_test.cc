#include "server/peer_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_split.h"
#include "base/log.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Role = dataplane::PeerIdentity::Role;

class PeerGuardTest : public ::testing::Test {
 protected:
  PeerGuardTest() { EXPECT_OK(log::Configure({.file = dir_.Join("log")})); }
  ~PeerGuardTest() override { EXPECT_OK(log::Configure({})); }

  static dataplane::PeerIdentity Peer(Role role, const std::string& name) {
    dataplane::PeerIdentity peer;
    peer.role = role;
    peer.name = name;
    return peer;
  }
  int Calls(const dataplane::PeerIdentity& peer, int tries) {
    int admitted = 0;
    for (int i = 0; i < tries; ++i) admitted += guard_.AdmitCall(peer, "/m").ok();
    return admitted;
  }
  int Connections(const dataplane::PeerIdentity& peer, int tries) {
    int admitted = 0;
    for (int i = 0; i < tries; ++i) admitted += guard_.AdmitConnection(peer).ok();
    return admitted;
  }
  std::vector<std::string> Lines() {
    std::stringstream text;
    text << std::ifstream(dir_.Join("log")).rdbuf();
    return absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
  }

  TempDir dir_;
  FakeClock clock_;
  std::unique_ptr<MetricRegistry> registry_ = MetricRegistry::Create();
  Metrics metrics_{registry_.get()};
  std::vector<std::string> broken_;
  PeerGuard guard_{{.calls_per_s = 10,
                    .call_burst = 20,
                    .connections_per_s = 0.1,
                    .connection_burst = 4,
                    .refusals_to_cut_off = 100,
                    .break_connections =
                        [this](const dataplane::PeerIdentity& peer) {
                          broken_.push_back(peer.role == Role::kAnonymous ? "anonymous" : peer.name);
                        },
                    .clock = &clock_,
                    .metrics = &metrics_}};
  const dataplane::PeerIdentity w1_ = Peer(Role::kWorker, "w1");
};

TEST_F(PeerGuardTest, CallsAreBoundedForEachWorkerAlone) {
  EXPECT_EQ(Calls(w1_, 10'000), 20);
  EXPECT_EQ(Calls(Peer(Role::kWorker, "w2"), 20), 20);
  EXPECT_EQ(Calls(Peer(Role::kOperator, "w1"), 1000), 1000);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Calls(w1_, 10'000), 10);
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(Calls(w1_, 10'000), 20);
  EXPECT_THAT(guard_.AdmitCall(w1_, "/m"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w1 makes")));
  EXPECT_THAT(registry_->Expose(), HasSubstr("causeway_refused_calls_total{reason=\"too_many_calls\"} 29951\n"));
}

TEST_F(PeerGuardTest, WhatIsStoredCostsMore) {
  EXPECT_OK(guard_.AdmitCall(w1_, "/causeway.v1.Membership/Register"));
  EXPECT_FALSE(guard_.AdmitCall(w1_, "/causeway.v1.Membership/Register").ok());
  EXPECT_EQ(Calls(w1_, 10), 0);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Calls(w1_, 100), 10);
}

TEST_F(PeerGuardTest, ConnectionsToo) {
  EXPECT_EQ(Connections(w1_, 1000), 4);
  EXPECT_EQ(Connections(Peer(Role::kWorker, "w2"), 4), 4);
  EXPECT_EQ(Connections(Peer(Role::kAnonymous, ""), 1000), 256);
  EXPECT_EQ(Connections(Peer(Role::kOperator, "admin"), 1000), 1000);
  clock_.Advance(absl::Seconds(20));
  EXPECT_EQ(Connections(w1_, 1000), 2);
  EXPECT_THAT(registry_->Expose(),
              HasSubstr("causeway_refused_connections_total{reason=\"too_many_connections\"} 2738\n"));
}

TEST_F(PeerGuardTest, WhoIsRefusedTooOftenIsCutOffForAWhile) {
  Calls(w1_, 20 + 99);
  EXPECT_THAT(broken_, IsEmpty());
  EXPECT_EQ(Connections(w1_, 1), 1);
  Calls(w1_, 1);
  EXPECT_THAT(broken_, ElementsAre("w1"));
  EXPECT_THAT(Lines().back(), AllOf(HasSubstr("peer_cut_off"), HasSubstr("peer=w1"), HasSubstr("too_many_calls")));
  EXPECT_THAT(guard_.AdmitConnection(w1_), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cut off")));
  EXPECT_EQ(Connections(Peer(Role::kWorker, "w2"), 1), 1);
  // What it had sent before its connections broke.
  Calls(w1_, 1000);
  EXPECT_THAT(broken_, SizeIs(1));
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(Connections(w1_, 1), 1);
  Calls(w1_, 1000);
  EXPECT_THAT(broken_, SizeIs(2));
  EXPECT_THAT(registry_->Expose(), AllOf(HasSubstr("causeway_refused_connections_total{reason=\"cut_off\"} 1\n"),
                                         HasSubstr("causeway_peers_cut_off_total 2\n")));
}

TEST_F(PeerGuardTest, RefusalsOfEveryKindCountAndAreForgotten) {
  const absl::Status no = absl::PermissionDeniedError("no");
  for (int i = 0; i < 99; ++i) guard_.CallRefused(w1_, "/m", no);
  clock_.Advance(absl::Seconds(10));
  for (int i = 0; i < 99; ++i) guard_.CallRefused(w1_, "/m", no);
  for (int i = 0; i < 1000; ++i) guard_.CallRefused(Peer(Role::kOperator, "admin"), "/m", no);
  EXPECT_THAT(broken_, IsEmpty());
  guard_.CallRefused(w1_, "/m", no);
  EXPECT_THAT(broken_, ElementsAre("w1"));
  // All who come without a certificate are one.
  for (int i = 0; i < 1000; ++i) guard_.CallRefused(Peer(Role::kAnonymous, ""), "/m", no);
  EXPECT_THAT(broken_, ElementsAre("w1", "anonymous"));
}

TEST_F(PeerGuardTest, OneLineAPeriodForEachPeerAndReason) {
  for (int i = 0; i < 60; ++i) {
    guard_.CallRefused(w1_, "/m", absl::PermissionDeniedError("no\x1b[2J"));
    guard_.CallFailed(w1_, "/m", absl::InvalidArgumentError("bad"));
  }
  ASSERT_THAT(Lines(), SizeIs(2));
  EXPECT_THAT(Lines()[0], AllOf(HasSubstr("calls_refused"), HasSubstr("peer=w1"), HasSubstr("permission_denied"),
                                HasSubstr("times=1 "), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(Lines()[1], AllOf(HasSubstr("calls_failed"), HasSubstr("reason=invalid_argument")));
  guard_.CallFailed(Peer(Role::kWorker, "w2"), "/m", absl::InvalidArgumentError("bad"));
  EXPECT_THAT(Lines(), SizeIs(3));
  clock_.Advance(absl::Minutes(1));
  guard_.CallFailed(w1_, "/m", absl::InvalidArgumentError("bad"));
  ASSERT_THAT(Lines(), SizeIs(4));
  EXPECT_THAT(Lines()[3], HasSubstr("times=60 "));
  EXPECT_THAT(registry_->Expose(), AllOf(HasSubstr("causeway_failed_calls_total{code=\"invalid_argument\"} 62\n"),
                                         HasSubstr("causeway_refused_calls_total{reason=\"permission_denied\"} 60\n")));
}

TEST_F(PeerGuardTest, WhatIsUsualIsOnlyCounted) {
  guard_.CallFailed(w1_, "/m", absl::UnavailableError("gone"));
  guard_.CallFailed(Peer(Role::kOperator, "admin"), "/m", absl::InvalidArgumentError("bad"));
  EXPECT_THAT(Lines(), SizeIs(0));
  EXPECT_THAT(registry_->Expose(), HasSubstr("causeway_failed_calls_total{code=\"unavailable\"} 1\n"));
}

}  // namespace
}  // namespace causeway::server
