#include "worker/chunk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "dataplane/digest.h"
#include "tests/fakes/fault_file.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::worker {
namespace {

using dataplane::AsBytes;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class ChunkCacheTest : public testing::Test {
 protected:
  void SetUp() override { Reopen(100); }

  void Reopen(int64_t limit_bytes) {
    pins_.clear();
    cache_.reset();
    auto cache = ChunkCache::Open({RealFileSystem(), dir_.Join("cache"), limit_bytes, /*max_open_files=*/3});
    ASSERT_THAT(cache, IsOk());
    cache_ = *std::move(cache);
  }

  static ChunkRef Ref(const std::string& content) {
    return {dataplane::Sha256Of(content), static_cast<int64_t>(content.size())};
  }

  std::string Path(const std::string& content) const {
    const std::string hex = dataplane::ToHex(dataplane::Sha256Of(content));
    return dir_.Join("cache/" + hex.substr(0, 2) + "/" + hex);
  }

  // Pins until the next Reopen.
  void Pin(const std::string& content) {
    auto pins = cache_->Pin({Ref(content)});
    ASSERT_THAT(pins, IsOk());
    pins_.push_back(*std::move(pins));
  }

  void Add(const std::string& content) {
    auto pins = cache_->Pin({Ref(content)});
    ASSERT_THAT(pins, IsOk());
    ASSERT_THAT(cache_->Append(Ref(content).sha256, 0, AsBytes(content)), IsOk());
    ASSERT_THAT(cache_->Complete(Ref(content).sha256), IsOk());
  }

  std::string Read(const std::string& content) {
    std::string out(content.size(), '?');
    const absl::Status status =
        cache_->Read(Ref(content).sha256, 0, absl::MakeSpan(reinterpret_cast<uint8_t*>(out.data()), out.size()));
    return status.ok() ? out : std::string(absl::StatusCodeToString(status.code()));
  }

  bool Has(const std::string& content) {
    auto check = cache_->FindMissing({Ref(content)});
    return check.ok() && check->missing.empty();
  }

  TempDir dir_;
  std::unique_ptr<ChunkCache> cache_;
  std::vector<std::unique_ptr<ChunkCache::Pins>> pins_;
};

TEST_F(ChunkCacheTest, GivesBackWhatWasAdded) {
  Add("some records");
  EXPECT_EQ(Read("some records"), "some records");
  std::string part(3, '?');
  EXPECT_THAT(cache_->Read(Ref("some records").sha256, 5, absl::MakeSpan(reinterpret_cast<uint8_t*>(part.data()), 3)),
              IsOk());
  EXPECT_EQ(part, "rec");
  EXPECT_THAT(cache_->Read(Ref("some records").sha256, 10, absl::MakeSpan(reinterpret_cast<uint8_t*>(part.data()), 3)),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(Read("others"), "NOT_FOUND");
}

TEST_F(ChunkCacheTest, KeepsWholeAndPartialChunksOverARestart) {
  Add("whole");
  Pin("partial");
  ASSERT_THAT(cache_->Append(Ref("partial").sha256, 0, AsBytes("par")), IsOk());
  Reopen(100);
  EXPECT_EQ(cache_->used_bytes(), 8);
  auto check = cache_->FindMissing({Ref("whole"), Ref("partial"), Ref("none")});
  ASSERT_THAT(check, IsOk());
  ASSERT_THAT(check->missing, SizeIs(2));
  EXPECT_EQ(check->missing[0].offset, 3);
  EXPECT_EQ(check->missing[1].offset, 0);

  Pin("partial");
  EXPECT_THAT(cache_->Append(Ref("partial").sha256, 0, AsBytes("par")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("at 3")));
  EXPECT_THAT(cache_->Append(Ref("partial").sha256, 3, AsBytes("tial and more")),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(cache_->Complete(Ref("partial").sha256), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT(cache_->Append(Ref("partial").sha256, 3, AsBytes("tial")), IsOk());
  EXPECT_EQ(Read("partial"), "NOT_FOUND");  // Not checked yet.
  EXPECT_THAT(cache_->Complete(Ref("partial").sha256), IsOk());
  EXPECT_EQ(Read("partial"), "partial");
}

TEST_F(ChunkCacheTest, RefusesAChunkThatArrivedDamaged) {
  Pin("content");
  ASSERT_THAT(cache_->Append(Ref("content").sha256, 0, AsBytes("cOntent")), IsOk());
  EXPECT_THAT(cache_->Complete(Ref("content").sha256), StatusIs(absl::StatusCode::kDataLoss));
  auto check = cache_->FindMissing({Ref("content")});
  ASSERT_THAT(check, IsOk());
  ASSERT_THAT(check->missing, SizeIs(1));
  EXPECT_EQ(check->missing[0].offset, 0);
}

TEST_F(ChunkCacheTest, FindsDamageAtTheFirstReadOfAProcess) {
  Add("good one");
  Add("bad one");
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(Path("bad one"), "bad 0ne"), IsOk());
  Reopen(100);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Read("bad one"), "DATA_LOSS");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("chunk_corrupt"));
  EXPECT_THAT(log, HasSubstr(dataplane::ToHex(dataplane::Sha256Of("bad 0ne"))));
  EXPECT_FALSE(RealFileSystem()->Exists(Path("bad one")));

  ASSERT_THAT(RealFileSystem()->Truncate(Path("good one"), 3), IsOk());
  Reopen(100);
  auto check = cache_->FindMissing({Ref("good one"), Ref("bad one")});
  ASSERT_THAT(check, IsOk());
  EXPECT_EQ(check->corrupt_chunks, 1);
  EXPECT_THAT(check->missing, SizeIs(2));
  EXPECT_EQ(cache_->used_bytes(), 0);
}

TEST_F(ChunkCacheTest, HashesAgainWhatItIsToldToDistrust) {
  Add("content");
  ASSERT_EQ(Read("content"), "content");
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(Path("content"), "c0ntent"), IsOk());
  EXPECT_EQ(Read("content"), "content");  // Believed, and still open.
  cache_->Distrust();
  EXPECT_EQ(Read("content"), "DATA_LOSS");
}

TEST_F(ChunkCacheTest, EvictsTheLeastRecentlyUsed) {
  const std::string a(40, 'a'), b(40, 'b'), c(40, 'c');
  Add(a);
  Add(b);
  ASSERT_EQ(Read(a), a);
  Add(c);
  EXPECT_TRUE(Has(a));
  EXPECT_FALSE(Has(b));
  EXPECT_TRUE(Has(c));
  EXPECT_LE(cache_->used_bytes(), 100);
  EXPECT_FALSE(RealFileSystem()->Exists(Path(b)));
}

TEST_F(ChunkCacheTest, NeverEvictsWhatIsPinned) {
  const std::string a(40, 'a'), b(40, 'b'), c(40, 'c');
  Add(a);
  Pin(a);
  Add(b);
  Add(c);
  EXPECT_TRUE(Has(a));
  EXPECT_FALSE(Has(b));
  pins_.clear();
  Add(b);
  Add(c);
  EXPECT_FALSE(Has(a));
}

TEST_F(ChunkCacheTest, RefusesMoreThanItsLimit) {
  const std::string a(40, 'a'), b(60, 'b'), c(1, 'c');
  Pin(a);
  Pin(b);
  EXPECT_THAT(cache_->Pin({Ref(c), Ref(a)}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       testing::AllOf(HasSubstr("1 bytes, and 100 in use"), HasSubstr("cache.limit"))));
  EXPECT_THAT(cache_->Pin({Ref(a), Ref(b), Ref(a)}), IsOk());
  EXPECT_EQ(cache_->used_bytes(), 100);
  pins_.clear();
  EXPECT_EQ(cache_->used_bytes(), 0);
}

TEST_F(ChunkCacheTest, ASmallerLimitEvictsAtOnce) {
  Add(std::string(40, 'a'));
  Add(std::string(40, 'b'));
  Reopen(50);
  EXPECT_EQ(cache_->used_bytes(), 40);
}

TEST_F(ChunkCacheTest, ReadsFromMoreChunksThanItKeepsOpen) {
  for (int i = 0; i < 6; ++i) Add("chunk " + std::to_string(i));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 6; ++i) ASSERT_EQ(Read("chunk " + std::to_string(i)), "chunk " + std::to_string(i));
  }
}

TEST(ChunkCacheOnABadDisk, AFullDiskMayHaveRoomLaterAndWhatCannotBeReadIsFetchedAgain) {
  FaultDisk disk;
  FaultDisk::Fate fate = FaultDisk::Fate::kDone;
  FaultDisk::Call call = FaultDisk::Call::kWrite;
  disk.decide = [&](FaultDisk::Call c, const std::string&) { return c == call ? fate : FaultDisk::Fate::kDone; };
  auto cache = ChunkCache::Open({&disk, "/cache", 100});
  ASSERT_THAT(cache, IsOk());
  const std::string content = "content";
  const ChunkRef ref{dataplane::Sha256Of(content), static_cast<int64_t>(content.size())};
  auto pins = (*cache)->Pin({ref});
  ASSERT_THAT(pins, IsOk());

  fate = FaultDisk::Fate::kFull;
  EXPECT_THAT((*cache)->Append(ref.sha256, 0, AsBytes(content)), StatusIs(absl::StatusCode::kUnavailable));
  fate = FaultDisk::Fate::kDone;
  ASSERT_THAT((*cache)->Append(ref.sha256, 0, AsBytes(content)), IsOk());
  ASSERT_THAT((*cache)->Complete(ref.sha256), IsOk());

  call = FaultDisk::Call::kRead;
  fate = FaultDisk::Fate::kIoError;
  std::vector<uint8_t> out(content.size());
  EXPECT_THAT((*cache)->Read(ref.sha256, 0, absl::MakeSpan(out)), StatusIs(absl::StatusCode::kDataLoss));
  fate = FaultDisk::Fate::kDone;
  auto check = (*cache)->FindMissing({ref});
  ASSERT_THAT(check, IsOk());
  EXPECT_THAT(check->missing, SizeIs(1));
}

}  // namespace
}  // namespace causeway::worker
