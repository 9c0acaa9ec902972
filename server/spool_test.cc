#include "server/spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "dataplane/digest.h"
#include "tests/fakes/fault_file.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using dataplane::AsBytes;
using dataplane::Sha256Of;

class SpoolTest : public ::testing::Test {
 protected:
  SpoolTest() { Reopen(); }

  void Reopen() {
    spool_.reset();
    absl::StatusOr<std::unique_ptr<Spool>> spool = Spool::Create({RealFileSystem(), dir_.Join("spool"), kMaxBytes});
    EXPECT_OK(spool);
    spool_ = *std::move(spool);
  }

  static SpoolKey Key(int64_t round = 1, const std::string& worker = "a-1", int64_t attempt = 0) {
    return {"job", 0, round, attempt, worker};
  }
  std::shared_ptr<Spool::Upload> Open(const SpoolKey& key, const std::string& content) {
    absl::StatusOr<std::shared_ptr<Spool::Upload>> upload = spool_->Open(key, content.size(), Sha256Of(content));
    EXPECT_OK(upload);
    return *std::move(upload);
  }
  std::string Put(const SpoolKey& key, const std::string& content) {
    std::shared_ptr<Spool::Upload> upload = Open(key, content);
    EXPECT_OK(upload->Append(0, AsBytes(content)));
    absl::StatusOr<std::string> path = upload->Finish();
    EXPECT_OK(path);
    return *std::move(path);
  }
  static std::string Content(const std::string& path) { return *RealFileSystem()->ReadFile(path, 1 << 30); }

  static constexpr int64_t kMaxBytes = 10'000'000;
  TempDir dir_;
  std::unique_ptr<Spool> spool_;
  const std::string content_ = RandomBytes(3'000'000);  // Several blocks.
};

TEST_F(SpoolTest, APartArrivesInPieces) {
  std::shared_ptr<Spool::Upload> upload = Open(Key(), content_);
  EXPECT_EQ(upload->total_bytes(), 3'000'000);
  EXPECT_EQ(upload->durable_bytes(), 0);
  ASSERT_OK(upload->Append(0, AsBytes(content_).subspan(0, 1000)));
  EXPECT_EQ(upload->received_bytes(), 1000);
  EXPECT_EQ(upload->durable_bytes(), 0) << "not before a sync";
  EXPECT_THAT(upload->Sync(), IsOkAndHolds(1000));
  EXPECT_EQ(upload->durable_bytes(), 1000);
  EXPECT_THAT(upload->Finish(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("1000 of its 3000000")));
  ASSERT_OK(upload->Append(1000, AsBytes(content_).subspan(1000)));
  ASSERT_OK_AND_ASSIGN(std::string path, upload->Finish());
  EXPECT_THAT(path, EndsWith("_a-1.whole"));
  EXPECT_EQ(Content(path), content_);
  EXPECT_THAT(upload->Finish(), IsOkAndHolds(path)) << "idempotent";
  EXPECT_THAT(RealFileSystem()->List(dir_.Join("spool/job")), IsOkAndHolds(SizeIs(1)));
}

TEST_F(SpoolTest, PiecesMustFit) {
  std::shared_ptr<Spool::Upload> upload = Open(Key(), "0123456789");
  EXPECT_THAT(upload->Append(1, AsBytes("x")), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(upload->Append(-1, AsBytes("x")), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(upload->Append(0, AsBytes("01234")));
  EXPECT_THAT(upload->Append(0, AsBytes("01234")), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(upload->Append(5, AsBytes("56789x")), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(upload->Append(5, AsBytes("56789"))) << "nothing has stuck";
  EXPECT_OK(upload->Finish());
}

TEST_F(SpoolTest, ARestartGoesOnWhereItStopped) {
  {
    std::shared_ptr<Spool::Upload> upload = Open(Key(), content_);
    ASSERT_OK(upload->Append(0, AsBytes(content_).subspan(0, 2'000'000)));
    ASSERT_OK(upload->Sync());
  }
  Reopen();
  std::shared_ptr<Spool::Upload> upload = Open(Key(), content_);
  ASSERT_EQ(upload->durable_bytes(), 2'000'000);
  ASSERT_OK(upload->Append(2'000'000, AsBytes(content_).subspan(2'000'000)));
  ASSERT_OK_AND_ASSIGN(std::string path, upload->Finish());
  EXPECT_EQ(Content(path), content_);
  upload.reset();
  Reopen();
  upload = Open(Key(), content_);
  EXPECT_EQ(upload->durable_bytes(), 3'000'000) << "nothing is missing";
  EXPECT_THAT(upload->Finish(), IsOkAndHolds(path));
}

TEST_F(SpoolTest, OtherBytesStartAnew) {
  ASSERT_OK(Open(Key(), "0123456789")->Append(0, AsBytes("01234")));
  EXPECT_EQ(Open(Key(), "0123456780")->durable_bytes(), 0);
  ASSERT_OK(Open(Key(), "0123456780")->Append(0, AsBytes("01234")));
  EXPECT_EQ(Open(Key(), "012345678")->durable_bytes(), 0);
  EXPECT_THAT(RealFileSystem()->List(dir_.Join("spool/job")), IsOkAndHolds(SizeIs(1)));
  Put(Key(), "012345678");
  EXPECT_EQ(Open(Key(), "876543210")->durable_bytes(), 0) << "a whole one is replaced too";
  EXPECT_EQ(Open(Key(1, "a-1", 1), "012345678")->durable_bytes(), 0) << "another attempt is another part";
}

TEST_F(SpoolTest, AWrongDigestEmptiesThePart) {
  std::shared_ptr<Spool::Upload> upload = Open(Key(), "0123456789");
  ASSERT_OK(upload->Append(0, AsBytes("0123456780")));
  EXPECT_THAT(upload->Finish(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(upload->durable_bytes(), 0);
  ASSERT_OK(upload->Append(0, AsBytes("0123456789")));
  ASSERT_OK_AND_ASSIGN(std::string path, upload->Finish());
  EXPECT_EQ(Content(path), "0123456789");
}

TEST_F(SpoolTest, ADamagedPartialFileIsFound) {
  {
    std::shared_ptr<Spool::Upload> upload = Open(Key(), "0123456789");
    ASSERT_OK(upload->Append(0, AsBytes("01234")));
  }
  ASSERT_THAT(spool_->List(), SizeIs(1));
  const std::string path = spool_->List()[0].path;
  std::ofstream(path, std::ios::trunc) << "0123x";
  std::shared_ptr<Spool::Upload> upload = Open(Key(), "0123456789");
  EXPECT_EQ(upload->durable_bytes(), 5);
  ASSERT_OK(upload->Append(5, AsBytes("56789")));
  EXPECT_THAT(upload->Finish(), StatusIs(absl::StatusCode::kDataLoss));
  std::ofstream(path, std::ios::trunc) << "0123456789 and more";
  EXPECT_EQ(Open(Key(), "0123456789")->durable_bytes(), 0) << "longer than it may be";
}

TEST_F(SpoolTest, ALaterOpenTakesThePartAway) {
  std::shared_ptr<Spool::Upload> first = Open(Key(), "0123456789");
  ASSERT_OK(first->Append(0, AsBytes("01234")));
  std::shared_ptr<Spool::Upload> second = Open(Key(), "0123456789");
  EXPECT_EQ(second->durable_bytes(), 5);
  EXPECT_THAT(first->Append(5, AsBytes("5")), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(first->Sync(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(first->Finish(), StatusIs(absl::StatusCode::kAborted));
  ASSERT_OK(second->Append(5, AsBytes("56789")));
  EXPECT_OK(second->Finish());
}

TEST_F(SpoolTest, RemovalTakesThePartAway) {
  std::shared_ptr<Spool::Upload> upload = Open(Key(), "0123456789");
  ASSERT_OK(upload->Append(0, AsBytes("0123456789")));
  ASSERT_OK(spool_->Remove(Key()));
  EXPECT_THAT(upload->Finish(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(RealFileSystem()->List(dir_.Join("spool/job")), IsOkAndHolds(IsEmpty()));
  EXPECT_OK(spool_->Remove(Key()));
}

TEST_F(SpoolTest, RoundsAndJobsAreRemovedWhole) {
  Put(Key(-1), "x");
  Put(Key(1, "a-1"), "x");
  Put(Key(1, "b-1", 3), "x");
  Open(Key(1, "c-1"), "x");
  Put(Key(2), "x");
  Put({"job", 1, 1, 0, "a-1"}, "x");
  Put({"job2", 0, 1, 0, "a-1"}, "x");
  EXPECT_EQ(spool_->used_bytes(), 7);
  ASSERT_OK(spool_->RemoveRound("job", 0, 1));
  EXPECT_EQ(spool_->used_bytes(), 4);
  EXPECT_THAT(spool_->List(), SizeIs(4));
  for (const Spool::Entry& entry : spool_->List()) {
    EXPECT_TRUE(entry.key.job == "job2" || entry.key.fragment == 1 || entry.key.round != 1);
    EXPECT_TRUE(RealFileSystem()->Exists(entry.path));
  }
  ASSERT_OK(spool_->RemoveJob("job"));
  EXPECT_THAT(RealFileSystem()->List(dir_.Join("spool/job")), IsOkAndHolds(IsEmpty()));
  EXPECT_EQ(spool_->used_bytes(), 1);
  ASSERT_THAT(spool_->List(), SizeIs(1));
  EXPECT_EQ(spool_->List()[0].key.job, "job2");
}

TEST_F(SpoolTest, TheListSurvivesARestart) {
  const SpoolKey odd{"job", 2, -1, 7, "w_1.x-y_f0"};
  const std::string path = Put(odd, "whole");
  ASSERT_OK(Open(Key(3), "partial")->Append(0, AsBytes("par")));
  std::ofstream(dir_.Join("spool/job/notes.txt")) << "not ours";
  std::ofstream(dir_.Join("spool/job/f00_r1_a0_5_" + dataplane::ToHex(Sha256Of("")) + "_a-1.whole")) << "not ours";
  std::ofstream(dir_.Join("spool/README")) << "not ours";
  Reopen();
  std::vector<Spool::Entry> entries = spool_->List();
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_EQ(entries[0].key, Key(3));
  EXPECT_FALSE(entries[0].whole);
  EXPECT_EQ(entries[0].total_bytes, 7);
  EXPECT_EQ(entries[0].sha256, Sha256Of("partial"));
  EXPECT_EQ(entries[1].key, odd);
  EXPECT_TRUE(entries[1].whole);
  EXPECT_EQ(entries[1].path, path);
  EXPECT_EQ(spool_->used_bytes(), 12);
}

TEST_F(SpoolTest, AdmissionCountsWhatWasAnnounced) {
  const std::string digest = Sha256Of("x");
  ASSERT_OK(spool_->Open(Key(1, "a"), 6'000'000, digest));
  EXPECT_THAT(spool_->Open(Key(1, "b"), 4'000'001, digest),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("6000000 of at most 10000000")));
  EXPECT_THAT(spool_->Open(Key(1, "b"), std::numeric_limits<int64_t>::max(), digest),
              StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_OK(spool_->Open(Key(1, "b"), 4'000'000, digest));
  ASSERT_OK(spool_->Open(Key(1, "b"), 4'000'000, digest)) << "it is in already";
  ASSERT_OK(spool_->Open(Key(1, "a"), 5'999'999, digest)) << "its own bytes make room";
  Reopen();
  EXPECT_EQ(spool_->used_bytes(), 9'999'999);
  EXPECT_THAT(spool_->Open(Key(1, "c"), 2, digest), StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_OK(spool_->RemoveRound("job", 0, 1));
  EXPECT_OK(spool_->Open(Key(2, "c"), 10'000'000, digest));
}

TEST_F(SpoolTest, HostileKeysAreRefused) {
  const std::string digest = Sha256Of("x");
  auto open = [&](const SpoolKey& key, int64_t total_bytes = 1) {
    return spool_->Open(key, total_bytes, digest).status();
  };
  EXPECT_THAT(open({"../job", 0, 0, 0, "a"}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(open({"job", 0, 0, 0, "../../a"}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(open({"job", 0, 0, 0, ""}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(open({"job", -1, 0, 0, "a"}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(open({"job", 0, -2, 0, "a"}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(open({"job", 0, 0, -1, "a"}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(open(Key(), 0), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(open(Key(), -5), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(spool_->Open(Key(), 1, "short"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(spool_->used_bytes(), 0);
}

TEST_F(SpoolTest, CreateChecksItsOptions) {
  EXPECT_THAT(Spool::Create({nullptr, "x", 1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Spool::Create({RealFileSystem(), "", 1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Spool::Create({RealFileSystem(), dir_.Join("s"), 0}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SpoolTest, ManyUploadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      const std::string content(100'000 + t, static_cast<char>('a' + t));
      for (int round = 0; round < 5; ++round) {
        const std::string job = absl::StrCat("job-", t);
        const std::string path = Put({job, 0, round, 0, "w"}, content);
        EXPECT_EQ(Content(path), content);
        EXPECT_OK(spool_->RemoveRound(job, 0, round - 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SpoolOnABadDisk, AWholePartIsDurableWhenItIsFoundAgain) {
  FaultDisk disk;
  bool fail = false;
  disk.decide = [&](FaultDisk::Call call, const std::string&) {
    return fail && call == FaultDisk::Call::kSyncDir ? FaultDisk::Fate::kIoError : FaultDisk::Fate::kDone;
  };
  absl::StatusOr<std::unique_ptr<Spool>> spool = Spool::Create({&disk, "/spool", 100});
  ASSERT_OK(spool);
  const SpoolKey key{"job", 0, 1, 1, "a-1"};
  const std::string content = "content";
  const auto open = [&] { return *(*spool)->Open(key, static_cast<int64_t>(content.size()), Sha256Of(content)); };
  std::shared_ptr<Spool::Upload> upload = open();
  ASSERT_OK(upload->Append(0, AsBytes(content)));
  ASSERT_OK(upload->Sync());
  fail = true;
  EXPECT_FALSE(upload->Finish().ok()) << "renamed, but not for good";
  fail = false;
  upload = open();
  EXPECT_EQ(upload->durable_bytes(), 7);
  const absl::StatusOr<std::string> path = upload->Finish();
  ASSERT_OK(path);
  EXPECT_EQ(disk.DurableSize(*path), 7);
}

}  // namespace
}  // namespace causeway::server
