#include "cli/fleet_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "cli/cli_test_fixture.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class FleetCommandsTest : public CliTest {};

TEST_F(FleetCommandsTest, SiteAddPrintsExactlyTheJoinLine) {
  v1::AddSiteResponse& answer = coordinator_.answers.AddSite;
  answer.set_address("coord.example:7443");
  answer.set_token("secret");
  answer.set_ca_pin("sha256:abc");
  answer.set_token_id("t1");
  answer.set_uses(4);
  EXPECT_EQ(Run({"site", "add", "eu-west", "--uses", "4", "--lifetime", "2h"}), 0);
  EXPECT_EQ(out(), "causeway-worker join coord.example:7443 --token secret --ca-pin sha256:abc\n");
  EXPECT_THAT(err(),
              AllOf(HasSubstr("site eu-west added"), HasSubstr("4 uses"), HasSubstr("causeway token revoke t1")));
  EXPECT_THAT(coordinator_.calls, ElementsAre(StartsWith("AddSite site: \"eu-west\" token_uses: 4 "
                                                         "token_lifetime_s: 7200 request_id: \"")));
  EXPECT_EQ(Run({"site", "add", "eu-west", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.site-added/1");
  EXPECT_EQ(OutJson()["join_command"], "causeway-worker join coord.example:7443 --token secret --ca-pin sha256:abc");
  EXPECT_THAT(coordinator_.calls.back(), StartsWith("AddSite site: \"eu-west\" request_id: \""));
}

TEST_F(FleetCommandsTest, EverySiteAddIsARequestOfItsOwnUnlessToldOtherwise) {
  EXPECT_EQ(Run({"site", "add", "eu-west"}), 0);
  EXPECT_EQ(Run({"site", "add", "eu-west"}), 0);
  ASSERT_THAT(coordinator_.calls, SizeIs(2));
  EXPECT_NE(coordinator_.calls[0], coordinator_.calls[1]);
  EXPECT_EQ(Run({"site", "add", "eu-west", "--request-id", "r1"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "AddSite site: \"eu-west\" request_id: \"r1\"");
}

TEST_F(FleetCommandsTest, SiteAddBadFlags) {
  EXPECT_EQ(Run({"site", "add", "eu-west", "--lifetime", "soon"}), 2);
  EXPECT_THAT(err(), HasSubstr("--lifetime: found \"soon\"; allowed: a duration"));
  EXPECT_EQ(Run({"site", "add", "eu-west", "--uses", "0"}), 2);
  EXPECT_EQ(Run({"site", "add"}), 2);
  EXPECT_THAT(err(), HasSubstr("SITE"));
  EXPECT_TRUE(coordinator_.calls.empty());
}

TEST_F(FleetCommandsTest, SiteListAndRemove) {
  v1::SiteStatus* site = coordinator_.answers.ListSites.add_sites();
  site->set_site("lab");
  site->set_workers(3);
  site->set_live(2);
  EXPECT_EQ(Run({"site", "list"}), 0);
  EXPECT_EQ(out(), "SITE  WORKERS  LIVE  GENERATION\nlab         3     2           0\n");
  EXPECT_EQ(Run({"site", "list", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.sites/1");
  EXPECT_EQ(OutJson()["sites"][0]["live"], 2);
  EXPECT_EQ(Run({"site", "remove", "lab"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "RemoveSite site: \"lab\"");
  coordinator_.error = absl::FailedPreconditionError("site lab has workers: remove them first");
  EXPECT_EQ(Run({"site", "remove", "lab"}), 4);
  EXPECT_EQ(err(), "causeway: site lab has workers: remove them first\n");
}

TEST_F(FleetCommandsTest, TokenStates) {
  int64_t now_ms = absl::ToUnixMillis(clock_.WallNow());
  auto add = [&](const char* id, int uses_left, int64_t expires_ms, bool revoked) {
    v1::TokenStatus* token = coordinator_.answers.ListTokens.add_tokens();
    token->set_token_id(id);
    token->set_site("lab");
    token->set_uses(16);
    token->set_uses_left(uses_left);
    token->set_expires_ms(expires_ms);
    token->set_revoked(revoked);
  };
  add("t1", 5, now_ms + 1, false);
  add("t2", 5, now_ms, false);
  add("t3", 0, now_ms + 1, false);
  add("t4", 5, now_ms + 1, true);
  EXPECT_EQ(Run({"token", "list"}), 0);
  std::vector<std::string> states;
  std::istringstream lines(out());
  for (std::string line; std::getline(lines, line);) states.push_back(line.substr(line.rfind("  ") + 2));
  EXPECT_THAT(states, ElementsAre("STATE", "usable", "expired", "used up", "revoked"));
  EXPECT_EQ(Run({"token", "list", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.tokens/1");
  EXPECT_EQ(Run({"token", "revoke", "t1"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "RevokeToken token_id: \"t1\"");
}

TEST_F(FleetCommandsTest, WorkersAndTheirEmulation) {
  v1::WorkerStatus* a = coordinator_.answers.ListWorkers.add_workers();
  a->set_worker("a1");
  a->set_site("a");
  a->set_live(true);
  a->mutable_device()->set_kind("cpu");
  a->mutable_device()->set_threads(2);
  a->mutable_emulation()->set_slowdown(4);
  a->set_heartbeat_age_ms(300);
  v1::WorkerStatus* b = coordinator_.answers.ListWorkers.add_workers();
  b->set_worker("b1");
  b->set_removed(true);
  b->mutable_device()->set_kind("cpu");
  b->set_heartbeat_age_ms(0);
  v1::WorkerStatus* c = coordinator_.answers.ListWorkers.add_workers();
  c->set_worker("c1");  // Not heard since the coordinator's start.
  EXPECT_EQ(Run({"worker", "list"}), 0);
  EXPECT_THAT(out(), Not(HasSubstr("0.00s ago")));
  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(out(), '\n')),
              Contains(ContainsRegex("^c1 +- +lost +- +- +- +- +")));
  EXPECT_THAT(out(), AllOf(HasSubstr("a1      a     live     cpu, 2 threads"), HasSubstr("0.30s ago"),
                           HasSubstr("yes: slowdown 4\n"), HasSubstr("removed")));
  EXPECT_EQ(Run({"worker", "list", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.workers/1");
  EXPECT_EQ(OutJson()["workers"][1]["emulation"], nullptr);

  EXPECT_EQ(Run({"worker", "show", "a1"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "ListWorkers worker: \"a1\"");
  EXPECT_THAT(out(), AllOf(HasSubstr("a1  live\n"), HasSubstr("  emulated      yes: slowdown 4\n"),
                           HasSubstr("  clock offset  0.0 ms\n")));
  EXPECT_EQ(Run({"worker", "show", "a1", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.worker/1");
  EXPECT_EQ(OutJson()["device"]["threads"], 2);

  EXPECT_EQ(Run({"worker", "remove", "a1"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "RemoveWorker worker: \"a1\"");
  EXPECT_EQ(Run({"worker", "drain", "a1"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "DrainWorker worker: \"a1\"");
  coordinator_.answers.ListWorkers.Clear();
  EXPECT_EQ(Run({"worker", "show", "zz"}), 1);
  EXPECT_THAT(err(), HasSubstr("there is no worker zz"));
}

}  // namespace
}  // namespace causeway::cli
