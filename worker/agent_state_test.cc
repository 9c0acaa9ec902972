#include "worker/agent_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace causeway::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AgentStateTest : public testing::Test {
 protected:
  AgentState::Actions Decide() { return state_.Decide(now_); }

  // Brings up a connection, from wherever it is.
  void Connect(int64_t coordinator_incarnation = 1) {
    now_ += absl::Seconds(10);
    ASSERT_TRUE(Decide().do_register);
    v1::RegisterResponse response;
    response.set_site_generation(4);
    response.set_coordinator_incarnation(coordinator_incarnation);
    response.set_heartbeat_interval_ms(1000);
    response.set_lease_ms(10000);
    state_.OnRegistered(now_, response);
    AgentState::Actions actions = Decide();
    ASSERT_TRUE(actions.open_stream);
    for (Task& task : actions.start) early_.push_back(std::move(task));
    state_.OnStreamOpened(now_, absl::OkStatus());
  }

  void Assign(const v1::Assignment& assignment) {
    v1::HeartbeatResponse response;
    *response.mutable_assignment() = assignment;
    response.mutable_assignment()->set_sequence(++sequence_);
    state_.OnHeartbeatResponse(now_, response);
  }

  // What Decide starts, by name; they run until End.
  std::vector<std::string> Started() {
    std::vector<std::string> names;
    AgentState::Actions actions = Decide();
    for (std::vector<Task>* tasks : {&early_, &actions.start}) {
      for (Task& task : *tasks) {
        names.push_back(TaskName(task.kind));
        running_.push_back(std::move(task));
      }
      tasks->clear();
    }
    return names;
  }

  void End(const std::string& name, const TaskResult& result = {}) {
    for (size_t i = 0; i < running_.size(); ++i) {
      if (TaskName(running_[i].kind) != name) continue;
      const Task task = running_[i];
      running_.erase(running_.begin() + static_cast<int64_t>(i));
      state_.OnTaskEnded(now_, task, result);
      return;
    }
    FAIL() << name << " does not run";
  }

  const Task& Running(const std::string& name) {
    for (const Task& task : running_) {
      if (TaskName(task.kind) == name) return task;
    }
    ADD_FAILURE() << name << " does not run";
    return running_.front();
  }

  static v1::Assignment Prepare() {
    v1::Assignment assignment;
    assignment.set_job("fashion");
    assignment.mutable_prepare();
    return assignment;
  }
  static v1::Assignment Round(int64_t round, int64_t plan = 1) {
    v1::Assignment assignment = Prepare();
    assignment.mutable_train()->set_round(round);
    assignment.mutable_train()->set_version(round);
    assignment.mutable_train()->set_plan(plan);
    assignment.mutable_train()->set_last_step(5);
    assignment.mutable_train()->add_ranges()->set_end(100 * plan);
    return assignment;
  }
  static v1::Assignment WithShard(v1::Assignment assignment, int64_t plan) {
    assignment.mutable_shard()->set_plan(plan);
    return assignment;
  }
  static v1::Assignment WithEvaluation(v1::Assignment assignment, int64_t version) {
    assignment.mutable_evaluate()->set_version(version);
    assignment.mutable_evaluate()->add_ranges()->set_end(10);
    return assignment;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  int64_t sequence_ = 0;
  AgentState state_{AgentState::Options{}};
  std::vector<Task> early_;  // Started while connecting.
  std::vector<Task> running_;
};

// ---- Connection

TEST_F(AgentStateTest, RegistersOpensAndBeats) {
  Connect();
  EXPECT_TRUE(state_.connected());
  EXPECT_EQ(state_.site_generation(), 4);
  AgentState::Actions actions = Decide();
  EXPECT_TRUE(actions.send_heartbeat);
  EXPECT_EQ(actions.wake_at, now_ + absl::Seconds(1));
  EXPECT_FALSE(Decide().send_heartbeat);
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Decide().send_heartbeat);
}

TEST_F(AgentStateTest, ComesBackWithGrowingPauses) {
  ASSERT_TRUE(Decide().do_register);
  std::vector<absl::Duration> pauses;
  for (int i = 0; i < 12; ++i) {
    state_.OnRegistered(now_, absl::UnavailableError("nobody there"));
    AgentState::Actions actions = Decide();
    EXPECT_FALSE(actions.do_register);
    pauses.push_back(actions.wake_at - now_);
    now_ = actions.wake_at;
    ASSERT_TRUE(Decide().do_register);
  }
  EXPECT_LE(pauses.front(), absl::Milliseconds(100));
  EXPECT_GE(pauses.back(), absl::Seconds(1.25));
  EXPECT_LE(pauses.back(), absl::Seconds(5));
}

TEST_F(AgentStateTest, GivesUpWhenRefused) {
  for (const absl::Status& status :
       {absl::PermissionDeniedError("removed"), absl::UnauthenticatedError("who?"),
        absl::FailedPreconditionError("versions"), absl::AbortedError("older incarnation")}) {
    AgentState state{AgentState::Options{}};
    ASSERT_TRUE(state.Decide(now_).do_register);
    state.OnRegistered(now_, status);
    EXPECT_EQ(state.Decide(now_).give_up, status);
    EXPECT_EQ(state.Decide(now_ + absl::Hours(1)).give_up, status);
  }
  Connect();
  state_.OnStreamClosed(now_, absl::PermissionDeniedError("removed"));
  EXPECT_TRUE(Decide().give_up.has_value());
}

TEST_F(AgentStateTest, AStreamThatWantsARegistrationGetsOne) {
  Connect();
  state_.OnStreamClosed(now_, absl::FailedPreconditionError("not registered"));
  EXPECT_FALSE(state_.connected());
  Connect();
  EXPECT_TRUE(state_.connected());
}

TEST_F(AgentStateTest, ASilentCoordinatorIsLeftAfterTheLease) {
  Connect();
  Decide();
  now_ += absl::Seconds(9.9);
  EXPECT_FALSE(Decide().close_stream);
  now_ += absl::Seconds(0.1);
  AgentState::Actions actions = Decide();
  EXPECT_TRUE(actions.close_stream);
  EXPECT_FALSE(Decide().close_stream);
  EXPECT_FALSE(state_.connected());
}

TEST_F(AgentStateTest, AnswersKeepTheConnection) {
  Connect();
  for (int i = 0; i < 30; ++i) {
    now_ += absl::Seconds(1);
    EXPECT_FALSE(Decide().close_stream);
    state_.OnHeartbeatResponse(now_, {});
  }
}

TEST_F(AgentStateTest, AcknowledgesAnAssignmentAtOnce) {
  Connect();
  Decide();
  EXPECT_EQ(state_.assignment_sequence(), 0);
  Assign(Prepare());
  EXPECT_TRUE(Decide().send_heartbeat);
  EXPECT_EQ(state_.assignment_sequence(), 1);
  // Another coordinator counts anew, and is to send it again.
  state_.OnStreamClosed(now_, absl::UnavailableError(""));
  Connect(2);
  EXPECT_EQ(state_.assignment_sequence(), 0);
  sequence_ = 0;
  Assign(Prepare());
  EXPECT_EQ(state_.assignment_sequence(), 1);
}

// ---- Tasks

TEST_F(AgentStateTest, PreparesThenProfiles) {
  Connect();
  v1::Assignment assignment = Prepare();
  assignment.mutable_profile()->set_attempt(1);
  Assign(assignment);
  EXPECT_THAT(Started(), ElementsAre("prepare"));
  EXPECT_THAT(Started(), IsEmpty());  // It is running.
  End("prepare");
  EXPECT_THAT(Started(), ElementsAre("profile"));
  End("profile");
  EXPECT_THAT(Started(), IsEmpty());
  Assign(assignment);  // The same again.
  EXPECT_THAT(Started(), IsEmpty());
  assignment.mutable_profile()->set_attempt(2);
  Assign(assignment);
  EXPECT_THAT(Started(), ElementsAre("profile"));
}

TEST_F(AgentStateTest, EvaluatesARoundsModelBeforeTraining) {
  Connect();
  Assign(WithEvaluation(Round(1), 1));
  EXPECT_THAT(Started(), ElementsAre("prepare", "test-data"));
  End("prepare");
  EXPECT_THAT(Started(), IsEmpty());  // Neither has its data.
  End("test-data");
  EXPECT_THAT(Started(), ElementsAre("evaluate", "train-data"));
  End("train-data");
  EXPECT_THAT(Started(), IsEmpty());
  End("evaluate");
  EXPECT_THAT(Started(), ElementsAre("train"));
  End("train");
  EXPECT_THAT(Started(), IsEmpty());

  Assign(WithEvaluation(Round(2), 2));  // The data is there.
  EXPECT_THAT(Started(), ElementsAre("evaluate"));
}

TEST_F(AgentStateTest, ANewPlansShardComesBesideTraining) {
  Connect();
  Assign(WithShard(Round(1, 1), 2));
  EXPECT_THAT(Started(), ElementsAre("prepare", "train-data"));
  End("train-data");
  EXPECT_THAT(Started(), ElementsAre("shard"));
  End("prepare");
  EXPECT_THAT(Started(), ElementsAre("train"));
}

TEST_F(AgentStateTest, WhatIsNotAssignedAnyMoreIsNotWanted) {
  Connect();
  Assign(Round(1));
  EXPECT_THAT(Started(), ElementsAre("prepare", "train-data"));
  End("prepare");
  End("train-data");
  EXPECT_THAT(Started(), ElementsAre("train"));
  const Task train = Running("train");
  EXPECT_TRUE(state_.Wants(train));
  v1::Assignment again = Round(1);
  again.mutable_train()->set_attempt(2);
  Assign(again);
  EXPECT_FALSE(state_.Wants(train));
  EXPECT_THAT(Started(), IsEmpty());  // Its thread is still busy.
  End("train", {absl::CancelledError("")});
  EXPECT_THAT(Started(), ElementsAre("train"));
  EXPECT_NE(Running("train").id, train.id);
}

TEST_F(AgentStateTest, ALostConnectionStopsNothing) {
  Connect();
  Assign(Round(1));
  Started();
  End("prepare");
  End("train-data");
  state_.OnStreamClosed(now_, absl::UnavailableError("cable"));
  EXPECT_THAT(Started(), ElementsAre("train"));
  EXPECT_TRUE(state_.Wants(Running("train")));
  Connect(1);  // The same coordinator.
  Assign(Round(1));
  EXPECT_TRUE(state_.Wants(Running("train")));
  End("train");
  EXPECT_THAT(Started(), IsEmpty());
}

TEST_F(AgentStateTest, ARestartedCoordinatorIsToldAgain) {
  Connect(1);
  Assign(Prepare());
  Started();
  End("prepare");
  state_.OnStreamClosed(now_, absl::UnavailableError(""));
  Connect(2);
  sequence_ = 0;
  Assign(Prepare());
  EXPECT_THAT(Started(), ElementsAre("prepare"));
}

// The answer that ended the task may have come from the coordinator that has gone.
TEST_F(AgentStateTest, ATaskThatOutlivedTheCoordinatorIsAskedOnceMore) {
  Connect(1);
  Assign(Prepare());
  EXPECT_THAT(Started(), ElementsAre("prepare"));
  state_.OnStreamClosed(now_, absl::UnavailableError(""));
  Connect(2);
  sequence_ = 0;
  Assign(Prepare());
  EXPECT_THAT(Started(), IsEmpty());
  End("prepare");
  EXPECT_THAT(Started(), ElementsAre("prepare"));
  End("prepare");
  EXPECT_THAT(Started(), IsEmpty());
}

TEST_F(AgentStateTest, DeliversNowWhenAsked) {
  Connect();
  Assign(Round(1));
  Started();
  End("prepare");
  End("train-data");
  EXPECT_THAT(Started(), ElementsAre("train"));
  EXPECT_FALSE(state_.DeliversNow(Running("train")));
  v1::Assignment hurried = Round(1);
  hurried.mutable_train()->set_deliver_now(true);
  Assign(hurried);
  EXPECT_TRUE(state_.Wants(Running("train")));  // It goes on, to the end of its step.
  EXPECT_TRUE(state_.DeliversNow(Running("train")));
  End("train");
  EXPECT_THAT(Started(), IsEmpty());
}

TEST_F(AgentStateTest, DrainingBeginsNothingAndDeliversWhatRuns) {
  Connect();
  Assign(Round(1));
  Started();
  End("prepare");
  End("train-data");
  EXPECT_THAT(Started(), ElementsAre("train"));
  Decide();
  EXPECT_FALSE(Decide().send_heartbeat);
  state_.Drain();
  const AgentState::Actions told = Decide();
  EXPECT_TRUE(told.send_heartbeat);
  EXPECT_FALSE(told.drained);
  EXPECT_TRUE(state_.DeliversNow(Running("train")));
  End("train", {absl::UnavailableError("the push broke"), /*try_again=*/true});
  EXPECT_FALSE(Decide().drained);
  now_ += absl::Milliseconds(100);
  EXPECT_THAT(Started(), ElementsAre("train"));  // Its contribution is worth another try.
  End("train");
  EXPECT_TRUE(Decide().drained);
  Assign(Round(2));
  EXPECT_THAT(Started(), IsEmpty());
}

TEST_F(AgentStateTest, DrainedAtOnceWhereNothingWasTrained) {
  Connect();
  Assign(WithShard(Prepare(), 1));
  Started();
  v1::Assignment drain = WithShard(Prepare(), 1);
  drain.set_drain(true);  // Asked by the coordinator.
  Assign(drain);
  EXPECT_TRUE(state_.draining());
  EXPECT_FALSE(state_.Wants(Running("prepare")));
  EXPECT_FALSE(Decide().drained);
  End("prepare", {absl::CancelledError("")});
  EXPECT_TRUE(Decide().drained);
}

TEST_F(AgentStateTest, AnOrphanSetsItsJobAside) {
  Connect();
  v1::Assignment assignment = Prepare();
  assignment.mutable_spec()->set_orphan_timeout_s(600);
  Assign(assignment);
  Started();
  now_ += absl::Seconds(5);
  state_.OnStreamClosed(now_, absl::UnavailableError(""));
  now_ += absl::Seconds(594);
  EXPECT_FALSE(Decide().set_aside);
  EXPECT_LE(Decide().wake_at, now_ + absl::Seconds(1));
  now_ += absl::Seconds(1);
  const AgentState::Actions actions = Decide();
  EXPECT_TRUE(actions.set_aside);
  EXPECT_TRUE(actions.drop_job);
  EXPECT_FALSE(state_.Wants(Running("prepare")));
  End("prepare", {absl::CancelledError("")});
  EXPECT_FALSE(Decide().set_aside);
  state_.OnRegistered(now_, absl::UnavailableError(""));
  Connect();
  Assign(assignment);
  EXPECT_THAT(Started(), ElementsAre("prepare"));
}

TEST_F(AgentStateTest, AnotherJobDropsTheFormer) {
  Connect();
  Assign(Prepare());
  EXPECT_TRUE(Decide().drop_job);
  EXPECT_FALSE(Decide().drop_job);
  Assign(WithShard(Prepare(), 1));
  EXPECT_FALSE(Decide().drop_job);
  v1::Assignment other = Prepare();
  other.set_job("other");
  Assign(other);
  EXPECT_TRUE(Decide().drop_job);
  Assign({});
  AgentState::Actions actions = Decide();
  EXPECT_TRUE(actions.drop_job);
  EXPECT_THAT(actions.start, IsEmpty());
}

TEST_F(AgentStateTest, TriesAgainAfterAPause) {
  Connect();
  Assign(Prepare());
  Started();
  End("prepare", {absl::UnavailableError("not now"), /*try_again=*/true});
  EXPECT_THAT(Started(), IsEmpty());
  now_ += absl::Milliseconds(100);
  EXPECT_THAT(Started(), ElementsAre("prepare"));
  End("prepare", {absl::UnavailableError("not now"), /*try_again=*/true});
  EXPECT_LE(Decide().wake_at, now_ + absl::Milliseconds(200));
}

TEST_F(AgentStateTest, AFinalFailureIsFinalForThatTaskOnly) {
  Connect();
  Assign(Round(1));
  Started();
  End("prepare");
  End("train-data", {absl::ResourceExhaustedError("too much")});
  now_ += absl::Seconds(9);
  EXPECT_THAT(Started(), IsEmpty());  // Nor is there training without its data.
  Assign(Round(1, 2));
  EXPECT_THAT(Started(), ElementsAre("train-data"));
}

TEST_F(AgentStateTest, DamagedDataIsFetchedBeforeTheNextTry) {
  Connect();
  Assign(Round(1));
  Started();
  End("prepare");
  End("train-data");
  EXPECT_THAT(Started(), ElementsAre("train"));
  End("train", {absl::DataLossError("disk"), /*try_again=*/true, /*data_damaged=*/true});
  EXPECT_THAT(Started(), ElementsAre("train-data"));
  now_ += absl::Seconds(1);
  EXPECT_THAT(Started(), IsEmpty());
  End("train-data");
  EXPECT_THAT(Started(), ElementsAre("train"));
}

}  // namespace
}  // namespace causeway::worker
