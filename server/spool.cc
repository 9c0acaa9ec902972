#include "server/spool.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::server {
namespace {

constexpr char kPartial[] = ".partial";
constexpr char kWhole[] = ".whole";
constexpr int64_t kBlockBytes = 1 << 20;

// Reads "f0" and the like.
template <typename Int>
bool ParseNumber(absl::string_view text, absl::string_view letter, Int* number) {
  return absl::ConsumePrefix(&text, letter) && absl::SimpleAtoi(text, number) && absl::StrCat(*number) == text;
}

// The entry that a file name stands for; none if no such name is ever given.
std::optional<Spool::Entry> ParseName(const std::string& job, absl::string_view name) {
  Spool::Entry entry;
  entry.key.job = job;
  entry.whole = absl::ConsumeSuffix(&name, kWhole);
  if (!entry.whole && !absl::ConsumeSuffix(&name, kPartial)) return std::nullopt;
  // Last comes the worker's name, which may have underscores.
  std::vector<absl::string_view> fields = absl::StrSplit(name, absl::MaxSplits('_', 5));
  if (fields.size() != 6 || !ParseNumber(fields[0], "f", &entry.key.fragment) ||
      !ParseNumber(fields[1], "r", &entry.key.round) || !ParseNumber(fields[2], "a", &entry.key.attempt) ||
      !ParseNumber(fields[3], "", &entry.total_bytes)) {
    return std::nullopt;
  }
  absl::StatusOr<std::string> sha256 = dataplane::FromHex(fields[4]);
  if (!sha256.ok() || sha256->size() != dataplane::kSha256Bytes || entry.total_bytes <= 0) return std::nullopt;
  if (dataplane::ToHex(*sha256) != fields[4]) return std::nullopt;  // In upper case: its file could not be found again.
  entry.sha256 = *std::move(sha256);
  entry.key.worker = std::string(fields[5]);
  if (!ValidateName("worker", entry.key.worker).ok()) return std::nullopt;
  return entry;
}

absl::Status RemoveIfThere(FileSystem* fs, const std::string& path) {
  absl::Status removed = fs->Remove(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace

absl::StatusOr<std::string> Sha256OfFile(const RandomAccessFile& file) {
  dataplane::Sha256 digest;
  std::vector<uint8_t> block(std::min(kBlockBytes, file.size_bytes()));
  for (int64_t offset = 0; offset < file.size_bytes();) {
    const auto piece = absl::MakeSpan(block).subspan(0, file.size_bytes() - offset);
    RETURN_IF_ERROR(file.Read(offset, piece));
    digest.Update(piece);
    offset += piece.size();
  }
  return digest.Finish();
}

Spool::Upload::Upload(FileSystem* fs, std::string stem, int64_t total_bytes, std::string sha256)
    : fs_(fs), stem_(std::move(stem)), total_bytes_(total_bytes), sha256_(std::move(sha256)) {}

absl::Status Spool::Upload::OpenFile() {
  MutexLock lock(&mu_);
  if (fs_->Exists(stem_ + kWhole)) {
    // Its name may not have been synced.
    ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs_->OpenForAppend(stem_ + kWhole));
    RETURN_IF_ERROR(file->Sync());
    whole_ = true;
    received_bytes_ = durable_bytes_ = total_bytes_;
    return absl::OkStatus();
  }
  const std::string path = stem_ + kPartial;
  ASSIGN_OR_RETURN(file_, fs_->OpenForAppend(path));
  ASSIGN_OR_RETURN(received_bytes_, fs_->FileSize(path));
  if (received_bytes_ > total_bytes_) {
    RETURN_IF_ERROR(fs_->Truncate(path, 0));
    received_bytes_ = 0;
  }
  // What a former process had written may not have been synced.
  RETURN_IF_ERROR(file_->Sync());
  durable_bytes_ = received_bytes_;
  return absl::OkStatus();
}

void Spool::Upload::TakeAway() {
  MutexLock lock(&mu_);
  if (status_.ok()) status_ = absl::AbortedError("the part was taken over by another upload, or its round is over");
  file_.reset();
}

int64_t Spool::Upload::durable_bytes() const {
  MutexLock lock(&mu_);
  return durable_bytes_;
}

int64_t Spool::Upload::received_bytes() const {
  MutexLock lock(&mu_);
  return received_bytes_;
}

absl::Status Spool::Upload::Append(int64_t offset, absl::Span<const uint8_t> data) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(status_);
  if (offset != received_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("a piece at byte ", offset, ", expected at ", received_bytes_));
  }
  if (static_cast<int64_t>(data.size()) > total_bytes_ - received_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a piece of ", data.size(), " bytes at ", offset, ", the part has ", total_bytes_, " in all"));
  }
  if (data.empty()) return absl::OkStatus();
  // After an error nobody knows what is in the file: only a new Open finds out.
  status_ = file_->Append(data);
  RETURN_IF_ERROR(status_);
  received_bytes_ += data.size();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Spool::Upload::Sync() {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(status_);
  if (durable_bytes_ < received_bytes_) {
    status_ = file_->Sync();
    RETURN_IF_ERROR(status_);
    durable_bytes_ = received_bytes_;
  }
  return durable_bytes_;
}

absl::StatusOr<std::string> Spool::Upload::Finish() {
  RETURN_IF_ERROR(Sync().status());
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(status_);
  if (whole_) return stem_ + kWhole;
  if (durable_bytes_ < total_bytes_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the part has ", durable_bytes_, " of its ", total_bytes_, " bytes"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, fs_->OpenForRead(stem_ + kPartial));
  ASSIGN_OR_RETURN(const std::string found, Sha256OfFile(*file));
  if (found != sha256_) {
    status_ = fs_->Truncate(stem_ + kPartial, 0);
    RETURN_IF_ERROR(status_);
    received_bytes_ = durable_bytes_ = 0;
    return absl::DataLossError(absl::StrCat("the part has the digest ", dataplane::ToHex(found), ", announced was ",
                                            dataplane::ToHex(sha256_)));
  }
  status_ = file_->Close();
  RETURN_IF_ERROR(status_);
  status_ = fs_->Rename(stem_ + kPartial, stem_ + kWhole);
  RETURN_IF_ERROR(status_);
  file_.reset();
  whole_ = true;
  return stem_ + kWhole;
}

absl::StatusOr<std::unique_ptr<Spool>> Spool::Create(const Options& options) {
  if (options.fs == nullptr || options.dir.empty() || options.max_bytes <= 0) {
    return absl::InvalidArgumentError("the spool needs a file system, a folder and a bound");
  }
  std::unique_ptr<Spool> spool(new Spool(options));
  RETURN_IF_ERROR(options.fs->MakeDirs(options.dir));
  RETURN_IF_ERROR(spool->Scan());
  return spool;
}

absl::Status Spool::Scan() {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(std::vector<std::string> jobs, options_.fs->List(options_.dir));
  for (const std::string& job : jobs) {
    const std::string folder = JoinPath(options_.dir, job);
    absl::StatusOr<std::vector<std::string>> names = options_.fs->List(folder);
    if (!ValidateName("job", job).ok() || !names.ok()) {
      log::Warning("spool_foreign_file", {{"path", folder}});
      continue;
    }
    for (const std::string& name : *names) {
      std::optional<Entry> entry = ParseName(job, name);
      // What no disk holds nobody was allowed to send.
      if (!entry.has_value() || entry->total_bytes > std::numeric_limits<int64_t>::max() - used_bytes_) {
        log::Warning("spool_foreign_file", {{"path", JoinPath(folder, name)}});
        continue;
      }
      // Open never leaves two parts of one key; whoever did, they cannot both be right.
      if (auto it = parts_.find(entry->key); it != parts_.end()) RETURN_IF_ERROR(RemoveLocked(it));
      used_bytes_ += entry->total_bytes;
      parts_[entry->key] = {entry->total_bytes, entry->sha256, {}};
    }
  }
  return absl::OkStatus();
}

std::string Spool::Stem(const SpoolKey& key, const Part& part) const {
  return absl::StrCat(options_.dir, "/", key.job, "/f", key.fragment, "_r", key.round, "_a", key.attempt, "_",
                      part.total_bytes, "_", dataplane::ToHex(part.sha256), "_", key.worker);
}

absl::StatusOr<std::shared_ptr<Spool::Upload>> Spool::Open(const SpoolKey& key, int64_t total_bytes,
                                                           const std::string& sha256) {
  RETURN_IF_ERROR(ValidateName("job", key.job));
  RETURN_IF_ERROR(ValidateName("worker", key.worker));
  if (key.fragment < 0 || key.round < -1 || key.attempt < 0 || total_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("a part of fragment ", key.fragment, ", round ", key.round,
                                                   ", attempt ", key.attempt, ", ", total_bytes, " bytes"));
  }
  if (sha256.size() != dataplane::kSha256Bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a digest of ", sha256.size(), " bytes, not 32"));
  }
  MutexLock lock(&mu_);
  auto it = parts_.find(key);
  const bool same = it != parts_.end() && it->second.total_bytes == total_bytes && it->second.sha256 == sha256;
  if (!same) {
    const int64_t freed_bytes = it == parts_.end() ? 0 : it->second.total_bytes;
    if (total_bytes > options_.max_bytes - (used_bytes_ - freed_bytes)) {
      return absl::ResourceExhaustedError(absl::StrCat("the spool holds ", used_bytes_ - freed_bytes, " of at most ",
                                                       options_.max_bytes, " bytes, ", total_bytes,
                                                       " more do not fit"));
    }
    if (it != parts_.end()) RETURN_IF_ERROR(RemoveLocked(it));
    RETURN_IF_ERROR(options_.fs->MakeDirs(JoinPath(options_.dir, key.job)));
    it = parts_.insert({key, {total_bytes, sha256, {}}}).first;
    used_bytes_ += total_bytes;
  } else if (std::shared_ptr<Upload> former = it->second.upload.lock(); former != nullptr) {
    former->TakeAway();
  }
  auto upload = std::make_shared<Upload>(options_.fs, Stem(key, it->second), total_bytes, sha256);
  RETURN_IF_ERROR(upload->OpenFile());
  it->second.upload = upload;
  return upload;
}

absl::Status Spool::RemoveLocked(std::map<SpoolKey, Part>::iterator it) {
  if (std::shared_ptr<Upload> upload = it->second.upload.lock(); upload != nullptr) upload->TakeAway();
  const std::string stem = Stem(it->first, it->second);
  RETURN_IF_ERROR(RemoveIfThere(options_.fs, stem + kPartial));
  RETURN_IF_ERROR(RemoveIfThere(options_.fs, stem + kWhole));
  used_bytes_ -= it->second.total_bytes;
  parts_.erase(it);
  return absl::OkStatus();
}

absl::Status Spool::Remove(const SpoolKey& key) {
  MutexLock lock(&mu_);
  auto it = parts_.find(key);
  return it == parts_.end() ? absl::OkStatus() : RemoveLocked(it);
}

absl::Status Spool::RemoveRound(const std::string& job, int fragment, int64_t round) {
  MutexLock lock(&mu_);
  auto it = parts_.lower_bound(SpoolKey{job, fragment, round, std::numeric_limits<int64_t>::min(), ""});
  while (it != parts_.end() && it->first.job == job && it->first.fragment == fragment && it->first.round == round) {
    RETURN_IF_ERROR(RemoveLocked(it++));
  }
  return absl::OkStatus();
}

absl::Status Spool::RemoveJob(const std::string& job) {
  MutexLock lock(&mu_);
  auto it = parts_.lower_bound(SpoolKey{job, std::numeric_limits<int>::min(), 0, 0, ""});
  while (it != parts_.end() && it->first.job == job) RETURN_IF_ERROR(RemoveLocked(it++));
  return absl::OkStatus();
}

std::vector<Spool::Entry> Spool::List() const {
  MutexLock lock(&mu_);
  std::vector<Entry> entries;
  for (const auto& [key, part] : parts_) {
    const std::string stem = Stem(key, part);
    const bool whole = options_.fs->Exists(stem + kWhole);
    entries.push_back({key, part.total_bytes, part.sha256, stem + (whole ? kWhole : kPartial), whole});
  }
  return entries;
}

int64_t Spool::used_bytes() const {
  MutexLock lock(&mu_);
  return used_bytes_;
}

}  // namespace causeway::server
