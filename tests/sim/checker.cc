#include "tests/sim/checker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "server/journal.h"
#include "server/merge.h"
#include "server/parameter_store.h"
#include "tests/fakes/memory_file.h"

namespace causeway::sim {
namespace {

constexpr char kDurable[] = "/durable";

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

Checker::Checker(Options options) : options_(std::move(options)) {}

void Checker::Fail(absl::string_view what) {
  if (failure_.empty()) failure_ = std::string(what);
}

std::vector<std::pair<int64_t, int64_t>> Checker::RangesOf(
    const google::protobuf::RepeatedPtrField<v1::SampleRange>& ranges) {
  std::vector<std::pair<int64_t, int64_t>> result;
  for (const v1::SampleRange& range : ranges) result.emplace_back(range.begin(), range.end());
  return result;
}

// ---- What is durable

bool Checker::Durable(const std::function<bool()>& known) {
  if (known()) return true;
  if (loaded_at_ == options_.disk->syncs()) return false;
  LoadFacts();
  return known();
}

void Checker::LoadFacts() {
  loaded_at_ = options_.disk->syncs();
  const std::unique_ptr<FaultDisk> disk = options_.disk->Durable();
  CAUSEWAY_CHECK(disk->Rename(options_.dir, kDurable).ok());
  options_.vfs->Mount(kDurable, disk.get());
  std::vector<std::pair<int64_t, std::string>> new_commits;
  const auto load = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<server::Journal> journal,
                     server::Journal::Open(absl::StrCat(kDurable, "/journal.db")));
    facts_ = {};
    ASSIGN_OR_RETURN(const int64_t next, journal->NextIncarnation());
    facts_.incarnation = next - 1;
    ASSIGN_OR_RETURN(const auto sites, journal->LoadSites());
    for (const server::SiteRow& row : sites) facts_.generations[row.name] = row.generation;
    ASSIGN_OR_RETURN(const auto jobs, journal->LoadJobs());
    for (const server::JobRow& row : jobs) {
      facts_.job = true;
      facts_.state = row.state;
      v1::StoredRuntime runtime;
      if (!runtime.ParseFromString(row.runtime)) return absl::DataLossError("runtime");
      if (runtime.has_open_round()) {
        const v1::StoredRound& round = runtime.open_round();
        opened_.try_emplace({round.round(), round.attempt()}, round);
      }
    }
    ASSIGN_OR_RETURN(const auto plans, journal->LoadPlans(options_.job));
    for (const server::PlanRow& row : plans) {
      v1::StoredShards shards;
      if (!shards.ParseFromString(row.shards)) return absl::DataLossError("shards");
      auto& plan = facts_.plans[row.number];
      for (const auto& shard : shards.shards()) plan[shard.worker()] = RangesOf(shard.ranges());
    }
    ASSIGN_OR_RETURN(const auto contributions, journal->LoadContributions(options_.job));
    for (const server::ContributionRow& row : contributions) {
      facts_.contributions.insert({row.round, row.attempt, row.worker, row.sha256});
    }
    ASSIGN_OR_RETURN(const auto commits, journal->LoadCommits(options_.job));
    for (const server::CommitRow& row : commits) {
      if (row.version != row.round + 1) return absl::DataLossError("a round with another's version");
      facts_.commits[row.version] = row.sha256;
      if (!models_.contains(row.version)) new_commits.emplace_back(row.version, row.record);
    }
    return absl::OkStatus();
  };
  if (absl::Status loaded = load(); !loaded.ok()) Fail(absl::StrCat("the journal after a crash: ", loaded.ToString()));
  options_.vfs->Mount(kDurable, nullptr);

  for (const auto& [version, sha256] : commits_) {
    auto it = facts_.commits.find(version);
    if (it == facts_.commits.end()) return Fail(absl::StrCat("committed round lost: version ", version));
    if (it->second != sha256) return Fail(absl::StrCat("round committed twice: version ", version));
  }
  commits_ = facts_.commits;
  for (size_t i = 0; i < commits_.size(); ++i) {
    if (!commits_.contains(static_cast<int64_t>(i))) return Fail(absl::StrCat("no commit of version ", i));
  }
  for (const auto& [number, shards] : facts_.plans) {
    auto [it, is_new] = plans_.emplace(number, shards);
    if (!is_new && it->second != shards) return Fail(absl::StrCat("plan ", number, " has changed"));
    if (is_new) CheckPlan(number);
  }
  for (const auto& [version, record] : new_commits) CheckCommit(disk.get(), version, record);
}

void Checker::CheckPlan(int64_t number) {
  std::vector<std::pair<int64_t, int64_t>> all;
  for (const auto& [worker, ranges] : plans_[number]) all.insert(all.end(), ranges.begin(), ranges.end());
  std::sort(all.begin(), all.end());
  int64_t next = 0;
  for (const auto& [begin, end] : all) {
    if (begin != next || end < begin) {
      return Fail(absl::StrCat("plan ", number, ": sample ", std::min(begin, next), " belongs to ",
                               begin < next ? "two workers" : "nobody"));
    }
    next = end;
  }
  if (next != options_.train_samples) Fail(absl::StrCat("plan ", number, ": sample ", next, " belongs to nobody"));
}

// A round's model must be the mean of whole contributions to one attempt, one of a worker at most, and have all that were promised to
// count.
void Checker::CheckCommit(FaultDisk* disk, int64_t version, const std::string& record_bytes) {
  absl::StatusOr<std::unique_ptr<server::ParameterStore>> store = server::ParameterStore::Create(
      {.fs = disk, .dir = absl::StrCat(kDurable, "/jobs/", options_.job), .layout = options_.layout});
  CAUSEWAY_CHECK(store.ok());
  const absl::StatusOr<server::PackedModel> model = (*store)->Load(Version(version));
  if (absl::IsNotFound(model.status()) && version < commits_.rbegin()->first) return;  // Pruned meanwhile.
  if (!model.ok()) return Fail(absl::StrCat("committed, but not on the disk: ", model.status().ToString()));
  const std::string packed((*model)->begin(), (*model)->end());
  if (dataplane::Sha256Of(packed) != commits_[version])
    return Fail(absl::StrCat("the checkpoint of version ", version, " is not what the journal says"));
  models_[version] = packed;
  v1::RoundRecord record;
  CAUSEWAY_CHECK(record.ParseFromString(record_bytes));
  const int64_t round = version - 1;
  if (round < 0) {
    for (const auto& [key, part] : parts_) {
      if (std::get<0>(key) == -1 && part.bytes == packed) return;
    }
    return Fail("the initial model is nobody's");
  }
  if (!models_.contains(round)) return;  // Its base was pruned before anybody looked.
  const std::string& base = models_[round];

  std::set<int64_t> attempts;
  for (const auto& [key, part] : parts_) {
    if (std::get<0>(key) == round) attempts.insert(std::get<1>(key));
  }
  bool same_weights = false;
  for (const int64_t attempt : attempts) {
    auto opened = opened_.find({round, attempt});
    if (opened == opened_.end()) continue;
    std::map<std::string, int64_t> ranks;
    int64_t planned = 0;
    for (const auto& participant : opened->second.participants()) {
      ranks[participant.worker()] = participant.rank();
      planned += participant.planned_samples();
    }
    // Per worker: nothing, or one of its whole contributions.
    std::vector<std::vector<const PartKey*>> choices;
    for (const auto& [worker, rank] : ranks) {
      std::vector<const PartKey*> mine;
      bool promised = false;
      for (const auto& [key, part] : parts_) {
        if (std::get<0>(key) != round || std::get<1>(key) != attempt || std::get<2>(key) != worker) continue;
        if (std::find(part.seen.begin(), part.seen.end(), false) != part.seen.end()) continue;
        if (counted_.contains(key)) {
          mine = {&key};
          promised = true;
          break;
        }
        mine.push_back(&key);
      }
      if (!promised) mine.push_back(nullptr);
      choices.push_back(std::move(mine));
    }
    std::vector<size_t> at(choices.size(), 0);
    while (true) {
      int64_t samples = 0;
      int64_t count = 0;
      std::vector<const PartKey*> chosen;
      for (size_t i = 0; i < choices.size(); ++i) {
        if (choices[i][at[i]] == nullptr) continue;
        chosen.push_back(choices[i][at[i]]);
        samples += parts_.at(*chosen.back()).request.samples();
        ++count;
      }
      if (samples == record.samples() && count == record.contributions()) {
        same_weights = true;
        absl::StatusOr<server::RoundSum> sum = server::RoundSum::Create(options_.layout, Bytes(base), planned);
        CAUSEWAY_CHECK(sum.ok());
        absl::Status added;
        for (const PartKey* key : chosen) {
          const Part& part = parts_.at(*key);
          if (added.ok())
            added = sum->Add(MemoryFile(Bytes(part.bytes)), part.request.samples(), ranks[std::get<2>(*key)]);
        }
        if (added.ok()) {
          const absl::StatusOr<std::vector<uint8_t>> mean = sum->Finish();
          if (mean.ok() && std::string(mean->begin(), mean->end()) == packed) {
            for (const PartKey* key : chosen) merged_.insert(*key);
            ++verified_;
            return CheckMean(round, packed, chosen);
          }
        }
      }
      size_t i = 0;
      while (i < at.size() && ++at[i] == choices[i].size()) at[i++] = 0;
      if (i == at.size()) break;
    }
  }
  Fail(absl::StrCat("round ", round,
                    " is not the mean of whole contributions, each once, with all that were said to count (",
                    record.contributions(), " of ", record.samples(), " samples; ",
                    same_weights ? "the weights fit, the bits do not" : "no weights fit", ")"));
}

// RoundSum has said what the bits are; that they are a mean, its definition says: sum of weight times value over sum of weights.
void Checker::CheckMean(int64_t round, const std::string& packed, const std::vector<const PartKey*>& chosen) {
  const auto value = [](absl::string_view bytes, int64_t at) {
    float v;
    std::memcpy(&v, bytes.data() + at, sizeof(v));
    return static_cast<double>(v);
  };
  for (size_t i = 0; i < options_.layout.tensors().size(); ++i) {
    const dataplane::TensorSpec& tensor = options_.layout.tensors()[i];
    if (tensor.dtype != dataplane::DataType::kFloat32) continue;
    const int64_t begin = options_.layout.byte_offset(static_cast<int>(i));
    for (int64_t at = begin; at < begin + tensor.size_bytes(); at += 4) {
      double sum = 0, weights = 0;
      for (const PartKey* key : chosen) {
        const Part& part = parts_.at(*key);
        const auto weight = static_cast<double>(part.request.samples());
        sum += weight * value(part.bytes, at);
        weights += weight;
      }
      const double mean = sum / weights;
      if (std::abs(value(packed, at) - mean) > 1e-5 * std::max(1.0, std::abs(mean)))
        return Fail(absl::StrCat("round ", round, ": byte ", at, " of the model is no weighted mean"));
    }
  }
}

// ---- Announcements

void Checker::OnSubmitted() {
  if (!Durable([&] { return facts_.job; })) Fail("a job was accepted that is not in the journal");
}

void Checker::OnRegistered(const std::string& worker, const v1::RegisterResponse& response) {
  if (response.coordinator_incarnation() < coordinator_incarnation_)
    return Fail(absl::StrCat("the coordinator's incarnation fell from ", coordinator_incarnation_, " to ",
                             response.coordinator_incarnation()));
  coordinator_incarnation_ = response.coordinator_incarnation();
  int64_t& generation = generations_[response.site()];
  if (response.site_generation() < generation) {
    return Fail(absl::StrCat("the generation of ", response.site(), " fell from ", generation, " to ",
                             response.site_generation()));
  }
  generation = response.site_generation();
  if (!Durable([&] {
        return facts_.incarnation >= response.coordinator_incarnation() &&
               facts_.generations[response.site()] >= response.site_generation();
      })) {
    Fail(absl::StrCat("announced to ", worker, " before it was durable: generation ", response.site_generation(),
                      " of ", response.site(), ", incarnation ", response.coordinator_incarnation()));
  }
}

void Checker::OnAssignment(const std::string& worker, const v1::Assignment& assignment) {
  if (assignment.job().empty()) return;
  const auto check_version = [&](int64_t version) {
    if (!Durable([&] { return facts_.commits.contains(version); }))
      Fail(absl::StrCat("version ", version, " was announced before it was durable"));
    newest_version_ = std::max(newest_version_, version);
  };
  const auto check_plan = [&](int64_t plan, const std::vector<std::pair<int64_t, int64_t>>& ranges) {
    if (!Durable([&] { return facts_.plans.contains(plan); }))
      return Fail(absl::StrCat("plan ", plan, " was announced before it was durable"));
    if (facts_.plans[plan][worker] != ranges)
      Fail(absl::StrCat(worker, " has other samples than plan ", plan, " says"));
  };
  if (assignment.has_evaluate()) check_version(assignment.evaluate().version());
  if (assignment.has_shard()) check_plan(assignment.shard().plan(), RangesOf(assignment.shard().train_ranges()));
  if (!assignment.has_train()) return;
  const v1::TrainTask& train = assignment.train();
  check_version(train.version());
  check_plan(train.plan(), RangesOf(train.ranges()));
  if (train.version() != train.round()) return Fail(absl::StrCat("round ", train.round(), " from another's version"));
  const Attempt attempt(train.round(), train.attempt());
  if (attempt < newest_attempt_) {
    return Fail(absl::StrCat("round ", attempt.first, " attempt ", attempt.second, " after round ",
                             newest_attempt_.first, " attempt ", newest_attempt_.second));
  }
  newest_attempt_ = attempt;
  if (!Durable([&] { return opened_.contains(attempt); })) {
    Fail(absl::StrCat("round ", attempt.first, " attempt ", attempt.second, " was announced before it was durable"));
  }
}

Checker::PartKey Checker::KeyOf(const std::string& worker, const v1::PushRequest& request) {
  if (request.initial()) return {-1, 0, worker, request.sha256()};
  return {request.fence().round(), request.attempt(), worker, request.sha256()};
}

std::string Checker::Part::PathOf(const std::string& dir, const std::string& worker) const {
  const PartKey key = KeyOf(worker, request);
  return absl::StrCat(dir, "/spool/", request.fence().job(), "/f0_r", std::get<0>(key), "_a", std::get<1>(key), "_",
                      request.total_bytes(), "_", dataplane::ToHex(request.sha256()), "_", worker);
}

void Checker::OnFrame(const std::string& worker, int64_t stream, bool from_worker, const v1::Frame& frame) {
  if (frame.has_pull_response()) {
    const v1::PullResponse& pull = frame.pull_response();
    if (!Durable([&] { return facts_.commits.contains(pull.version()); }))
      return Fail(absl::StrCat("version ", pull.version(), " was served before it was durable"));
    if (facts_.commits[pull.version()] != pull.sha256())
      Fail(absl::StrCat("version ", pull.version(), " is served with other bits than were committed"));
    return;
  }
  if (frame.has_push_request()) {
    const PartKey key = KeyOf(worker, frame.push_request());
    auto [it, is_new] = parts_.try_emplace(key);
    if (is_new) {
      it->second.request = frame.push_request();
      it->second.bytes.resize(frame.push_request().total_bytes());
      it->second.seen.resize(it->second.bytes.size());
    }
    pushes_[stream] = {worker, key};
    return;
  }
  auto push = pushes_.find(stream);
  if (push == pushes_.end()) return;
  Part& part = parts_.at(push->second.second);
  if (!from_worker) return CheckPushAnswer(worker, &part, frame);
  if (!frame.has_data()) return;
  const int64_t offset = frame.data().offset();
  if (offset < part.acknowledged && !frame.payload().empty()) {
    return Fail(absl::StrCat(worker, " sends byte ", offset, " of round ", part.request.fence().round(), " again, ",
                             part.acknowledged, " were acknowledged"));
  }
  for (size_t i = 0; i < frame.payload().size(); ++i) {
    part.bytes[offset + i] = frame.payload()[i];
    part.seen[offset + i] = true;
  }
}

void Checker::CheckPushAnswer(const std::string& worker, Part* part, const v1::Frame& frame) {
  const PartKey key = KeyOf(worker, part->request);
  const auto check_durable = [&](int64_t bytes, absl::string_view what) {
    const std::string path = part->PathOf(options_.dir, worker);
    const int64_t durable =
        std::max(options_.disk->DurableSize(path + ".partial"), options_.disk->DurableSize(path + ".whole"));
    if (durable < bytes && bytes > 0)
      Fail(absl::StrCat(what, " says ", bytes, " bytes of ", worker, " are durable, ", durable, " are"));
    part->acknowledged = std::max(part->acknowledged, bytes);
  };
  if (frame.has_push_response()) {
    const int64_t resume = frame.push_response().resume_offset();
    // Another part of this worker in its place is gone.
    for (auto& [other_key, other] : parts_) {
      if (&other != part && std::get<0>(other_key) == std::get<0>(key) && std::get<1>(other_key) == std::get<1>(key) &&
          std::get<2>(other_key) == worker) {
        other.acknowledged = 0;
      }
    }
    if (resume < part->acknowledged) {
      return Fail(absl::StrCat("acknowledged bytes are asked for again: from ", resume, ", ", part->acknowledged,
                               " of ", worker, " in round ", part->request.fence().round(), " were acknowledged"));
    }
    check_durable(resume, "a resumed push");
  } else if (frame.has_push_ack()) {
    check_durable(frame.push_ack().durable_bytes(), "an acknowledgement");
  } else if (frame.has_push_result() && frame.push_result().outcome() == v1::PushResult::OUTCOME_COUNTED) {
    const int64_t version = std::get<0>(key) + 1;
    if (!Durable([&] { return facts_.contributions.contains(key) || facts_.commits.contains(version); })) {
      Fail(absl::StrCat("the contribution of ", worker, " to round ", version - 1,
                        " was said to count before it was durable"));
    }
    if (version > 0) counted_.insert(key);
    if (models_.contains(version) && version > 0 && models_.contains(version - 1) && !merged_.contains(key)) {
      Fail(absl::StrCat("the contribution of ", worker, " to round ", version - 1,
                        " was said to count, but it is not in the model"));
    }
  }
}

void Checker::OnCoordinator(const server::Coordinator& coordinator, bool started) {
  if (started) {
    if (coordinator.incarnation().value() <= life_) Fail("a coordinator started with an old incarnation");
    life_ = coordinator.incarnation().value();
  }
  const v1::ListJobsResponse jobs = coordinator.ListJobs();
  for (const v1::JobSummary& job : jobs.jobs()) {
    if (job.round() < newest_version_) {
      Fail(absl::StrCat("the coordinator is at round ", job.round(), ", version ", newest_version_, " was announced"));
    }
  }
}

void Checker::CheckEnd(int64_t rounds) {
  LoadFacts();
  if (facts_.state != v1::JOB_STATE_FINISHED) Fail(absl::StrCat("the journal has the job in state ", facts_.state));
  if (this->rounds() != rounds) Fail(absl::StrCat(this->rounds(), " rounds committed, ", rounds, " wanted"));
}

}  // namespace causeway::sim
