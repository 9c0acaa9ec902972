#include "cli/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cli_test_fixture.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

using ::testing::HasSubstr;

TEST(ExitCodeTest, AreStable) {
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCode(absl::AbortedError("")), 1);
  EXPECT_EQ(ExitCode(absl::UnavailableError("")), 1);
  EXPECT_EQ(ExitCode(absl::NotFoundError("")), 1);
  EXPECT_EQ(ExitCode(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCode(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCode(absl::DeadlineExceededError("")), 3);
  EXPECT_EQ(ExitCode(absl::UnauthenticatedError("")), 4);
  EXPECT_EQ(ExitCode(absl::PermissionDeniedError("")), 4);
  EXPECT_EQ(ExitCode(absl::FailedPreconditionError("")), 4);
  EXPECT_EQ(ExitCode(absl::AlreadyExistsError("")), 4);
}

class SessionTest : public CliTest {};

TEST_F(SessionTest, ConnectsToTheContextOnce) {
  Session session(environment_, {});
  absl::StatusOr<OperatorClient*> client = session.Client();
  ASSERT_THAT(client, IsOk());
  EXPECT_EQ(connected_to_, "coord.example:7443");
  EXPECT_THAT(session.Client(), IsOkAndHolds(*client));
}

TEST_F(SessionTest, NamedContext) {
  Write("config/lab/context.yaml", "coordinator: lab:1\noperator: me\n");
  ASSERT_THAT(Session(environment_, {.context = "lab"}).Client(), IsOk());
  EXPECT_EQ(connected_to_, "lab:1");
  EXPECT_THAT(Session(environment_, {.context = "none"}).Client(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("config/none")));
}

TEST_F(SessionTest, TimeoutIsTheFlagsOrTheCommands) {
  EXPECT_EQ(Session(environment_, {}).timeout(), absl::Seconds(30));
  EXPECT_EQ(Session(environment_, {}).timeout(absl::InfiniteDuration()), absl::InfiniteDuration());
  EXPECT_EQ(Session(environment_, {.timeout = absl::Seconds(2)}).timeout(absl::InfiniteDuration()), absl::Seconds(2));
}

TEST_F(SessionTest, ExplainsWhatToDo) {
  Session session(environment_, {});
  EXPECT_EQ(session.Explain(absl::UnavailableError("x")), "x");  // Not the coordinator: there is no connection.
  ASSERT_THAT(session.Client(), IsOk());
  EXPECT_EQ(session.Explain(absl::UnavailableError("connection refused")),
            "cannot reach the coordinator at coord.example:7443: is it running there, is the port open, and are the "
            "credentials in " +
                dir_.Join("config") + " its own? (connection refused)");
  EXPECT_THAT(session.Explain(absl::UnauthenticatedError("revoked")),
              HasSubstr("does not accept the credentials in " + dir_.Join("config")));
  EXPECT_THAT(session.Explain(absl::DeadlineExceededError("no answer")), HasSubstr("--timeout allows more"));
  EXPECT_EQ(session.Explain(absl::NotFoundError("no job x")), "no job x");
}

TEST_F(SessionTest, ReadsFilesAndStandardInput) {
  Session session(environment_, {});
  EXPECT_THAT(session.ReadInput(Write("f", "content")), IsOkAndHolds("content"));
  EXPECT_THAT(session.ReadInput(dir_.Join("gone")), StatusIs(absl::StatusCode::kNotFound));
  in_.str("piped");
  EXPECT_THAT(session.ReadInput("-"), IsOkAndHolds("piped"));
  in_.clear();
  in_.str(std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(session.ReadInput("-"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("standard input")));
  in_.clear();
  in_.str(std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(session.ReadInput("-", (1 << 20) + 1), IsOkAndHolds(std::string((1 << 20) + 1, 'x')));
  EXPECT_THAT(session.ReadInput(Write("f", "content"), 6),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 6 bytes")));
}

TEST_F(SessionTest, PrintsOneOfBothForms) {
  Session(environment_, {}).Print("causeway.x/1", {{"a", 1}}, "text\n");
  EXPECT_EQ(out(), "text\n");
  out_.str("");
  Session(environment_, {.json = true}).Print("causeway.x/1", {{"a", 1}}, "text\n");
  EXPECT_EQ(OutJson()["schema"], "causeway.x/1");
}

}  // namespace
}  // namespace causeway::cli
