#include "server/bulk_service.h"

#include <cmath>
#include <functional>

#include "dataplane/bandwidth.h"
#include "dataplane/sample_stream.h"
#include "server/coordinator_test_fixture.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Outcome = v1::PushResult;

// A model of two frames.
class BulkServiceTest : public CoordinatorTest {
 protected:
  BulkServiceTest() : CoordinatorTest(100'000) {
    Fleet(4);
    EXPECT_OK(Submit(Yaml("job", "end: {rounds: 12}\n")));
    RunUntilTraining(0);
  }
  std::string Metric(const std::string& outcome) {
    return absl::StrCat("causeway_contributions_total{job=\"job\",outcome=\"", outcome, "\"} 1\n");
  }
  void ExpectPush(const std::string& name, const v1::PushRequest& request, const std::vector<uint8_t>& bytes,
                  Outcome::Outcome outcome, const std::string& reason) {
    ASSERT_OK_AND_ASSIGN(const v1::PushResult result, Push(worker(name), request, bytes));
    EXPECT_EQ(result.outcome(), outcome) << reason;
    EXPECT_EQ(result.reason(), reason);
    if (!reason.empty()) {
      EXPECT_THAT(registry_->Expose(), HasSubstr(Metric(reason)));
      EXPECT_GE(Job().rejected().at(reason), 1);
    }
  }
  std::vector<uint8_t> Good() { return Trained(worker("w0"), 0); }
};

TEST_F(BulkServiceTest, BadContributionsAreAnsweredAndCountedAndTheJobGoesOn) {
  struct Case {
    const char* reason;
    std::function<void(v1::PushRequest*, std::vector<uint8_t>*)> spoil;
    Outcome::Outcome outcome = Outcome::OUTCOME_REJECTED;
  };
  const auto set = [](std::vector<uint8_t>* bytes, float value) { std::memcpy(bytes->data() + 4000, &value, 4); };
  const std::vector<Case> cases = {
      {"not_finite", [&](auto*, auto* bytes) { set(bytes, NAN); }},
      {"not_finite", [&](auto*, auto* bytes) { set(bytes, -INFINITY); }},
      {"out_of_range", [&](auto*, auto* bytes) { set(bytes, 1e30f); }},
      {"change_too_large", [&](auto*, auto* bytes) { *bytes = Model(50, 0); }},
      {"wrong_layout", [](auto* request, auto*) { request->set_layout_sha256(std::string(32, 'x')); }},
      {"wrong_shape", [](auto*, auto* bytes) { bytes->resize(bytes->size() - 4); }},
      {"wrong_shape", [](auto* request, auto*) { request->set_parts(2); }},
      {"wrong_weight", [](auto* request, auto*) { request->set_samples(request->samples() + 1); }},
      {"wrong_weight", [](auto* request, auto*) { request->set_samples(-1); }},
      {"stale_round", [](auto* request, auto*) { request->mutable_fence()->set_round(7); },
       Outcome::OUTCOME_NOT_WANTED},
      {"stale_round", [](auto* request, auto*) { request->set_attempt(1); }, Outcome::OUTCOME_NOT_WANTED},
      {"old_incarnation", [](auto* request, auto*) { request->mutable_fence()->set_incarnation(0); },
       Outcome::OUTCOME_NOT_WANTED},
  };
  std::map<std::string, int64_t> counts;
  int64_t round = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat("round ", round, " ", c.reason));
    v1::PushRequest request = PushFor(worker("w0"));
    std::vector<uint8_t> bytes = Trained(worker("w0"), round);
    c.spoil(&request, &bytes);
    ASSERT_OK_AND_ASSIGN(const v1::PushResult result, Push(worker("w0"), request, bytes));
    EXPECT_EQ(result.outcome(), c.outcome);
    EXPECT_EQ(result.reason(), c.reason);
    EXPECT_FALSE(result.message().empty());
    EXPECT_EQ(Job().rejected().at(c.reason), ++counts[c.reason]);
    EXPECT_THAT(registry_->Expose(), HasSubstr(absl::StrCat("causeway_contributions_total{job=\"job\",outcome=\"",
                                                            c.reason, "\"} ", counts[c.reason], "\n")));
    // Who is rejected has had its turn, and the others carry the round.
    EXPECT_EQ(worker("w0").assignment.has_train(), c.outcome == Outcome::OUTCOME_NOT_WANTED);
    if (c.outcome == Outcome::OUTCOME_REJECTED) RunUntilTraining(++round);
  }
  Run();
  EXPECT_EQ(Job().summary().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(Job().rounds(0).contributions(), 3);
  EXPECT_EQ(Job().rounds(round).contributions(), 4);
}

TEST_F(BulkServiceTest, RepeatedAndReplayed) {
  const v1::PushRequest request = PushFor(worker("w0"));
  ExpectPush("w0", request, Good(), Outcome::OUTCOME_COUNTED, "");
  ExpectPush("w0", request, Good(), Outcome::OUTCOME_COUNTED, "");
  ExpectPush("w0", request, Trained(worker("w1"), 0), Outcome::OUTCOME_NOT_WANTED, "replayed");
  EXPECT_THAT(registry_->Expose(), HasSubstr(Metric("counted")));
  Run();
  EXPECT_EQ(Job().summary().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(Job().rounds(0).contributions(), 4);
  ExpectPush("w0", request, Good(), Outcome::OUTCOME_NOT_WANTED, "job_over");
}

TEST_F(BulkServiceTest, ABrokenPushGoesOnAndACorruptedOneIsSentAgain) {
  ScriptedWorker& w0 = worker("w0");
  w0.dialer->AddFault(LinkFault{.direction = LinkDirection::kToHandler, .frame = 3, .kind = LinkFault::Kind::kCut});
  w0.dialer->AddFault(LinkFault{.direction = LinkDirection::kToHandler, .frame = 2, .kind = LinkFault::Kind::kCorrupt});
  auto result = Push(w0, PushFor(w0), Good());
  // What is corrupted ends the transfer; its sender tries anew.
  if (!result.ok()) result = Push(w0, PushFor(w0), Good());
  ASSERT_OK(result);
  EXPECT_EQ(result->outcome(), Outcome::OUTCOME_COUNTED);
  EXPECT_GE(w0.dialer->dials(), 3);
  Run();
  EXPECT_EQ(Job().summary().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(coordinator_->spool()->used_bytes(), 0);
}

TEST_F(BulkServiceTest, Pulls) {
  ScriptedWorker& w0 = worker("w0");
  ASSERT_OK_AND_ASSIGN(const auto initial, dataplane::PullModel(Transfer(w0), "job", 0, 1 << 20));
  EXPECT_EQ(initial.version, 0);
  EXPECT_EQ(initial.bytes, Model(0, 0));
  EXPECT_EQ(initial.layout.hash(), layout_.hash());
  EXPECT_THAT(dataplane::PullModel(Transfer(w0), "none", -1, 1 << 20),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(dataplane::PullModel(Transfer(w0), "job", 9, 1 << 20), StatusIs(absl::StatusCode::kNotFound));
  Run();
  ASSERT_OK_AND_ASSIGN(const auto last, dataplane::PullModel(Transfer(w0), "job", -1, 1 << 20));
  EXPECT_EQ(last.version, 12);
  EXPECT_THAT(registry_->Expose(), HasSubstr("causeway_transfer_bytes_total{direction=\"out\",kind=\"pull\"}"));
  EXPECT_THAT(registry_->Expose(), HasSubstr("causeway_transfer_bytes_total{direction=\"in\",kind=\"push\"}"));
}

TEST_F(BulkServiceTest, FetchIsForTheJobsSitesOnly) {
  v1::FetchRequest request;
  request.set_job("job");
  request.add_items()->set_sha256(worker("w0").assignment.shard().train().manifest_sha256());
  const auto fetch = [&](dataplane::PeerIdentity peer, const std::string& job) -> absl::Status {
    FakeLinkDialer dialer(bulk_.get(), &clock_, peer);
    auto link = dialer.Dial(dataplane::LinkKind::kFetch, absl::InfiniteFuture());
    if (!link.ok()) return link.status();
    v1::Frame frame;
    *frame.mutable_fetch_request() = request;
    frame.mutable_fetch_request()->set_job(job);
    if (absl::Status written = (*link)->Write(frame, {}, absl::InfiniteFuture()); !written.ok()) return written;
    (void)(*link)->CloseWrite();
    while (true) {
      auto answer = (*link)->Read(absl::InfiniteFuture());
      if (!answer.ok()) break;
    }
    return (*link)->Finish(absl::InfiniteFuture());
  };
  EXPECT_OK(fetch(worker("w0").peer, "job"));
  EXPECT_THAT(fetch(worker("w0").peer, "none"), StatusIs(absl::StatusCode::kNotFound));
  Run();
  EXPECT_THAT(fetch(worker("w0").peer, "job"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(BulkServiceTest, AStreamBeginsWithItsRequest) {
  for (auto kind : {dataplane::LinkKind::kFetch, dataplane::LinkKind::kProbe, dataplane::LinkKind::kPull,
                    dataplane::LinkKind::kPush}) {
    auto link = worker("w0").dialer->Dial(kind, absl::InfiniteFuture());
    ASSERT_OK(link);
    v1::Frame frame;
    frame.mutable_data()->set_offset(1);
    ASSERT_OK((*link)->Write(frame, {}, absl::InfiniteFuture()));
    EXPECT_THAT((*link)->Finish(absl::InfiniteFuture()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("begins with its request")));
  }
}

}  // namespace
}  // namespace causeway::server
