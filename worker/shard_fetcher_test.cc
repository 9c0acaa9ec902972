#include "worker/shard_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "dataplane/digest.h"
#include "tests/fakes/fake_coordinator.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::worker {
namespace {

constexpr int64_t kSamples = 100;
constexpr int64_t kRecordBytes = 5;
constexpr int64_t kManifestBytes = 10 * 32;

class ShardFetcherTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<uint8_t> records(kSamples * kRecordBytes);
    for (size_t i = 0; i < records.size(); ++i) records[i] = static_cast<uint8_t>(i * 7 + i / 256);
    info_ = coordinator_.AddDataset(records, {1, 2, 2}, 10);
    Reopen(1 << 20);
  }

  void Reopen(int64_t limit_bytes) {
    held_.clear();
    cache_.reset();
    auto cache = ChunkCache::Open({RealFileSystem(), dir_.path(), limit_bytes});
    ASSERT_THAT(cache, IsOk());
    cache_ = *std::move(cache);
  }

  absl::Status Fetch(int64_t begin, int64_t end) {
    ShardFetcher::Options options;
    options.cache = cache_.get();
    options.transfer.dialer = &dialer_;
    options.transfer.clock = RealClock();
    options.transfer.backoff.initial = absl::Milliseconds(1);
    options.transfer.max_attempts = 3;
    SampleRanges ranges;
    ranges.Add()->set_begin(begin);
    ranges[0].set_end(end);
    stats_ = {};
    progress_ = {};
    auto held = ShardFetcher(options).Fetch(
        "fashion", info_, ranges, &cancellation_, [&](const ShardFetcher::Progress& progress) { progress_ = progress; },
        &stats_);
    if (!held.ok()) return held.status();
    held_.push_back(*std::move(held));
    return absl::OkStatus();
  }

  std::string ChunkPath(int i) {
    const std::string hex = dataplane::ToHex(held_.front().index.chunk(i).sha256);
    return dir_.Join(hex.substr(0, 2) + "/" + hex);
  }

  TempDir dir_;
  FakeCoordinator coordinator_{RealClock()};
  FakeLinkDialer dialer_{&coordinator_, RealClock()};
  dataplane::Cancellation cancellation_;
  v1::DatasetInfo info_;
  std::unique_ptr<ChunkCache> cache_;
  std::vector<ShardFetcher::Held> held_;
  ShardFetcher::Stats stats_;
  ShardFetcher::Progress progress_;
};

TEST_F(ShardFetcherTest, FetchesOnlyWhatIsMissing) {
  ASSERT_THAT(Fetch(0, 20), IsOk());
  EXPECT_EQ(stats_.bytes_fetched, kManifestBytes + 100);
  EXPECT_EQ(progress_.bytes_done, 100);
  EXPECT_EQ(progress_.bytes_total, 100);
  ASSERT_THAT(Fetch(15, 31), IsOk());  // The chunk with 30 is new, and the one before it.
  EXPECT_EQ(stats_.bytes_fetched, 100);
  ASSERT_THAT(Fetch(0, 40), IsOk());
  EXPECT_EQ(stats_.bytes_fetched, 0);

  CachedSamples samples(cache_.get(), held_.back().index);
  std::vector<uint8_t> record(kRecordBytes);
  ASSERT_THAT(samples.ReadRecord(33, absl::MakeSpan(record)), IsOk());
  EXPECT_EQ(record[0], static_cast<uint8_t>(33 * kRecordBytes * 7 + 33 * kRecordBytes / 256));
}

TEST_F(ShardFetcherTest, AnotherProcessFetchesNothingAgain) {
  ASSERT_THAT(Fetch(0, kSamples), IsOk());
  Reopen(1 << 20);
  ASSERT_THAT(Fetch(0, kSamples), IsOk());
  EXPECT_EQ(stats_.bytes_fetched, 0);
  EXPECT_EQ(stats_.corrupt_chunks, 0);
}

TEST_F(ShardFetcherTest, GoesOnAfterABrokenLink) {
  dialer_.AddFault(std::nullopt);  // The manifest's.
  dialer_.AddFault(LinkFault{LinkDirection::kToDialer, 4, LinkFault::Kind::kCut});
  ASSERT_THAT(Fetch(0, kSamples), IsOk());
  EXPECT_EQ(stats_.bytes_fetched, kManifestBytes + kSamples * kRecordBytes);  // Not a byte twice.
  EXPECT_EQ(dialer_.dials(), 3);
}

TEST_F(ShardFetcherTest, FetchesDamagedChunksAgain) {
  ASSERT_THAT(Fetch(0, kSamples), IsOk());
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(ChunkPath(3), "garbage"), IsOk());
  ASSERT_THAT(RealFileSystem()->Remove(ChunkPath(4)), IsOk());
  Reopen(1 << 20);
  ASSERT_THAT(Fetch(0, kSamples), IsOk());
  EXPECT_EQ(stats_.bytes_fetched, 100);
  EXPECT_EQ(stats_.corrupt_chunks, 1);
}

TEST_F(ShardFetcherTest, GivesUpWhenTheCacheIsTooSmall) {
  Reopen(kManifestBytes + 150);
  EXPECT_THAT(Fetch(0, 30), IsOk());
  EXPECT_THAT(Fetch(0, 40), StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("cache.limit")));
  EXPECT_EQ(stats_.bytes_fetched, 0);
}

TEST_F(ShardFetcherTest, EndsWhenCancelled) {
  cancellation_.Cancel("the test says so");
  EXPECT_THAT(Fetch(0, 30), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(ShardFetcherTest, RefusesImpossibleDatasets) {
  info_.set_samples(kSamples + 10);  // The manifest is too short for it.
  EXPECT_FALSE(Fetch(0, 30).ok());
}

}  // namespace
}  // namespace causeway::worker
