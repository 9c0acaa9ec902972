#include "worker/dataset.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::worker {
namespace {

int64_t NumChunks(const v1::DatasetInfo& info) {
  return info.samples() / info.records_per_chunk() + (info.samples() % info.records_per_chunk() != 0 ? 1 : 0);
}

}  // namespace

absl::StatusOr<ChunkRef> DatasetIndex::ManifestOf(const v1::DatasetInfo& info) {
  if (info.samples() <= 0 || info.record_bytes() <= 0 || info.records_per_chunk() <= 0 ||
      info.record_bytes() > kMaxChunkBytes || info.records_per_chunk() > kMaxChunkBytes / info.record_bytes() ||
      info.samples() > int64_t{1} << 48) {
    return absl::InvalidArgumentError(absl::StrCat("impossible dataset: ", info.samples(), " records of ",
                                                   info.record_bytes(), " bytes, ", info.records_per_chunk(),
                                                   " in a chunk; a chunk has at most ", kMaxChunkBytes, " bytes"));
  }
  if (info.manifest_sha256().size() != dataplane::kSha256Bytes)
    return absl::InvalidArgumentError("the dataset's manifest has no SHA-256");
  const int64_t size_bytes = NumChunks(info) * dataplane::kSha256Bytes;
  if (size_bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the dataset's manifest would have ", size_bytes, " bytes; at most ", kMaxChunkBytes));
  }
  return ChunkRef{info.manifest_sha256(), size_bytes};
}

absl::StatusOr<DatasetIndex> DatasetIndex::Create(const v1::DatasetInfo& info, std::string manifest) {
  ASSIGN_OR_RETURN(const ChunkRef ref, ManifestOf(info));
  if (static_cast<int64_t>(manifest.size()) != ref.size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the dataset's manifest has ", manifest.size(), " bytes, not ", ref.size_bytes));
  }
  return DatasetIndex(info, std::move(manifest));
}

ChunkRef DatasetIndex::chunk(int64_t i) const {
  const int64_t records = std::min(info_.records_per_chunk(), info_.samples() - i * info_.records_per_chunk());
  return {manifest_.substr(i * dataplane::kSha256Bytes, dataplane::kSha256Bytes), records * info_.record_bytes()};
}

absl::StatusOr<std::vector<ChunkRef>> DatasetIndex::ChunksOf(const SampleRanges& ranges) const {
  std::set<int64_t> numbers;
  for (const v1::SampleRange& range : ranges) {
    if (range.begin() < 0 || range.end() < range.begin() || range.end() > info_.samples()) {
      return absl::InvalidArgumentError(absl::StrCat("samples [", range.begin(), ", ", range.end(),
                                                     ") are not within the dataset's ", info_.samples()));
    }
    if (range.begin() == range.end()) continue;
    for (int64_t i = range.begin() / info_.records_per_chunk(); i <= (range.end() - 1) / info_.records_per_chunk(); ++i)
      numbers.insert(i);
  }
  std::vector<ChunkRef> chunks;
  std::set<std::string> names;  // Chunks with equal content are one.
  for (int64_t i : numbers) {
    ChunkRef ref = chunk(i);
    if (names.insert(ref.sha256).second) chunks.push_back(std::move(ref));
  }
  return chunks;
}

absl::Status CachedSamples::ReadRecord(int64_t sample, absl::Span<uint8_t> out) {
  const v1::DatasetInfo& info = index_.info();
  if (sample < 0 || sample >= info.samples()) {
    return absl::InvalidArgumentError(absl::StrCat("sample ", sample, " is not within the dataset's ", info.samples()));
  }
  if (static_cast<int64_t>(out.size()) != info.record_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("a record has ", info.record_bytes(), " bytes, not ", out.size()));
  }
  const int64_t offset = sample % info.records_per_chunk() * info.record_bytes();
  return cache_->Read(index_.chunk(sample / info.records_per_chunk()).sha256, offset, out);
}

}  // namespace causeway::worker
