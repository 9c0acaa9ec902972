#include "worker/job_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/completion.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/bandwidth.h"
#include "worker/profiler.h"
#include "worker/sync_none.h"

namespace causeway::worker {
namespace {

constexpr absl::Duration kReportTimeout = absl::Seconds(10);
constexpr int kMaxDamaged = 3;
constexpr int64_t kMaxProbeBytes = 64 << 20;
constexpr double kMinProbeSeconds = 0.2;
constexpr double kMaxProbeSeconds = 5;

ModelOptions MakeModelOptions(const v1::JobSpec& spec, const v1::DatasetInfo& train) {
  ModelOptions options;
  options.builtin = spec.model().builtin();
  options.classes = spec.model().classes();
  options.sample_shape.assign(train.sample_shape().begin(), train.sample_shape().end());
  options.seed = spec.seed();
  return options;
}

const char* OutcomeLabel(v1::PushResult::Outcome outcome) {
  switch (outcome) {
    case v1::PushResult::OUTCOME_COUNTED: return "counted";
    case v1::PushResult::OUTCOME_REJECTED: return "rejected";
    case v1::PushResult::OUTCOME_NOT_WANTED: return "not_wanted";
    default: return "unknown";
  }
}

}  // namespace

absl::Status ReportUntilAnswered(Clock* clock, const Backoff::Options& backoff_options, TaskContext* context,
                                 absl::string_view what, const v1::Fence& fence,
                                 const std::function<absl::Status(absl::Time deadline)>& call) {
  Backoff backoff(backoff_options);
  for (;;) {
    RETURN_IF_ERROR(context->cancellation.status());
    const absl::Status status = call(clock->Now() + kReportTimeout);
    if (status.ok()) return status;
    // A coordinator that was restarted refuses until this worker has registered again.
    if (!IsRetryable(status) && !absl::IsFailedPrecondition(status) && !absl::IsAborted(status)) {
      log::Warning("report refused", {{"job", fence.job()},
                                      {"round", fence.round()},
                                      {"generation", fence.site_generation()},
                                      {"report", what},
                                      {"error", status}});
      return absl::OkStatus();
    }
    log::Write(log::Level::kDebug, "report failed", {{"report", what}, {"error", status}, {"then", "again"}});
    RETURN_IF_ERROR(context->cancellation.SleepUntil(clock, clock->Now() + backoff.Next()));
  }
}

JobRunner::JobRunner(Options options)
    : options_(std::move(options)),
      job_id_(options_.job),
      exchange_({options_.transfer,
                 [this](int64_t bytes, double s) { options_.metrics->Transferred(Transfer::kPull, bytes, s); },
                 [this](int64_t bytes, double s) { options_.metrics->Transferred(Transfer::kPush, bytes, s); }}),
      fetcher_({options_.cache, options_.transfer}) {}

JobRunner::Failure JobRunner::PushFailure(absl::Status status) {
  // The coordinator's spool or disk is full: it may have room later. What was damaged on its way is sent again; nothing here is.
  if (absl::IsResourceExhausted(status) || absl::IsDataLoss(status)) status = absl::UnavailableError(status.message());
  return {status, Source::kTransfer};
}

TaskResult JobRunner::Run(const Task& task, const std::shared_ptr<TaskContext>& context) {
  LearnDatasets(*task.assignment);
  if (LaneOf(task.kind) == Lane::kCompute) options_.metrics->SetJob(options_.job);

  Failure failure;
  switch (task.kind) {
    case TaskKind::kPrepare:
      options_.board->SetPhase(v1::WORKER_PHASE_PREPARING);
      failure = Prepare(task, context.get());
      break;
    case TaskKind::kProfile:
      options_.board->SetPhase(v1::WORKER_PHASE_PROFILING);
      failure = Profile(task, context);
      break;
    case TaskKind::kEvaluate: failure = Evaluate(task, context); break;
    case TaskKind::kTrain: failure = Train(task, context.get()); break;
    case TaskKind::kShard:
    case TaskKind::kTestData:
    case TaskKind::kTrainData: failure = FetchData(task, context.get()); break;
  }
  if (LaneOf(task.kind) == Lane::kCompute) {
    options_.board->SetPhase(task.kind == TaskKind::kTrain && failure.ok() ? v1::WORKER_PHASE_WAITING
                                                                           : v1::WORKER_PHASE_IDLE);
  }
  return Judge(task, failure);
}

TaskResult JobRunner::Judge(const Task& task, const Failure& failure) {
  TaskResult result{failure.status};
  const absl::Status& status = failure.status;
  if (status.ok() || absl::IsCancelled(status)) return result;
  if (failure.source == Source::kTransfer && !absl::IsDataLoss(status)) {
    // The coordinator may have moved on; the next assignment tells.
    result.try_again = !absl::IsResourceExhausted(status) && !absl::IsInvalidArgument(status);
  } else if (absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsOutOfRange(status)) {
    MutexLock lock(&mu_);
    result.try_again = ++damaged_[task.id] < kMaxDamaged;
    result.data_damaged = true;
  } else {
    result.try_again = IsRetryable(status);
  }
  if (result.data_damaged) options_.cache->Distrust();
  const v1::Fence fence = Fence(task);
  log::Warning("task failed", {{"job", fence.job()},
                               {"round", fence.round()},
                               {"generation", fence.site_generation()},
                               {"task", task.id},
                               {"error", status},
                               {"then", result.try_again ? "again" : "gives up"}});
  return result;
}

v1::Fence JobRunner::Fence(const Task& task) const {
  v1::Fence fence;
  fence.set_job(options_.job);
  fence.set_round(task.assignment->has_train() ? task.assignment->train().round() : -1);
  fence.set_site_generation(options_.site_generation());
  fence.set_incarnation(options_.incarnation);
  return fence;
}

absl::Status JobRunner::Report(TaskContext* context, absl::string_view what, const v1::Fence& fence,
                               const std::function<absl::Status(absl::Time)>& call) {
  return ReportUntilAnswered(options_.clock, options_.report_backoff, context, what, fence, call);
}

void JobRunner::LearnDatasets(const v1::Assignment& assignment) {
  MutexLock lock(&mu_);
  if (datasets_.test().samples() > 0) return;  // They do not change in a job's life.
  if (assignment.has_shard()) {
    *datasets_.mutable_train() = assignment.shard().train();
    *datasets_.mutable_test() = assignment.shard().test();
    if (absl::Status saved = options_.state->SaveDatasets(job_id_, datasets_); !saved.ok()) {
      log::Warning("local state not saved", {{"job", options_.job}, {"error", saved}});
    }
  } else if (absl::StatusOr<v1::ShardTask> stored = options_.state->LoadDatasets(job_id_); stored.ok()) {
    datasets_ = *std::move(stored);
  } else if (assignment.has_prepare()) {
    *datasets_.mutable_train() = assignment.prepare().train();
  }
}

v1::ShardTask JobRunner::Datasets() const {
  MutexLock lock(&mu_);
  return datasets_;
}

// ---- Prepare and profile

JobRunner::Failure JobRunner::Prepare(const Task& task, TaskContext* context) {
  const v1::PrepareTask& prepare = task.assignment->prepare();
  if (absl::Status built = EnsureModel(); !built.ok()) return {built};

  v1::ReportModelRequest request;
  *request.mutable_fence() = Fence(task);
  *request.mutable_layout() = model_->layout().ToProto();
  request.set_layout_sha256(model_->layout().hash());
  request.set_has_optimizer_state(options_.state->HasOptimizer(job_id_));
  const absl::Status reported = Report(context, "model", request.fence(), [&](absl::Time deadline) {
    return options_.client->ReportModel(request, deadline);
  });
  if (!reported.ok() || !prepare.upload_initial()) return {reported};

  // A model of its own, since the one here may have been trained on.
  absl::StatusOr<std::unique_ptr<Model>> initial =
      options_.factory->Create(MakeModelOptions(options_.spec, Datasets().train()));
  if (!initial.ok()) return {initial.status()};
  std::vector<uint8_t> bytes((*initial)->layout().total_bytes());
  if (absl::Status saved = (*initial)->Save(absl::MakeSpan(bytes)); !saved.ok()) return {saved};
  options_.board->SetPhase(v1::WORKER_PHASE_PUSHING);
  context->awaits_answer = true;
  absl::StatusOr<RoundExchange::Pushed> pushed =
      exchange_.PushInitial(Fence(task), (*initial)->layout(), bytes, &context->cancellation);
  context->awaits_answer = false;
  if (!pushed.ok()) return PushFailure(Annotate(pushed.status(), "push the initial model"));
  if (pushed->result.outcome() != v1::PushResult::OUTCOME_COUNTED) {
    return {absl::UnavailableError(absl::StrCat("the initial model was not taken: ", pushed->result.reason(), " ",
                                                pushed->result.message())),
            Source::kTransfer};
  }
  log::Info("initial model sent", {{"job", options_.job}, {"bytes", static_cast<int64_t>(bytes.size())}});
  return {};
}

absl::Status JobRunner::EnsureModel() {
  if (model_ != nullptr) return absl::OkStatus();
  const v1::ShardTask datasets = Datasets();
  if (datasets.train().samples() == 0) return absl::UnavailableError("the job's datasets are not known yet");
  ASSIGN_OR_RETURN(model_, options_.factory->Create(MakeModelOptions(options_.spec, datasets.train())),
                   "build the model");
  log::Info(
      "model built",
      {{"job", options_.job}, {"model", options_.spec.model().builtin()}, {"bytes", model_->layout().total_bytes()}});
  return absl::OkStatus();
}

JobRunner::Failure JobRunner::Profile(const Task& task, const std::shared_ptr<TaskContext>& context) {
  const v1::ProfileTask& profile = task.assignment->profile();
  if (profiled_task_ != task.id) {
    if (absl::Status built = EnsureModel(); !built.ok()) return {built};
    ProfileOptions profile_options;
    profile_options.spec = options_.spec;
    profile_options.sample_shape = MakeModelOptions(options_.spec, Datasets().train()).sample_shape;
    profile_options.slowdown = options_.slowdown;
    profile_options.model = model_.get();
    profile_options.clock = options_.clock;

    // The link is measured while the device computes, since that is how it will be used.
    Completion<v1::DeviceProfile> link;
    options_.prober->Add([this, seconds = profile.seconds(), context, link]() mutable {
      link.Set(MeasureLink(seconds, context.get()));
    });
    absl::StatusOr<v1::DeviceProfile> device = worker::Profile(profile_options, profile, context->stop.get_token());
    // Bounded by the probes' own deadlines.
    const absl::StatusOr<v1::DeviceProfile> link_figures =
        link.Await(options_.clock, absl::InfiniteFuture(), "the measurement of the link");
    if (!device.ok()) return {Annotate(device.status(), "measure the device")};
    if (!link_figures.ok()) return {Annotate(link_figures.status(), "measure the link"), Source::kTransfer};
    profile_ = *std::move(device);
    profile_.MergeFrom(*link_figures);
    profiled_task_ = task.id;
    log::Info("profiled", {{"job", options_.job},
                           {"generation", options_.site_generation()},
                           {"max_parallel", profile_.max_parallel()},
                           {"down_bytes_per_s", profile_.down_bytes_per_s()},
                           {"up_bytes_per_s", profile_.up_bytes_per_s()},
                           {"round_trip_s", profile_.round_trip_s()}});
  }
  v1::ReportProfileRequest request;
  *request.mutable_fence() = Fence(task);
  request.set_attempt(profile.attempt());
  *request.mutable_profile() = profile_;
  return {Report(context.get(), "profile", request.fence(),
                 [&](absl::Time deadline) { return options_.client->ReportProfile(request, deadline); })};
}

absl::StatusOr<v1::DeviceProfile> JobRunner::MeasureLink(double seconds, TaskContext* context) {
  dataplane::TransferOptions transfer = options_.transfer;
  transfer.cancellation = &context->cancellation;
  const absl::Duration each = absl::Seconds(std::clamp(seconds * 0.4, kMinProbeSeconds, kMaxProbeSeconds));
  ASSIGN_OR_RETURN(const absl::Duration round_trip, dataplane::MeasureRoundTrip(transfer), "round trip");
  ASSIGN_OR_RETURN(const double down, dataplane::MeasureDown(transfer, each, kMaxProbeBytes), "down");
  ASSIGN_OR_RETURN(const double up, dataplane::MeasureUp(transfer, each, kMaxProbeBytes), "up");
  v1::DeviceProfile profile;
  profile.set_round_trip_s(absl::ToDoubleSeconds(round_trip));
  profile.set_down_bytes_per_s(down);
  profile.set_up_bytes_per_s(up);
  return profile;
}

// ---- Data

JobRunner::Failure JobRunner::FetchData(const Task& task, TaskContext* context) {
  const v1::Assignment& assignment = *task.assignment;
  const v1::ShardTask datasets = Datasets();
  if (datasets.test().samples() == 0) return {absl::UnavailableError("the job's datasets are not known yet")};
  SampleRanges train_ranges;
  SampleRanges test_ranges;
  if (task.kind == TaskKind::kShard) {
    train_ranges = assignment.shard().train_ranges();
    test_ranges = assignment.shard().test_ranges();
  } else if (task.kind == TaskKind::kTestData) {
    test_ranges = assignment.evaluate().ranges();
  } else {
    train_ranges = assignment.train().ranges();
  }

  held_.erase(task.kind);
  ShardFetcher::Stats stats;
  const absl::Time start = options_.clock->Now();
  int64_t done_before = 0;
  const auto on_progress = [&](const ShardFetcher::Progress& progress) {
    options_.board->SetFetching(true, done_before + progress.bytes_done, done_before + progress.bytes_total);
  };
  const auto fetch = [&](const v1::DatasetInfo& info, const SampleRanges& ranges) {
    done_before = stats.bytes_fetched;
    return fetcher_.Fetch(options_.job, info, ranges, &context->cancellation, on_progress, &stats);
  };
  absl::StatusOr<ShardFetcher::Held> train = fetch(datasets.train(), train_ranges);
  absl::StatusOr<ShardFetcher::Held> test = train.ok() ? fetch(datasets.test(), test_ranges) : train.status();
  const double seconds = absl::ToDoubleSeconds(options_.clock->Now() - start);
  options_.board->SetFetching(false, stats.bytes_fetched, stats.bytes_fetched);
  if (stats.bytes_fetched > 0) options_.metrics->Transferred(Transfer::kFetch, stats.bytes_fetched, seconds);
  if (stats.corrupt_chunks > 0) options_.metrics->CorruptChunks(stats.corrupt_chunks);
  if (!test.ok()) return {Annotate(test.status(), "fetch data"), Source::kTransfer};
  {
    MutexLock lock(&mu_);
    train_index_ = train->index;
    test_index_ = test->index;
  }
  held_.emplace(task.kind, Held{*std::move(train), *std::move(test)});
  if (task.kind != TaskKind::kShard) return {};

  log::Info("shard in place", {{"job", options_.job},
                               {"generation", options_.site_generation()},
                               {"plan", assignment.shard().plan()},
                               {"bytes_fetched", stats.bytes_fetched},
                               {"seconds", seconds},
                               {"corrupt_chunks", stats.corrupt_chunks}});
  v1::ReportDataRequest request;
  *request.mutable_fence() = Fence(task);
  request.set_plan(assignment.shard().plan());
  request.set_bytes_fetched(stats.bytes_fetched);
  request.set_seconds(seconds);
  request.set_corrupt_chunks(stats.corrupt_chunks);
  return {Report(context, "data", request.fence(),
                 [&](absl::Time deadline) { return options_.client->ReportData(request, deadline); })};
}

// ---- Rounds

absl::Status JobRunner::EnsureTrainer() {
  RETURN_IF_ERROR(EnsureModel());
  if (trainer_ != nullptr) return absl::OkStatus();
  const v1::ShardTask datasets = Datasets();
  {
    MutexLock lock(&mu_);
    if (!train_index_.has_value() || !test_index_.has_value())
      return absl::NotFoundError("the job's data is not in the cache");
    train_source_ = std::make_unique<CachedSamples>(options_.cache, *train_index_);
    test_source_ = std::make_unique<CachedSamples>(options_.cache, *test_index_);
  }
  site_sync_ = MakeSyncNone();
  Trainer::Options trainer;
  trainer.spec = options_.spec;
  trainer.worker = options_.worker;
  trainer.train = datasets.train();
  trainer.test = datasets.test();
  trainer.slowdown = options_.slowdown;
  trainer.on_progress = [this](const Trainer::Progress& progress) { OnStep(progress); };
  trainer.model = model_.get();
  trainer.site_sync = site_sync_.get();
  trainer.train_source = train_source_.get();
  trainer.test_source = test_source_.get();
  trainer.clock = options_.clock;
  ASSIGN_OR_RETURN(trainer_, Trainer::Create(std::move(trainer)));
  return absl::OkStatus();
}

void JobRunner::OnStep(const Trainer::Progress& progress) {
  const absl::Time now = options_.clock->Now();
  options_.board->SetSteps(progress.steps_done, progress.steps_planned, progress.samples_done, progress.train_loss);
  options_.metrics->StepDone(progress.samples_done - last_progress_.samples_done, progress.train_loss,
                             now - last_step_);
  last_progress_ = progress;
  last_step_ = now;
}

JobRunner::Failure JobRunner::LoadVersion(int64_t version, TaskContext* context) {
  options_.board->SetPhase(v1::WORKER_PHASE_PULLING);
  absl::StatusOr<const RoundExchange::Pulled*> pulled =
      exchange_.Pull(options_.job, version, model_->layout(), &context->cancellation);
  if (!pulled.ok()) return {Annotate(pulled.status(), absl::StrCat("pull version ", version)), Source::kTransfer};
  return {model_->Load((*pulled)->bytes)};
}

JobRunner::Failure JobRunner::Evaluate(const Task& task, const std::shared_ptr<TaskContext>& context) {
  const v1::EvaluateTask& evaluate = task.assignment->evaluate();
  if (evaluated_task_ != task.id) {
    if (absl::Status ready = EnsureTrainer(); !ready.ok()) return {ready};
    if (Failure failure = LoadVersion(evaluate.version(), context.get()); !failure.ok()) return failure;
    options_.board->SetPhase(v1::WORKER_PHASE_EVALUATING);
    const absl::Time start = options_.clock->Now();
    absl::StatusOr<Trainer::EvaluationResult> result = trainer_->Evaluate(evaluate.ranges(), context->stop.get_token());
    if (!result.ok()) return {Annotate(result.status(), absl::StrCat("evaluate version ", evaluate.version()))};
    evaluate_s_ = absl::ToDoubleSeconds(options_.clock->Now() - start);
    evaluation_.Clear();
    evaluation_.set_version(evaluate.version());
    evaluation_.set_attempt(evaluate.attempt());
    *evaluation_.mutable_ranges() = evaluate.ranges();
    evaluation_.set_correct(result->correct);
    evaluation_.set_total(result->total);
    evaluation_.set_loss_sum(result->loss_sum);
    evaluated_task_ = task.id;
    if (result->total > 0) {
      const double total = static_cast<double>(result->total);
      const double accuracy = static_cast<double>(result->correct) / total;
      options_.metrics->Evaluated(accuracy, result->loss_sum / total);
      const v1::Fence fence = Fence(task);
      log::Info("evaluated", {{"job", fence.job()},
                              {"round", fence.round()},
                              {"generation", fence.site_generation()},
                              {"version", evaluate.version()},
                              {"accuracy", accuracy},
                              {"loss", result->loss_sum / total},
                              {"samples", result->total},
                              {"seconds", evaluate_s_}});
    }
  }
  *evaluation_.mutable_fence() = Fence(task);
  options_.reporter->Add([client = options_.client, clock = options_.clock, backoff = options_.report_backoff, context,
                          request = evaluation_] {
    // Cancelled is fine: nobody wants it any more.
    ReportUntilAnswered(clock, backoff, context.get(), "evaluation", request.fence(), [&](absl::Time deadline) {
      return client->ReportEvaluation(request, deadline);
    }).IgnoreError();
  });
  return {};
}

JobRunner::Failure JobRunner::Train(const Task& task, TaskContext* context) {
  const v1::TrainTask& train = task.assignment->train();
  if (!exchange_.Holds(task.id)) {
    exchange_.KeepOnly(task.id);  // The former round's is not needed any more.
    if (Failure failure = TrainRound(task, context); !failure.ok()) return failure;
  }
  options_.board->SetPhase(v1::WORKER_PHASE_PUSHING);
  context->awaits_answer = true;
  absl::StatusOr<RoundExchange::Pushed> pushed = exchange_.Push(options_.site_generation(), &context->cancellation);
  context->awaits_answer = false;
  if (!pushed.ok()) return PushFailure(Annotate(pushed.status(), absl::StrCat("push round ", train.round())));
  const v1::PushResult& result = pushed->result;
  const char* outcome = OutcomeLabel(result.outcome());
  options_.metrics->ContributionAnswered(outcome);
  log::Info("contribution answered", {{"job", options_.job},
                                      {"round", train.round()},
                                      {"generation", options_.site_generation()},
                                      {"attempt", train.attempt()},
                                      {"outcome", outcome},
                                      {"reason", result.reason()},
                                      {"message", result.message()},
                                      {"seconds", pushed->seconds}});
  if (result.outcome() == v1::PushResult::OUTCOME_COUNTED) previous_push_s_ = pushed->seconds;
  if (result.outcome() == v1::PushResult::OUTCOME_NOT_WANTED) {
    // Yet the newest assignment wants it: one of the two is on its way to change.
    return {absl::UnavailableError(absl::StrCat("contribution not wanted: ", result.reason(), " ", result.message())),
            Source::kTransfer};
  }
  return {};
}

JobRunner::Failure JobRunner::TrainRound(const Task& task, TaskContext* context) {
  const v1::TrainTask& train = task.assignment->train();
  options_.board->StartRound(train.round());
  if (absl::Status ready = EnsureTrainer(); !ready.ok()) return {ready};
  if (Failure failure = LoadVersion(train.version(), context); !failure.ok()) return failure;
  bool fresh_optimizer = false;
  if (absl::Status restored = RestoreOptimizer(train, &fresh_optimizer); !restored.ok()) return {restored};

  options_.board->SetPhase(v1::WORKER_PHASE_TRAINING);
  last_progress_ = {};
  last_step_ = options_.clock->Now();
  optimizer_round_.reset();
  absl::StatusOr<Trainer::RoundResult> result =
      trainer_->TrainRound(train, context->stop.get_token(), [context] { return context->deliver_now.load(); });
  if (!result.ok()) return {Annotate(result.status(), absl::StrCat("train round ", train.round()))};
  optimizer_round_ = train.round();

  LocalState::OptimizerState state{train.plan(), train.round(), train.version()};
  state.bytes.resize(trainer_->optimizer()->state_bytes());
  absl::Status saved = trainer_->optimizer()->Save(absl::MakeSpan(state.bytes));
  if (saved.ok()) saved = options_.state->SaveOptimizer(job_id_, state);
  if (!saved.ok())
    log::Warning("optimizer state not saved", {{"job", options_.job}, {"round", train.round()}, {"error", saved}});

  std::vector<uint8_t> bytes(model_->layout().total_bytes());
  if (absl::Status status = model_->Save(absl::MakeSpan(bytes)); !status.ok()) return {status};
  v1::PushRequest request = WholeModelPush(Fence(task), model_->layout());
  request.set_attempt(train.attempt());
  request.set_samples(result->samples);
  request.set_steps(result->steps);
  request.set_train_loss(result->loss_mean);
  absl::StatusOr<const RoundExchange::Pulled*> pulled = exchange_.Pull(
      options_.job, train.version(), model_->layout(), &context->cancellation);  // Kept from the start of the round.
  if (pulled.ok()) request.set_pull_s((*pulled)->seconds);
  if (evaluation_.version() == train.version()) request.set_evaluate_s(evaluate_s_);
  request.set_compute_s(result->compute_s);
  request.set_previous_push_s(previous_push_s_);
  request.set_fresh_optimizer(fresh_optimizer);
  exchange_.Keep(task.id, std::move(request), std::move(bytes));
  options_.metrics->RoundTrained(train.round());
  log::Info("round trained", {{"job", options_.job},
                              {"plan", train.plan()},
                              {"round", train.round()},
                              {"generation", options_.site_generation()},
                              {"attempt", train.attempt()},
                              {"samples", result->samples},
                              {"planned_samples", train.planned_samples()},
                              {"steps", result->steps},
                              {"loss", result->loss_mean},
                              {"compute_s", result->compute_s}});
  return {};
}

absl::Status JobRunner::RestoreOptimizer(const v1::TrainTask& task, bool* fresh) {
  // A round begins with the state of the newest one before it, also when it is done for the second time.
  *fresh = false;
  if (optimizer_round_.has_value() && optimizer_round_ == options_.state->NewestOptimizer(job_id_, task.round()))
    return absl::OkStatus();
  ASSIGN_OR_RETURN(std::optional<LocalState::OptimizerState> stored,
                   options_.state->LoadOptimizer(job_id_, task.round()));
  *fresh = !stored.has_value();
  if (stored.has_value()) {
    const absl::Status loaded = trainer_->optimizer()->Load(stored->bytes);
    if (loaded.ok()) return loaded;
    log::Warning("optimizer state does not fit",
                 {{"job", options_.job}, {"error", loaded}, {"then", "the optimizer starts fresh"}});
    *fresh = true;
  }
  trainer_->optimizer()->Reset();
  return absl::OkStatus();
}

}  // namespace causeway::worker
