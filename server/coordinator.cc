#include "server/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/protocol_version.h"

namespace causeway::server {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kGaugeInterval = absl::Seconds(1);
constexpr absl::Duration kRetryAction = absl::Seconds(2);

// A job without sites uses all.
bool ShareSites(const v1::JobSpec& a, const v1::JobSpec& b) {
  if (a.sites().empty() || b.sites().empty()) return true;
  return std::find_first_of(a.sites().begin(), a.sites().end(), b.sites().begin(), b.sites().end()) != a.sites().end();
}

std::string StoreShards(const std::vector<scheduler::WorkerRanges>& shards) {
  v1::StoredShards stored;
  for (const auto& shard : shards) {
    auto* s = stored.add_shards();
    s->set_worker(shard.worker);
    for (const auto& range : shard.ranges) {
      auto* r = s->add_ranges();
      r->set_begin(range.begin);
      r->set_end(range.end);
    }
  }
  return stored.SerializeAsString();
}

// A job is journaled before it has a folder, and neither is ever removed.
absl::Status JournalLost(const std::string& dir, const std::string& job) {
  return absl::DataLossError(absl::StrCat("the journal is empty, but ", dir, "/jobs holds ", job,
                                          ": put the journal back, or start with an empty folder"));
}

}  // namespace

Coordinator::Coordinator(Options options)
    : options_(std::move(options)),
      membership_({.lease = options_.lease, .broken_stream_grace = options_.broken_stream_grace}),
      roster_(membership_) {}

Coordinator::~Coordinator() = default;

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(Options options) {
  std::unique_ptr<Coordinator> coordinator(new Coordinator(std::move(options)));
  const Options& o = coordinator->options_;
  RETURN_IF_ERROR(o.fs->MakeDirs(JoinPath(o.dir, "jobs")));
  ASSIGN_OR_RETURN(const std::vector<std::string> folders, o.fs->List(JoinPath(o.dir, "jobs")));
  const std::string journal_path = JoinPath(o.dir, "journal.db");
  // Before a new journal is made, which would hide that the old one is lost.
  const absl::StatusOr<int64_t> journal_bytes = o.fs->FileSize(journal_path);
  const bool none = absl::IsNotFound(journal_bytes.status()) || journal_bytes.value_or(1) == 0;
  if (none && !folders.empty()) return JournalLost(o.dir, folders[0]);
  ASSIGN_OR_RETURN(coordinator->journal_, Journal::Open(journal_path), "journal");
  ASSIGN_OR_RETURN(const std::vector<JobRow> jobs, coordinator->journal_->LoadJobs());
  if (!folders.empty() && jobs.empty()) return JournalLost(o.dir, folders[0]);
  ASSIGN_OR_RETURN(const int64_t incarnation, coordinator->journal_->NextIncarnation());
  coordinator->incarnation_ = Incarnation(incarnation);
  ASSIGN_OR_RETURN(coordinator->spool_,
                   Spool::Create({.fs = o.fs, .dir = JoinPath(o.dir, "spool"), .max_bytes = o.spool_limit_bytes}),
                   "spool");
  ASSIGN_OR_RETURN(coordinator->data_owner_,
                   DataOwner::Create({.fs = o.fs, .data_root = o.data_root, .chunk_dir = JoinPath(o.dir, "chunks")}),
                   "chunks");
  coordinator->metrics_ = std::make_unique<Metrics>(o.registry);
  coordinator->guard_ = std::make_unique<PeerGuard>(PeerGuard::Options{
      .break_connections = o.break_connections, .clock = o.clock, .metrics = coordinator->metrics_.get()});
  RETURN_IF_ERROR(coordinator->Recover());
  return coordinator;
}

void Coordinator::Start() {
  options_.executor->Add([this] { Tick(); });
}

void Coordinator::Tick() {
  const absl::Time now = options_.clock->Now();
  Pump();
  if (now >= gauges_at_ || gauges_at_ == absl::InfinitePast()) {
    gauges_at_ = now + kGaugeInterval;
    UpdateGauges();
    if (options_.certificate != nullptr && options_.certificate->due()) RenewOwnCertificate();
  }
  options_.executor->AddAt(now + kTick, [this] { Tick(); });
}

// ---- Moving on

void Coordinator::Pump() {
  if (pumping_) return;
  pumping_ = true;
  const absl::Time now = options_.clock->Now();
  TakeLost(now);
  StartQueued(now);
  for (auto& entry : jobs_) {
    // Bounded: every turn needs an action that was carried out.
    for (int turn = 0; turn < 1000; ++turn) {
      CarryOut(entry.get());
      if (!entry->actions.empty() || entry->busy) break;
      for (Job::Action& action : entry->job->Advance(now, options_.clock->WallNow()))
        entry->actions.push_back(std::move(action));
      if (entry->actions.empty()) break;
    }
    if (entry->job->ended() && entry->actions.empty() && !entry->busy && entry->data_open) {
      entry->sum.reset();
      CloseData(entry->job->spec(), entry->job->options().train, entry->job->options().test);
      entry->data_open = false;
      if (absl::Status removed = spool_->RemoveJob(entry->row.name); !removed.ok()) {
        log::Warning("spool not cleared", {{"job", entry->row.name}, {"status", removed}});
      }
    }
  }
  StartQueued(now);
  SendAssignments();
  pumping_ = false;
}

void Coordinator::CloseData(const v1::JobSpec& spec, const v1::DatasetInfo& train, const v1::DatasetInfo& test) {
  data_owner_->Close(train);
  if (HasTestSet(spec)) data_owner_->Close(test);
}

void Coordinator::StartQueued(absl::Time now) {
  for (size_t i = 0; i < jobs_.size(); ++i) {
    Job* job = jobs_[i]->job.get();
    if (job->state() != v1::JOB_STATE_SUBMITTED || job->paused()) continue;
    bool busy = false;
    for (size_t k = 0; k < jobs_.size(); ++k) {
      const Job* other = jobs_[k]->job.get();
      if (k == i || other->ended() || (other->state() == v1::JOB_STATE_SUBMITTED && (k > i || other->paused())))
        continue;
      busy |= ShareSites(job->spec(), other->spec());
    }
    if (busy) continue;
    job->Start(now);
    for (const auto& [name, worker] : membership_.workers()) PresentTo(jobs_[i].get(), worker, now);
  }
}

void Coordinator::PresentTo(JobEntry* entry, const Worker& worker, absl::Time now) {
  if (!entry->job->active()) return;
  // Those of an interrupted round count as present until they have had the time to come back.
  if (!worker.live && now < recovering_until_) return;
  entry->job->SetPresent(worker.name, worker.site, worker.incarnation, worker.live && !worker.removed, now);
  if (worker.live && worker.draining) entry->job->SetDraining(worker.name, now);
}

void Coordinator::TakeLost(absl::Time now) {
  for (const Membership::Lost& lost : membership_.TakeLost(now)) {
    const Worker& worker = *membership_.Find(lost.worker);
    const Site* site = membership_.Find(worker.site);
    if (const int64_t times = lines_.Take(absl::StrCat("lost ", lost.worker.value()), now); times > 0) {
      log::Warning("worker lost", {{"worker", lost.worker.value()},
                                   {"site", worker.site.value()},
                                   {"generation", site == nullptr ? 0 : site->generation.value()},
                                   {"reason", lost.reason},
                                   {"times", times}});
    }
    if (site != nullptr) unstored_sites_.insert(site->name);
    if (auto it = streams_.find(lost.worker); it != streams_.end()) {
      it->second.stream.close(absl::FailedPreconditionError(absl::StrCat("no longer registered: ", lost.reason)));
      streams_.erase(it);
    }
    for (auto& entry : jobs_) {
      if (!entry->job->active()) continue;
      entry->job->SetPresent(worker.name, worker.site, worker.incarnation, false, now);
      if (lost.in_order) entry->job->Left(worker.name);
    }
  }
  std::erase_if(unstored_sites_, [this](const SiteId& name) {
    const Site* site = membership_.Find(name);
    if (site == nullptr) return true;
    const absl::Status put = journal_->PutSite({.name = name.value(), .generation = site->generation.value()});
    if (!put.ok()) {
      log::Error("generation not stored", {{"site", name.value()}, {"then", "trying again"}, {"status", put}});
    }
    return put.ok();
  });
  if (recovering_until_ != absl::InfinitePast() && now >= recovering_until_) {
    recovering_until_ = absl::InfinitePast();
    for (const auto& [name, worker] : membership_.workers()) {
      for (auto& entry : jobs_) PresentTo(entry.get(), worker, now);
      if (worker.live) recovering_.erase(name.value());
    }
    if (!recovering_.empty()) log::Warning("workers not back", {{"workers", absl::StrJoin(recovering_, ",")}});
    recovering_.clear();
  }
}

void Coordinator::CarryOut(JobEntry* entry) {
  const absl::Time now = options_.clock->Now();
  if (now < entry->retry_at) return;
  while (!entry->actions.empty() && !entry->busy) {
    const bool commit = std::holds_alternative<Job::CommitRound>(entry->actions.front());
    if (absl::Status done = CarryOut(entry, entry->actions.front()); !done.ok()) {
      StandStill(entry, "action failed", done);
      return;
    }
    entry->actions.pop_front();
    if (!commit) GoOn(entry);  // A commit has only begun.
  }
}

void Coordinator::StandStill(JobEntry* entry, absl::string_view what, const absl::Status& status) {
  log::Error(what, {{"then", "trying again"}, {"job", entry->row.name}, {"status", status}});
  entry->stands_still = absl::StrCat("stands still until this succeeds: ", status.message());
  entry->retry_at = options_.clock->Now() + kRetryAction;
}

void Coordinator::GoOn(JobEntry* entry) {
  if (std::exchange(entry->stands_still, "").empty()) return;
  log::Info("job goes on", {{"job", entry->row.name}});
}

v1::JobSummary Coordinator::SummaryOf(const JobEntry& entry) {
  v1::JobSummary summary = entry.job->Summary();
  if (!entry.stands_still.empty()) summary.set_reason(entry.stands_still);
  if (entry.job->ended() && entry.stored_state != entry.job->state()) {
    // Not told before it is durable.
    summary.set_state(entry.stored_state);
    summary.clear_ended_ms();
  }
  return summary;
}

JobRow Coordinator::RowOf(const JobEntry& entry) const {
  JobRow row = entry.row;
  const Job& job = *entry.job;
  row.state = job.state();
  row.reason = job.reason();
  row.ended_ms = job.ended_wall() == absl::InfinitePast() ? 0 : absl::ToUnixMillis(job.ended_wall());
  if (job.layout().has_value()) row.layout = job.layout()->ToProto().SerializeAsString();
  row.runtime = job.runtime().SerializeAsString();
  return row;
}

absl::StatusOr<std::shared_ptr<ParameterStore>> Coordinator::MakeStore(const std::string& job,
                                                                       const dataplane::Layout& layout) const {
  ASSIGN_OR_RETURN(std::unique_ptr<ParameterStore> store,
                   ParameterStore::Create(
                       {.fs = options_.fs, .dir = JoinPath(JoinPath(options_.dir, "jobs"), job), .layout = layout}));
  return std::shared_ptr<ParameterStore>(std::move(store));
}

absl::Status Coordinator::CarryOut(JobEntry* entry, const Job::Action& action) {
  const std::string& name = entry->row.name;
  if (std::holds_alternative<Job::StoreJob>(action)) {
    if (entry->job->layout().has_value() && entry->store == nullptr) {
      ASSIGN_OR_RETURN(entry->store, MakeStore(name, *entry->job->layout()));
    }
    const JobRow row = RowOf(*entry);
    RETURN_IF_ERROR(journal_->UpdateJob(row));
    entry->stored_state = static_cast<v1::JobState>(row.state);
    return absl::OkStatus();
  }
  if (const auto* plan = std::get_if<Job::StorePlan>(&action)) {
    return journal_->PutPlan({.job = name,
                              .number = plan->result.plan.number(),
                              .plan = plan->result.plan.SerializeAsString(),
                              .shards = StoreShards(plan->result.shards)});
  }
  if (const auto* profile = std::get_if<Job::StoreProfile>(&action)) {
    return journal_->PutProfile(
        {.job = name, .worker = profile->worker.value(), .profile = profile->profile.SerializeAsString()});
  }
  if (const auto* evaluation = std::get_if<Job::StoreEvaluation>(&action)) {
    return journal_->PutEvaluation({.job = name,
                                    .version = evaluation->evaluation.version(),
                                    .evaluation = evaluation->evaluation.SerializeAsString()});
  }
  if (std::holds_alternative<Job::OpenRound>(action)) {
    const RoundBook* book = entry->job->book();
    if (book == nullptr) return absl::OkStatus();  // Dropped again meanwhile.
    const ParameterStore::Newest newest = entry->store->newest();
    ASSIGN_OR_RETURN(RoundSum sum, RoundSum::Create(*entry->job->layout(), *newest.packed, book->planned_samples()));
    entry->sum = std::make_shared<Sum>();
    MutexLock lock(&entry->sum->mu);
    entry->sum->sum.emplace(std::move(sum));
    return absl::OkStatus();
  }
  if (const auto* drop = std::get_if<Job::DropRound>(&action)) {
    log::Warning("round dropped", {{"job", name}, {"round", drop->round.value()}, {"reason", drop->reason}});
    entry->sum.reset();
    RETURN_IF_ERROR(journal_->DropContributions(name, 0, drop->round.value()));
    metrics_->CountDroppedRound(name);
    return spool_->RemoveRound(name, 0, drop->round.value());
  }
  CommitRoundOnIo(entry, std::get<Job::CommitRound>(action).record);
  return absl::OkStatus();
}

void Coordinator::CommitRoundOnIo(JobEntry* entry, const v1::RoundRecord& record) {
  entry->busy = true;
  const JobRow row = RowOf(*entry);
  const absl::Time started = options_.clock->Now();
  options_.io->Add([this, entry, record, row, started, sum = entry->sum, store = entry->store] {
    const auto commit = [&]() -> absl::StatusOr<CommitRow> {
      PackedModel model;
      {
        MutexLock lock(&sum->mu);
        ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, sum->sum->Finish());
        model = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
      }
      ASSIGN_OR_RETURN(const ParameterStore::Checkpoint checkpoint,
                       store->WriteCheckpoint(Version(record.version()), *model,
                                              {{"job", row.name},
                                               {"round", absl::StrCat(record.round())},
                                               {"version", absl::StrCat(record.version())},
                                               {"causeway", dataplane::kBuildVersion}}));
      CommitRow commit_row{.job = row.name,
                           .fragment = 0,
                           .round = record.round(),
                           .version = record.version(),
                           .sha256 = checkpoint.sha256,
                           .path = checkpoint.path,
                           .samples = record.samples(),
                           .committed_ms = record.committed_ms(),
                           .record = record.SerializeAsString()};
      RETURN_IF_ERROR(journal_->CommitRound(commit_row));
      store->Publish(Version(record.version()), model, checkpoint.sha256);
      return commit_row;
    };
    auto result = commit();
    options_.executor->Add([this, entry, record, started, result = std::move(result)] {
      entry->busy = false;
      if (!result.ok()) {
        StandStill(entry, "commit failed", result.status());
        entry->actions.push_front(Job::CommitRound{record});
        return;
      }
      GoOn(entry);
      entry->sum.reset();
      entry->commits.push_back(*result);
      const absl::Duration took = options_.clock->Now() - started;
      log::Info("round committed", {{"job", entry->row.name},
                                    {"round", record.round()},
                                    {"version", record.version()},
                                    {"samples", record.samples()},
                                    {"contributions", record.contributions()},
                                    {"train_loss", record.train_loss()},
                                    {"seconds", record.seconds()},
                                    {"commit_s", absl::ToDoubleSeconds(took)}});
      metrics_->CountRound(entry->row.name, record, took);
      entry->job->OnRoundCommitted(Version(record.version()), options_.clock->Now());
      if (absl::Status removed = spool_->RemoveRound(entry->row.name, 0, record.round()); !removed.ok()) {
        log::Warning("spool not cleared", {{"job", entry->row.name}, {"status", removed}});
      }
      const v1::CheckpointSpec& checkpoint = entry->job->spec().checkpoint();
      std::set<Version> protect;
      if (entry->job->final_version().has_value()) protect.insert(*entry->job->final_version());
      protect.insert(Version(record.version() - 1));  // It may turn out to be the one that reached the target.
      absl::Status pruned = entry->store->Prune(std::max<int64_t>(1, checkpoint.every_rounds()),
                                                std::max<int64_t>(1, checkpoint.keep()), protect);
      if (!pruned.ok()) log::Warning("old checkpoints not removed", {{"job", entry->row.name}, {"status", pruned}});
      Pump();
    });
  });
}

void Coordinator::SendAssignments() {
  for (auto& [name, stream] : streams_) {
    v1::Assignment assignment;
    bool stalled = false;
    for (const auto& entry : jobs_) {
      // What has not been stored yet is not told, an end neither.
      if (entry->job->ended() && entry->stored_state != entry->job->state()) stalled = true;
      if (!entry->job->active()) continue;
      v1::Assignment a = entry->job->AssignmentFor(name);
      if (a.job().empty()) continue;
      // What has not been stored yet is not told.
      stalled = !entry->actions.empty();
      assignment = std::move(a);
      break;
    }
    if (stalled) continue;
    const Worker* worker = membership_.Find(name);
    assignment.set_drain(worker != nullptr && worker->draining);
    std::string bytes = assignment.SerializeAsString();
    if (stream.sequence > 0 && bytes == stream.sent) continue;
    stream.sent = std::move(bytes);
    assignment.set_sequence(++stream.sequence);
    v1::HeartbeatResponse response;
    response.set_wall_time_ms(absl::ToUnixMillis(options_.clock->WallNow()));
    *response.mutable_assignment() = std::move(assignment);
    stream.stream.send(response);
  }
}

void Coordinator::UpdateGauges() {
  if (options_.certificate != nullptr) {
    metrics_->SetCertificateExpiry(options_.certificate->info().validity.not_after - options_.clock->WallNow());
  }
  metrics_->SetWorkers(membership_, options_.clock->Now(), options_.clock->WallNow());
  for (const auto& entry : jobs_) {
    if (entry->end_shown) continue;  // Nothing of it changes any more.
    metrics_->SetJob(entry->job->Status(options_.clock->Now()));
    entry->end_shown = entry->job->ended() && entry->actions.empty() && !entry->busy;
  }
  absl::StatusOr<int64_t> free_bytes = options_.fs->FreeBytes(options_.dir);
  if (free_bytes.ok()) metrics_->SetDisk(static_cast<double>(*free_bytes), static_cast<double>(spool_->used_bytes()));
}

}  // namespace causeway::server
