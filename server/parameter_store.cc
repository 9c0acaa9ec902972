#include "server/parameter_store.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::server {
namespace {

constexpr char kDigestKey[] = "causeway.packed_sha256";
constexpr char kPrefix[] = "model-";
constexpr char kSuffix[] = ".safetensors";

std::string FileName(Version version) { return absl::StrFormat("%s%06d%s", kPrefix, version.value(), kSuffix); }

// The version that a file name stands for; none if it is no such name.
std::optional<Version> ParseName(absl::string_view name) {
  absl::string_view digits = name;
  int64_t number;
  if (!absl::ConsumePrefix(&digits, kPrefix) || !absl::ConsumeSuffix(&digits, kSuffix) ||
      !absl::SimpleAtoi(digits, &number) || number < 0 || FileName(Version(number)) != name) {
    return std::nullopt;
  }
  return Version(number);
}

// A checkpoint on disk whose header was read and fits the layout.
struct OpenCheckpoint {
  std::unique_ptr<RandomAccessFile> file;
  std::string sha256;
  std::vector<int64_t> file_offsets;  // Of the layout's tensors.
};

absl::StatusOr<OpenCheckpoint> OpenCheckpointFile(FileSystem* fs, const std::string& path,
                                                  const dataplane::Layout& layout) {
  OpenCheckpoint checkpoint;
  ASSIGN_OR_RETURN(checkpoint.file, fs->OpenForRead(path));
  absl::StatusOr<dataplane::SafetensorsHeader> header = dataplane::ReadSafetensorsHeader(*checkpoint.file);
  if (absl::IsInvalidArgument(header.status())) {
    return absl::DataLossError(absl::StrCat(path, ": ", header.status().message()));
  }
  RETURN_IF_ERROR(header.status(), path);

  const auto digest = header->metadata.find(kDigestKey);
  absl::StatusOr<std::string> sha256 = dataplane::FromHex(digest == header->metadata.end() ? "" : digest->second);
  if (!sha256.ok() || sha256->size() != dataplane::kSha256Bytes) {
    return absl::DataLossError(absl::StrCat(path, ": no digest in the metadata (", kDigestKey, ")"));
  }
  checkpoint.sha256 = *std::move(sha256);

  std::map<std::string, const dataplane::SafetensorsTensor*> by_name;
  for (const dataplane::SafetensorsTensor& tensor : header->tensors) by_name[tensor.name] = &tensor;
  for (const dataplane::TensorSpec& spec : layout.tensors()) {
    const auto it = by_name.find(spec.name);
    if (it == by_name.end() || it->second->dtype != spec.dtype || it->second->shape != spec.shape) {
      return absl::DataLossError(absl::StrCat(path, ": tensor ", spec.name, " is missing or not of the job's layout"));
    }
    checkpoint.file_offsets.push_back(it->second->begin);
  }
  if (by_name.size() != layout.tensors().size()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", by_name.size(), " tensors, the job's layout has ", layout.tensors().size()));
  }
  return checkpoint;
}

absl::Status CheckWithin(Version version, int64_t offset, size_t size, int64_t total_bytes) {
  if (offset >= 0 && offset <= total_bytes && static_cast<int64_t>(size) <= total_bytes - offset)
    return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("version ", version.value(), " has ", total_bytes, " bytes, ", size,
                                            " from ", offset, " on were asked for"));
}

}  // namespace

class ParameterStore::MemoryReader : public Reader {
 public:
  explicit MemoryReader(Newest newest) : newest_(std::move(newest)) {}
  Version version() const override { return newest_.version; }
  const std::string& sha256() const override { return newest_.sha256; }
  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    RETURN_IF_ERROR(CheckWithin(newest_.version, offset, out.size(), newest_.packed->size()));
    std::copy_n(newest_.packed->begin() + offset, out.size(), out.begin());
    return absl::OkStatus();
  }

 private:
  const Newest newest_;
};

class ParameterStore::FileReader : public Reader {
 public:
  // Takes over one pin, already counted.
  FileReader(Version version, std::shared_ptr<Pins> pins, dataplane::Layout layout, OpenCheckpoint checkpoint)
      : version_(version), pins_(std::move(pins)), layout_(std::move(layout)), checkpoint_(std::move(checkpoint)) {}
  ~FileReader() override { Unpin(pins_.get(), version_); }

  Version version() const override { return version_; }
  const std::string& sha256() const override { return checkpoint_.sha256; }

  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    RETURN_IF_ERROR(CheckWithin(version_, offset, out.size(), layout_.total_bytes()));
    // The file has the tensors in another order than the packed model.
    for (size_t i = FirstTensorAt(offset); !out.empty(); ++i) {
      const int64_t skipped = offset - layout_.byte_offset(i);
      const auto piece = out.subspan(0, layout_.tensors()[i].size_bytes() - skipped);
      RETURN_IF_ERROR(checkpoint_.file->Read(checkpoint_.file_offsets[i] + skipped, piece));
      offset += piece.size();
      out.remove_prefix(piece.size());
    }
    return absl::OkStatus();
  }

 private:
  // The last tensor that starts at `offset` or before.
  size_t FirstTensorAt(int64_t offset) const {
    size_t begin = 0;
    size_t end = layout_.tensors().size();
    while (end - begin > 1) {
      const size_t middle = begin + (end - begin) / 2;
      (layout_.byte_offset(middle) <= offset ? begin : end) = middle;
    }
    return begin;
  }

  const Version version_;
  const std::shared_ptr<Pins> pins_;
  const dataplane::Layout layout_;
  const OpenCheckpoint checkpoint_;
};

void ParameterStore::Unpin(Pins* pins, Version version) {
  MutexLock lock(&pins->mu);
  auto it = pins->counts.find(version);
  if (--it->second == 0) pins->counts.erase(it);
}

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(const Options& options) {
  if (options.fs == nullptr || options.dir.empty() || options.layout.tensors().empty()) {
    return absl::InvalidArgumentError("the parameter store needs a file system, a folder and a layout");
  }
  RETURN_IF_ERROR(options.fs->MakeDirs(options.dir));
  return std::unique_ptr<ParameterStore>(new ParameterStore(options));
}

std::string ParameterStore::PathOf(Version version) const { return JoinPath(options_.dir, FileName(version)); }

absl::StatusOr<ParameterStore::Checkpoint> ParameterStore::WriteCheckpoint(Version version,
                                                                           absl::Span<const uint8_t> packed,
                                                                           dataplane::SafetensorsMetadata metadata) {
  if (version.value() < 0) return absl::InvalidArgumentError(absl::StrCat("version ", version.value()));
  Checkpoint checkpoint{PathOf(version), dataplane::Sha256Of(packed)};
  metadata[kDigestKey] = dataplane::ToHex(checkpoint.sha256);
  const std::string aside = checkpoint.path + ".tmp";
  absl::Cleanup remove_aside = [&] { (void)options_.fs->Remove(aside); };
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, options_.fs->Create(aside));
  RETURN_IF_ERROR(dataplane::WriteSafetensors(options_.layout, packed, metadata, file.get()), aside);
  RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(file->Close());
  RETURN_IF_ERROR(options_.fs->Rename(aside, checkpoint.path));
  std::move(remove_aside).Cancel();
  return checkpoint;
}

absl::StatusOr<PackedModel> ParameterStore::Load(Version version) const {
  const std::string path = PathOf(version);
  ASSIGN_OR_RETURN(OpenCheckpoint checkpoint, OpenCheckpointFile(options_.fs, path, options_.layout));
  auto packed = std::make_shared<std::vector<uint8_t>>(options_.layout.total_bytes());
  RETURN_IF_ERROR(dataplane::ReadSafetensorsInto(*checkpoint.file, options_.layout, absl::MakeSpan(*packed)), path);
  if (std::string found = dataplane::Sha256Of(*packed); found != checkpoint.sha256) {
    return absl::DataLossError(absl::StrCat(path, ": the tensors have the digest ", dataplane::ToHex(found),
                                            ", the metadata says ", dataplane::ToHex(checkpoint.sha256)));
  }
  return packed;
}

void ParameterStore::Publish(Version version, PackedModel packed, const std::string& sha256) {
  CAUSEWAY_CHECK(packed != nullptr && static_cast<int64_t>(packed->size()) == options_.layout.total_bytes());
  MutexLock lock(&mu_);
  newest_ = {version, std::move(packed), sha256};
}

ParameterStore::Newest ParameterStore::newest() const {
  MutexLock lock(&mu_);
  return newest_;
}

absl::StatusOr<std::shared_ptr<const ParameterStore::Reader>> ParameterStore::OpenVersion(Version version) {
  if (Newest now = newest(); now.packed != nullptr && now.version == version) {
    return std::make_shared<MemoryReader>(std::move(now));
  }
  {
    MutexLock lock(&pins_->mu);
    ++pins_->counts[version];
  }
  absl::StatusOr<OpenCheckpoint> checkpoint = OpenCheckpointFile(options_.fs, PathOf(version), options_.layout);
  if (!checkpoint.ok()) {
    Unpin(pins_.get(), version);
    if (!absl::IsNotFound(checkpoint.status())) return checkpoint.status();
    return absl::NotFoundError(absl::StrCat("version ", version.value(), " is not kept"));
  }
  return std::make_shared<FileReader>(version, pins_, options_.layout, *std::move(checkpoint));
}

absl::StatusOr<std::vector<Version>> ParameterStore::List() const {
  ASSIGN_OR_RETURN(std::vector<std::string> names, options_.fs->List(options_.dir));
  std::vector<Version> versions;
  for (const std::string& name : names) {
    if (std::optional<Version> version = ParseName(name); version.has_value()) versions.push_back(*version);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

absl::Status ParameterStore::Prune(int64_t every_rounds, int64_t keep, const std::set<Version>& protect) {
  CAUSEWAY_CHECK(every_rounds >= 1 && keep >= 1);
  const Version published = newest().version;
  ASSIGN_OR_RETURN(std::vector<Version> versions, List());
  for (auto it = versions.rbegin(); it != versions.rend(); ++it) {
    const bool periodic = it->value() % every_rounds == 0 && keep > 0;
    if (periodic) --keep;
    // A version above the published one is written and soon to be journaled.
    if (periodic || *it >= published || protect.count(*it) > 0) continue;
    // Held while removing, so that no reader opens it meanwhile.
    MutexLock lock(&pins_->mu);
    if (pins_->counts.count(*it) > 0) continue;
    RETURN_IF_ERROR(options_.fs->Remove(PathOf(*it)));
  }
  return absl::OkStatus();
}

}  // namespace causeway::server
