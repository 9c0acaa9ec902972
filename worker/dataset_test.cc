#include "worker/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "dataplane/digest.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::worker {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// 7 records of 2 bytes, 3 in a chunk: "00" "11" "22" | "33" "44" "55" | "66".
const char* const kChunks[] = {"001122", "334455", "66"};

v1::DatasetInfo Info(std::string* manifest) {
  manifest->clear();
  for (const char* chunk : kChunks) *manifest += dataplane::Sha256Of(absl::string_view(chunk));
  v1::DatasetInfo info;
  info.set_manifest_sha256(dataplane::Sha256Of(*manifest));
  info.set_samples(7);
  info.set_record_bytes(2);
  info.set_records_per_chunk(3);
  return info;
}

SampleRanges Ranges(std::vector<std::pair<int64_t, int64_t>> pairs) {
  SampleRanges ranges;
  for (const auto& [begin, end] : pairs) {
    v1::SampleRange* range = ranges.Add();
    range->set_begin(begin);
    range->set_end(end);
  }
  return ranges;
}

std::vector<int64_t> Sizes(const std::vector<ChunkRef>& chunks) {
  std::vector<int64_t> sizes;
  for (const ChunkRef& chunk : chunks) sizes.push_back(chunk.size_bytes);
  return sizes;
}

TEST(DatasetIndexTest, NamesTheChunksOfRanges) {
  std::string manifest;
  const v1::DatasetInfo info = Info(&manifest);
  auto ref = DatasetIndex::ManifestOf(info);
  ASSERT_THAT(ref, IsOk());
  EXPECT_EQ(ref->size_bytes, 96);
  auto index = DatasetIndex::Create(info, manifest);
  ASSERT_THAT(index, IsOk());
  EXPECT_EQ(index->chunk(1).sha256, dataplane::Sha256Of(absl::string_view("334455")));

  EXPECT_THAT(Sizes(*index->ChunksOf(Ranges({}))), testing::IsEmpty());
  EXPECT_THAT(Sizes(*index->ChunksOf(Ranges({{3, 3}}))), testing::IsEmpty());
  EXPECT_THAT(Sizes(*index->ChunksOf(Ranges({{0, 3}}))), testing::ElementsAre(6));
  EXPECT_THAT(Sizes(*index->ChunksOf(Ranges({{2, 4}}))), testing::ElementsAre(6, 6));
  EXPECT_THAT(Sizes(*index->ChunksOf(Ranges({{6, 7}, {0, 1}, {1, 2}}))), testing::ElementsAre(6, 2));
  EXPECT_THAT(index->ChunksOf(Ranges({{0, 8}})), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[0, 8)")));
  EXPECT_THAT(index->ChunksOf(Ranges({{3, 2}})), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(index->ChunksOf(Ranges({{-1, 2}})), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DatasetIndexTest, RefusesTheImpossible) {
  std::string manifest;
  const v1::DatasetInfo good = Info(&manifest);
  EXPECT_THAT(DatasetIndex::Create(good, manifest + "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("97 bytes, not 96")));
  for (const auto& spoil : std::vector<std::function<void(v1::DatasetInfo*)>>{
           [](v1::DatasetInfo* i) { i->set_samples(0); }, [](v1::DatasetInfo* i) { i->set_samples(int64_t{1} << 62); },
           [](v1::DatasetInfo* i) { i->set_record_bytes(0); }, [](v1::DatasetInfo* i) { i->set_record_bytes(-2); },
           [](v1::DatasetInfo* i) { i->set_records_per_chunk(0); },
           [](v1::DatasetInfo* i) { i->set_records_per_chunk(int64_t{1} << 61); },
           [](v1::DatasetInfo* i) { i->set_manifest_sha256("short"); }}) {
    v1::DatasetInfo bad = good;
    spoil(&bad);
    EXPECT_THAT(DatasetIndex::ManifestOf(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad.ShortDebugString();
  }
}

TEST(CachedSamplesTest, ReadsRecordsOutOfTheirChunks) {
  TempDir dir;
  auto cache = ChunkCache::Open({RealFileSystem(), dir.path(), 1000});
  ASSERT_THAT(cache, IsOk());
  std::string manifest;
  const v1::DatasetInfo info = Info(&manifest);
  auto index = DatasetIndex::Create(info, manifest);
  ASSERT_THAT(index, IsOk());
  for (int i : {0, 2}) {
    auto pins = (*cache)->Pin({index->chunk(i)});
    ASSERT_THAT(pins, IsOk());
    ASSERT_THAT((*cache)->Append(index->chunk(i).sha256, 0, dataplane::AsBytes(kChunks[i])), IsOk());
    ASSERT_THAT((*cache)->Complete(index->chunk(i).sha256), IsOk());
  }
  CachedSamples samples(cache->get(), *index);
  for (int64_t sample : {0, 2, 6}) {
    std::vector<uint8_t> record(2);
    ASSERT_THAT(samples.ReadRecord(sample, absl::MakeSpan(record)), IsOk());
    EXPECT_EQ(record[0], '0' + sample);
    EXPECT_EQ(record[1], '0' + sample);
  }
  std::vector<uint8_t> record(2);
  EXPECT_THAT(samples.ReadRecord(4, absl::MakeSpan(record)), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(samples.ReadRecord(7, absl::MakeSpan(record)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(samples.ReadRecord(0, absl::MakeSpan(record).subspan(1)), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::worker
