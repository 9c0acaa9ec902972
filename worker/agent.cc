#include "worker/agent.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/completion.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/protocol_version.h"

namespace causeway::worker {
namespace {

// Stop has 5 s (docs/operations.md); a call that runs when it comes is waited for.
constexpr absl::Duration kRegisterTimeout = absl::Seconds(2);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(1);
constexpr int kFailuresUntilTold = 3;

}  // namespace

absl::StatusOr<std::unique_ptr<Agent>> Agent::Create(Options options) {
  if (options.client == nullptr || options.bulk == nullptr || options.factory == nullptr || options.cache == nullptr ||
      options.local_state == nullptr || options.fs == nullptr || options.metrics == nullptr ||
      options.board == nullptr || options.clock == nullptr || options.transfer.dialer == nullptr) {
    return absl::InvalidArgumentError("an agent needs all its parts");
  }
  return std::unique_ptr<Agent>(new Agent(std::move(options)));
}

Agent::Agent(Options options)
    : options_(std::move(options)),
      state_(options_.state),
      prober_(MakeExecutor("probe")),
      reporter_(MakeExecutor("report")),
      lanes_{MakeExecutor("compute"), MakeExecutor("fetch")},
      control_(MakeExecutor("control")) {}

std::unique_ptr<Executor> Agent::MakeExecutor(const std::string& name) const {
  if (options_.make_executor) return options_.make_executor(name);
  return std::make_unique<SerialExecutor>(name, options_.clock);
}

Agent::~Agent() { Stop(); }

void Agent::Start() {
  prober_->Start();
  reporter_->Start();
  for (auto& lane : lanes_) lane->Start();
  control_->Start();
  control_->Add([this] { Pump(); });
}

void Agent::Stop() {
  {
    MutexLock lock(&mu_);
    if (std::exchange(stopped_, true)) return;
    stopping_ = true;
  }
  CancelAll("the worker stops");
  Completion<bool> left;
  control_->Add([this, left]() mutable {
    SayGoodbye();
    left.Set(true);
  });
  left.Await(options_.clock, options_.clock->Now() + kRegisterTimeout + kLeaveTimeout, "the goodbye")
      .status()
      .IgnoreError();
  control_->Stop();
  for (auto& lane : lanes_) lane->Stop();
  reporter_->Stop();
  prober_->Stop();
  stream_.reset();
  control_->Stop();
}

void Agent::Drain() {
  control_->Add([this] {
    if (!state_.draining()) log::Info("draining", {{"then", "delivers what it has done and ends"}});
    state_.Drain();
    Pump();
  });
}

void Agent::SayGoodbye() {
  if (state_.connected() && !given_up_) {
    v1::LeaveRequest request;
    request.set_incarnation(options_.registration.incarnation());
    request.set_reason(state_.draining() ? "drained" : "stopped");
    const absl::Status left = options_.client->Leave(request, options_.clock->Now() + kLeaveTimeout);
    if (!left.ok()) log::Warning("could not say goodbye", {{"error", left}});
  }
  if (stream_ != nullptr) stream_->Cancel();
}

void Agent::Pump() {
  control_->Cancel(timer_);
  {
    MutexLock lock(&mu_);
    if (stopping_ || given_up_) return;
  }
  for (bool again = true; again;) {
    const AgentState::Actions actions = state_.Decide(options_.clock->Now());
    again = actions.do_register || actions.open_stream;
    if (actions.give_up.has_value()) {
      given_up_ = true;
      SetConnected(false);
      CancelAll("the coordinator refuses this worker");
      if (stream_ != nullptr) stream_->Cancel();
      log::Error("refused by the coordinator", {{"error", *actions.give_up}});
      options_.on_give_up(*actions.give_up);
      return;
    }
    if (actions.close_stream && stream_ != nullptr) stream_->Cancel();
    if (actions.drop_job) {
      if (actions.set_aside) {
        log::Warning("job set aside", {{"reason", "the coordinator has been away for orphan_timeout"},
                                       {"then", "begins again from what is on disk when it is back"}});
      }
      log::Info("job assigned", {{"job", state_.assignment()->job().empty() ? "none" : state_.assignment()->job()}});
      runner_.reset();
      options_.board->Reset(state_.assignment()->job());
    }
    const absl::Time wake_at = std::min(actions.wake_at, CancelUnwanted());
    if (actions.do_register) Register();
    if (actions.open_stream) OpenStream();
    if (actions.send_heartbeat) SendHeartbeat();
    for (const Task& task : actions.start) StartTask(task);
    if (actions.drained && !again && !std::exchange(drained_, true)) options_.on_drained();
    if (!again && wake_at != absl::InfiniteFuture()) timer_ = control_->AddAt(wake_at, [this] { Pump(); });
  }
  SetConnected(state_.connected());
}

void Agent::SetConnected(bool connected) {
  options_.board->SetConnected(connected);
  options_.metrics->SetConnected(connected);
}

void Agent::Register() {
  absl::StatusOr<v1::RegisterResponse> response =
      options_.client->Register(options_.registration, options_.clock->Now() + kRegisterTimeout);
  if (response.ok()) {
    if (absl::Status compatible = dataplane::CheckCompatible(response->version(), "the coordinator"); !compatible.ok())
      response = compatible;
  }
  if (response.ok()) {
    options_.bulk->Follow(*response);
    log::Info("registered", {{"generation", response->site_generation()},
                             {"coordinator_incarnation", response->coordinator_incarnation()},
                             {"bulk", options_.bulk->address()}});
  } else {
    log::Warning("registration failed", {{"error", response.status()}});
  }
  state_.OnRegistered(options_.clock->Now(), response);
  site_generation_ = state_.site_generation();
}

void Agent::OpenStream() {
  const int64_t number = ++stream_number_;
  stream_.reset();
  CoordinatorClient::HeartbeatEvents events;
  events.on_response = [this, number](const v1::HeartbeatResponse& response) {
    control_->Add([this, number, response] { OnResponse(number, response); });
  };
  events.on_closed = [this, number](const absl::Status& status) {
    control_->Add([this, number, status] { OnClosed(number, status); });
  };
  absl::StatusOr<std::unique_ptr<CoordinatorClient::HeartbeatStream>> stream =
      options_.client->OpenHeartbeat(std::move(events));
  if (stream.ok()) stream_ = *std::move(stream);
  state_.OnStreamOpened(options_.clock->Now(), stream.status());
}

void Agent::SendHeartbeat() {
  v1::HeartbeatRequest request;
  request.set_incarnation(options_.registration.incarnation());
  request.set_sequence(++heartbeat_sequence_);
  heartbeat_sent_wall_ = options_.clock->WallNow();
  request.set_wall_time_ms(absl::ToUnixMillis(heartbeat_sent_wall_));
  request.set_assignment_sequence(state_.assignment_sequence());
  *request.mutable_progress() = options_.board->Get();
  request.set_draining(state_.draining());
  request.set_disk_free_bytes(options_.fs->FreeBytes(options_.dir).value_or(0));
  request.set_cache_bytes(options_.cache->used_bytes());
  // A failure is told by on_closed.
  stream_->Send(request).IgnoreError();
}

void Agent::OnResponse(int64_t stream, const v1::HeartbeatResponse& response) {
  if (stream != stream_number_) return;
  if (response.sequence() == heartbeat_sequence_) {
    const absl::Time now = options_.clock->WallNow();
    const absl::Time middle = heartbeat_sent_wall_ + (now - heartbeat_sent_wall_) / 2;
    options_.metrics->HeartbeatAnswered(absl::ToDoubleSeconds(middle - absl::FromUnixMillis(response.wall_time_ms())));
  }
  if (response.renew_certificate() && options_.renew_certificate) options_.renew_certificate();
  state_.OnHeartbeatResponse(options_.clock->Now(), response);
  Pump();
}

void Agent::OnClosed(int64_t stream, const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
  }
  if (stream != stream_number_) return;
  ++stream_number_;
  state_.OnStreamClosed(options_.clock->Now(), status);
  Pump();
}

void Agent::StartTask(const Task& task) {
  if (runner_ == nullptr) {
    JobRunner::Options runner;
    runner.job = task.assignment->job();
    runner.spec = task.assignment->spec();
    runner.worker = options_.worker;
    runner.incarnation = options_.registration.incarnation();
    runner.slowdown = options_.slowdown;
    runner.site_generation = [this] { return site_generation_.load(); };
    runner.reporter = reporter_.get();
    runner.prober = prober_.get();
    runner.transfer = options_.transfer;
    runner.report_backoff = options_.report_backoff;
    runner.client = options_.client;
    runner.factory = options_.factory;
    runner.cache = options_.cache;
    runner.state = options_.local_state;
    runner.metrics = options_.metrics;
    runner.board = options_.board;
    runner.clock = options_.clock;
    runner_ = std::make_shared<JobRunner>(std::move(runner));
    if (absl::Status kept = options_.local_state->KeepOnly(JobId(task.assignment->job())); !kept.ok()) {
      log::Warning("old local state not removed", {{"error", kept}});
    }
  }
  auto context = std::make_shared<TaskContext>();
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    std::erase_if(live_, [](const Live& live) { return live.context.expired(); });
    live_.push_back({task, context});
  }
  log::Write(log::Level::kDebug, "task started", {{"task", task.id}});
  lanes_[static_cast<int>(LaneOf(task.kind))]->Add([this, task, context, runner = runner_] {
    const TaskResult result = runner->Run(task, context);
    control_->Add([this, task, context, result] { OnTaskEnded(task, context, result); });
  });
}

void Agent::OnTaskEnded(const Task& task, const std::shared_ptr<TaskContext>& context, const TaskResult& result) {
  state_.OnTaskEnded(options_.clock->Now(), task, result);
  const bool failed = !result.status.ok() && !absl::IsCancelled(result.status);
  int& in_a_row = failures_in_a_row_[task.kind];
  in_a_row = failed ? in_a_row + 1 : 0;
  // What is tried again is told when it goes on failing, so that somebody may make room on a disk. What the coordinator does not want now, it knows.
  const bool told = failed && (!result.try_again ||
                               (in_a_row % kFailuresUntilTold == 0 && !absl::IsFailedPrecondition(result.status)));
  if (told && state_.Wants(task)) {
    if (!result.try_again) options_.metrics->TaskFailed(TaskName(task.kind));
    v1::ReportFailureRequest request;
    v1::Fence* fence = request.mutable_fence();
    fence->set_job(task.assignment->job());
    fence->set_round(task.assignment->has_train() ? task.assignment->train().round() : -1);
    fence->set_site_generation(site_generation_);
    fence->set_incarnation(options_.registration.incarnation());
    request.set_task(TaskName(task.kind));
    request.set_code(static_cast<int32_t>(result.status.code()));
    request.set_message(std::string(result.status.message()));
    request.set_permanent(!result.try_again);
    reporter_->Add([this, context, request] {
      // Cancelled is fine: nobody wants the task any more.
      ReportUntilAnswered(options_.clock, options_.report_backoff, context.get(), "failure", request.fence(),
                          [&](absl::Time deadline) { return options_.client->ReportFailure(request, deadline); })
          .IgnoreError();
    });
  }
  Pump();
}

absl::Time Agent::CancelUnwanted() {
  const absl::Time now = options_.clock->Now();
  absl::Time again_at = absl::InfiniteFuture();
  std::vector<std::shared_ptr<TaskContext>> contexts;
  {
    MutexLock lock(&mu_);
    for (Live& live : live_) {
      std::shared_ptr<TaskContext> context = live.context.lock();
      if (context == nullptr) continue;
      if (state_.DeliversNow(live.task)) context->deliver_now = true;
      if (state_.Wants(live.task)) {
        live.cancel_at = absl::InfiniteFuture();
        continue;
      }
      if (context->awaits_answer) {
        live.cancel_at = std::min(live.cancel_at, now + options_.answer_grace);
        if (now < live.cancel_at) {
          again_at = std::min(again_at, live.cancel_at);
          continue;
        }
      }
      contexts.push_back(std::move(context));
    }
  }
  for (const auto& context : contexts) context->Cancel("not assigned any more");
  return again_at;
}

void Agent::CancelAll(absl::string_view reason) {
  std::vector<std::shared_ptr<TaskContext>> contexts;
  {
    MutexLock lock(&mu_);
    for (const Live& live : live_) {
      if (std::shared_ptr<TaskContext> context = live.context.lock(); context != nullptr)
        contexts.push_back(std::move(context));
    }
  }
  for (const auto& context : contexts) context->Cancel(reason);
}

}  // namespace causeway::worker
