#include "server/data_owner.h"

#include <zlib.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::server {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kInputBytes = 64 << 10;
constexpr int64_t kMaxDeflateRatio = 1032;  // No deflate stream expands more.
constexpr int64_t kLabelBytes = 1;

// The bytes of a file from its start; of a gzip file, what was compressed in it.
class ContentReader {
 public:
  static absl::StatusOr<std::unique_ptr<ContentReader>> Open(FileSystem* fs, const std::string& path) {
    ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, fs->OpenForRead(path));
    std::unique_ptr<ContentReader> reader(new ContentReader(std::move(file)));
    RETURN_IF_ERROR(reader->Refill());
    const std::vector<uint8_t>& input = reader->input_;
    if (input.size() >= 2 && input[0] == 0x1f && input[1] == 0x8b) {
      if (inflateInit2(&reader->stream_, 15 + 16) != Z_OK) return absl::ResourceExhaustedError("no memory for zlib");
      reader->gzip_ = true;
    }
    return reader;
  }
  ~ContentReader() {
    if (gzip_) inflateEnd(&stream_);
  }
  ContentReader(const ContentReader&) = delete;
  ContentReader& operator=(const ContentReader&) = delete;

  // The content is not larger than this.
  int64_t bound_bytes() const { return gzip_ ? file_->size_bytes() * kMaxDeflateRatio : file_->size_bytes(); }

  // Fills `out` from its start; returns how much of it, less than all only where the content ends.
  // Errors: DataLoss (corrupt or truncated gzip), those of reading.
  absl::StatusOr<int64_t> Read(absl::Span<uint8_t> out) {
    int64_t done = 0;
    while (done < static_cast<int64_t>(out.size())) {
      if (position_ == input_.size()) {
        RETURN_IF_ERROR(Refill());
        if (input_.empty()) break;
      }
      const absl::Span<const uint8_t> input = absl::MakeConstSpan(input_).subspan(position_);
      if (gzip_) {
        ASSIGN_OR_RETURN(int64_t got, Inflate(input, out.subspan(done)));
        done += got;
      } else {
        const size_t count = std::min(input.size(), out.size() - done);
        std::copy_n(input.begin(), count, out.begin() + done);
        position_ += count;
        done += count;
      }
    }
    if (done < static_cast<int64_t>(out.size()) && gzip_ && in_member_) {
      return absl::DataLossError(
          absl::StrCat("truncated gzip: it ends within the compressed data, after ", offset_, " bytes"));
    }
    return done;
  }

 private:
  explicit ContentReader(std::unique_ptr<RandomAccessFile> file) : file_(std::move(file)) {}

  absl::Status Refill() {
    input_.resize(std::min(kInputBytes, file_->size_bytes() - offset_));
    position_ = 0;
    RETURN_IF_ERROR(file_->Read(offset_, absl::MakeSpan(input_)));
    offset_ += input_.size();
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Inflate(absl::Span<const uint8_t> input, absl::Span<uint8_t> out) {
    const uInt room = static_cast<uInt>(std::min<size_t>(out.size(), 1 << 30));
    stream_.next_in = const_cast<Bytef*>(input.data());
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = out.data();
    stream_.avail_out = room;
    in_member_ = true;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    position_ = input_.size() - stream_.avail_in;
    if (result == Z_STREAM_END) {  // The file may hold another member.
      inflateReset(&stream_);
      in_member_ = false;
    } else if (result != Z_OK) {
      return absl::DataLossError(absl::StrCat("corrupt gzip: ", stream_.msg == nullptr ? zError(result) : stream_.msg,
                                              ", near byte ", offset_ - stream_.avail_in));
    }
    return room - stream_.avail_out;
  }

  const std::unique_ptr<RandomAccessFile> file_;
  std::vector<uint8_t> input_;  // Of the file, up to offset_; used up to position_.
  size_t position_ = 0;
  int64_t offset_ = 0;
  bool gzip_ = false;
  bool in_member_ = false;  // Between a gzip member's first byte and its last.
  z_stream stream_ = {};
};

// An idx file of unsigned bytes.
struct Idx {
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

absl::StatusOr<Idx> ReadIdxContent(ContentReader* content, size_t min_dimensions, size_t max_dimensions) {
  auto read_exactly = [&](absl::Span<uint8_t> out, absl::string_view what) -> absl::Status {
    ASSIGN_OR_RETURN(int64_t got, content->Read(out));
    if (got == static_cast<int64_t>(out.size())) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("truncated: it has ", got, " bytes of ", what, ", expected ", out.size()));
  };

  uint8_t magic[4];
  RETURN_IF_ERROR(read_exactly(magic, "the idx magic"));
  const size_t dimensions = magic[3];
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != 0x08 || dimensions < min_dimensions ||
      dimensions > max_dimensions) {
    const absl::string_view found(reinterpret_cast<const char*>(magic), sizeof(magic));
    return absl::InvalidArgumentError(absl::StrCat(
        "not the idx file wanted: it starts with ", absl::BytesToHexString(found), ", expected 000008",
        absl::Hex(min_dimensions, absl::kZeroPad2),
        min_dimensions == max_dimensions ? ""
                                         : absl::StrCat(" to 000008", absl::Hex(max_dimensions, absl::kZeroPad2))));
  }

  Idx idx;
  std::vector<uint8_t> header(4 * dimensions);
  RETURN_IF_ERROR(read_exactly(absl::MakeSpan(header), "the idx header"));
  int64_t total = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    const int64_t size =
        int64_t{header[4 * i]} << 24 | header[4 * i + 1] << 16 | header[4 * i + 2] << 8 | header[4 * i + 3];
    idx.shape.push_back(size);
    if (__builtin_mul_overflow(total, size, &total)) total = -1;
    if (total < 0) break;
  }
  const std::string shape = absl::StrCat("[", absl::StrJoin(idx.shape, ", "), "]");
  if (total == 0) return absl::InvalidArgumentError(absl::StrCat("empty: its header says ", shape));
  // Checked before anything is allocated.
  if (total < 0 || total > content->bound_bytes()) {
    return absl::DataLossError(absl::StrCat("truncated: its header says ", shape, ", but it holds at most ",
                                            content->bound_bytes(), " bytes"));
  }
  idx.bytes.resize(total);
  RETURN_IF_ERROR(read_exactly(absl::MakeSpan(idx.bytes), absl::StrCat("data for ", shape)));
  uint8_t more;
  ASSIGN_OR_RETURN(int64_t got, content->Read(absl::MakeSpan(&more, 1)));
  if (got != 0)
    return absl::DataLossError(absl::StrCat("too long: it goes on after the ", total, " bytes of data for ", shape));
  return idx;
}

absl::StatusOr<Idx> ReadIdx(FileSystem* fs, const std::string& root, const std::string& name, size_t min_dimensions,
                            size_t max_dimensions) {
  ASSIGN_OR_RETURN(std::string path, ResolveBelow(root, name));
  ASSIGN_OR_RETURN(std::unique_ptr<ContentReader> content, ContentReader::Open(fs, path), name);
  ASSIGN_OR_RETURN(Idx idx, ReadIdxContent(content.get(), min_dimensions, max_dimensions), name);
  return idx;
}

bool SameDataset(const v1::DatasetInfo& a, const v1::DatasetInfo& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

int64_t ChunkCount(const v1::DatasetInfo& info) { return (info.samples() - 1) / info.records_per_chunk() + 1; }

int64_t ChunkBytes(const v1::DatasetInfo& info, int64_t i) {
  return std::min(info.records_per_chunk(), info.samples() - i * info.records_per_chunk()) * info.record_bytes();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataOwner>> DataOwner::Create(const Options& options) {
  if (options.fs == nullptr || options.data_root.empty() || options.chunk_dir.empty()) {
    return absl::InvalidArgumentError("the data owner needs a file system, a data root and a folder for chunks");
  }
  RETURN_IF_ERROR(options.fs->MakeDirs(options.chunk_dir));
  return std::unique_ptr<DataOwner>(new DataOwner(options));
}

std::string DataOwner::PathOf(absl::string_view sha256) const {
  const std::string hex = dataplane::ToHex(sha256);
  return absl::StrCat(options_.chunk_dir, "/", hex.substr(0, 2), "/", hex);
}

absl::StatusOr<std::string> DataOwner::Store(absl::Span<const uint8_t> chunk) const {
  std::string sha256 = dataplane::Sha256Of(chunk);
  const std::string path = PathOf(sha256);
  // Compared whole, so that building again repairs what is damaged.
  absl::StatusOr<std::string> stored = options_.fs->ReadFile(path, chunk.size());
  if (stored.ok() && *stored == dataplane::AsText(chunk)) return sha256;
  RETURN_IF_ERROR(options_.fs->MakeDirs(path.substr(0, path.rfind('/'))));
  RETURN_IF_ERROR(options_.fs->WriteFileAtomically(path, dataplane::AsText(chunk)));
  return sha256;
}

absl::StatusOr<DataOwner::Dataset> DataOwner::ReadAndStore(const Source& source) const {
  ASSIGN_OR_RETURN(Idx images, ReadIdx(options_.fs, options_.data_root, source.images, 3, 4));
  ASSIGN_OR_RETURN(Idx labels, ReadIdx(options_.fs, options_.data_root, source.labels, 1, 1));
  const int64_t samples = images.shape[0];
  if (labels.shape[0] != samples) {
    return absl::InvalidArgumentError(absl::StrCat(source.labels, " has ", labels.shape[0], " labels, expected ",
                                                   samples, " as ", source.images, " has images"));
  }
  const int64_t pixels = static_cast<int64_t>(images.bytes.size()) / samples;
  if (pixels + kLabelBytes > kChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat(source.images, ": an image has ", pixels, " bytes, at most ",
                                                   kChunkBytes - kLabelBytes, " are allowed"));
  }

  Dataset dataset;
  dataset.max_label = *std::max_element(labels.bytes.begin(), labels.bytes.end());
  v1::DatasetInfo& info = dataset.info;
  info.set_samples(samples);
  info.set_record_bytes(pixels + kLabelBytes);
  info.set_records_per_chunk(kChunkBytes / info.record_bytes());
  info.set_label_bytes(kLabelBytes);
  if (images.shape.size() == 3) info.add_sample_shape(1);
  for (size_t i = 1; i < images.shape.size(); ++i) info.add_sample_shape(images.shape[i]);

  std::vector<int64_t> order(samples);
  std::iota(order.begin(), order.end(), 0);
  if (source.seed.has_value()) Random(*source.seed).Shuffle(absl::MakeSpan(order));

  std::string manifest;
  std::vector<uint8_t> chunk;
  chunk.reserve(kChunkBytes);
  for (int64_t i = 0; i < samples; ++i) {
    const auto image = images.bytes.begin() + order[i] * pixels;
    chunk.insert(chunk.end(), image, image + pixels);
    chunk.push_back(labels.bytes[order[i]]);
    if ((i + 1) % info.records_per_chunk() != 0 && i + 1 != samples) continue;
    ASSIGN_OR_RETURN(std::string name, Store(chunk));
    manifest += name;
    chunk.clear();
  }
  ASSIGN_OR_RETURN(*info.mutable_manifest_sha256(), Store(dataplane::AsBytes(manifest)));
  return dataset;
}

absl::StatusOr<std::vector<std::string>> DataOwner::CheckStored(const v1::DatasetInfo& info) const {
  if (info.samples() <= 0 || info.record_bytes() <= 0 || info.records_per_chunk() <= 0 ||
      info.records_per_chunk() > kChunkBytes / info.record_bytes() ||
      info.manifest_sha256().size() != dataplane::kSha256Bytes) {
    return absl::InvalidArgumentError("not a dataset that was ever built");
  }
  const int64_t count = ChunkCount(info);
  const std::string path = PathOf(info.manifest_sha256());
  ASSIGN_OR_RETURN(std::string manifest, options_.fs->ReadFile(path, count * dataplane::kSha256Bytes));
  if (static_cast<int64_t>(manifest.size()) != count * dataplane::kSha256Bytes ||
      dataplane::Sha256Of(manifest) != info.manifest_sha256()) {
    return absl::DataLossError(absl::StrCat("the manifest ", path, " is damaged"));
  }
  std::vector<std::string> chunks;
  for (int64_t i = 0; i < count; ++i) {
    chunks.push_back(manifest.substr(i * dataplane::kSha256Bytes, dataplane::kSha256Bytes));
    ASSIGN_OR_RETURN(int64_t size_bytes, options_.fs->FileSize(PathOf(chunks.back())));
    if (size_bytes != ChunkBytes(info, i)) {
      return absl::DataLossError(absl::StrCat("the chunk ", PathOf(chunks.back()), " has ", size_bytes,
                                              " bytes, expected ", ChunkBytes(info, i)));
    }
  }
  return chunks;
}

void DataOwner::Serve(const v1::DatasetInfo& info, const Source& source, std::vector<std::string> chunks) {
  MutexLock lock(&mu_);
  OpenDataset& dataset = datasets_[info.manifest_sha256()];
  if (++dataset.users > 1) return;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Chunk& chunk = chunks_[chunks[i]];
    chunk.size_bytes = ChunkBytes(info, i);
    ++chunk.users;
  }
  Chunk& manifest = chunks_[info.manifest_sha256()];
  manifest.size_bytes = static_cast<int64_t>(chunks.size()) * dataplane::kSha256Bytes;
  ++manifest.users;
  chunks.push_back(info.manifest_sha256());
  dataset.source = source;
  dataset.chunks = std::move(chunks);
}

absl::StatusOr<DataOwner::Dataset> DataOwner::Build(const Source& source) {
  ASSIGN_OR_RETURN(Dataset dataset, ReadAndStore(source));
  ASSIGN_OR_RETURN(std::vector<std::string> chunks, CheckStored(dataset.info));
  Serve(dataset.info, source, std::move(chunks));
  return dataset;
}

absl::Status DataOwner::Open(const v1::DatasetInfo& info, const Source& source) {
  absl::StatusOr<std::vector<std::string>> chunks = CheckStored(info);
  if (!chunks.ok()) {
    log::Warning("dataset_rebuilt", {{"images", source.images}, {"why", chunks.status()}});
    ASSIGN_OR_RETURN(Dataset dataset, ReadAndStore(source));
    if (!SameDataset(dataset.info, info)) {
      return absl::FailedPreconditionError(
          absl::StrCat(source.images, " and ", source.labels, " are no longer what the dataset was made from"));
    }
    chunks = CheckStored(info);
    RETURN_IF_ERROR(chunks.status());
  }
  Serve(info, source, *std::move(chunks));
  return absl::OkStatus();
}

void DataOwner::Close(const v1::DatasetInfo& info) {
  MutexLock lock(&mu_);
  auto it = datasets_.find(info.manifest_sha256());
  if (it == datasets_.end() || --it->second.users > 0) return;
  for (const std::string& name : it->second.chunks) {
    auto chunk = chunks_.find(name);
    if (--chunk->second.users == 0) chunks_.erase(chunk);
  }
  datasets_.erase(it);
}

absl::StatusOr<int64_t> DataOwner::Size(absl::string_view sha256) const {
  MutexLock lock(&mu_);
  auto it = chunks_.find(sha256);
  if (it == chunks_.end())
    return absl::NotFoundError(absl::StrCat("no chunk ", dataplane::ToHex(sha256), " is served"));
  return it->second.size_bytes;
}

absl::Status DataOwner::Read(absl::string_view sha256, int64_t offset, absl::Span<uint8_t> out) const {
  ASSIGN_OR_RETURN(const int64_t size_bytes, Size(sha256));
  if (offset < 0 || offset > size_bytes || static_cast<int64_t>(out.size()) > size_bytes - offset) {
    return absl::OutOfRangeError(absl::StrCat("chunk ", dataplane::ToHex(sha256), " has ", size_bytes, " bytes, ",
                                              out.size(), " from ", offset, " on were asked for"));
  }
  const std::string name(sha256);
  bool verified;
  {
    MutexLock lock(&mu_);
    auto it = chunks_.find(name);
    verified = it != chunks_.end() && it->second.verified;
  }
  if (!verified) RETURN_IF_ERROR(VerifyOrRebuild(name, size_bytes));
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, options_.fs->OpenForRead(PathOf(name)));
  return file->Read(offset, out);
}

bool DataOwner::IsIntact(const std::string& sha256, int64_t size_bytes) const {
  absl::StatusOr<std::string> content = options_.fs->ReadFile(PathOf(sha256), size_bytes);
  return content.ok() && static_cast<int64_t>(content->size()) == size_bytes && dataplane::Sha256Of(*content) == sha256;
}

absl::Status DataOwner::VerifyOrRebuild(const std::string& sha256, int64_t size_bytes) const {
  if (!IsIntact(sha256, size_bytes)) {
    MutexLock rebuilding(&rebuild_mu_);
    if (!IsIntact(sha256, size_bytes)) {  // Nobody has repaired it meanwhile.
      std::optional<Source> source;
      {
        MutexLock lock(&mu_);
        for (const auto& [manifest, dataset] : datasets_) {
          if (std::count(dataset.chunks.begin(), dataset.chunks.end(), sha256) > 0) source = dataset.source;
        }
      }
      if (!source.has_value()) {
        return absl::NotFoundError(absl::StrCat("no chunk ", dataplane::ToHex(sha256), " is served"));
      }
      const std::string path = PathOf(sha256);
      log::Warning("chunk_damaged", {{"path", path}, {"images", source->images}});
      absl::StatusOr<Dataset> rebuilt = ReadAndStore(*source);
      if (!IsIntact(sha256, size_bytes)) {
        return absl::DataLossError(absl::StrCat("chunk ", path, " is damaged and ", source->images,
                                                " does not give it any more",
                                                rebuilt.ok() ? "" : absl::StrCat(": ", rebuilt.status().message())));
      }
    }
  }
  MutexLock lock(&mu_);
  if (auto it = chunks_.find(sha256); it != chunks_.end()) it->second.verified = true;
  return absl::OkStatus();
}

DataOwner::Source TrainSource(const v1::JobSpec& spec) {
  return {.images = spec.data().train().images(),
          .labels = spec.data().train().labels(),
          .seed = MixSeed(spec.seed(), {"training set"})};
}
DataOwner::Source TestSource(const v1::JobSpec& spec) {
  return {.images = spec.data().test().images(), .labels = spec.data().test().labels(), .seed = std::nullopt};
}

bool HasTestSet(const v1::JobSpec& spec) { return !spec.data().test().images().empty(); }

}  // namespace causeway::server
