#include "server/data_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "dataplane/digest.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string Idx(const std::vector<uint32_t>& shape, const std::string& data) {
  std::string file = BigEndian(0x0800 + shape.size());
  for (uint32_t size : shape) file += BigEndian(size);
  return file + data;
}

std::string Gzip(const std::string& data) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = data.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

constexpr int64_t kSamples = 3000;
constexpr int64_t kPixels = 30 * 31;

class DataOwnerTest : public ::testing::Test {
 protected:
  DataOwnerTest() : images_(RandomBytes(kSamples * kPixels)), labels_(kSamples, '\0') {
    std::filesystem::create_directories(dir_.Join("data/set"));
    for (int64_t i = 0; i < kSamples; ++i) labels_[i] = static_cast<char>(i % 10);
    Write("images", Idx({kSamples, 30, 31}, images_));
    Write("labels", Idx({kSamples}, labels_));
    Restart();
  }
  void Restart() {
    owner_.reset();
    absl::StatusOr<std::unique_ptr<DataOwner>> owner =
        DataOwner::Create({RealFileSystem(), dir_.Join("data"), dir_.Join("chunks")});
    EXPECT_OK(owner);
    owner_ = *std::move(owner);
  }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(dir_.Join("data/set/" + name), std::ios::binary | std::ios::trunc) << content;
  }
  std::string ChunkPath(const std::string& sha256) {
    const std::string hex = dataplane::ToHex(sha256);
    return dir_.Join(absl::StrCat("chunks/", hex.substr(0, 2), "/", hex));
  }
  // Overwrites the first byte of a chunk on disk.
  void Damage(const std::string& sha256) {
    std::fstream file(ChunkPath(sha256), std::ios::in | std::ios::out | std::ios::binary);
    const char byte = static_cast<char>(file.get());
    file.seekp(0);
    file.put(static_cast<char>(byte ^ 1));
  }
  std::string ReadChunk(const std::string& sha256) {
    absl::StatusOr<int64_t> size = owner_->Size(sha256);
    EXPECT_OK(size);
    std::string chunk(size.value_or(0), '\0');
    EXPECT_OK(owner_->Read(sha256, 0, absl::MakeSpan(reinterpret_cast<uint8_t*>(chunk.data()), chunk.size())));
    return chunk;
  }
  std::vector<std::string> Chunks(const v1::DatasetInfo& info) {
    const std::string manifest = ReadChunk(info.manifest_sha256());
    std::vector<std::string> names;
    for (size_t i = 0; i < manifest.size(); i += 32) names.push_back(manifest.substr(i, 32));
    return names;
  }
  std::vector<std::string> Records(const v1::DatasetInfo& info) {
    std::vector<std::string> records;
    for (const std::string& name : Chunks(info)) {
      const std::string chunk = ReadChunk(name);
      EXPECT_EQ(dataplane::Sha256Of(chunk), name);
      for (size_t i = 0; i < chunk.size(); i += info.record_bytes())
        records.push_back(chunk.substr(i, info.record_bytes()));
    }
    return records;
  }
  std::string Record(int64_t i) const { return images_.substr(i * kPixels, kPixels) + labels_[i]; }
  absl::Status BuildStatus() { return owner_->Build(kSource).status(); }

  const DataOwner::Source kSource{"set/images", "set/labels", 42};
  TempDir dir_;
  std::string images_;
  std::string labels_;
  std::unique_ptr<DataOwner> owner_;
};

TEST_F(DataOwnerTest, ChunksHoldEveryRecordOncePermuted) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build(kSource));
  EXPECT_EQ(dataset.max_label, 9);
  const v1::DatasetInfo& info = dataset.info;
  EXPECT_EQ(info.samples(), kSamples);
  EXPECT_EQ(info.record_bytes(), kPixels + 1);
  EXPECT_EQ(info.records_per_chunk(), (1 << 20) / (kPixels + 1));
  EXPECT_EQ(info.label_bytes(), 1);
  EXPECT_THAT(info.sample_shape(), ElementsAre(1, 30, 31));
  const std::vector<std::string> chunks = Chunks(info);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_THAT(owner_->Size(chunks[0]), IsOkAndHolds(1126 * 931));
  EXPECT_THAT(owner_->Size(chunks[2]), IsOkAndHolds((kSamples - 2 * 1126) * 931));

  std::vector<int64_t> order(kSamples);
  for (int64_t i = 0; i < kSamples; ++i) order[i] = i;
  Random(42).Shuffle(absl::MakeSpan(order));
  const std::vector<std::string> records = Records(info);
  ASSERT_EQ(static_cast<int64_t>(records.size()), kSamples);
  for (int64_t i = 0; i < kSamples; ++i) ASSERT_TRUE(records[i] == Record(order[i])) << i;
}

TEST_F(DataOwnerTest, WithoutASeedTheOrderStays) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build({"set/images", "set/labels", std::nullopt}));
  const std::vector<std::string> records = Records(dataset.info);
  ASSERT_EQ(static_cast<int64_t>(records.size()), kSamples);
  for (int64_t i = 0; i < kSamples; ++i) ASSERT_TRUE(records[i] == Record(i)) << i;
}

TEST_F(DataOwnerTest, TheNameDependsOnContentAndSeedOnly) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset plain, owner_->Build(kSource));
  Write("i.gz", Gzip(Idx({kSamples, 30, 31}, images_)));
  Write("l.gz", Gzip(Idx({kSamples}, labels_)));
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset gzip, owner_->Build({"set/i.gz", "set/l.gz", 42}));
  EXPECT_EQ(gzip.info.SerializeAsString(), plain.info.SerializeAsString());
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset other_seed, owner_->Build({"set/images", "set/labels", 43}));
  EXPECT_NE(other_seed.info.manifest_sha256(), plain.info.manifest_sha256());
}

TEST_F(DataOwnerTest, AGzipOfSeveralMembers) {
  const std::string file = Idx({kSamples, 30, 31}, images_);
  Write("images", Gzip(file.substr(0, 11)) + Gzip(file.substr(11)));
  EXPECT_OK(BuildStatus());
}

TEST_F(DataOwnerTest, ColourImages) {
  Write("images", Idx({kSamples, 3, 10, 31}, images_));
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build(kSource));
  EXPECT_THAT(dataset.info.sample_shape(), ElementsAre(3, 10, 31));
}

TEST_F(DataOwnerTest, ManyRecordsInOneChunkAndRecordsThatFillOne) {
  Write("images", Idx({4, 1, 1}, "abcd"));
  Write("labels", Idx({4}, "\1\2\3\xff"));
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset small, owner_->Build({"set/images", "set/labels", std::nullopt}));
  EXPECT_EQ(small.max_label, 255);
  EXPECT_THAT(Records(small.info), ElementsAre("a\1", "b\2", "c\3", "d\xff"));

  Write("images", Idx({2, 1, (1 << 20) - 1}, std::string(2 * ((1 << 20) - 1), 'x')));
  Write("labels", Idx({2}, "\1\1"));
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset equal, owner_->Build(kSource));
  EXPECT_EQ(equal.info.records_per_chunk(), 1);
  EXPECT_EQ(Records(equal.info).size(), 2u) << "two chunks of one name";
  owner_->Close(equal.info);
  EXPECT_THAT(owner_->Size(equal.info.manifest_sha256()), StatusIs(absl::StatusCode::kNotFound));

  Write("images", Idx({2, 1, 1 << 20}, std::string(2 << 20, 'x')));
  EXPECT_THAT(BuildStatus(),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("set/images"), HasSubstr("1048576 bytes"))));
}

TEST_F(DataOwnerTest, BadFilesAreNamed) {
  const std::string images = Idx({kSamples, 30, 31}, images_);
  const std::string labels = Idx({kSamples}, labels_);
  struct Case {
    const char* what;
    std::string images;
    std::string labels;
    absl::StatusCode code;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"empty file", "", labels, absl::StatusCode::kDataLoss, {"set/images", "0 bytes of the idx magic"}},
      {"not idx",
       "hello world",
       labels,
       absl::StatusCode::kInvalidArgument,
       {"set/images", "68656c6c", "00000803 to 00000804"}},
      {"floats",
       std::string("\0\0\x0d\3", 4) + images.substr(4),
       labels,
       absl::StatusCode::kInvalidArgument,
       {"00000d03"}},
      {"labels for images", labels, labels, absl::StatusCode::kInvalidArgument, {"set/images", "00000801"}},
      {"images for labels",
       images,
       images,
       absl::StatusCode::kInvalidArgument,
       {"set/labels", "00000803", "expected 00000801"}},
      {"header cut",
       images.substr(0, 9),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "5 bytes of the idx header, expected 12"}},
      {"truncated",
       images.substr(0, images.size() - 1),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "[3000, 30, 31]"}},
      {"too long",
       images + "x",
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "goes on after the 2790000 bytes"}},
      {"no images", Idx({0, 30, 31}, ""), labels, absl::StatusCode::kInvalidArgument, {"set/images", "empty"}},
      {"no pixels", Idx({kSamples, 0, 31}, ""), labels, absl::StatusCode::kInvalidArgument, {"set/images", "empty"}},
      {"overflow",
       Idx({0xffffffff, 0xffffffff, 0xffffffff}, images_),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images"}},
      {"sizes that lie",
       Idx({0xffffffff, 30, 31}, images_),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "4294967295"}},
      {"fewer labels",
       images,
       Idx({kSamples - 1}, labels_.substr(1)),
       absl::StatusCode::kInvalidArgument,
       {"set/labels", "2999 labels", "expected 3000"}},
      {"labels cut", images, labels.substr(0, 100), absl::StatusCode::kDataLoss, {"set/labels", "[3000]"}},
      {"gzip, cut",
       Gzip(images).substr(0, 1'000'000),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "truncated gzip"}},
      {"gzip, only its head",
       Gzip(images).substr(0, 5),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "truncated gzip"}},
      {"gzip, no checksum",
       images,
       Gzip(labels).substr(0, Gzip(labels).size() - 8),
       absl::StatusCode::kDataLoss,
       {"set/labels", "truncated gzip"}},
      {"gzip, garbage behind",
       Gzip(images) + "garbage",
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "corrupt gzip"}},
      {"gzip, content cut",
       Gzip(images.substr(0, images.size() - 7)),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "2789993 bytes of data"}},
      {"gzip, content too long",
       Gzip(images + "x"),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "goes on after"}},
      {"gzip, sizes that lie",
       Gzip(Idx({0xffffffff, 30, 31}, images_)),
       labels,
       absl::StatusCode::kDataLoss,
       {"set/images", "4294967295"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Write("images", c.images);
    Write("labels", c.labels);
    const absl::Status status = BuildStatus();
    EXPECT_THAT(status, StatusIs(c.code));
    for (const std::string& word : c.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST_F(DataOwnerTest, CorruptGzipIsFound) {
  const std::string good = Gzip(Idx({kSamples}, labels_));
  int refused = 0;
  for (size_t i = 10; i < good.size(); i += 3) {  // From behind the header, whose fields may be anything.
    std::string bad = good;
    bad[i] ^= 0x10;
    Write("labels", bad);
    const absl::Status status = BuildStatus();
    EXPECT_THAT(status, testing::Not(IsOk())) << i;
    EXPECT_THAT(std::string(status.message()), HasSubstr("set/labels"));
    ++refused;
  }
  EXPECT_GT(refused, 5);
}

TEST_F(DataOwnerTest, PathsStayBelowTheRoot) {
  std::ofstream(dir_.Join("secret")) << Idx({kSamples, 30, 31}, images_);
  std::filesystem::create_symlink(dir_.Join("secret"), dir_.Join("data/set/link"));
  EXPECT_THAT(owner_->Build({"../secret", "set/labels", 1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(owner_->Build({dir_.Join("secret"), "set/labels", 1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(owner_->Build({"set/link", "set/labels", 1}), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(owner_->Build({"set/none", "set/labels", 1}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("set/none")));
  EXPECT_THAT(owner_->Build({"set/images", "set", 1}), testing::Not(IsOk())) << "a folder";
}

TEST_F(DataOwnerTest, OnlyOpenDatasetsAreServed) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build(kSource));
  const std::string chunk = Chunks(dataset.info)[1];
  uint8_t byte;
  EXPECT_THAT(owner_->Size(dataplane::Sha256Of("another")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(owner_->Size("../../secret"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(owner_->Read("", 0, absl::MakeSpan(&byte, 1)), StatusIs(absl::StatusCode::kNotFound));

  ASSERT_OK(owner_->Open(dataset.info, kSource));
  owner_->Close(dataset.info);
  EXPECT_OK(owner_->Read(chunk, 0, absl::MakeSpan(&byte, 1))) << "still open once";
  owner_->Close(dataset.info);
  EXPECT_THAT(owner_->Read(chunk, 0, absl::MakeSpan(&byte, 1)), StatusIs(absl::StatusCode::kNotFound));
  owner_->Close(dataset.info);
  EXPECT_TRUE(std::filesystem::exists(ChunkPath(chunk)));
}

TEST_F(DataOwnerTest, ReadsAnyRange) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build(kSource));
  const std::string name = Chunks(dataset.info)[2];
  const std::string chunk = ReadChunk(name);
  std::vector<uint8_t> out(1000);
  ASSERT_OK(owner_->Read(name, 777, absl::MakeSpan(out)));
  EXPECT_EQ(dataplane::AsText(out), chunk.substr(777, 1000));
  EXPECT_OK(owner_->Read(name, chunk.size(), {}));
  EXPECT_THAT(owner_->Read(name, chunk.size() - 999, absl::MakeSpan(out)), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(owner_->Read(name, -1, absl::MakeSpan(out)), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(owner_->Read(name, std::numeric_limits<int64_t>::max(), absl::MakeSpan(out)),
              StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_F(DataOwnerTest, ARestartServesWhatIsStoredWithoutTheSource) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build(kSource));
  const std::vector<std::string> records = Records(dataset.info);
  std::filesystem::remove_all(dir_.Join("data/set"));
  Restart();
  ASSERT_OK(owner_->Open(dataset.info, kSource));
  EXPECT_EQ(Records(dataset.info), records);
}

TEST_F(DataOwnerTest, ARestartBuildsAgainWhatIsMissing) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build(kSource));
  const std::vector<std::string> records = Records(dataset.info);
  const std::vector<std::string> chunks = Chunks(dataset.info);
  std::filesystem::remove(ChunkPath(chunks[0]));
  std::filesystem::resize_file(ChunkPath(chunks[1]), 10);
  Restart();
  ASSERT_OK(owner_->Open(dataset.info, kSource));
  EXPECT_EQ(Records(dataset.info), records);

  std::filesystem::remove(ChunkPath(dataset.info.manifest_sha256()));
  Restart();
  ASSERT_OK(owner_->Open(dataset.info, kSource));
  Damage(dataset.info.manifest_sha256());
  Restart();
  ASSERT_OK(owner_->Open(dataset.info, kSource));
  EXPECT_EQ(Records(dataset.info), records);

  std::filesystem::remove_all(dir_.Join("chunks"));
  images_[5] ^= 1;
  Write("images", Idx({kSamples, 30, 31}, images_));
  Restart();
  EXPECT_THAT(owner_->Open(dataset.info, kSource),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("set/images")));
  v1::DatasetInfo nonsense;
  EXPECT_THAT(owner_->Open(nonsense, kSource), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(DataOwnerTest, DamagedChunksAreRepairedOrNotServed) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build(kSource));
  const std::vector<std::string> chunks = Chunks(dataset.info);
  Damage(chunks[0]);
  std::filesystem::remove(ChunkPath(chunks[1]));
  EXPECT_EQ(dataplane::Sha256Of(ReadChunk(chunks[0])), chunks[0]);
  EXPECT_EQ(dataplane::Sha256Of(ReadChunk(chunks[1])), chunks[1]);

  Damage(chunks[2]);
  Write("images", "gone");
  uint8_t byte;
  EXPECT_THAT(owner_->Read(chunks[2], 0, absl::MakeSpan(&byte, 1)),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("damaged"), HasSubstr("set/images"))));
  Write("images", Idx({kSamples, 30, 31}, images_));
  EXPECT_OK(owner_->Read(chunks[2], 0, absl::MakeSpan(&byte, 1))) << "once the source is back";
}

TEST_F(DataOwnerTest, ThreadsReadWhileAnotherBuilds) {
  ASSERT_OK_AND_ASSIGN(DataOwner::Dataset dataset, owner_->Build(kSource));
  const std::vector<std::string> chunks = Chunks(dataset.info);
  Damage(chunks[1]);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (const std::string& name : chunks) EXPECT_EQ(dataplane::Sha256Of(ReadChunk(name)), name);
    });
  }
  EXPECT_OK(owner_->Build({"set/images", "set/labels", 7}));
  for (std::thread& thread : threads) thread.join();
}

TEST_F(DataOwnerTest, CreateChecksItsOptions) {
  EXPECT_THAT(DataOwner::Create({nullptr, "a", "b"}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DataOwner::Create({RealFileSystem(), "", "b"}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DataOwner::Create({RealFileSystem(), "a", ""}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::server
