#include "server/parameter_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "dataplane/digest.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::server {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using dataplane::DataType;
using dataplane::Layout;
using dataplane::Sha256Of;
using dataplane::TensorKind;

// The integers come first in the file, but not in the packed model.
Layout TestLayout() {
  return *Layout::Create({{"a.weight", DataType::kFloat32, {3}, TensorKind::kParameter, 1},
                          {"a.count", DataType::kInt64, {}, TensorKind::kIntegerBuffer, 1},
                          {"none", DataType::kFloat32, {0, 4}, TensorKind::kParameter, 1},
                          {"b.weight", DataType::kFloat32, {2, 2}, TensorKind::kParameter, 2},
                          {"b.count", DataType::kInt64, {2}, TensorKind::kIntegerBuffer, 2}});
}

std::vector<uint8_t> Model(uint8_t first) {
  std::vector<uint8_t> packed(TestLayout().total_bytes());
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<uint8_t>(first + i);
  return packed;
}

class ParameterStoreTest : public ::testing::Test {
 protected:
  ParameterStoreTest() {
    absl::StatusOr<std::unique_ptr<ParameterStore>> store =
        ParameterStore::Create({RealFileSystem(), dir_.Join("jobs/j"), TestLayout()});
    EXPECT_OK(store);
    store_ = *std::move(store);
  }
  void Write(int64_t version) { ASSERT_OK(store_->WriteCheckpoint(Version(version), Model(version), {})); }
  void Publish(int64_t version) {
    auto packed = std::make_shared<const std::vector<uint8_t>>(Model(version));
    store_->Publish(Version(version), packed, Sha256Of(*packed));
  }
  std::vector<int64_t> Kept() {
    std::vector<int64_t> kept;
    absl::StatusOr<std::vector<Version>> versions = store_->List();
    EXPECT_OK(versions);
    for (Version version : *versions) kept.push_back(version.value());
    return kept;
  }

  TempDir dir_;
  std::unique_ptr<ParameterStore> store_;
};

TEST_F(ParameterStoreTest, WhatIsWrittenIsLoaded) {
  ASSERT_OK_AND_ASSIGN(ParameterStore::Checkpoint checkpoint,
                       store_->WriteCheckpoint(Version(12), Model(7), {{"causeway.job", "j"}}));
  EXPECT_THAT(checkpoint.path, EndsWith("/jobs/j/model-000012.safetensors"));
  EXPECT_EQ(checkpoint.path, store_->PathOf(Version(12)));
  EXPECT_EQ(checkpoint.sha256, Sha256Of(Model(7)));
  ASSERT_OK_AND_ASSIGN(PackedModel packed, store_->Load(Version(12)));
  EXPECT_EQ(*packed, Model(7));
  EXPECT_THAT(RealFileSystem()->List(dir_.Join("jobs/j")), IsOkAndHolds(ElementsAre("model-000012.safetensors")));

  ASSERT_OK_AND_ASSIGN(std::unique_ptr<RandomAccessFile> file, RealFileSystem()->OpenForRead(checkpoint.path));
  ASSERT_OK_AND_ASSIGN(dataplane::SafetensorsHeader header, dataplane::ReadSafetensorsHeader(*file));
  EXPECT_EQ(header.metadata["causeway.job"], "j");
  EXPECT_EQ(header.metadata["causeway.packed_sha256"], dataplane::ToHex(checkpoint.sha256));

  ASSERT_OK(store_->WriteCheckpoint(Version(12), Model(8), {})) << "a repeated commit overwrites";
  ASSERT_OK_AND_ASSIGN(packed, store_->Load(Version(12)));
  EXPECT_EQ(*packed, Model(8));
}

TEST_F(ParameterStoreTest, BadWritesLeaveNothing) {
  EXPECT_THAT(store_->WriteCheckpoint(Version(-1), Model(0), {}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(store_->WriteCheckpoint(Version(1), std::vector<uint8_t>(3), {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(RealFileSystem()->List(dir_.Join("jobs/j")), IsOkAndHolds(IsEmpty()));
}

TEST_F(ParameterStoreTest, DamageIsFound) {
  EXPECT_THAT(store_->Load(Version(1)), StatusIs(absl::StatusCode::kNotFound));
  Write(1);
  const std::string path = store_->PathOf(Version(1));
  const std::string good = *RealFileSystem()->ReadFile(path, 1 << 20);

  std::string bad = good;
  bad.back() ^= 1;
  std::ofstream(path) << bad;
  EXPECT_THAT(store_->Load(Version(1)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));

  std::ofstream(path) << good.substr(0, good.size() - 1);
  EXPECT_THAT(store_->Load(Version(1)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
  EXPECT_THAT(store_->OpenVersion(Version(1)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));

  std::ofstream(path, std::ios::trunc).close();
  EXPECT_THAT(store_->Load(Version(1)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));

  // A good file, but not with our digest, or of another layout.
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<WritableFile> file, RealFileSystem()->Create(path));
  ASSERT_OK(dataplane::WriteSafetensors(TestLayout(), Model(1), {}, file.get()));
  EXPECT_THAT(store_->Load(Version(1)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("digest")));
  for (const std::vector<dataplane::TensorSpec>& tensors :
       {std::vector<dataplane::TensorSpec>{{"a.weight", DataType::kFloat32, {3}, TensorKind::kParameter, 1}},
        [] {
          std::vector<dataplane::TensorSpec> more = TestLayout().tensors();
          more.push_back({"c", DataType::kFloat32, {1}, TensorKind::kParameter, 2});
          return more;
        }(),
        [] {
          std::vector<dataplane::TensorSpec> turned = TestLayout().tensors();
          turned[3].shape = {4};
          return turned;
        }()}) {
    const Layout other = *Layout::Create(tensors);
    const std::vector<uint8_t> packed(other.total_bytes());
    ASSERT_OK_AND_ASSIGN(file, RealFileSystem()->Create(path));
    ASSERT_OK(dataplane::WriteSafetensors(
        other, packed, {{"causeway.packed_sha256", dataplane::ToHex(Sha256Of(packed))}}, file.get()));
    EXPECT_THAT(store_->Load(Version(1)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layout")));
  }
  std::ofstream(path) << good;
  EXPECT_OK(store_->Load(Version(1)));
}

TEST_F(ParameterStoreTest, TheNewestIsWhatWasPublished) {
  EXPECT_EQ(store_->newest().version, Version(-1));
  EXPECT_EQ(store_->newest().packed, nullptr);
  Write(3);
  EXPECT_EQ(store_->newest().packed, nullptr) << "written is not committed";
  Publish(3);
  EXPECT_EQ(store_->newest().version, Version(3));
  EXPECT_EQ(*store_->newest().packed, Model(3));
  EXPECT_EQ(store_->newest().sha256, Sha256Of(Model(3)));
}

TEST_F(ParameterStoreTest, ReadersReadAnyRange) {
  Write(3);
  Publish(4);  // In memory only.
  for (int64_t version : {3, 4}) {
    SCOPED_TRACE(version);
    ASSERT_OK_AND_ASSIGN(std::shared_ptr<const ParameterStore::Reader> reader, store_->OpenVersion(Version(version)));
    EXPECT_EQ(reader->version(), Version(version));
    EXPECT_EQ(reader->sha256(), Sha256Of(Model(version)));
    const std::vector<uint8_t> model = Model(version);
    const int64_t total = model.size();
    for (int64_t begin = 0; begin <= total; ++begin) {
      for (int64_t end = begin; end <= total; ++end) {
        std::vector<uint8_t> out(end - begin);
        ASSERT_OK(reader->Read(begin, absl::MakeSpan(out)));
        ASSERT_TRUE(std::equal(out.begin(), out.end(), model.begin() + begin)) << begin << " " << end;
      }
    }
    std::vector<uint8_t> out(2);
    EXPECT_THAT(reader->Read(total - 1, absl::MakeSpan(out)), StatusIs(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(reader->Read(-1, absl::MakeSpan(out)), StatusIs(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(reader->Read(std::numeric_limits<int64_t>::max(), absl::MakeSpan(out)),
                StatusIs(absl::StatusCode::kOutOfRange));
  }
  EXPECT_THAT(store_->OpenVersion(Version(5)), StatusIs(absl::StatusCode::kNotFound, HasSubstr("version 5")));
}

TEST_F(ParameterStoreTest, PruneKeepsTheNewestOfEvery) {
  for (int64_t version = 0; version <= 10; ++version) Write(version);
  Publish(9);
  ASSERT_OK(store_->Prune(3, 2, {Version(2)}));
  EXPECT_THAT(Kept(), ElementsAre(2, 6, 9, 10));
  ASSERT_OK(store_->Prune(3, 2, {}));
  EXPECT_THAT(Kept(), ElementsAre(6, 9, 10));
  Publish(10);
  ASSERT_OK(store_->Prune(1, 1, {}));
  EXPECT_THAT(Kept(), ElementsAre(10));
}

TEST_F(ParameterStoreTest, AVersionThatIsReadStays) {
  for (int64_t version = 0; version <= 3; ++version) Write(version);
  Publish(3);
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const ParameterStore::Reader> one, store_->OpenVersion(Version(1)));
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const ParameterStore::Reader> two, store_->OpenVersion(Version(1)));
  EXPECT_THAT(store_->OpenVersion(Version(7)), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(store_->Prune(1, 1, {}));
  EXPECT_THAT(Kept(), ElementsAre(1, 3));
  one.reset();
  ASSERT_OK(store_->Prune(1, 1, {}));
  EXPECT_THAT(Kept(), ElementsAre(1, 3));
  std::vector<uint8_t> out(4);
  EXPECT_OK(two->Read(0, absl::MakeSpan(out)));
  two.reset();
  ASSERT_OK(store_->Prune(1, 1, {}));
  EXPECT_THAT(Kept(), ElementsAre(3));
}

TEST_F(ParameterStoreTest, AReaderOutlivesTheStore) {
  Write(1);
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const ParameterStore::Reader> reader, store_->OpenVersion(Version(1)));
  store_.reset();
  std::vector<uint8_t> out(4);
  EXPECT_OK(reader->Read(0, absl::MakeSpan(out)));
}

TEST_F(ParameterStoreTest, ForeignFilesAreLeftAlone) {
  Write(1);
  Publish(2);
  for (const char* name : {"model-2.safetensors", "model-000001.safetensors.tmp", "notes", "model--00001.safetensors",
                           "model-.safetensors"}) {
    std::ofstream(dir_.Join(absl::StrCat("jobs/j/", name))) << "x";
  }
  EXPECT_THAT(Kept(), ElementsAre(1));
  ASSERT_OK(store_->Prune(2, 1, {}));
  EXPECT_THAT(Kept(), IsEmpty());
  EXPECT_TRUE(RealFileSystem()->Exists(dir_.Join("jobs/j/model-2.safetensors")));
}

TEST_F(ParameterStoreTest, LongVersionsHaveLongNames) {
  Write(12'345'678);
  EXPECT_THAT(Kept(), ElementsAre(12'345'678));
}

TEST_F(ParameterStoreTest, ReadersCommitsAndPruning) {
  Write(0);
  Publish(0);
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([this] {
      for (int i = 0; i < 200; ++i) {
        const ParameterStore::Newest newest = store_->newest();
        auto reader = store_->OpenVersion(newest.version);
        if (absl::IsNotFound(reader.status())) continue;  // Pruned since.
        ASSERT_OK(reader);
        std::vector<uint8_t> out(newest.packed->size());
        ASSERT_OK((*reader)->Read(0, absl::MakeSpan(out)));
        ASSERT_EQ(out, *newest.packed);
      }
    });
  }
  for (int64_t version = 1; version <= 30; ++version) {
    Write(version);
    Publish(version);
    ASSERT_OK(store_->Prune(1, 1, {}));
  }
  for (std::thread& reader : readers) reader.join();
}

TEST_F(ParameterStoreTest, CreateChecksItsOptions) {
  EXPECT_THAT(ParameterStore::Create({nullptr, "x", TestLayout()}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParameterStore::Create({RealFileSystem(), "", TestLayout()}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParameterStore::Create({RealFileSystem(), dir_.Join("x"), Layout()}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::server
