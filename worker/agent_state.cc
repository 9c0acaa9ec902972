#include "worker/agent_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace causeway::worker {
namespace {

// Neither time nor another try changes these answers to Register.
bool IsFinalForRegister(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) || absl::IsFailedPrecondition(status) ||
         absl::IsAborted(status);
}

// A stream is also refused because the coordinator wants a registration first; only these are final.
bool IsFinalForStream(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
}

std::string RangesText(const google::protobuf::RepeatedPtrField<v1::SampleRange>& ranges) {
  std::string text;
  for (const v1::SampleRange& range : ranges) absl::StrAppend(&text, range.begin(), "-", range.end(), ",");
  return text;
}

std::string TaskId(TaskKind kind, const v1::Assignment& a, absl::string_view rest) {
  return absl::StrCat(TaskName(kind), " ", a.job(), rest);
}
std::string TrainDataId(const v1::Assignment& a) {
  return TaskId(TaskKind::kTrainData, a, absl::StrCat(" samples=", RangesText(a.train().ranges())));
}
std::string TestDataId(const v1::Assignment& a) {
  return TaskId(TaskKind::kTestData, a, absl::StrCat(" samples=", RangesText(a.evaluate().ranges())));
}

}  // namespace

const char* TaskName(TaskKind kind) {
  switch (kind) {
    case TaskKind::kPrepare: return "prepare";
    case TaskKind::kProfile: return "profile";
    case TaskKind::kEvaluate: return "evaluate";
    case TaskKind::kTrain: return "train";
    case TaskKind::kShard: return "shard";
    case TaskKind::kTestData: return "test-data";
    case TaskKind::kTrainData: return "train-data";
  }
  return "unknown";
}

Lane LaneOf(TaskKind kind) { return kind >= TaskKind::kShard ? Lane::kData : Lane::kCompute; }

AgentState::AgentState(const Options& options)
    : options_(options), reconnect_backoff_(options.reconnect), assignment_(std::make_shared<v1::Assignment>()) {}

AgentState::Actions AgentState::Decide(absl::Time now) {
  Actions actions;
  if (give_up_.has_value()) {
    actions.give_up = give_up_;
    return actions;
  }

  if (connection_ == Connection::kOpen && now - last_heard_ >= lease_) {
    close_stream_ = true;
    Disconnect(now, absl::DeadlineExceededError(
                        absl::StrCat("no answer to heartbeats for ", absl::FormatDuration(now - last_heard_))));
  }
  actions.close_stream = std::exchange(close_stream_, false);
  switch (connection_) {
    case Connection::kDown:
      if (now >= reconnect_at_) {
        connection_ = Connection::kRegistering;
        actions.do_register = true;
      } else {
        actions.wake_at = reconnect_at_;
      }
      break;
    case Connection::kRegistered:
      connection_ = Connection::kOpening;
      actions.open_stream = true;
      break;
    case Connection::kOpen:
      if (now >= next_heartbeat_) {
        actions.send_heartbeat = true;
        next_heartbeat_ = now + heartbeat_interval_;
      }
      actions.wake_at = std::min(next_heartbeat_, last_heard_ + lease_);
      break;
    case Connection::kRegistering:
    case Connection::kOpening: break;
  }

  const absl::Duration orphan_timeout = absl::Seconds(assignment_->spec().orphan_timeout_s());
  if (connection_ != Connection::kOpen && !assignment_->job().empty() && orphan_timeout > absl::ZeroDuration()) {
    if (now - last_heard_ >= orphan_timeout) {
      // Asked for again, it begins again with what is on disk.
      DropAssignment(std::make_shared<v1::Assignment>());
      actions.set_aside = true;
    } else {
      actions.wake_at = std::min(actions.wake_at, last_heard_ + orphan_timeout);
    }
  }
  actions.drop_job = std::exchange(drop_job_, false);
  for (Task& task : WantedTasks()) {
    std::optional<Running>& running = running_[static_cast<int>(LaneOf(task.kind))];
    if (running.has_value()) continue;
    if (auto it = retries_.find(task.id); it != retries_.end() && it->second.at > now) {
      actions.wake_at = std::min(actions.wake_at, it->second.at);
      continue;
    }
    if (!MayStart(task)) continue;
    running = Running{.task = task};
    actions.start.push_back(std::move(task));
  }
  if (draining_ && !running_[static_cast<int>(Lane::kCompute)].has_value()) {
    const std::vector<Task> wanted = WantedTasks();
    actions.drained = std::none_of(wanted.begin(), wanted.end(), [this](const Task& task) { return MayStart(task); });
  }
  return actions;
}

void AgentState::OnRegistered(absl::Time now, const absl::StatusOr<v1::RegisterResponse>& response) {
  if (!response.ok()) {
    if (IsFinalForRegister(response.status())) {
      give_up_ = response.status();
    } else {
      Disconnect(now, response.status());
    }
    return;
  }
  connection_ = Connection::kRegistered;
  site_generation_ = response->site_generation();
  if (response->heartbeat_interval_ms() > 0)
    heartbeat_interval_ = absl::Milliseconds(response->heartbeat_interval_ms());
  if (response->lease_ms() > 0) lease_ = absl::Milliseconds(response->lease_ms());
  // The coordinator is to send the whole assignment again; going by it, what runs goes on.
  acknowledged_ = 0;
  if (response->coordinator_incarnation() != coordinator_incarnation_) {
    // What this one still wants, its predecessor did not keep. Tasks answer from what they remember.
    coordinator_incarnation_ = response->coordinator_incarnation();
    done_.clear();
    failed_.clear();
    retries_.clear();
    for (std::optional<Running>& running : running_) {
      if (running.has_value()) running->outlived_coordinator = true;
    }
  }
}

void AgentState::OnStreamOpened(absl::Time now, const absl::Status& status) {
  if (!status.ok()) {
    OnStreamClosed(now, status);
    return;
  }
  if (connection_ != Connection::kOpening) return;
  connection_ = Connection::kOpen;
  last_heard_ = now;
  next_heartbeat_ = now;
}

void AgentState::OnStreamClosed(absl::Time now, const absl::Status& status) {
  if (IsFinalForStream(status)) {
    give_up_ = status;
  } else {
    Disconnect(now, status);
  }
}

void AgentState::Disconnect(absl::Time now, const absl::Status& why) {
  if (connection_ == Connection::kOpen) {
    log::Warning("coordinator lost", {{"error", why}, {"then", "what is assigned goes on"}});
  }
  connection_ = Connection::kDown;
  next_heartbeat_ = absl::InfiniteFuture();
  reconnect_at_ = now + reconnect_backoff_.Next();
}

void AgentState::OnHeartbeatResponse(absl::Time now, const v1::HeartbeatResponse& response) {
  if (connection_ != Connection::kOpen) return;
  last_heard_ = now;
  reconnect_backoff_.Reset();
  if (response.has_assignment() && response.assignment().sequence() > acknowledged_)
    TakeAssignment(response.assignment());
}

void AgentState::TakeAssignment(const v1::Assignment& assignment) {
  acknowledged_ = assignment.sequence();
  next_heartbeat_ = absl::InfinitePast();  // Tell at once that it has arrived.
  draining_ |= assignment.drain();
  auto taken = std::make_shared<v1::Assignment>(assignment);
  if (assignment.job() != assignment_->job()) {
    DropAssignment(std::move(taken));
  } else {
    assignment_ = std::move(taken);
  }
  std::set<std::string> wanted;
  for (const Task& task : WantedTasks()) wanted.insert(task.id);
  std::erase_if(retries_, [&](const auto& retry) { return !wanted.contains(retry.first); });
}

void AgentState::DropAssignment(std::shared_ptr<const v1::Assignment> next) {
  drop_job_ = true;
  done_.clear();
  failed_.clear();
  retries_.clear();
  assignment_ = std::move(next);
}

bool AgentState::DeliversNow(const Task& task) const {
  if (task.kind != TaskKind::kTrain || !Wants(task)) return false;
  return draining_ || assignment_->train().deliver_now();
}

std::vector<Task> AgentState::WantedTasks() const {
  std::vector<Task> tasks;
  const v1::Assignment& a = *assignment_;
  if (a.job().empty()) return tasks;
  const auto add = [&](TaskKind kind, std::string id) { tasks.push_back({kind, std::move(id), assignment_}); };
  if (a.has_prepare())
    add(TaskKind::kPrepare, TaskId(TaskKind::kPrepare, a, a.prepare().upload_initial() ? " initial" : ""));
  if (a.has_profile())
    add(TaskKind::kProfile, TaskId(TaskKind::kProfile, a, absl::StrCat(" attempt=", a.profile().attempt())));
  if (a.has_evaluate()) {
    const v1::EvaluateTask& evaluate = a.evaluate();
    add(TaskKind::kTestData, TestDataId(a));
    add(TaskKind::kEvaluate, TaskId(TaskKind::kEvaluate, a,
                                    absl::StrCat(" version=", evaluate.version(), " attempt=", evaluate.attempt(),
                                                 " samples=", RangesText(evaluate.ranges()))));
  }
  if (a.has_train()) {
    const v1::TrainTask& train = a.train();
    add(TaskKind::kTrainData, TrainDataId(a));
    add(TaskKind::kTrain,
        TaskId(TaskKind::kTrain, a,
               absl::StrCat(" plan=", train.plan(), " round=", train.round(), " attempt=", train.attempt(),
                            " version=", train.version(), " steps=", train.first_step(), "-", train.last_step())));
  }
  if (a.has_shard()) add(TaskKind::kShard, TaskId(TaskKind::kShard, a, absl::StrCat(" plan=", a.shard().plan())));
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& x, const Task& y) { return x.kind < y.kind; });
  // A new plan's shard comes after the data of what is to be done now.
  if (auto shard =
          std::find_if(tasks.begin(), tasks.end(), [](const Task& task) { return task.kind == TaskKind::kShard; });
      shard != tasks.end() && a.has_train() && a.train().plan() != a.shard().plan()) {
    std::rotate(shard, shard + 1, tasks.end());
  }
  // Of a round only what has been begun: it runs, or its contribution waits for another try.
  const std::optional<Running>& computing = running_[static_cast<int>(Lane::kCompute)];
  if (draining_) {
    std::erase_if(tasks, [&](const Task& task) {
      const bool begun = (computing.has_value() && computing->task.id == task.id) || retries_.contains(task.id);
      return task.kind != TaskKind::kTrain || !begun;
    });
  }
  return tasks;
}

bool AgentState::MayStart(const Task& task) const {
  if (done_.contains(task.id) || failed_.contains(task.id)) return false;
  if (task.kind == TaskKind::kTrain) return done_.contains(TrainDataId(*task.assignment));
  if (task.kind == TaskKind::kEvaluate) return done_.contains(TestDataId(*task.assignment));
  return true;
}

void AgentState::OnTaskEnded(absl::Time now, const Task& task, const TaskResult& result) {
  const bool wanted = Wants(task);
  const std::optional<Running> running = std::exchange(running_[static_cast<int>(LaneOf(task.kind))], std::nullopt);
  if (!wanted || absl::IsCancelled(result.status)) return;
  if (result.data_damaged) {
    std::erase_if(done_, [](const std::string& id) {
      return absl::StartsWith(id, TaskName(TaskKind::kTrainData)) ||
             absl::StartsWith(id, TaskName(TaskKind::kTestData));
    });
  }
  if (running->outlived_coordinator) return;  // Asked again, it answers from what it remembers.
  if (result.status.ok() || !result.try_again) {
    (result.status.ok() ? done_ : failed_).insert(task.id);
    retries_.erase(task.id);
    return;
  }
  auto it = retries_.try_emplace(task.id, Retry{Backoff(options_.retry_task), now}).first;
  it->second.at = now + it->second.backoff.Next();
}

bool AgentState::Wants(const Task& task) const {
  for (const Task& wanted : WantedTasks()) {
    if (wanted.id == task.id) return true;
  }
  return false;
}

}  // namespace causeway::worker
