// Coordinator, the part that operators talk to: jobs, workers, sites, tokens, models.
#include "server/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "dataplane/pki.h"
#include "jobspec/job_spec.h"
#include "server/authz.h"
#include "server/stored_job.h"

namespace causeway::server {
namespace {

constexpr int kDefaultTokenUses = 16;
constexpr int kMaxTokenUses = 100000;
constexpr absl::Duration kDefaultTokenLifetime = absl::Hours(24);
constexpr absl::Duration kMaxTokenLifetime = absl::Hours(24 * 365);

}  // namespace

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
  // What the next start would refuse is not stored.
  if (request.has_pinned_plan()) {
    if (absl::Status pinned = CheckPinnedPlan(request.pinned_plan()); !pinned.ok()) return std::move(done)(pinned);
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
  if (options_.cancel_streams) options_.cancel_streams(name);
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

}  // namespace causeway::server
