#include "server/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "jobspec/job_spec.h"
#include "server/authz.h"
#include "server/contribution.h"
#include "server/stored_job.h"

namespace causeway::server {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kGaugeInterval = absl::Seconds(1);
constexpr absl::Duration kRetryAction = absl::Seconds(2);
constexpr int kDefaultTokenUses = 16;
constexpr int kMaxTokenUses = 100000;
constexpr absl::Duration kDefaultTokenLifetime = absl::Hours(24);
constexpr absl::Duration kMaxTokenLifetime = absl::Hours(24 * 365);
constexpr int64_t kAttemptsPerIncarnation = 1000000;

DataOwner::Source TrainSource(const v1::JobSpec& spec) {
  return {.images = spec.data().train().images(),
          .labels = spec.data().train().labels(),
          .seed = MixSeed(spec.seed(), {"training set"})};
}
DataOwner::Source TestSource(const v1::JobSpec& spec) {
  return {.images = spec.data().test().images(), .labels = spec.data().test().labels(), .seed = std::nullopt};
}
// A job without sites uses all.
bool ShareSites(const v1::JobSpec& a, const v1::JobSpec& b) {
  if (a.sites().empty() || b.sites().empty()) return true;
  return std::find_first_of(a.sites().begin(), a.sites().end(), b.sites().begin(), b.sites().end()) != a.sites().end();
}

bool HasTestSet(const v1::JobSpec& spec) { return !spec.data().test().images().empty(); }

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

absl::StatusOr<std::vector<scheduler::WorkerRanges>> LoadShards(const std::string& bytes) {
  v1::StoredShards stored;
  if (!stored.ParseFromString(bytes)) return absl::DataLossError("a plan's shards in the journal are damaged");
  std::vector<scheduler::WorkerRanges> shards;
  for (const auto& s : stored.shards()) {
    scheduler::WorkerRanges shard{.worker = s.worker()};
    for (const auto& r : s.ranges()) shard.ranges.push_back({.begin = r.begin(), .end = r.end()});
    shards.push_back(std::move(shard));
  }
  return shards;
}

// Text from outside, fit to be shown: at most 200 characters, none of which controls a terminal.
std::string Printable(absl::string_view text) {
  std::string printable(text.substr(0, 200));
  for (char& c : printable) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return printable;
}

absl::StatusOr<std::string> Sha256OfFile(const RandomAccessFile& file) {
  dataplane::Sha256 digest;
  std::vector<uint8_t> buffer(1 << 20);
  for (int64_t offset = 0; offset < file.size_bytes(); offset += static_cast<int64_t>(buffer.size())) {
    buffer.resize(std::min<int64_t>(static_cast<int64_t>(buffer.size()), file.size_bytes() - offset));
    RETURN_IF_ERROR(file.Read(offset, absl::MakeSpan(buffer)));
    digest.Update(buffer);
  }
  return digest.Finish();
}

// Reads the newest committed model. With `go_back` commits whose checkpoint is damaged or gone are taken off the end until one is whole; if
// none is, all stay. Errors: DataLoss and those of reading, of the newest.
absl::Status FindWholeModel(const std::string& job, const ParameterStore& store, bool go_back,
                            std::vector<CommitRow>* commits, PackedModel* model) {
  absl::Status of_newest;
  for (size_t left = commits->size(); left > 0; --left) {
    const CommitRow& commit = (*commits)[left - 1];
    absl::StatusOr<PackedModel> loaded = store.Load(Version(commit.version));
    if (loaded.ok() && dataplane::Sha256Of(**loaded) != commit.sha256) {
      loaded = absl::DataLossError(
          absl::StrCat(store.PathOf(Version(commit.version)), ": another model than the journal's"));
    }
    if (loaded.ok()) {
      *model = *std::move(loaded);
      commits->resize(left);
      return absl::OkStatus();
    }
    // What the disk does not give now, it may give at the next start.
    if (absl::IsInternal(loaded.status())) return loaded.status();
    if (of_newest.ok()) of_newest = loaded.status();
    if (!go_back) break;
    // Old ones are not all kept.
    if (left == commits->size() || !absl::IsNotFound(loaded.status())) {
      log::Error("checkpoint damaged", {{"then", "going back to the version before"},
                                        {"job", job},
                                        {"version", commit.version},
                                        {"status", loaded.status()}});
    }
  }
  return of_newest;
}

template <typename Message>
absl::StatusOr<Message> ParseStored(const std::string& bytes, absl::string_view what) {
  Message message;
  if (!message.ParseFromString(bytes)) return absl::DataLossError(absl::StrCat(what, " in the journal is damaged"));
  return message;
}

WorkerRow WorkerRowOf(const Worker& worker) {
  return {.name = worker.name.value(),
          .site = worker.site.value(),
          .serial = worker.certificate_serial,
          .cert_expires_ms = absl::ToUnixMillis(worker.certificate_expires),
          .removed = worker.removed,
          .incarnation = worker.incarnation.value(),
          .key_sha256 = worker.key_sha256,
          .previous_serial = worker.previous_serial};
}

TokenRow TokenRowOf(const Token& token) {
  return {.id = token.id,
          .site = token.site.value(),
          .sha256 = token.secret_hash,
          .uses = token.uses,
          .uses_left = token.uses_left,
          .expires_ms = absl::ToUnixMillis(token.expires),
          .revoked = token.revoked,
          .request_id = token.request_id};
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
  ASSIGN_OR_RETURN(coordinator->journal_, Journal::Open(JoinPath(o.dir, "journal.db")), "journal");
  ASSIGN_OR_RETURN(const int64_t incarnation, coordinator->journal_->NextIncarnation());
  coordinator->incarnation_ = Incarnation(incarnation);
  ASSIGN_OR_RETURN(const std::vector<std::string> jobs, o.fs->List(JoinPath(o.dir, "jobs")));
  if (incarnation == 1 && !jobs.empty()) {
    return absl::DataLossError(absl::StrCat("the journal is empty, but ", o.dir, "/jobs holds ", jobs[0],
                                            ": put the journal back, or start with an empty folder"));
  }
  ASSIGN_OR_RETURN(coordinator->spool_,
                   Spool::Create({.fs = o.fs, .dir = JoinPath(o.dir, "spool"), .max_bytes = o.spool_limit_bytes}),
                   "spool");
  ASSIGN_OR_RETURN(coordinator->data_owner_,
                   DataOwner::Create({.fs = o.fs, .data_root = o.data_root, .chunk_dir = JoinPath(o.dir, "chunks")}),
                   "chunks");
  coordinator->metrics_ = std::make_unique<Metrics>(o.registry);
  coordinator->guard_ =
      std::make_unique<PeerGuard>(PeerGuard::Options{.clock = o.clock, .metrics = coordinator->metrics_.get()});
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

// ---- Recovery

absl::Status Coordinator::Recover() {
  const absl::Time now = options_.clock->Now();
  ASSIGN_OR_RETURN(const std::vector<SiteRow> sites, journal_->LoadSites());
  for (const SiteRow& row : sites)
    membership_.Restore(Site{.name = SiteId(row.name), .generation = Generation(row.generation)});
  ASSIGN_OR_RETURN(const std::vector<TokenRow> tokens, journal_->LoadTokens());
  for (const TokenRow& row : tokens) {
    membership_.Restore(Token{.id = row.id,
                              .site = SiteId(row.site),
                              .secret_hash = row.sha256,
                              .uses = static_cast<int32_t>(row.uses),
                              .uses_left = static_cast<int32_t>(row.uses_left),
                              .expires = absl::FromUnixMillis(row.expires_ms),
                              .revoked = row.revoked,
                              .request_id = row.request_id});
  }
  ASSIGN_OR_RETURN(const std::vector<WorkerRow> workers, journal_->LoadWorkers());
  for (const WorkerRow& row : workers) {
    Worker worker{.name = WorkerId(row.name),
                  .site = SiteId(row.site),
                  .certificate_serial = row.serial,
                  .certificate_expires = absl::FromUnixMillis(row.cert_expires_ms),
                  .previous_serial = row.previous_serial,
                  .removed = row.removed,
                  .key_sha256 = row.key_sha256};
    worker.incarnation = Incarnation(row.incarnation);
    membership_.Restore(worker);
  }
  UpdateRoster();
  ASSIGN_OR_RETURN(std::vector<JobRow> jobs, journal_->LoadJobs());
  for (JobRow& row : jobs) {
    const std::string name = row.name;
    RETURN_IF_ERROR(RecoverJob(std::move(row)), absl::StrCat("job ", name));
  }
  // Who took part is given a lease's time to come back before its job goes on without it.
  recovering_until_ = now + options_.lease + options_.broken_stream_grace;
  log::Info("coordinator recovered", {{"incarnation", incarnation_.value()},
                                      {"sites", static_cast<int64_t>(sites.size())},
                                      {"workers", static_cast<int64_t>(workers.size())},
                                      {"jobs", static_cast<int64_t>(jobs_.size())}});
  return absl::OkStatus();
}

absl::Status Coordinator::RecoverJob(JobRow row) {
  const absl::Time now = options_.clock->Now();
  auto entry = std::make_unique<JobEntry>();
  Job::Options options;
  ASSIGN_OR_RETURN(options.spec, ParseStored<v1::JobSpec>(row.spec, "the specification"));
  ASSIGN_OR_RETURN(options.train, ParseStored<v1::DatasetInfo>(row.train_data, "the training set"));
  ASSIGN_OR_RETURN(options.test, ParseStored<v1::DatasetInfo>(row.test_data, "the test set"));
  if (!row.pinned_plan.empty()) {
    ASSIGN_OR_RETURN(options.pinned, ParseStored<v1::Plan>(row.pinned_plan, "the pinned plan"));
  }
  options.profile_duration = options_.profile_duration;
  options.submitted = absl::FromUnixMillis(row.submitted_ms);
  options.attempt_base = incarnation_.value() * kAttemptsPerIncarnation;

  Job::Stored stored;
  stored.state = static_cast<v1::JobState>(row.state);
  stored.reason = row.reason;
  if (row.ended_ms > 0) stored.ended = absl::FromUnixMillis(row.ended_ms);
  ASSIGN_OR_RETURN(stored.runtime, ParseStored<v1::StoredRuntime>(row.runtime, "the state"));
  if (!row.layout.empty()) {
    ASSIGN_OR_RETURN(const v1::Layout layout, ParseStored<v1::Layout>(row.layout, "the layout"));
    ASSIGN_OR_RETURN(stored.layout, dataplane::Layout::FromProto(layout));
    ASSIGN_OR_RETURN(entry->store, MakeStore(row.name, *stored.layout));
  }
  ASSIGN_OR_RETURN(const std::vector<PlanRow> plans, journal_->LoadPlans(row.name));
  for (const PlanRow& plan_row : plans) {
    PlanResult plan;
    ASSIGN_OR_RETURN(plan.plan, ParseStored<v1::Plan>(plan_row.plan, "a plan"));
    ASSIGN_OR_RETURN(plan.shards, LoadShards(plan_row.shards));
    stored.plans.push_back(std::move(plan));
  }
  ASSIGN_OR_RETURN(const std::vector<ProfileRow> profiles, journal_->LoadProfiles(row.name));
  for (const ProfileRow& profile : profiles) {
    ASSIGN_OR_RETURN(stored.profiles[WorkerId(profile.worker)],
                     ParseStored<v1::DeviceProfile>(profile.profile, "a profile"));
  }
  ASSIGN_OR_RETURN(entry->commits, journal_->LoadCommits(row.name));
  PackedModel model;
  absl::Status damaged;
  const bool over = stored.state == v1::JOB_STATE_FINISHED || stored.state == v1::JOB_STATE_FAILED ||
                    stored.state == v1::JOB_STATE_ABORTED;
  if (entry->store != nullptr && !entry->commits.empty()) {
    const size_t committed = entry->commits.size();
    damaged = FindWholeModel(row.name, *entry->store, !over, &entry->commits, &model);
    if (absl::IsInternal(damaged) && !over) return damaged;
    if (entry->commits.size() < committed) {
      RETURN_IF_ERROR(journal_->RollBack(row.name, entry->commits.back().version));
    }
  }
  ASSIGN_OR_RETURN(const std::vector<EvaluationRow> evaluations, journal_->LoadEvaluations(row.name));
  for (const EvaluationRow& evaluation : evaluations) {
    ASSIGN_OR_RETURN(v1::Evaluation e, ParseStored<v1::Evaluation>(evaluation.evaluation, "an evaluation"));
    stored.evaluations.push_back(std::move(e));
  }
  for (const CommitRow& commit : entry->commits) {
    stored.version = std::max(stored.version, Version(commit.version));
    if (commit.round < 0) continue;
    ASSIGN_OR_RETURN(v1::RoundRecord record, ParseStored<v1::RoundRecord>(commit.record, "a round's record"));
    stored.rounds.push_back(std::move(record));
  }
  RETURN_IF_ERROR(CheckStoredJob(options, stored));
  const Version newest = stored.version;
  entry->row = std::move(row);
  entry->job = std::make_unique<Job>(std::move(options));
  entry->job->Restore(std::move(stored), now);
  Job* job = entry->job.get();
  if (model != nullptr) {
    entry->store->Publish(newest, std::move(model), entry->commits.back().sha256);
  } else if (!damaged.ok() && !job->ended()) {
    job->Fail(absl::StrCat("no version of its model can be read: ", damaged.message()), now);
  }
  if (!job->ended()) {
    absl::Status data = data_owner_->Open(job->options().train, TrainSource(job->spec()));
    if (data.ok() && HasTestSet(job->spec())) data = data_owner_->Open(job->options().test, TestSource(job->spec()));
    if (absl::IsInternal(data) || absl::IsResourceExhausted(data)) return Annotate(data, "its data");
    entry->data_open = data.ok();
    if (!data.ok()) job->Fail(absl::StrCat("its data cannot be read: ", data.message()), now);
  }
  jobs_.push_back(std::move(entry));
  // Makes the sum of the open round, then puts back what had been counted.
  for (Job::Action& action : job->Advance(now, options_.clock->WallNow()))
    jobs_.back()->actions.push_back(std::move(action));
  CarryOut(jobs_.back().get());
  return ReaddContributions(jobs_.back().get());
}

absl::Status Coordinator::ReaddContributions(JobEntry* entry) {
  const RoundBook* book = entry->job->book();
  ASSIGN_OR_RETURN(const std::vector<ContributionRow> rows, journal_->LoadContributions(entry->row.name));
  // Where it lies now: the data directory may have been moved since it was journaled.
  std::map<SpoolKey, std::string> paths;
  for (const Spool::Entry& part : spool_->List()) {
    if (part.whole) paths[part.key] = part.path;
  }
  for (const ContributionRow& row : rows) {
    if (book == nullptr || row.round != book->options().round.value() || row.attempt != book->options().attempt ||
        entry->sum == nullptr)
      continue;
    const RoundBook::Entry* participant = book->Find(WorkerId(row.worker));
    if (participant == nullptr) continue;
    ASSIGN_OR_RETURN(const v1::StoredContribution info,
                     ParseStored<v1::StoredContribution>(row.info, "a contribution"));
    const SpoolKey key{row.job, row.fragment, row.round, row.attempt, row.worker};
    const auto add = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, options_.fs->OpenForRead(paths[key]),
                       "spooled contribution");
      ASSIGN_OR_RETURN(const std::string sha256, Sha256OfFile(*file));
      if (sha256 != row.sha256) return absl::DataLossError(absl::StrCat(paths[key], " is damaged"));
      MutexLock lock(&entry->sum->mu);
      return entry->sum->sum->Add(*file, row.samples, participant->participant.rank);
    };
    if (absl::Status added = add(); !added.ok()) {
      log::Error("contribution not restored",
                 {{"job", row.job}, {"worker", row.worker}, {"round", row.round}, {"status", added}});
      entry->job->DropOpenRound(
          absl::StrCat("the contribution of ", row.worker, " could not be read again: ", added.message()));
      return absl::OkStatus();
    }
    entry->job->RestoreContribution(WorkerId(row.worker), row.samples, row.sha256, info);
    log::Info("contribution restored",
              {{"job", row.job}, {"worker", row.worker}, {"round", row.round}, {"samples", row.samples}});
  }
  return absl::OkStatus();
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
    log::Warning("worker lost", {{"worker", lost.worker.value()},
                                 {"site", worker.site.value()},
                                 {"generation", site == nullptr ? 0 : site->generation.value()},
                                 {"reason", lost.reason}});
    if (site != nullptr) unstored_sites_.insert(site->name);
    if (auto it = streams_.find(lost.worker); it != streams_.end()) {
      it->second.stream.close(absl::FailedPreconditionError(absl::StrCat("no longer registered: ", lost.reason)));
      streams_.erase(it);
    }
    for (auto& entry : jobs_) {
      if (entry->job->active()) entry->job->SetPresent(worker.name, worker.site, worker.incarnation, false, now);
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
    }
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
    return journal_->UpdateJob(RowOf(*entry));
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

// ---- Rights

void Coordinator::UpdateRoster() {
  Membership roster = membership_;
  MutexLock lock(&roster_mu_);
  roster_ = std::move(roster);
}

absl::Status Coordinator::Authorize(const dataplane::PeerIdentity& peer, absl::string_view method) const {
  absl::Status status = server::Authorize(peer, method, options_.clock->WallNow());
  if (status.ok() && peer.role == dataplane::PeerIdentity::Role::kWorker) {
    MutexLock lock(&roster_mu_);
    status = roster_.CheckCertificate(WorkerId(peer.name), SiteId(peer.site), peer.serial);
  }
  if (!status.ok()) {
    guard_->CallRefused(peer, method, status);
    return status;
  }
  return guard_->AdmitCall(peer, method);
}

// ---- Workers

absl::Status Coordinator::PutWorker(const Worker& worker) { return journal_->PutWorker(WorkerRowOf(worker)); }

absl::Status Coordinator::PutToken(const Token& token) { return journal_->PutToken(TokenRowOf(token)); }

absl::StatusOr<v1::JoinResponse> Coordinator::Join(const v1::JoinRequest& request) {
  RETURN_IF_ERROR(dataplane::CheckCompatible(request.version(), "the worker"));
  ASSIGN_OR_RETURN(const JoinToken token, ParseJoinToken(request.token()));
  const absl::Time wall_now = options_.clock->WallNow();
  ASSIGN_OR_RETURN(const std::string key_sha256, dataplane::CsrKeySha256(request.csr_pem()));
  // The certificate is made first, so that a bad request does not use the token up. Membership admits a copy until all is stored.
  Membership trial = membership_;
  ASSIGN_OR_RETURN(const Worker worker,
                   trial.Join(token.id, HashTokenSecret(token.secret), request.worker_name(), key_sha256, wall_now));
  dataplane::PeerIdentity holder;
  holder.role = dataplane::PeerIdentity::Role::kWorker;
  holder.name = worker.name.value();
  holder.site = worker.site.value();
  ASSIGN_OR_RETURN(const std::string certificate, SignFor(holder, request.csr_pem()));
  ASSIGN_OR_RETURN(const dataplane::PeerIdentity identity, dataplane::ParseCertificate(certificate));
  trial.SetCertificate(worker.name, identity.serial, identity.not_after);
  RETURN_IF_ERROR(
      journal_->AdmitWorker(WorkerRowOf(*trial.Find(worker.name)), TokenRowOf(trial.tokens().at(token.id))));
  const bool repeated = membership_.Find(worker.name) != nullptr;
  membership_ = std::move(trial);
  UpdateRoster();
  log::Info(
      "worker joined",
      {{"worker", worker.name.value()}, {"site", worker.site.value()}, {"token", token.id}, {"repeated", repeated}});
  v1::JoinResponse response;
  response.set_site(worker.site.value());
  response.set_worker(worker.name.value());
  response.set_certificate_pem(certificate);
  response.set_ca_pem(options_.ca_pem);
  return response;
}

absl::StatusOr<v1::RegisterResponse> Coordinator::Register(const dataplane::PeerIdentity& peer,
                                                           const v1::RegisterRequest& request,
                                                           const std::string& address) {
  RETURN_IF_ERROR(dataplane::CheckCompatible(request.version(), absl::StrCat("worker ", peer.name)));
  if (request.incarnation() <= 0) return absl::InvalidArgumentError("an incarnation is a positive number");
  // What a worker says of itself is shown to operators.
  v1::RegisterRequest shown = request;
  for (std::string* text :
       {shown.mutable_device()->mutable_kind(), shown.mutable_device()->mutable_name(),
        shown.mutable_device()->mutable_torch_version(), shown.mutable_version()->mutable_build()}) {
    *text = Printable(*text);
  }
  const WorkerId name(peer.name);
  if (unstored_sites_.contains(SiteId(peer.site)))
    return absl::UnavailableError(absl::StrCat("the generation of site ", peer.site, " could not be stored yet"));
  ASSIGN_OR_RETURN(const Membership::Registered registered, membership_.Register(name, shown, options_.clock->Now()));
  membership_.SetAddress(name, address);
  const Worker& worker = *membership_.Find(name);
  RETURN_IF_ERROR(PutWorker(worker));
  // The grace until its heartbeat stream opens begins now, however long storing took.
  const absl::Time now = options_.clock->Now();
  membership_.StreamBroken(name, worker.incarnation, now);
  log::Info("worker registered", {{"worker", peer.name},
                                  {"site", peer.site},
                                  {"generation", membership_.Find(worker.site)->generation.value()},
                                  {"incarnation", request.incarnation()},
                                  {"restarted", registered.restarted},
                                  {"returned", registered.returned},
                                  {"emulated", request.has_emulation()},
                                  {"device", request.device().name()}});
  for (auto& entry : jobs_) PresentTo(entry.get(), worker, now);
  v1::RegisterResponse response;
  *response.mutable_version() = dataplane::OurVersion();
  response.set_site(worker.site.value());
  response.set_worker(peer.name);
  response.set_site_generation(membership_.Find(worker.site)->generation.value());
  response.set_coordinator_incarnation(incarnation_.value());
  response.set_heartbeat_interval_ms(absl::ToInt64Milliseconds(options_.heartbeat));
  response.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  v1::EndpointRange* endpoint = response.add_endpoints();
  endpoint->set_address(options_.advertise);
  Pump();
  return response;
}

absl::StatusOr<int64_t> Coordinator::OpenHeartbeat(const dataplane::PeerIdentity& peer, Incarnation incarnation,
                                                   HeartbeatStream stream) {
  const WorkerId name(peer.name);
  RETURN_IF_ERROR(membership_.StreamOpened(name, incarnation, options_.clock->Now()));
  if (auto old = streams_.find(name); old != streams_.end()) {
    old->second.stream.close(absl::AbortedError("replaced by a newer heartbeat stream"));
  }
  Stream& entry = streams_[name];
  entry = Stream{.id = next_stream_++, .stream = std::move(stream), .incarnation = incarnation};
  const int64_t id = entry.id;
  Pump();
  return id;
}

absl::Status Coordinator::Heartbeat(int64_t stream, const v1::HeartbeatRequest& request) {
  for (auto& [name, entry] : streams_) {
    if (entry.id != stream) continue;
    const absl::Time now = options_.clock->Now();
    const absl::Time wall_now = options_.clock->WallNow();
    RETURN_IF_ERROR(membership_.Heard(name, request, now, wall_now));
    for (auto& job : jobs_) {
      if (!job->job->active()) continue;
      job->job->OnProgress(name, request.progress(), now);
      if (request.draining()) job->job->SetDraining(name, now);
    }
    v1::HeartbeatResponse response;
    response.set_sequence(request.sequence());
    response.set_wall_time_ms(absl::ToUnixMillis(wall_now));
    response.set_renew_certificate(renewal_asked_.contains(name));
    entry.stream.send(response);
    return absl::OkStatus();
  }
  return absl::AbortedError("this heartbeat stream was replaced");
}

void Coordinator::HeartbeatClosed(int64_t stream) {
  for (auto it = streams_.begin(); it != streams_.end(); ++it) {
    if (it->second.id != stream) continue;
    membership_.StreamBroken(it->first, it->second.incarnation, options_.clock->Now());
    streams_.erase(it);
    return;
  }
}

Coordinator::JobEntry* Coordinator::FindJob(const std::string& job) {
  for (auto& entry : jobs_) {
    if (entry->row.name == job) return entry.get();
  }
  return nullptr;
}

const Coordinator::JobEntry* Coordinator::FindJob(const std::string& job) const {
  return const_cast<Coordinator*>(this)->FindJob(job);
}

// The job that a mutation is for, if its sender may change anything in it.
Coordinator::JobEntry* Coordinator::JobOf(const dataplane::PeerIdentity& peer, const v1::Fence& fence,
                                          absl::Status* error) {
  const Worker* worker = membership_.Find(WorkerId(peer.name));
  JobEntry* entry = FindJob(fence.job());
  if (entry == nullptr) {
    *error = absl::NotFoundError(absl::StrCat("no job ", fence.job()));
  } else if (worker == nullptr || !worker->live) {
    *error = absl::FailedPreconditionError(absl::StrCat("worker ", peer.name, " is not registered"));
  } else if (worker->incarnation.value() != fence.incarnation()) {
    *error = absl::AbortedError(
        absl::StrCat("incarnation ", fence.incarnation(), " is not the registered one, ", worker->incarnation.value()));
  } else if (fence.fragment() != 0) {
    *error = absl::InvalidArgumentError("this version knows one fragment, 0");
  } else {
    return entry;
  }
  return nullptr;
}

absl::Status Coordinator::ReportModel(const dataplane::PeerIdentity& peer, const v1::ReportModelRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  ASSIGN_OR_RETURN(const dataplane::Layout layout, dataplane::Layout::FromProto(request.layout()));
  if (layout.hash() != request.layout_sha256())
    return absl::DataLossError("the layout does not have the hash that was sent with it");
  absl::Status status =
      entry->job->OnModel(WorkerId(peer.name), layout, request.has_optimizer_state(), options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::ReportProfile(const dataplane::PeerIdentity& peer, const v1::ReportProfileRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  absl::Status status = entry->job->OnProfile(WorkerId(peer.name), request, options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::ReportData(const dataplane::PeerIdentity& peer, const v1::ReportDataRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  absl::Status status = entry->job->OnData(WorkerId(peer.name), request, options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::ReportEvaluation(const dataplane::PeerIdentity& peer,
                                           const v1::ReportEvaluationRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  absl::Status status = entry->job->OnEvaluation(WorkerId(peer.name), request, options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::ReportFailure(const dataplane::PeerIdentity& peer, const v1::ReportFailureRequest& request) {
  absl::Status error;
  JobEntry* entry = JobOf(peer, request.fence(), &error);
  if (entry == nullptr) return error;
  v1::ReportFailureRequest shown = request;
  shown.set_task(Printable(request.task()));
  shown.set_message(Printable(request.message()));
  absl::Status status = entry->job->OnFailure(WorkerId(peer.name), shown, options_.clock->Now());
  Pump();
  return status;
}

absl::Status Coordinator::Leave(const dataplane::PeerIdentity& peer, const v1::LeaveRequest& request) {
  membership_.Leave(WorkerId(peer.name), Incarnation(request.incarnation()));
  Pump();
  return absl::OkStatus();
}

// ---- Operators

void Coordinator::SubmitJob(const v1::SubmitJobRequest& request, SubmitCallback done) {
  const auto existing = [&]() -> const JobEntry* {
    for (const auto& entry : jobs_) {
      if (!request.request_id().empty() && entry->row.request_id == request.request_id()) return entry.get();
    }
    return nullptr;
  };
  if (const JobEntry* entry = existing(); entry != nullptr) {
    v1::SubmitJobResponse response;
    response.set_job(entry->row.name);
    response.set_existed(true);
    return std::move(done)(response);
  }
  absl::StatusOr<v1::JobSpec> spec =
      jobspec::ParseJobYaml(request.yaml(), request.file_name().empty() ? "job.yaml" : request.file_name());
  if (!spec.ok()) return std::move(done)(spec.status());
  if (FindJob(spec->name()) != nullptr) {
    return std::move(done)(absl::AlreadyExistsError(
        absl::StrCat("there is a job ", spec->name(), " already; give this one another name")));
  }
  const std::string request_key = absl::StrCat("request:", request.request_id());
  if (submitting_.contains(spec->name()) || (!request.request_id().empty() && submitting_.contains(request_key))) {
    return std::move(done)(
        absl::UnavailableError(absl::StrCat("job ", spec->name(), " is being submitted; ask again")));
  }
  int64_t workers = 0;
  for (const std::string& site : spec->sites()) {
    if (membership_.Find(SiteId(site)) == nullptr) {
      return std::move(done)(absl::InvalidArgumentError(
          absl::StrCat("sites: there is no site ", site, "; add it with: causeway site add ", site)));
    }
  }
  for (const auto& [name, worker] : membership_.workers()) {
    workers += worker.live && (spec->sites().empty() || std::find(spec->sites().begin(), spec->sites().end(),
                                                                  worker.site.value()) != spec->sites().end());
  }
  submitting_.insert(spec->name());
  submitting_.insert(request_key);
  std::optional<v1::Plan> pinned;
  if (request.has_pinned_plan()) pinned = request.pinned_plan();
  options_.io->Add([this, request, spec = *std::move(spec), workers, pinned, request_key,
                    done = std::move(done)]() mutable {
    auto data = [&]() -> absl::StatusOr<std::pair<DataOwner::Dataset, DataOwner::Dataset>> {
      std::pair<DataOwner::Dataset, DataOwner::Dataset> both;
      ASSIGN_OR_RETURN(both.first, data_owner_->Build(TrainSource(spec)), "data.train");
      if (HasTestSet(spec)) {
        absl::StatusOr<DataOwner::Dataset> test = data_owner_->Build(TestSource(spec));
        if (!test.ok()) {
          data_owner_->Close(both.first.info);
          return Annotate(test.status(), "data.test");
        }
        both.second = *std::move(test);
      }
      const auto check = [&]() -> absl::Status {
        const int64_t max_label = std::max(both.first.max_label, both.second.max_label);
        if (max_label >= spec.model().classes()) {
          return absl::InvalidArgumentError(absl::StrCat("data: label ", max_label, " found, but model.classes is ",
                                                         spec.model().classes(), " (labels count from 0)"));
        }
        const auto check_channels = [](const v1::DataSource& source, const v1::DatasetInfo& info,
                                       absl::string_view field) {
          const int64_t channels = info.sample_shape(0);
          for (const auto& [name, size] :
               {std::pair("mean", source.mean_size()), std::pair("std", source.std_size())}) {
            if (size != 0 && size != channels) {
              return absl::InvalidArgumentError(absl::StrCat(field, ".normalize.", name, ": found ", size,
                                                             " values; allowed: ", channels,
                                                             ", one for each channel of the samples"));
            }
          }
          return absl::OkStatus();
        };
        RETURN_IF_ERROR(check_channels(spec.data().train(), both.first.info, "data.train"));
        if (HasTestSet(spec)) RETURN_IF_ERROR(check_channels(spec.data().test(), both.second.info, "data.test"));
        if (both.first.info.samples() < workers) {
          return absl::InvalidArgumentError(absl::StrCat("data.train: ", both.first.info.samples(), " samples for ",
                                                         workers, " workers; each needs one at least"));
        }
        if (pinned.has_value() && pinned->samples() != both.first.info.samples()) {
          return absl::InvalidArgumentError(absl::StrCat("the pinned plan shares out ", pinned->samples(),
                                                         " samples, the training set has ", both.first.info.samples()));
        }
        if (HasTestSet(spec) &&
            std::vector<int64_t>(both.first.info.sample_shape().begin(), both.first.info.sample_shape().end()) !=
                std::vector<int64_t>(both.second.info.sample_shape().begin(), both.second.info.sample_shape().end())) {
          return absl::InvalidArgumentError("data: training and test samples differ in shape");
        }
        return absl::OkStatus();
      };
      if (absl::Status checked = check(); !checked.ok()) {
        CloseData(spec, both.first.info, both.second.info);
        return checked;
      }
      return both;
    }();
    options_.executor->Add([this, request, spec = std::move(spec), data = std::move(data), pinned, request_key,
                            done = std::move(done)]() mutable {
      submitting_.erase(spec.name());
      submitting_.erase(request_key);
      FinishSubmit(request, std::move(spec), std::move(data), std::move(pinned), std::move(done));
    });
  });
}

void Coordinator::FinishSubmit(const v1::SubmitJobRequest& request, v1::JobSpec spec,
                               absl::StatusOr<std::pair<DataOwner::Dataset, DataOwner::Dataset>> data,
                               std::optional<v1::Plan> pinned, SubmitCallback done) {
  if (!data.ok()) return std::move(done)(data.status());
  auto entry = std::make_unique<JobEntry>();
  Job::Options options;
  options.train = data->first.info;
  options.test = data->second.info;
  options.pinned = pinned;
  options.profile_duration = options_.profile_duration;
  options.submitted = options_.clock->WallNow();
  options.attempt_base = incarnation_.value() * kAttemptsPerIncarnation;
  entry->row = {.name = spec.name(),
                .request_id = request.request_id(),
                .yaml = request.yaml(),
                .spec = spec.SerializeAsString(),
                .state = v1::JOB_STATE_SUBMITTED,
                .submitted_ms = absl::ToUnixMillis(options.submitted),
                .train_data = options.train.SerializeAsString(),
                .test_data = options.test.SerializeAsString(),
                .pinned_plan = pinned.has_value() ? pinned->SerializeAsString() : ""};
  options.spec = std::move(spec);
  entry->data_open = true;
  if (absl::Status added = journal_->AddJob(entry->row); !added.ok()) {
    CloseData(options.spec, options.train, options.test);
    return std::move(done)(added);
  }
  log::Info("job submitted", {{"job", entry->row.name},
                              {"model", options.spec.model().builtin()},
                              {"samples", options.train.samples()},
                              {"test_samples", options.test.samples()}});
  v1::SubmitJobResponse response;
  response.set_job(entry->row.name);
  entry->job = std::make_unique<Job>(std::move(options));
  jobs_.push_back(std::move(entry));
  std::move(done)(response);
  Pump();
}

absl::StatusOr<v1::GetJobResponse> Coordinator::GetJob(const std::string& job) const {
  const JobEntry* entry = FindJob(job);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job));
  v1::GetJobResponse response = entry->job->Status(options_.clock->Now());
  *response.mutable_summary() = SummaryOf(*entry);
  response.set_job_dir(JoinPath(JoinPath(options_.dir, "jobs"), job));
  for (v1::WorkerInJob& w : *response.mutable_workers()) {
    const Worker* worker = membership_.Find(WorkerId(w.worker()));
    if (worker != nullptr && worker->registration.has_emulation())
      *w.mutable_emulation() = worker->registration.emulation();
  }
  return response;
}

v1::ListJobsResponse Coordinator::ListJobs() const {
  v1::ListJobsResponse response;
  for (const auto& entry : jobs_) *response.add_jobs() = SummaryOf(*entry);
  return response;
}

absl::StatusOr<Coordinator::JobEntry*> Coordinator::FindUnended(const std::string& job) {
  JobEntry* entry = FindJob(job);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job));
  if (entry->job->ended()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job, " has ended already (",
                     absl::StripPrefix(v1::JobState_Name(entry->job->state()), "JOB_STATE_"), ")"));
  }
  return entry;
}

absl::Status Coordinator::PauseJob(const std::string& job) {
  ASSIGN_OR_RETURN(JobEntry * entry, FindUnended(job));
  entry->job->Pause(options_.clock->Now());
  Pump();
  return absl::OkStatus();
}

absl::Status Coordinator::ResumeJob(const std::string& job) {
  ASSIGN_OR_RETURN(JobEntry * entry, FindUnended(job));
  entry->job->Resume(options_.clock->Now());
  Pump();
  return absl::OkStatus();
}

absl::Status Coordinator::AbortJob(const v1::AbortJobRequest& request) {
  if (const JobEntry* entry = FindJob(request.job());
      entry != nullptr && entry->job->state() == v1::JOB_STATE_ABORTED) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(JobEntry * entry, FindUnended(request.job()));
  entry->job->Abort(request.reason().empty() ? "aborted by an operator" : request.reason(), options_.clock->Now());
  Pump();
  return absl::OkStatus();
}

absl::StatusOr<v1::ListWorkersResponse> Coordinator::ListWorkers(const v1::ListWorkersRequest& request) const {
  const absl::Time now = options_.clock->Now();
  v1::ListWorkersResponse response;
  for (const auto& [name, worker] : membership_.workers()) {
    if (!request.worker().empty() && request.worker() != name.value()) continue;
    v1::WorkerStatus* w = response.add_workers();
    w->set_worker(name.value());
    w->set_site(worker.site.value());
    w->set_live(worker.live);
    w->set_removed(worker.removed);
    w->set_draining(worker.live && worker.draining);
    w->set_incarnation(worker.incarnation.value());
    w->set_certificate_expires_ms(absl::ToUnixMillis(worker.certificate_expires));
    if (worker.registration.incarnation() == 0) continue;  // Not seen since this coordinator's start.
    *w->mutable_device() = worker.registration.device();
    if (worker.registration.has_emulation()) *w->mutable_emulation() = worker.registration.emulation();
    *w->mutable_version() = worker.registration.version();
    w->set_heartbeat_age_ms(absl::ToInt64Milliseconds(now - worker.last_heard));
    w->set_clock_offset_s(worker.clock_offset_s);
    w->set_disk_free_bytes(worker.heartbeat.disk_free_bytes());
    w->set_cache_bytes(worker.heartbeat.cache_bytes());
    *w->mutable_progress() = worker.heartbeat.progress();
    w->set_address(worker.address);
    w->set_http_port(worker.registration.http_port());
    for (const auto& entry : jobs_) {
      if (worker.live && entry->job->active() && entry->job->Eligible(worker.site)) w->set_job(entry->row.name);
    }
  }
  if (!request.worker().empty() && response.workers().empty())
    return absl::NotFoundError(absl::StrCat("no worker ", request.worker()));
  return response;
}

absl::Status Coordinator::DrainWorker(const std::string& name) {
  const WorkerId id(name);
  RETURN_IF_ERROR(membership_.Drain(id));
  for (auto& entry : jobs_) {
    if (entry->job->active()) entry->job->SetDraining(id, options_.clock->Now());
  }
  log::Info("worker to drain", {{"worker", name}});
  Pump();
  return absl::OkStatus();
}

absl::Status Coordinator::RemoveWorker(const std::string& name) {
  const WorkerId id(name);
  const Worker* found = membership_.Find(id);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("no worker ", name));
  Worker removed = *found;
  removed.removed = true;
  RETURN_IF_ERROR(PutWorker(removed));
  RETURN_IF_ERROR(membership_.RemoveWorker(id));
  UpdateRoster();
  if (auto it = streams_.find(id); it != streams_.end()) {
    it->second.stream.close(absl::PermissionDeniedError(absl::StrCat("worker ", name, " was removed")));
    streams_.erase(it);
  }
  if (options_.cut_off) options_.cut_off(name);
  renewal_asked_.erase(id);
  for (auto& entry : jobs_) {
    if (entry->job->active()) entry->job->Forget(id, options_.clock->Now());
  }
  metrics_->ForgetWorker(name);
  log::Info("worker removed", {{"worker", name}});
  Pump();
  return absl::OkStatus();
}

absl::StatusOr<v1::AddSiteResponse> Coordinator::AddSite(const v1::AddSiteRequest& request) {
  if (request.token_uses() < 0 || request.token_uses() > kMaxTokenUses) {
    return absl::InvalidArgumentError(
        absl::StrCat("a token has 1 to ", kMaxTokenUses, " uses, not ", request.token_uses()));
  }
  const absl::Duration lifetime =
      request.token_lifetime_s() == 0 ? kDefaultTokenLifetime : absl::Seconds(request.token_lifetime_s());
  if (!(lifetime > absl::ZeroDuration()) || lifetime > kMaxTokenLifetime) {
    return absl::InvalidArgumentError("a token lives for more than 0 s and at most a year");
  }
  Membership trial = membership_;
  ASSIGN_OR_RETURN(const bool is_new, trial.AddSite(SiteId(request.site())));
  JoinToken token = NewJoinToken();
  // The secret that the earlier call made is stored nowhere, so that it cannot be told again: a new one takes its place.
  const Token* earlier = trial.FindToken(SiteId(request.site()), request.request_id());
  if (earlier != nullptr) token.id = earlier->id;
  Token stored{.id = token.id,
               .site = SiteId(request.site()),
               .secret_hash = HashTokenSecret(token.secret),
               .uses = request.token_uses() == 0 ? kDefaultTokenUses : request.token_uses(),
               .request_id = request.request_id()};
  stored.uses_left = stored.uses;
  stored.expires = options_.clock->WallNow() + lifetime;
  trial.AddToken(stored);
  if (is_new)
    RETURN_IF_ERROR(journal_->PutSite(
        {.name = request.site(), .generation = trial.Find(SiteId(request.site()))->generation.value()}));
  RETURN_IF_ERROR(PutToken(stored));
  membership_ = std::move(trial);
  v1::AddSiteResponse response;
  response.set_address(options_.advertise);
  response.set_token(token.ToString());
  ASSIGN_OR_RETURN(*response.mutable_ca_pin(), dataplane::CaPin(options_.ca_pem));
  response.set_token_id(token.id);
  response.set_expires_ms(absl::ToUnixMillis(stored.expires));
  response.set_uses(stored.uses);
  response.set_existed(!is_new);
  return response;
}

v1::ListSitesResponse Coordinator::ListSites() const {
  v1::ListSitesResponse response;
  for (const auto& [name, site] : membership_.sites()) {
    v1::SiteStatus* s = response.add_sites();
    s->set_site(name.value());
    s->set_generation(site.generation.value());
    for (const auto& [worker_name, worker] : membership_.workers()) {
      if (worker.site != name || worker.removed) continue;
      s->set_workers(s->workers() + 1);
      s->set_live(s->live() + worker.live);
    }
  }
  return response;
}

absl::Status Coordinator::RemoveSite(const std::string& site) {
  Membership trial = membership_;
  RETURN_IF_ERROR(trial.RemoveSite(SiteId(site)));
  RETURN_IF_ERROR(journal_->RemoveSite(site));
  membership_ = std::move(trial);
  UpdateRoster();
  return absl::OkStatus();
}

v1::ListTokensResponse Coordinator::ListTokens() const {
  v1::ListTokensResponse response;
  for (const auto& [id, token] : membership_.tokens()) {
    v1::TokenStatus* t = response.add_tokens();
    t->set_token_id(id);
    t->set_site(token.site.value());
    t->set_uses(token.uses);
    t->set_uses_left(token.uses_left);
    t->set_expires_ms(absl::ToUnixMillis(token.expires));
    t->set_revoked(token.revoked);
  }
  return response;
}

absl::Status Coordinator::RevokeToken(const std::string& text) {
  // Who gives the whole token means its id; a secret is never sent back in a message.
  absl::StatusOr<JoinToken> token = ParseJoinToken(text);
  const std::string id = token.ok() ? token->id : text;
  Membership trial = membership_;
  RETURN_IF_ERROR(trial.RevokeToken(id));
  RETURN_IF_ERROR(PutToken(trial.tokens().at(id)));
  membership_ = std::move(trial);
  return absl::OkStatus();
}

absl::StatusOr<v1::ListModelsResponse> Coordinator::ListModels(const std::string& job) const {
  const JobEntry* entry = FindJob(job);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job));
  v1::ListModelsResponse response;
  if (entry->store == nullptr) return response;
  ASSIGN_OR_RETURN(const std::vector<Version> kept, entry->store->List());
  for (const CommitRow& commit : entry->commits) {
    if (std::find(kept.begin(), kept.end(), Version(commit.version)) == kept.end()) continue;
    v1::ModelVersion* m = response.add_models();
    m->set_version(commit.version);
    m->set_bytes(entry->job->layout()->total_bytes());
    m->set_sha256(dataplane::ToHex(commit.sha256));
    m->set_committed_ms(commit.committed_ms);
    m->set_final(entry->job->ended() && entry->job->final_version() == Version(commit.version));
    m->set_path(entry->store->PathOf(Version(commit.version)));
    for (const v1::Evaluation& evaluation : entry->job->evaluations()) {
      if (evaluation.version() == commit.version) *m->mutable_evaluation() = evaluation;
    }
  }
  return response;
}

// ---- Bulk

absl::StatusOr<Coordinator::PushTicket> Coordinator::BeginPush(const dataplane::PeerIdentity& peer,
                                                               const v1::PushRequest& request) {
  const WorkerId name(peer.name);
  const Worker* worker = membership_.Find(name);
  if (worker == nullptr || !worker->live)
    return absl::FailedPreconditionError(absl::StrCat("worker ", peer.name, " is not registered"));
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", request.fence().job()));
  PushTicket ticket;
  ASSIGN_OR_RETURN(ticket.result, entry->job->CheckPush(name, worker->incarnation, request));
  if (ticket.result.has_value()) {
    if (ticket.result->outcome() != v1::PushResult::OUTCOME_COUNTED)
      metrics_->CountContribution(entry->row.name, ticket.result->reason());
    Pump();
    return ticket;
  }
  ticket.key = {.job = entry->row.name,
                .fragment = 0,
                .round = request.initial() ? -1 : request.fence().round(),
                .attempt = request.initial() ? 0 : request.attempt(),
                .worker = peer.name};
  ticket.layout = *entry->job->layout();
  ticket.max_change = entry->job->spec().rounds().max_change();
  ticket.store = entry->store;
  if (ticket.store == nullptr) return absl::UnavailableError("the job's layout is being stored");
  if (!request.initial()) {
    ticket.sum = entry->sum;
    if (ticket.sum == nullptr) return absl::UnavailableError("the round is being opened");
    ticket.committed = entry->store->newest().packed;
    ticket.rank = entry->job->book()->Find(name)->participant.rank;
  }
  return ticket;
}

absl::StatusOr<v1::PushResult> Coordinator::RejectPush(const dataplane::PeerIdentity& peer,
                                                       const v1::PushRequest& request, const std::string& reason,
                                                       const std::string& message) {
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr) return absl::NotFoundError("the job is gone");
  v1::PushResult result = entry->job->RejectContribution(WorkerId(peer.name), request, reason, message);
  metrics_->CountContribution(entry->row.name, reason);
  Pump();
  return result;
}

absl::Status Coordinator::JournalPush(const dataplane::PeerIdentity& peer, const v1::PushRequest& request,
                                      const std::string& path, const v1::StoredContribution& info) {
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr || !entry->job->BeginAdding(WorkerId(peer.name), request))
    return absl::AbortedError("its round has passed");
  absl::Status added = journal_->AddContribution({.job = entry->row.name,
                                                  .fragment = 0,
                                                  .round = request.fence().round(),
                                                  .attempt = request.attempt(),
                                                  .worker = peer.name,
                                                  .generation = request.fence().site_generation(),
                                                  .incarnation = request.fence().incarnation(),
                                                  .samples = request.samples(),
                                                  .sha256 = request.sha256(),
                                                  .path = path,
                                                  .info = info.SerializeAsString()});
  if (!added.ok()) entry->job->CancelAdding(WorkerId(peer.name));
  return added;
}

absl::StatusOr<v1::PushResult> Coordinator::FinishPush(const dataplane::PeerIdentity& peer,
                                                       const v1::PushRequest& request, const absl::Status& added,
                                                       const v1::StoredContribution& info) {
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr) return absl::NotFoundError("the job is gone");
  if (!added.ok()) {
    log::Error("sum void", {{"job", entry->row.name}, {"worker", peer.name}, {"status", added}});
    entry->job->DropOpenRound(absl::StrCat("a contribution could not be added: ", added.message()));
    Pump();
    return added;
  }
  entry->job->OnAdded(WorkerId(peer.name), request, info, options_.clock->Now());
  GoOn(entry);
  metrics_->CountContribution(entry->row.name, "counted");
  metrics_->CountPhases(entry->row.name, peer.site, peer.name, info);
  v1::PushResult result;
  result.set_outcome(v1::PushResult::OUTCOME_COUNTED);
  Pump();
  return result;
}

void Coordinator::NoRoomForPush(const std::string& job, const absl::Status& status) {
  JobEntry* entry = FindJob(job);
  if (entry == nullptr || !entry->job->active()) return;
  if (entry->stands_still.empty()) log::Error("no room for a push", {{"job", job}, {"status", status}});
  entry->stands_still = absl::StrCat("stands still until this succeeds: ", status.message());
  entry->job->OnNoRoom(options_.clock->Now());
}

absl::StatusOr<v1::PushResult> Coordinator::CommitInitial(const v1::PushRequest& request,
                                                          const ParameterStore::Checkpoint& checkpoint,
                                                          PackedModel packed) {
  JobEntry* entry = FindJob(request.fence().job());
  if (entry == nullptr) return absl::NotFoundError("the job is gone");
  v1::PushResult result;
  result.set_outcome(v1::PushResult::OUTCOME_COUNTED);
  if (entry->job->version().value() >= 0) return result;
  CommitRow row{.job = entry->row.name,
                .fragment = 0,
                .round = -1,
                .version = 0,
                .sha256 = checkpoint.sha256,
                .path = checkpoint.path,
                .samples = 0,
                .committed_ms = absl::ToUnixMillis(options_.clock->WallNow()),
                .record = ""};
  RETURN_IF_ERROR(journal_->CommitRound(row));
  entry->commits.push_back(row);
  entry->store->Publish(Version(0), std::move(packed), checkpoint.sha256);
  GoOn(entry);
  entry->job->OnInitialCommitted(options_.clock->Now());
  log::Info("initial model committed", {{"job", entry->row.name}, {"bytes", entry->job->layout()->total_bytes()}});
  Pump();
  return result;
}

absl::StatusOr<Coordinator::PullTicket> Coordinator::BeginPull(const v1::PullRequest& request) const {
  const JobEntry* entry = FindJob(request.job());
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", request.job()));
  if (request.fragment() != 0) return absl::InvalidArgumentError("this version knows one fragment, 0");
  if (request.has_elements() && (request.elements().begin() != 0 || !entry->job->layout().has_value() ||
                                 request.elements().end() != entry->job->layout()->total_elements())) {
    return absl::InvalidArgumentError("this version serves the whole range of elements");
  }
  if (entry->store == nullptr || entry->commits.empty()) {
    return absl::NotFoundError(absl::StrCat("job ", request.job(), " has no committed model yet"));
  }
  Version version(request.version());
  if (request.version() < 0) version = entry->job->final_version().value_or(Version(entry->commits.back().version));
  return PullTicket{.layout = *entry->job->layout(), .store = entry->store, .version = version};
}

absl::Status Coordinator::CheckFetch(const dataplane::PeerIdentity& peer, const std::string& job) const {
  const JobEntry* entry = FindJob(job);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job));
  if (!entry->job->active()) return absl::FailedPreconditionError(absl::StrCat("job ", job, " is not running"));
  if (!entry->job->Eligible(SiteId(peer.site))) {
    return absl::PermissionDeniedError(absl::StrCat("site ", peer.site, " takes no part in job ", job));
  }
  return absl::OkStatus();
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
