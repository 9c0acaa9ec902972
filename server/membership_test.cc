#include "server/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/authz.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kSecret[] = "a secret that nobody may see";
const absl::Time kStart = absl::FromUnixSeconds(1'000'000);
const absl::Time kWall = absl::FromUnixSeconds(1'800'000'000);
const SiteId kLab{"lab"};

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() {
    EXPECT_THAT(fleet_.AddSite(kLab), IsOkAndHolds(true));
    AddToken("t1", 5);
  }
  void AddToken(const std::string& id, int uses) {
    fleet_.AddToken(Token{.id = id,
                          .site = kLab,
                          .secret_hash = HashTokenSecret(kSecret),
                          .uses = uses,
                          .uses_left = uses,
                          .expires = kWall + absl::Hours(1)});
  }
  absl::StatusOr<Worker> Join(const std::string& name, const std::string& token = "t1",
                              absl::string_view secret = kSecret) {
    return JoinWithKey(absl::StrCat("key ", ++keys_), name, token, secret);
  }
  absl::StatusOr<Worker> JoinWithKey(const std::string& key, const std::string& name, const std::string& token = "t1",
                                     absl::string_view secret = kSecret) {
    return fleet_.Join(token, HashTokenSecret(secret), name, key, kWall);
  }
  // Joined, registered, its heartbeat stream open.
  WorkerId Live(const std::string& name, int64_t incarnation = 1) {
    const WorkerId id(name);
    if (fleet_.Find(id) == nullptr) {
      EXPECT_OK(Join(name));
    }
    EXPECT_OK(Register(id, incarnation));
    EXPECT_OK(fleet_.StreamOpened(id, Incarnation(incarnation), now_));
    return id;
  }
  absl::StatusOr<Membership::Registered> Register(const WorkerId& id, int64_t incarnation) {
    v1::RegisterRequest request;
    request.set_incarnation(incarnation);
    return fleet_.Register(id, request, now_);
  }
  absl::Status Heartbeat(const WorkerId& id, int64_t incarnation = 1) {
    v1::HeartbeatRequest heartbeat;
    heartbeat.set_incarnation(incarnation);
    heartbeat.set_wall_time_ms(absl::ToUnixMillis(kWall + absl::Milliseconds(250)));
    return fleet_.Heard(id, heartbeat, now_, kWall);
  }
  int64_t generation() { return fleet_.Find(kLab)->generation.value(); }
  std::vector<std::string> Lost() {
    std::vector<std::string> lost;
    for (const auto& l : fleet_.TakeLost(now_)) lost.push_back(absl::StrCat(l.worker.value(), ": ", l.reason));
    return lost;
  }

  Membership fleet_{Membership::Options{.lease = absl::Seconds(10), .broken_stream_grace = absl::Seconds(1)}};
  absl::Time now_ = kStart;
  int keys_ = 0;  // Made so far.
};

TEST_F(MembershipTest, JoinTakesOneUse) {
  ASSERT_OK_AND_ASSIGN(const Worker a1, Join("a1"));
  EXPECT_EQ(a1.site, kLab);
  EXPECT_FALSE(a1.live);
  EXPECT_EQ(fleet_.tokens().at("t1").uses_left, 4);
  ASSERT_OK_AND_ASSIGN(const Worker first, Join(""));
  ASSERT_OK_AND_ASSIGN(const Worker second, Join(""));
  EXPECT_EQ(first.name, WorkerId("lab-1"));
  EXPECT_EQ(second.name, WorkerId("lab-2"));
  EXPECT_EQ(fleet_.tokens().at("t1").uses_left, 2);
}

TEST_F(MembershipTest, TokensThatDoNotAdmit) {
  const auto denied = [](absl::string_view why) {
    return StatusIs(absl::StatusCode::kPermissionDenied, AllOf(HasSubstr(std::string(why)), Not(HasSubstr(kSecret))));
  };
  EXPECT_THAT(Join("a1", "t9"), denied("unknown"));
  EXPECT_THAT(Join("a1", "t1", "wrong"), denied("unknown"));
  // Whether an id exists is not told to who does not have its secret.
  EXPECT_EQ(Join("a1", "t9").status(), Join("a1", "t1", "wrong").status());

  AddToken("used", 1);
  ASSERT_OK(Join("a1", "used"));
  EXPECT_THAT(Join("a2", "used"), denied("used up"));

  AddToken("revoked", 3);
  ASSERT_OK(fleet_.RevokeToken("revoked"));
  EXPECT_THAT(Join("a3", "revoked"), denied("revoked"));
  EXPECT_THAT(fleet_.RevokeToken("t9"), StatusIs(absl::StatusCode::kNotFound));

  const absl::Time expires = fleet_.tokens().at("t1").expires;
  EXPECT_THAT(fleet_.Join("t1", HashTokenSecret(kSecret), "a4", "k", expires), denied("expired"));
  EXPECT_OK(fleet_.Join("t1", HashTokenSecret(kSecret), "a4", "k", expires - absl::Seconds(1)));
  EXPECT_EQ(fleet_.tokens().at("t1").uses_left, 4);
}

TEST_F(MembershipTest, NamesAreTakenOnceAndForGood) {
  ASSERT_OK(Join("a1"));
  EXPECT_THAT(Join("a1"), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("a1")));
  ASSERT_OK(fleet_.RemoveWorker(WorkerId("a1")));
  EXPECT_THAT(Join("a1"), StatusIs(absl::StatusCode::kAlreadyExists));
  for (const char* bad : {"../a", "A", "a b", "-a", "a/b"})
    EXPECT_THAT(Join(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  EXPECT_EQ(fleet_.tokens().at("t1").uses_left, 4);
  EXPECT_THAT(fleet_.AddSite(SiteId("../x")), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(fleet_.AddSite(kLab), IsOkAndHolds(false));
}

TEST_F(MembershipTest, WhoeverJoinsAgainWithItsKeyIsTheSameWorker) {
  AddToken("t2", 2);
  ASSERT_OK(JoinWithKey("k1", "a1", "t2"));
  ASSERT_OK_AND_ASSIGN(const Worker chosen, JoinWithKey("k2", "", "t2"));
  fleet_.SetCertificate(WorkerId("a1"), "ab12", kWall + absl::Hours(24));
  ASSERT_OK(Register(WorkerId("a1"), 7));
  // The token is used up by now; another one of the site does as well.
  for (const std::string token : {"t2", "t1"}) {
    ASSERT_OK_AND_ASSIGN(const Worker again, JoinWithKey("k1", "a1", token));
    EXPECT_EQ(again.name, WorkerId("a1"));
    EXPECT_EQ(again.incarnation, Incarnation(7));
    ASSERT_OK_AND_ASSIGN(const Worker unnamed, JoinWithKey("k2", "", token));
    EXPECT_EQ(unnamed.name, chosen.name);
  }
  EXPECT_EQ(fleet_.tokens().at("t2").uses_left, 0);
  EXPECT_EQ(fleet_.tokens().at("t1").uses_left, 5);
  EXPECT_THAT(fleet_.workers(), SizeIs(2));
  fleet_.SetCertificate(WorkerId("a1"), "cd34", kWall + absl::Hours(24));
  EXPECT_THAT(fleet_.CheckCertificate(WorkerId("a1"), kLab, "ab12"), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_OK(fleet_.CheckCertificate(WorkerId("a1"), kLab, "cd34"));
}

TEST_F(MembershipTest, NobodyElseIsTakenForAWorkerThatJoinsAgain) {
  const auto taken = StatusIs(absl::StatusCode::kAlreadyExists);
  const auto denied = StatusIs(absl::StatusCode::kPermissionDenied);
  ASSERT_OK(JoinWithKey("k1", "a1"));
  EXPECT_THAT(JoinWithKey("k2", "a1"), taken);
  EXPECT_THAT(JoinWithKey("k1", "a1", "t1", "wrong"), denied);
  EXPECT_THAT(fleet_.Join("t1", HashTokenSecret(kSecret), "a1", "k1", kWall + absl::Hours(1)), denied);
  AddToken("revoked", 1);
  ASSERT_OK(fleet_.RevokeToken("revoked"));
  EXPECT_THAT(JoinWithKey("k1", "a1", "revoked"), denied);
  // A token of another site.
  ASSERT_OK(fleet_.AddSite(SiteId("other")));
  fleet_.AddToken(Token{.id = "other",
                        .site = SiteId("other"),
                        .secret_hash = HashTokenSecret(kSecret),
                        .uses = 1,
                        .uses_left = 1,
                        .expires = kWall + absl::Hours(1)});
  EXPECT_THAT(JoinWithKey("k1", "a1", "other"), taken);
  // What was removed stays removed.
  ASSERT_OK(fleet_.RemoveWorker(WorkerId("a1")));
  EXPECT_THAT(JoinWithKey("k1", "a1"), taken);
  ASSERT_OK_AND_ASSIGN(const Worker fresh, JoinWithKey("k1", ""));
  EXPECT_EQ(fresh.name, WorkerId("lab-1"));
}

TEST_F(MembershipTest, ATokenIsFoundByItsRequest) {
  fleet_.AddToken(Token{.id = "t7", .site = kLab, .request_id = "r1"});
  ASSERT_NE(fleet_.FindToken(kLab, "r1"), nullptr);
  EXPECT_EQ(fleet_.FindToken(kLab, "r1")->id, "t7");
  EXPECT_EQ(fleet_.FindToken(SiteId("other"), "r1"), nullptr);
  EXPECT_EQ(fleet_.FindToken(kLab, "r2"), nullptr);
  EXPECT_EQ(fleet_.FindToken(kLab, ""), nullptr);  // t1 has none.
}

TEST_F(MembershipTest, Certificates) {
  ASSERT_OK(Join("a1"));
  const WorkerId id("a1");
  fleet_.SetCertificate(id, "ab12", kWall + absl::Hours(24));
  EXPECT_OK(fleet_.CheckCertificate(id, kLab, "ab12"));
  EXPECT_THAT(fleet_.CheckCertificate(id, kLab, "ab13"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("replaced")));
  EXPECT_THAT(fleet_.CheckCertificate(id, SiteId("other"), "ab12"), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(fleet_.CheckCertificate(WorkerId("a2"), kLab, "ab12"), StatusIs(absl::StatusCode::kPermissionDenied));
  ASSERT_OK(fleet_.RemoveWorker(id));
  EXPECT_THAT(fleet_.CheckCertificate(id, kLab, "ab12"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("removed")));
}

TEST_F(MembershipTest, ALeaseRunsOutOnce) {
  const WorkerId a1 = Live("a1");
  EXPECT_EQ(generation(), 1);
  now_ += absl::Seconds(10);
  EXPECT_THAT(Lost(), IsEmpty());
  EXPECT_OK(Heartbeat(a1));
  EXPECT_DOUBLE_EQ(fleet_.Find(a1)->clock_offset_s, 0.25);
  now_ += absl::Seconds(10);
  EXPECT_THAT(Lost(), IsEmpty());
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(Lost(), testing::ElementsAre("a1: lease expired"));
  EXPECT_FALSE(fleet_.Find(a1)->live);
  EXPECT_EQ(generation(), 2);
  now_ += absl::Hours(1);
  EXPECT_THAT(Lost(), IsEmpty());
  EXPECT_EQ(generation(), 2);
  EXPECT_THAT(Heartbeat(a1), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(MembershipTest, ABrokenStreamHasAGrace) {
  const WorkerId a1 = Live("a1");
  now_ += absl::Seconds(2);
  EXPECT_THAT(Lost(), IsEmpty());
  fleet_.StreamBroken(a1, Incarnation(1), now_);
  now_ += absl::Seconds(1);
  EXPECT_THAT(Lost(), IsEmpty());
  // Back in time.
  ASSERT_OK(fleet_.StreamOpened(a1, Incarnation(1), now_));
  now_ += absl::Seconds(3);
  EXPECT_THAT(Lost(), IsEmpty());
  fleet_.StreamBroken(a1, Incarnation(1), now_);
  now_ += absl::Milliseconds(1001);
  EXPECT_THAT(Lost(), testing::ElementsAre("a1: connection broken"));
  EXPECT_EQ(generation(), 2);
  // Registered, but its stream never opens.
  ASSERT_OK_AND_ASSIGN(const auto registered, Register(a1, 1));
  EXPECT_TRUE(registered.returned);
  EXPECT_FALSE(registered.restarted);
  now_ += absl::Milliseconds(1001);
  EXPECT_THAT(Lost(), testing::ElementsAre("a1: connection broken"));
  EXPECT_EQ(generation(), 3);
}

TEST_F(MembershipTest, IncarnationsFence) {
  const WorkerId a1 = Live("a1", 5);
  EXPECT_THAT(Register(a1, 4), StatusIs(absl::StatusCode::kAborted, AllOf(HasSubstr("4"), HasSubstr("5"))));
  EXPECT_THAT(Heartbeat(a1, 4), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(fleet_.StreamOpened(a1, Incarnation(4), now_), StatusIs(absl::StatusCode::kAborted));
  ASSERT_OK_AND_ASSIGN(const auto again, Register(a1, 5));
  EXPECT_FALSE(again.restarted);
  EXPECT_FALSE(again.returned);
  ASSERT_OK_AND_ASSIGN(const auto restarted, Register(a1, 6));
  EXPECT_TRUE(restarted.restarted);
  EXPECT_FALSE(restarted.returned);
  ASSERT_OK(fleet_.StreamOpened(a1, Incarnation(6), now_));
  // What the old process does has no effect on the new one.
  fleet_.StreamBroken(a1, Incarnation(5), now_);
  fleet_.Leave(a1, Incarnation(5));
  EXPECT_THAT(Heartbeat(a1, 5), StatusIs(absl::StatusCode::kAborted));
  now_ += absl::Seconds(5);
  EXPECT_THAT(Lost(), IsEmpty());
  EXPECT_TRUE(fleet_.Find(a1)->live);
  EXPECT_EQ(generation(), 1);
}

TEST_F(MembershipTest, TwoCopiesOfAFolderAreNotOneWorker) {
  const WorkerId a1 = Live("a1", 5);
  v1::RegisterRequest request;
  request.set_incarnation(6);
  request.set_process(111);
  ASSERT_OK(fleet_.Register(a1, request, now_));
  ASSERT_OK(fleet_.Register(a1, request, now_));  // The same one again.
  request.set_process(222);
  EXPECT_THAT(fleet_.Register(a1, request, now_), StatusIs(absl::StatusCode::kAborted, HasSubstr("copied")));
  fleet_.Leave(a1, Incarnation(6));
  ASSERT_OK(fleet_.Register(a1, request, now_));  // The other one is gone.
}

TEST_F(MembershipTest, ARestoredWorkerIsNotLiveAndItsOlderProcessesAreFenced) {
  Worker stored{.name = WorkerId("a7"), .site = kLab};
  stored.incarnation = Incarnation(12);
  fleet_.Restore(stored);
  EXPECT_FALSE(fleet_.Find(stored.name)->live);
  EXPECT_THAT(Lost(), IsEmpty());
  EXPECT_THAT(Register(stored.name, 11), StatusIs(absl::StatusCode::kAborted));
  ASSERT_OK_AND_ASSIGN(const auto same, Register(stored.name, 12));
  EXPECT_FALSE(same.restarted);
  EXPECT_TRUE(same.returned);
}

TEST_F(MembershipTest, LeavingAndRemoving) {
  const WorkerId a1 = Live("a1");
  const WorkerId a2 = Live("a2");
  fleet_.Leave(a1, Incarnation(1));
  fleet_.Leave(a1, Incarnation(1));
  ASSERT_OK(fleet_.RemoveWorker(a2));
  ASSERT_OK(fleet_.RemoveWorker(a2));
  EXPECT_THAT(fleet_.RemoveWorker(WorkerId("a9")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(generation(), 3);
  EXPECT_THAT(Lost(), testing::UnorderedElementsAre("a1: left", "a2: removed"));
  EXPECT_THAT(Register(a2, 2), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_OK(Register(a1, 2));
  EXPECT_THAT(Register(WorkerId("a9"), 1), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(MembershipTest, ASiteGoesWithItsTokensOnceItsWorkersAreRemoved) {
  const WorkerId a1 = Live("a1");
  EXPECT_THAT(fleet_.RemoveSite(kLab), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a1")));
  EXPECT_THAT(fleet_.RemoveSite(SiteId("x")), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(fleet_.RemoveWorker(a1));
  ASSERT_OK(fleet_.RemoveSite(kLab));
  EXPECT_THAT(fleet_.sites(), IsEmpty());
  EXPECT_THAT(fleet_.tokens(), IsEmpty());
  EXPECT_THAT(fleet_.workers(), IsEmpty());
}

}  // namespace
}  // namespace causeway::server
