#include "worker/local_state.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::worker {
namespace {

constexpr char kOptimizerMagic[] =
    "CWOPT001";  // 8 characters, then plan, round, version (i64), SHA-256 of the rest, the state.
constexpr int64_t kMagicBytes = 8;
constexpr int64_t kNumbersBytes = 3 * sizeof(int64_t);
constexpr int64_t kHeaderBytes = kMagicBytes + kNumbersBytes + dataplane::kSha256Bytes;
constexpr int64_t kMaxOptimizerBytes = int64_t{1} << 40;
constexpr int64_t kMaxDatasetsBytes = 1 << 20;
constexpr size_t kKeptOptimizers = 2;
constexpr char kOptimizerPrefix[] = "optimizer-";

}  // namespace

absl::StatusOr<std::unique_ptr<LocalState>> LocalState::Open(FileSystem* fs, const std::string& dir,
                                                             absl::Time wall_now) {
  RETURN_IF_ERROR(fs->MakeDirs(dir));
  const std::string path = JoinPath(dir, "incarnation");
  int64_t last = 0;
  bool lost = false;
  if (fs->Exists(path)) {
    const absl::StatusOr<std::string> text = fs->ReadFile(path, 64);
    if (!text.ok() && !absl::IsResourceExhausted(text.status())) return text.status();
    // Too long is damaged.
    lost = !text.ok() || !absl::SimpleAtoi(*text, &last) || last < 0 || last == std::numeric_limits<int64_t>::max();
  } else {
    lost = fs->Exists(JoinPath(dir, "cache")) || fs->Exists(JoinPath(dir, "jobs"));
  }
  if (lost) {
    // Above what any count of starts has come to, or the coordinator would take this process for an old one.
    last = absl::ToUnixSeconds(wall_now);
    log::Warning("incarnation lost", {{"path", path}, {"then", "goes on from the clock"}, {"incarnation", last + 1}});
  }
  RETURN_IF_ERROR(fs->WriteFileAtomically(path, absl::StrCat(last + 1, "\n")));
  return std::unique_ptr<LocalState>(new LocalState(fs, dir, Incarnation(last + 1)));
}

std::string LocalState::JobDir(const JobId& job) const { return absl::StrCat(dir_, "/jobs/", job.value()); }

std::string LocalState::OptimizerPath(const JobId& job, int64_t round) const {
  return absl::StrCat(JobDir(job), "/", kOptimizerPrefix, round);
}

std::vector<int64_t> LocalState::OptimizerRounds(const JobId& job) const {
  std::vector<int64_t> rounds;
  absl::StatusOr<std::vector<std::string>> names = fs_->List(JobDir(job));
  if (!names.ok()) return rounds;  // No such folder yet.
  for (const std::string& name : *names) {
    absl::string_view rest = name;
    int64_t round = 0;
    if (absl::ConsumePrefix(&rest, kOptimizerPrefix) && absl::SimpleAtoi(rest, &round) && round >= 0 &&
        absl::StrCat(round) == rest) {
      rounds.push_back(round);
    }
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds;
}

absl::Status LocalState::SaveOptimizer(const JobId& job, const OptimizerState& state) {
  std::string content(kHeaderBytes + state.bytes.size(), '\0');
  const int64_t numbers[] = {state.plan, state.round, state.version};
  std::memcpy(content.data(), kOptimizerMagic, kMagicBytes);
  std::memcpy(content.data() + kMagicBytes, numbers, kNumbersBytes);
  if (!state.bytes.empty()) std::memcpy(content.data() + kHeaderBytes, state.bytes.data(), state.bytes.size());
  const std::string digest = dataplane::Sha256Of(absl::string_view(content).substr(kHeaderBytes));
  std::memcpy(content.data() + kMagicBytes + kNumbersBytes, digest.data(), digest.size());

  RETURN_IF_ERROR(fs_->MakeDirs(JobDir(job)));
  RETURN_IF_ERROR(fs_->WriteFileAtomically(OptimizerPath(job, state.round), content));
  // Later rounds belong to models that the coordinator has gone back from.
  std::vector<int64_t> rounds = OptimizerRounds(job);
  for (; !rounds.empty() && rounds.back() > state.round; rounds.pop_back())
    RETURN_IF_ERROR(fs_->Remove(OptimizerPath(job, rounds.back())));
  for (size_t i = 0; i + kKeptOptimizers < rounds.size(); ++i)
    RETURN_IF_ERROR(fs_->Remove(OptimizerPath(job, rounds[i])));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<LocalState::OptimizerState>> LocalState::LoadOptimizer(const JobId& job,
                                                                                    int64_t before_round) const {
  const std::optional<int64_t> round = NewestOptimizer(job, before_round);
  if (!round.has_value()) return std::nullopt;
  const std::string path = OptimizerPath(job, *round);
  ASSIGN_OR_RETURN(const std::string content, fs_->ReadFile(path, kMaxOptimizerBytes));
  OptimizerState state;
  const absl::string_view view(content);
  if (static_cast<int64_t>(content.size()) < kHeaderBytes || view.substr(0, kMagicBytes) != kOptimizerMagic ||
      dataplane::Sha256Of(view.substr(kHeaderBytes)) !=
          view.substr(kMagicBytes + kNumbersBytes, dataplane::kSha256Bytes)) {
    log::Warning("optimizer state damaged", {{"path", path}, {"then", "the optimizer starts fresh"}});
    return std::nullopt;
  }
  int64_t numbers[3];
  std::memcpy(numbers, content.data() + kMagicBytes, kNumbersBytes);
  state.plan = numbers[0];
  state.round = numbers[1];
  state.version = numbers[2];
  state.bytes.assign(content.begin() + kHeaderBytes, content.end());
  return state;
}

std::optional<int64_t> LocalState::NewestOptimizer(const JobId& job, int64_t before_round) const {
  std::vector<int64_t> rounds = OptimizerRounds(job);
  while (!rounds.empty() && rounds.back() >= before_round) rounds.pop_back();
  return rounds.empty() ? std::nullopt : std::optional<int64_t>(rounds.back());
}

bool LocalState::HasOptimizer(const JobId& job) const { return !OptimizerRounds(job).empty(); }

absl::Status LocalState::SaveDatasets(const JobId& job, const v1::ShardTask& datasets) {
  v1::ShardTask stored;
  *stored.mutable_train() = datasets.train();
  *stored.mutable_test() = datasets.test();
  RETURN_IF_ERROR(fs_->MakeDirs(JobDir(job)));
  return fs_->WriteFileAtomically(JoinPath(JobDir(job), "datasets"), stored.SerializeAsString());
}

absl::StatusOr<v1::ShardTask> LocalState::LoadDatasets(const JobId& job) const {
  const std::string path = JoinPath(JobDir(job), "datasets");
  ASSIGN_OR_RETURN(const std::string content, fs_->ReadFile(path, kMaxDatasetsBytes));
  v1::ShardTask datasets;
  if (!datasets.ParseFromString(content)) return absl::DataLossError(absl::StrCat(path, " holds no datasets"));
  return datasets;
}

absl::Status LocalState::KeepOnly(const JobId& job) {
  const std::string jobs = JoinPath(dir_, "jobs");
  if (!fs_->Exists(jobs)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->List(jobs));
  for (const std::string& name : names) {
    if (name != job.value()) RETURN_IF_ERROR(fs_->RemoveTree(JoinPath(jobs, name)));
  }
  return absl::OkStatus();
}

}  // namespace causeway::worker
