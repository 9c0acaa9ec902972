#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMax = 1 << 20;

absl::Span<const uint8_t> Bytes(absl::string_view text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

class FileTest : public testing::Test {
 protected:
  // Writes a file and returns its path.
  std::string Make(absl::string_view name, absl::string_view content) {
    const std::string path = dir_.Join(name);
    EXPECT_THAT(files_->WriteFileAtomically(path, content), IsOk());
    return path;
  }

  int ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  }

  TempDir dir_;
  FileSystem* const files_ = RealFileSystem();
};

TEST_F(FileTest, AppendsAtTheEnd) {
  const std::string path = dir_.Join("journal");
  {
    absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->OpenForAppend(path);
    ASSERT_THAT(file, IsOk());
    EXPECT_THAT((*file)->Append(Bytes("one ")), IsOk());
    EXPECT_THAT((*file)->Append({}), IsOk());
    EXPECT_THAT((*file)->Sync(), IsOk());
    EXPECT_THAT((*file)->Append(Bytes("two ")), IsOk());
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->OpenForAppend(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT((*file)->Append(Bytes("three")), IsOk());
  EXPECT_THAT((*file)->Close(), IsOk());
  EXPECT_THAT((*file)->Close(), IsOk());
  EXPECT_THAT((*file)->Append(Bytes("x")), StatusIs(absl::StatusCode::kInternal, HasSubstr(path)));
  EXPECT_THAT((*file)->Sync(), StatusIs(absl::StatusCode::kInternal, HasSubstr(path)));
  EXPECT_THAT(files_->ReadFile(path, kMax), IsOkAndHolds("one two three"));
}

TEST_F(FileTest, CreateTruncatesAndSetsTheMode) {
  const std::string path = dir_.Join("key");
  {
    absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->Create(path, 0600);
    ASSERT_THAT(file, IsOk());
    EXPECT_THAT((*file)->Append(Bytes("a long secret")), IsOk());
  }
  EXPECT_EQ(ModeOf(path), 0600);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->Create(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT((*file)->Append(Bytes("short")), IsOk());
  EXPECT_THAT(files_->ReadFile(path, kMax), IsOkAndHolds("short"));
}

TEST_F(FileTest, ReadsRanges) {
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = files_->OpenForRead(Make("f", "0123456789"));
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ((*file)->size_bytes(), 10);
  std::vector<uint8_t> out(4);
  EXPECT_THAT((*file)->Read(6, absl::MakeSpan(out)), IsOk());
  EXPECT_THAT(out, ElementsAre('6', '7', '8', '9'));
  EXPECT_THAT((*file)->Read(7, absl::MakeSpan(out)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr(dir_.Join("f"))));
  EXPECT_THAT((*file)->Read(99, absl::MakeSpan(out)), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT((*file)->Read(10, {}), IsOk());
}

TEST_F(FileTest, ReadFileIsBounded) {
  const std::string path = Make("f", std::string(200'000, 'x'));
  EXPECT_THAT(files_->ReadFile(path, 200'000), IsOkAndHolds(std::string(200'000, 'x')));
  EXPECT_THAT(files_->ReadFile(path, 199'999),
              StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr(path), HasSubstr("199999"))));
  EXPECT_THAT(files_->ReadFile("/dev/zero", kMax), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(files_->ReadFile("/proc/self/cmdline", kMax), IsOkAndHolds(HasSubstr("base_tests")));
  EXPECT_THAT(files_->ReadFile(Make("empty", ""), 0), IsOkAndHolds(""));
}

TEST_F(FileTest, ErrorsAreMappedAndNameThePath) {
  const std::string missing = dir_.Join("no/file");
  const auto not_found = StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/file"));
  EXPECT_THAT(files_->OpenForAppend(missing), not_found);
  EXPECT_THAT(files_->Create(missing), not_found);
  EXPECT_THAT(files_->OpenForRead(missing), not_found);
  EXPECT_THAT(files_->ReadFile(missing, kMax), not_found);
  EXPECT_THAT(files_->WriteFileAtomically(missing, "x"), not_found);
  EXPECT_THAT(files_->Rename(missing, dir_.Join("x")), not_found);
  EXPECT_THAT(files_->Remove(missing), not_found);
  EXPECT_THAT(files_->Truncate(missing, 0), not_found);
  EXPECT_THAT(files_->FileSize(missing), not_found);
  EXPECT_THAT(files_->List(missing), not_found);
  EXPECT_THAT(files_->FreeBytes(missing), not_found);
  EXPECT_THAT(files_->LockFile(missing), not_found);

  EXPECT_THAT(files_->Remove("/proc/self/status"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("/proc/self")));
  EXPECT_THAT(files_->OpenForAppend(dir_.path()), StatusIs(absl::StatusCode::kInternal, HasSubstr(dir_.path())));
  EXPECT_THAT(files_->MakeDirs(Make("file", "")), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("file")));
}

TEST_F(FileTest, AFullDiskIsResourceExhausted) {
  absl::StatusOr<std::unique_ptr<WritableFile>> full = files_->OpenForAppend("/dev/full");
  ASSERT_THAT(full, IsOk());
  EXPECT_THAT((*full)->Append(Bytes("x")), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("/dev/full")));
}

TEST_F(FileTest, WriteFileAtomicallyReplacesContentAndMode) {
  const std::string path = Make("f", "old");
  EXPECT_EQ(ModeOf(path) & 0600, 0600);
  EXPECT_THAT(files_->WriteFileAtomically(path, "new", 0600), IsOk());
  EXPECT_THAT(files_->ReadFile(path, kMax), IsOkAndHolds("new"));
  EXPECT_EQ(ModeOf(path), 0600);
  EXPECT_THAT(files_->List(dir_.path()), IsOkAndHolds(ElementsAre("f")));
}

TEST_F(FileTest, WhatACrashLeftAsideDoesNotMatter) {
  Make(absl::StrCat("f.tmp-", ::gettid()), "a longer content, readable by all");
  EXPECT_THAT(files_->WriteFileAtomically(dir_.Join("f"), "secret", 0600), IsOk());
  EXPECT_THAT(files_->ReadFile(dir_.Join("f"), kMax), IsOkAndHolds("secret"));
  EXPECT_EQ(ModeOf(dir_.Join("f")), 0600);
}

TEST_F(FileTest, AReaderSeesTheOldContentOrTheNew) {
  const std::string path = Make("f", std::string(100'000, 'a'));
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (char c : {'a', 'b'}) {
    writers.emplace_back([&, c] {
      while (!stop) ASSERT_THAT(files_->WriteFileAtomically(path, std::string(100'000, c)), IsOk());
    });
  }
  for (int i = 0; i < 50; ++i) {
    absl::StatusOr<std::string> content = files_->ReadFile(path, kMax);
    EXPECT_THAT(content, IsOk());
    EXPECT_TRUE(content.ok() && content->size() == 100'000 &&
                content->find_first_not_of(content->front()) == content->npos);
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

TEST_F(FileTest, AFailedAtomicWriteLeavesNothingBehind) {
  ASSERT_THAT(files_->MakeDirs(dir_.Join("taken/inside")), IsOk());
  EXPECT_FALSE(files_->WriteFileAtomically(dir_.Join("taken"), "x").ok());
  EXPECT_THAT(files_->List(dir_.path()), IsOkAndHolds(ElementsAre("taken")));
}

TEST_F(FileTest, RenamesAcrossFolders) {
  const std::string from = Make("from", "x");
  ASSERT_THAT(files_->MakeDirs(dir_.Join("sub")), IsOk());
  EXPECT_THAT(files_->Rename(from, dir_.Join("sub/to")), IsOk());
  EXPECT_FALSE(files_->Exists(from));
  EXPECT_THAT(files_->ReadFile(dir_.Join("sub/to"), kMax), IsOkAndHolds("x"));
}

TEST_F(FileTest, RemovesFilesAndTrees) {
  const std::string path = Make("f", "x");
  EXPECT_TRUE(files_->Exists(path));
  EXPECT_THAT(files_->Remove(path), IsOk());
  EXPECT_FALSE(files_->Exists(path));
  EXPECT_THAT(files_->Remove(path), StatusIs(absl::StatusCode::kNotFound));

  ASSERT_THAT(files_->MakeDirs(dir_.Join("tree/a/b")), IsOk());
  const std::string kept = Make("kept", "x");
  std::filesystem::create_symlink(kept, dir_.Join("tree/a/link"));
  EXPECT_THAT(files_->RemoveTree(dir_.Join("tree")), IsOk());
  EXPECT_FALSE(files_->Exists(dir_.Join("tree")));
  EXPECT_TRUE(files_->Exists(kept));
  EXPECT_THAT(files_->RemoveTree(dir_.Join("tree")), IsOk());
}

TEST_F(FileTest, MakesFoldersWithTheirParents) {
  EXPECT_THAT(files_->MakeDirs(dir_.Join("a/b/c/"), 0700), IsOk());
  EXPECT_EQ(ModeOf(dir_.Join("a/b/c")), 0700);
  EXPECT_EQ(ModeOf(dir_.Join("a")), 0700);
  EXPECT_THAT(files_->MakeDirs(dir_.Join("a/b/c")), IsOk());
  EXPECT_THAT(files_->MakeDirs("/"), IsOk());
  EXPECT_THAT(files_->MakeDirs(""), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(FileTest, TruncatesAndMeasures) {
  const std::string path = Make("f", "0123456789");
  EXPECT_THAT(files_->Truncate(path, 4), IsOk());
  EXPECT_THAT(files_->FileSize(path), IsOkAndHolds(4));
  EXPECT_THAT(files_->ReadFile(path, kMax), IsOkAndHolds("0123"));
}

TEST_F(FileTest, ListsNamesInOrder) {
  Make("b", "");
  Make(".hidden", "");
  Make("a", "");
  EXPECT_THAT(files_->List(dir_.path()), IsOkAndHolds(ElementsAre(".hidden", "a", "b")));
}

TEST_F(FileTest, FreeBytesAreThoseOfTheDisk) {
  absl::StatusOr<int64_t> free_bytes = files_->FreeBytes(dir_.path());
  ASSERT_THAT(free_bytes, IsOk());
  EXPECT_GT(*free_bytes, 0);
  EXPECT_LE(*free_bytes, static_cast<int64_t>(std::filesystem::space(dir_.path()).capacity));
}

TEST_F(FileTest, ALockIsHeldByOne) {
  const std::string path = dir_.Join("lock");
  absl::StatusOr<std::unique_ptr<FileSystem::Lock>> first = files_->LockFile(path);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(files_->LockFile(path),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path), HasSubstr(absl::StrCat("process ", ::getpid())))));
  first->reset();
  EXPECT_THAT(files_->LockFile(path), IsOk());
}

TEST_F(FileTest, SignalsDoNotDisturb) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);  // Without SA_RESTART: calls end with EINTR.
  const std::string fifo = dir_.Join("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::thread reader([&] { EXPECT_THAT(files_->ReadFile(fifo, kMax), IsOkAndHolds("calm")); });
  // Opens only once the reader is there; the reader then has nothing to read yet.
  int writer = -1;
  while (writer < 0) writer = ::open(fifo.c_str(), O_WRONLY | O_NONBLOCK);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(::pthread_kill(reader.native_handle(), SIGUSR1), 0);
    std::this_thread::yield();
  }
  EXPECT_EQ(::write(writer, "calm", 4), 4);
  ::close(writer);
  reader.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(JoinPath, PutsOneSlashBetween) { EXPECT_EQ(JoinPath("/a/b", "c"), "/a/b/c"); }

TEST_F(FileTest, ResolveBelowStaysBelow) {
  ASSERT_THAT(files_->MakeDirs(dir_.Join("root/sub")), IsOk());
  ASSERT_THAT(files_->MakeDirs(dir_.Join("root2")), IsOk());
  Make("root/sub/file", "x");
  Make("root2/secret", "x");
  const std::string root = dir_.Join("root");
  const std::string real_root = std::filesystem::canonical(root).string();
  std::filesystem::create_symlink("sub/file", root + "/inside");
  std::filesystem::create_symlink("../root2/secret", root + "/outside");
  std::filesystem::create_directory_symlink("..", root + "/up");

  EXPECT_THAT(ResolveBelow(root, "sub/file"), IsOkAndHolds(real_root + "/sub/file"));
  EXPECT_THAT(ResolveBelow(root, "./sub//file"), IsOkAndHolds(real_root + "/sub/file"));
  EXPECT_THAT(ResolveBelow(root, "inside"), IsOkAndHolds(real_root + "/sub/file"));
  EXPECT_THAT(ResolveBelow(root, ""), IsOkAndHolds(real_root));
  EXPECT_THAT(ResolveBelow("/", "proc"), IsOkAndHolds("/proc"));

  EXPECT_THAT(ResolveBelow(root, "/etc/passwd"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ResolveBelow(root, "../root2/secret"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ResolveBelow(root, "sub/.."), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ResolveBelow(root, absl::string_view("sub\0/file", 9)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ResolveBelow(root, "outside"), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(ResolveBelow(root, "up/root2/secret"), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(ResolveBelow(root, "missing"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(TempDir, IsGoneAfterwards) {
  std::string path;
  {
    TempDir dir;
    path = dir.path();
    ASSERT_THAT(RealFileSystem()->MakeDirs(dir.Join("a/b")), IsOk());
  }
  EXPECT_FALSE(RealFileSystem()->Exists(path));
}

TEST(FilePipeTest, APipeIsNoFileAndHoldsNobodyUp) {
  TempDir dir;
  ASSERT_EQ(::mkfifo(dir.Join("pipe").c_str(), 0600), 0);
  EXPECT_THAT(RealFileSystem()->OpenForRead(dir.Join("pipe")),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("not a regular file")));
}

}  // namespace
}  // namespace causeway
