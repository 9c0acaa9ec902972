// What a worker reads back of its own when it starts. Input: pieces, each a byte for what it is, then its content (an optimizer's file has its
// name's end before it). The worker starts whatever they hold, saves and finds again what it saves.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dataplane/digest.h"
#include "tests/fakes/fault_file.h"
#include "tests/fuzz/fuzz_log.h"
#include "tests/fuzz/fuzz_require.h"
#include "worker/dataset.h"
#include "worker/local_state.h"
#include "worker/sample_decoder.h"

namespace {

using namespace causeway;          // NOLINT
using namespace causeway::worker;  // NOLINT

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

bool IsName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

void CheckDataset(const v1::DatasetInfo& info, const SampleRanges& ranges) {
  const absl::StatusOr<ChunkRef> manifest = DatasetIndex::ManifestOf(info);
  if (!manifest.ok()) return;
  Require(manifest->size_bytes > 0 && manifest->size_bytes <= kMaxChunkBytes);
  const absl::StatusOr<SampleDecoder> decoder = SampleDecoder::Create(
      {.sample_shape = {info.sample_shape().begin(), info.sample_shape().end()}, .label_bytes = info.label_bytes()});
  if (decoder.ok()) Require(decoder->record_bytes() > 0);
  if (manifest->size_bytes > 1 << 16) return;
  const absl::StatusOr<DatasetIndex> index =
      DatasetIndex::Create(info, std::string(static_cast<size_t>(manifest->size_bytes), 'm'));
  Require(index.ok());
  const auto chunks = index->ChunksOf(ranges);
  if (!chunks.ok()) return;
  for (const ChunkRef& chunk : *chunks) Require(chunk.size_bytes > 0 && chunk.size_bytes <= kMaxChunkBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  KeepQuiet();
  FaultDisk disk;
  Require(disk.MakeDirs("/worker/jobs/job", 0755).ok());
  FuzzInput input(absl::string_view(reinterpret_cast<const char*>(data), size));
  while (!input.empty()) {
    const unsigned what = input.Byte() % 4;
    std::string path = absl::StrCat("/worker/", what == 0 ? "incarnation" : "jobs/job/datasets");
    std::string content(input.Piece());
    if (what >= 2) {
      if (!IsName(content)) continue;
      path = absl::StrCat("/worker/jobs/job/optimizer-", content);
      content = std::string(input.Piece());
      // The fuzzer cannot compute digests: one of the two kinds has it right.
      if (what == 3) {
        content =
            absl::StrCat("CWOPT001", std::string(24, '\1'), dataplane::Sha256Of(absl::string_view(content)), content);
      }
    }
    Require(disk.WriteFileAtomically(path, content, 0644).ok());
  }

  const JobId job("job");
  absl::StatusOr<std::unique_ptr<LocalState>> state = LocalState::Open(&disk, "/worker", kNow);
  Require(state.ok() && (*state)->incarnation().value() > 0);
  const Incarnation first = (*state)->incarnation();

  const absl::StatusOr<v1::ShardTask> datasets = (*state)->LoadDatasets(job);
  if (datasets.ok()) {
    CheckDataset(datasets->train(), datasets->train_ranges());
    CheckDataset(datasets->test(), datasets->test_ranges());
  }
  for (int64_t before : {int64_t{0}, int64_t{7}, std::numeric_limits<int64_t>::max()})
    Require((*state)->LoadOptimizer(job, before).ok());

  // A round later.
  LocalState::OptimizerState saved{.plan = 1, .round = 7, .version = 7, .bytes = std::vector<uint8_t>(4, 9)};
  Require((*state)->SaveOptimizer(job, saved).ok() && (*state)->HasOptimizer(job));
  v1::ShardTask shard;
  shard.mutable_train()->set_samples(3);
  Require((*state)->SaveDatasets(job, shard).ok());
  state = LocalState::Open(&disk, "/worker", kNow);
  Require(state.ok());
  if (first.value() < std::numeric_limits<int64_t>::max()) Require((*state)->incarnation() > first);
  const auto loaded = (*state)->LoadOptimizer(job, 8);
  Require(loaded.ok() && loaded->has_value() && (*loaded)->round == 7 && (*loaded)->bytes == saved.bytes);
  const absl::StatusOr<v1::ShardTask> again = (*state)->LoadDatasets(job);
  Require(again.ok() && again->train().samples() == 3);
  Require((*state)->KeepOnly(JobId("other")).ok() && !(*state)->HasOptimizer(job));
  return 0;
}
