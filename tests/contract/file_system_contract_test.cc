// What every FileSystem must do, on the real one and on the one that fails; and how that one fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "base/file.h"
#include "tests/fakes/fault_file.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway {
namespace {

using ::testing::ElementsAre;
using ::testing::TestWithParam;

absl::Span<const uint8_t> Bytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class FileSystemTest : public TestWithParam<bool> {
 protected:
  FileSystemTest() {
    if (GetParam()) {
      EXPECT_OK(fake_.MakeDirs(dir_.path(), 0755));
    }
  }
  FileSystem* fs() { return GetParam() ? static_cast<FileSystem*>(&fake_) : RealFileSystem(); }
  std::string Join(absl::string_view name) const { return dir_.Join(name); }
  void Write(const std::string& path, absl::string_view text) {
    absl::StatusOr<std::unique_ptr<WritableFile>> file = fs()->OpenForAppend(path);
    ASSERT_OK(file);
    EXPECT_OK((*file)->Append(Bytes(text)));
    EXPECT_OK((*file)->Sync());
    EXPECT_OK((*file)->Close());
  }

  TempDir dir_;
  FaultDisk fake_;
};

TEST_P(FileSystemTest, AppendsReadsAndTruncates) {
  Write(Join("a"), "one");
  Write(Join("a"), "two");
  EXPECT_EQ(*fs()->ReadFile(Join("a"), 100), "onetwo");
  EXPECT_THAT(fs()->ReadFile(Join("a"), 5), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(*fs()->FileSize(Join("a")), 6);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RandomAccessFile> file, fs()->OpenForRead(Join("a")));
  std::string out(3, '?');
  const auto span = absl::MakeSpan(reinterpret_cast<uint8_t*>(out.data()), out.size());
  EXPECT_OK(file->Read(2, span));
  EXPECT_EQ(out, "etw");
  EXPECT_THAT(file->Read(4, span), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_OK(fs()->Truncate(Join("a"), 2));
  EXPECT_EQ(*fs()->ReadFile(Join("a"), 100), "on");
  ASSERT_OK(fs()->Create(Join("a")));
  EXPECT_EQ(*fs()->FileSize(Join("a")), 0);
}

TEST_P(FileSystemTest, NamesAndFolders) {
  EXPECT_OK(fs()->MakeDirs(Join("x/y")));
  EXPECT_OK(fs()->MakeDirs(Join("x/y"))) << "again";
  Write(Join("x/b"), "b");
  EXPECT_FALSE(fs()->MakeDirs(Join("x/b")).ok()) << "a file is there";
  EXPECT_OK(fs()->WriteFileAtomically(Join("x/a"), "first"));
  EXPECT_OK(fs()->WriteFileAtomically(Join("x/a"), "second"));
  EXPECT_EQ(*fs()->ReadFile(Join("x/a"), 100), "second");
  EXPECT_THAT(*fs()->List(Join("x")), ElementsAre("a", "b", "y"));
  EXPECT_OK(fs()->Rename(Join("x/a"), Join("x/b")));
  EXPECT_EQ(*fs()->ReadFile(Join("x/b"), 100), "second");
  EXPECT_FALSE(fs()->Exists(Join("x/a")));
  EXPECT_OK(fs()->Remove(Join("x/b")));
  EXPECT_OK(fs()->RemoveTree(Join("x")));
  EXPECT_FALSE(fs()->Exists(Join("x")));
}

TEST_P(FileSystemTest, WhatIsMissing) {
  const auto missing = StatusIs(absl::StatusCode::kNotFound);
  EXPECT_THAT(fs()->OpenForRead(Join("a")), missing);
  EXPECT_THAT(fs()->ReadFile(Join("a"), 1), missing);
  EXPECT_THAT(fs()->OpenForAppend(Join("no/a")), missing);
  EXPECT_THAT(fs()->Remove(Join("a")), missing);
  EXPECT_THAT(fs()->Rename(Join("a"), Join("b")), missing);
  EXPECT_THAT(fs()->List(Join("no")), missing);
  EXPECT_THAT(fs()->FileSize(Join("a")), missing);
  EXPECT_OK(fs()->RemoveTree(Join("a")));
}

INSTANTIATE_TEST_SUITE_P(RealAndFake, FileSystemTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "FaultDisk" : "Real"; });

// ---- Power

class FaultDiskTest : public testing::Test {
 protected:
  std::unique_ptr<WritableFile> Append(const std::string& path, absl::string_view text) {
    absl::StatusOr<std::unique_ptr<WritableFile>> file = disk_.OpenForAppend(path);
    EXPECT_OK(file);
    EXPECT_OK((*file)->Append(Bytes(text)));
    return *std::move(file);
  }
  void Cycle(FaultDisk::Loss loss) {
    disk_.PowerOff();
    disk_.PowerOn(loss, &random_);
  }
  // The n-th call of this kind, from 1, has this fate.
  void Fail(FaultDisk::Call call, int n, FaultDisk::Fate fate) {
    disk_.decide = [call, n, fate, seen = 0](FaultDisk::Call c, const std::string&) mutable {
      return c == call && ++seen == n ? fate : FaultDisk::Fate::kDone;
    };
  }
  FaultDisk disk_;
  Random random_{1};
};

TEST_F(FaultDiskTest, WhatWasNotSyncedIsLost) {
  const auto file = Append("/a", "synced");
  EXPECT_EQ(disk_.DurableSize("/a"), -1);
  EXPECT_OK(file->Sync());
  EXPECT_EQ(disk_.DurableSize("/a"), 6);
  EXPECT_OK(file->Append(Bytes(" not")));
  Append("/b", "never synced");
  EXPECT_EQ(*disk_.Durable()->ReadFile("/a", 100), "synced");
  Cycle(FaultDisk::Loss::kNothing);
  EXPECT_EQ(*disk_.ReadFile("/a", 100), "synced not") << "a killed process loses nothing";
  EXPECT_FALSE(file->Append(Bytes("x")).ok()) << "but it is dead";
  Cycle(FaultDisk::Loss::kUnsynced);
  EXPECT_EQ(*disk_.ReadFile("/a", 100), "synced");
  EXPECT_FALSE(disk_.Exists("/b"));
}

TEST_F(FaultDiskTest, OfAppendedBytesABeginningSurvives) {
  std::set<size_t> sizes;
  for (int i = 0; i < 200; ++i) {
    EXPECT_OK(disk_.RemoveTree("/a"));
    const auto file = Append("/a", "0123");
    EXPECT_OK(file->Sync());
    EXPECT_OK(file->Append(Bytes("4567")));
    EXPECT_OK(file->Append(Bytes("89")));
    Cycle(FaultDisk::Loss::kSome);
    const std::string content = *disk_.ReadFile("/a", 100);
    EXPECT_EQ(content, std::string("0123456789").substr(0, content.size()));
    sizes.insert(content.size());
  }
  EXPECT_EQ(*sizes.begin(), 4u);
  EXPECT_EQ(sizes.size(), 7u);
}

TEST_F(FaultDiskTest, ARenameIsThereOrNot) {
  EXPECT_OK(Append("/a", "x")->Sync());
  Fail(FaultDisk::Call::kSyncDir, 1, FaultDisk::Fate::kIoError);
  EXPECT_FALSE(disk_.Rename("/a", "/b").ok());
  EXPECT_TRUE(disk_.Exists("/b"));
  EXPECT_EQ(disk_.DurableSize("/a"), 1);
  Cycle(FaultDisk::Loss::kSome);
  EXPECT_NE(disk_.Exists("/a"), disk_.Exists("/b"));
}

TEST_F(FaultDiskTest, AFolderWhoseNameWasNotSyncedIsSyncedWhenItIsAskedForAgain) {
  Fail(FaultDisk::Call::kSyncDir, 1, FaultDisk::Fate::kIoError);
  EXPECT_FALSE(disk_.MakeDirs("/a", 0755).ok());
  EXPECT_OK(disk_.MakeDirs("/a", 0755));
  EXPECT_OK(Append("/a/b", "x")->Sync());
  Cycle(FaultDisk::Loss::kUnsynced);
  EXPECT_EQ(*disk_.ReadFile("/a/b", 100), "x");
}

TEST_F(FaultDiskTest, AFullDiskTakesAPart) {
  Fail(FaultDisk::Call::kWrite, 1, FaultDisk::Fate::kFull);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk_.OpenForAppend("/a");
  ASSERT_OK(file);
  EXPECT_THAT((*file)->Append(Bytes("1234")), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(*disk_.ReadFile("/a", 100), "12");
}

TEST_F(FaultDiskTest, ACrashStopsEverything) {
  Fail(FaultDisk::Call::kWrite, 1, FaultDisk::Fate::kCrashAfter);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk_.OpenForAppend("/a");
  ASSERT_OK(file);
  EXPECT_FALSE((*file)->Append(Bytes("1234")).ok());
  EXPECT_TRUE(disk_.off());
  EXPECT_FALSE(disk_.Remove("/a").ok());
  disk_.PowerOn(FaultDisk::Loss::kNothing, &random_);
  EXPECT_EQ(*disk_.ReadFile("/a", 100), "1234");
}

}  // namespace
}  // namespace causeway
