// Coordinator, the part that takes up what a former process left: the journal, checkpoints, the open round.
#include "server/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "server/stored_job.h"

namespace causeway::server {
namespace {

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

}  // namespace

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
  for (const auto& entry : jobs_) {
    if (!entry->job->active()) continue;
    const v1::GetJobResponse status = entry->job->Status(now);
    for (const v1::WorkerInJob& worker : status.workers()) {
      if (worker.live()) recovering_.insert(worker.worker());
    }
  }
  log::Info("coordinator recovered", {{"incarnation", incarnation_.value()},
                                      {"sites", static_cast<int64_t>(sites.size())},
                                      {"workers", static_cast<int64_t>(workers.size())},
                                      {"jobs", static_cast<int64_t>(jobs_.size())},
                                      {"waiting_for", absl::StrJoin(recovering_, ",")}});
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
  entry->stored_state = static_cast<v1::JobState>(row.state);
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

}  // namespace causeway::server
