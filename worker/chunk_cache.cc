#include "worker/chunk_cache.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::worker {
namespace {

constexpr char kPartSuffix[] = ".part";
constexpr int64_t kHashBytes = 1 << 20;

}  // namespace

ChunkCache::Pins::~Pins() { cache_->Unpin(names_); }

absl::StatusOr<std::unique_ptr<ChunkCache>> ChunkCache::Open(const Options& options) {
  if (options.fs == nullptr || options.dir.empty() || options.limit_bytes <= 0 || options.max_open_files <= 0) {
    return absl::InvalidArgumentError("a chunk cache needs a file system, a folder and a limit");
  }
  std::unique_ptr<ChunkCache> cache(new ChunkCache(options));
  RETURN_IF_ERROR(cache->Load());
  return cache;
}

absl::Status ChunkCache::Load() {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(options_.fs->MakeDirs(options_.dir));
  ASSIGN_OR_RETURN(const std::vector<std::string> folders, options_.fs->List(options_.dir));
  for (const std::string& folder : folders) {
    if (folder.size() != 2 || !dataplane::FromHex(folder).ok()) continue;
    const std::string folder_path = JoinPath(options_.dir, folder);
    ASSIGN_OR_RETURN(const std::vector<std::string> files, options_.fs->List(folder_path));
    for (const std::string& file : files) {
      absl::string_view hex = file;
      const bool whole = !absl::ConsumeSuffix(&hex, kPartSuffix);
      absl::StatusOr<std::string> sha256 = dataplane::FromHex(hex);
      if (!sha256.ok() || sha256->size() != dataplane::kSha256Bytes) continue;
      // Elsewhere, or in upper case: it would not be found again.
      if (hex != dataplane::ToHex(*sha256) || hex.substr(0, 2) != folder) continue;
      if (auto it = entries_.find(*sha256);
          it != entries_.end()) {  // A crash between writing and renaming left nothing of worth.
        RETURN_IF_ERROR(options_.fs->Remove(JoinPath(folder_path, file)));
        continue;
      }
      ASSIGN_OR_RETURN(const int64_t size_bytes, options_.fs->FileSize(JoinPath(folder_path, file)));
      Entry* entry = AddLocked(*sha256);
      entry->present_bytes = size_bytes;
      entry->whole = whole;
      if (whole) entry->size_bytes = size_bytes;
      used_bytes_ += size_bytes;
    }
  }
  return MakeRoomLocked();
}

std::string ChunkCache::Path(const std::string& sha256, bool whole) const {
  const std::string hex = dataplane::ToHex(sha256);
  return absl::StrCat(options_.dir, "/", hex.substr(0, 2), "/", hex, whole ? "" : kPartSuffix);
}

void ChunkCache::TouchLocked(Entry* entry) { use_order_.splice(use_order_.end(), use_order_, entry->use); }

ChunkCache::Entry* ChunkCache::AddLocked(const std::string& sha256) {
  Entry& entry = entries_[sha256];
  entry.use = use_order_.insert(use_order_.end(), sha256);
  return &entry;
}

absl::Status ChunkCache::DropLocked(const std::string& sha256) {
  auto it = entries_.find(sha256);
  Entry& entry = it->second;
  if (entry.open != nullptr) open_order_.remove(sha256);
  entry.open.reset();
  const bool had_file = entry.whole || entry.present_bytes > 0;
  const std::string path = Path(sha256, entry.whole);
  used_bytes_ -= entry.charged_bytes();
  if (entry.pins > 0) {  // Its room stays taken.
    entry.whole = false;
    entry.verified = false;
    entry.present_bytes = 0;
    used_bytes_ += entry.charged_bytes();
  } else {
    use_order_.erase(entry.use);
    entries_.erase(it);
  }
  if (!had_file) return absl::OkStatus();
  const absl::Status removed = options_.fs->Remove(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::Status ChunkCache::MakeRoomLocked() {
  auto next = use_order_.begin();
  while (used_bytes_ > options_.limit_bytes && next != use_order_.end()) {
    const std::string sha256 = *next++;
    if (entries_.at(sha256).pins == 0) RETURN_IF_ERROR(DropLocked(sha256));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChunkCache::Pins>> ChunkCache::Pin(absl::Span<const ChunkRef> chunks) {
  MutexLock lock(&mu_);
  absl::flat_hash_map<std::string, int64_t> sizes;
  for (const ChunkRef& chunk : chunks) sizes.emplace(chunk.sha256, chunk.size_bytes);

  int64_t pinned_bytes = 0;
  for (const auto& [sha256, entry] : entries_) {
    if (entry.pins > 0) pinned_bytes += entry.size_bytes;
  }
  int64_t new_bytes = 0;
  for (const auto& [sha256, size_bytes] : sizes) {
    auto it = entries_.find(sha256);
    if (it == entries_.end() || it->second.pins == 0) new_bytes += size_bytes;
  }
  if (pinned_bytes + new_bytes > options_.limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the data needed on this worker (", new_bytes, " bytes, and ",
                                                     pinned_bytes, " in use) is more than its cache may hold (",
                                                     options_.limit_bytes, " bytes: cache.limit in worker.yaml)"));
  }

  std::vector<std::string> names;
  for (const auto& [sha256, size_bytes] : sizes) {
    auto it = entries_.find(sha256);
    Entry* entry = it == entries_.end() ? AddLocked(sha256) : &it->second;
    used_bytes_ -= entry->charged_bytes();
    entry->size_bytes = size_bytes;
    ++entry->pins;
    used_bytes_ += entry->charged_bytes();
    TouchLocked(entry);
    names.push_back(sha256);
  }
  RETURN_IF_ERROR(MakeRoomLocked());
  return std::unique_ptr<Pins>(new Pins(this, std::move(names)));
}

void ChunkCache::Unpin(const std::vector<std::string>& names) {
  MutexLock lock(&mu_);
  for (const std::string& sha256 : names) {
    Entry& entry = entries_.at(sha256);
    used_bytes_ -= entry.charged_bytes();
    --entry.pins;
    used_bytes_ += entry.charged_bytes();
    if (entry.pins == 0 && entry.present_bytes == 0 && !entry.whole) {
      use_order_.erase(entry.use);
      entries_.erase(sha256);
    }
  }
}

absl::StatusOr<ChunkCache::Check> ChunkCache::FindMissing(absl::Span<const ChunkRef> chunks) {
  Check check;
  for (const ChunkRef& chunk : chunks) {
    bool hash = false;
    {
      MutexLock lock(&mu_);
      auto it = entries_.find(chunk.sha256);
      if (it == entries_.end()) {
        check.missing.push_back({chunk, 0});
        continue;
      }
      Entry& entry = it->second;
      TouchLocked(&entry);
      if (!entry.whole) {
        if (entry.present_bytes > chunk.size_bytes) {  // Not a beginning of this chunk.
          RETURN_IF_ERROR(DropLocked(chunk.sha256));
          check.missing.push_back({chunk, 0});
        } else {
          check.missing.push_back({chunk, entry.present_bytes});
        }
        continue;
      }
      hash = !entry.verified;
    }
    if (!hash) continue;
    const absl::Status verified = Verify(chunk.sha256);
    if (verified.ok()) continue;
    if (!absl::IsDataLoss(verified) && !absl::IsNotFound(verified)) return verified;
    if (absl::IsDataLoss(verified)) ++check.corrupt_chunks;
    check.missing.push_back({chunk, 0});
  }
  return check;
}

absl::Status ChunkCache::Append(const std::string& sha256, int64_t offset, absl::Span<const uint8_t> data) {
  {
    MutexLock lock(&mu_);
    auto it = entries_.find(sha256);
    if (it == entries_.end() || it->second.pins == 0)
      return absl::FailedPreconditionError("an arriving chunk must be pinned");
    const Entry& entry = it->second;
    if (entry.whole || entry.present_bytes != offset) {
      return absl::FailedPreconditionError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " continues at ",
                                                        entry.whole ? entry.size_bytes : entry.present_bytes,
                                                        ", not at ", offset));
    }
    if (static_cast<int64_t>(data.size()) > entry.size_bytes - offset) {
      return absl::InvalidArgumentError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " has ", entry.size_bytes,
                                                     " bytes, not ", offset + static_cast<int64_t>(data.size())));
    }
  }
  const std::string path = Path(sha256, false);
  const auto write = [&]() -> absl::Status {
    if (offset == 0) RETURN_IF_ERROR(options_.fs->MakeDirs(path.substr(0, path.rfind('/'))));
    ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                     offset == 0 ? options_.fs->Create(path) : options_.fs->OpenForAppend(path));
    RETURN_IF_ERROR(file->Append(data));
    return file->Close();
  };
  absl::Status written = write();
  MutexLock lock(&mu_);
  if (!written.ok()) {
    // A full disk may have room later; a full cache has not.
    if (absl::IsResourceExhausted(written)) written = absl::UnavailableError(written.message());
    absl::Status dropped = DropLocked(sha256);
    return dropped.ok() ? written : Annotate(written, dropped.message());
  }
  entries_.at(sha256).present_bytes += static_cast<int64_t>(data.size());
  return absl::OkStatus();
}

absl::Status ChunkCache::Complete(const std::string& sha256) {
  {
    MutexLock lock(&mu_);
    auto it = entries_.find(sha256);
    if (it == entries_.end() || it->second.pins == 0 || it->second.present_bytes != it->second.size_bytes) {
      return absl::FailedPreconditionError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " is not all here"));
    }
    if (it->second.whole) return absl::OkStatus();
  }
  RETURN_IF_ERROR(Verify(sha256));
  RETURN_IF_ERROR(options_.fs->Rename(Path(sha256, false), Path(sha256, true)));
  MutexLock lock(&mu_);
  entries_.at(sha256).whole = true;
  return absl::OkStatus();
}

absl::Status ChunkCache::Verify(const std::string& sha256) {
  std::string path;
  {
    MutexLock lock(&mu_);
    auto it = entries_.find(sha256);
    if (it == entries_.end())
      return absl::NotFoundError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " is not in the cache"));
    path = Path(sha256, it->second.whole);
  }
  absl::Status read;
  dataplane::Sha256 digest;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = options_.fs->OpenForRead(path);
  if (file.ok()) {
    std::vector<uint8_t> buffer(kHashBytes);
    for (int64_t at = 0; read.ok() && at < (*file)->size_bytes(); at += kHashBytes) {
      absl::Span<uint8_t> piece(buffer.data(), std::min(kHashBytes, (*file)->size_bytes() - at));
      read = (*file)->Read(at, piece);
      if (read.ok()) digest.Update(piece);
    }
  } else {
    read = file.status();
  }
  // A file that cannot be read is as useless as one with other content: it is fetched again.
  if (read.ok()) {
    if (const std::string found = digest.Finish(); found != sha256) {
      read = absl::DataLossError(absl::StrCat("its content has the SHA-256 ", dataplane::ToHex(found)));
    }
  }
  MutexLock lock(&mu_);
  auto it = entries_.find(sha256);
  if (it == entries_.end())
    return absl::NotFoundError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " was evicted"));
  if (read.ok()) {
    it->second.verified = true;
    return absl::OkStatus();
  }
  log::Warning("chunk corrupt", {{"chunk", dataplane::ToHex(sha256)}, {"path", path}, {"error", read}});
  RETURN_IF_ERROR(DropLocked(sha256));
  return absl::DataLossError(
      absl::StrCat("chunk ", dataplane::ToHex(sha256), " in the cache is damaged; it was deleted"));
}

absl::Status ChunkCache::Read(const std::string& sha256, int64_t offset, absl::Span<uint8_t> out) {
  bool verified = false;
  {
    MutexLock lock(&mu_);
    auto it = entries_.find(sha256);
    if (it == entries_.end() || !it->second.whole) {
      return absl::NotFoundError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " is not in the cache"));
    }
    verified = it->second.verified;
  }
  if (!verified) RETURN_IF_ERROR(Verify(sha256));

  std::shared_ptr<RandomAccessFile> file;
  {
    MutexLock lock(&mu_);
    auto it = entries_.find(sha256);
    if (it == entries_.end() || !it->second.whole) {
      return absl::NotFoundError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " was evicted"));
    }
    Entry& entry = it->second;
    TouchLocked(&entry);
    if (entry.open == nullptr) {
      absl::StatusOr<std::unique_ptr<RandomAccessFile>> opened = options_.fs->OpenForRead(Path(sha256, true));
      if (!opened.ok()) return DropUnreadableLocked(sha256, opened.status());
      entry.open = *std::move(opened);
      open_order_.push_back(sha256);
      if (open_order_.size() > static_cast<size_t>(options_.max_open_files)) {
        entries_.at(open_order_.front()).open.reset();
        open_order_.pop_front();
      }
    }
    file = entry.open;
  }
  const absl::Status read = file->Read(offset, out);
  if (!absl::IsInternal(read)) return read;
  MutexLock lock(&mu_);
  return entries_.contains(sha256) ? DropUnreadableLocked(sha256, read) : read;
}

absl::Status ChunkCache::DropUnreadableLocked(const std::string& sha256, const absl::Status& why) {
  log::Warning("chunk corrupt", {{"chunk", dataplane::ToHex(sha256)}, {"error", why}});
  RETURN_IF_ERROR(DropLocked(sha256));
  return absl::DataLossError(
      absl::StrCat("chunk ", dataplane::ToHex(sha256), " cannot be read (", why.message(), "); it was deleted"));
}

void ChunkCache::Distrust() {
  MutexLock lock(&mu_);
  for (auto& [sha256, entry] : entries_) {
    entry.verified = false;
    entry.open.reset();
  }
  open_order_.clear();
}

int64_t ChunkCache::used_bytes() const {
  MutexLock lock(&mu_);
  return used_bytes_;
}

}  // namespace causeway::worker
