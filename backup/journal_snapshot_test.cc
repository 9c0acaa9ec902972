#include "backup/journal_snapshot.h"

#include <algorithm>
#include <filesystem>

#include "backup/backup_test_fixture.h"
#include "base/sqlite_seals.h"

namespace causeway::backup {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class JournalSnapshotTest : public DataDirectory {};

TEST_F(JournalSnapshotTest, IsOneStateWhateverIsWrittenMeanwhile) {
  Sql("BEGIN IMMEDIATE; INSERT INTO commits VALUES ('job', 8, x'', 'x')");  // Of another connection, not committed.
  ASSERT_OK(SnapshotJournal(Path("journal.db"), dir_.Join("copy.db")));
  Sql("COMMIT");
  EXPECT_EQ(Number(dir_.Join("copy.db"), "SELECT max(version) FROM commits WHERE job = 'job'"), 2);
  EXPECT_FALSE(files_->Exists(dir_.Join("copy.db-wal")));
  EXPECT_FALSE(files_->Exists(dir_.Join("copy.db-journal")));
}

TEST_F(JournalSnapshotTest, NamesTheFiles) {
  const absl::StatusOr<JournalFiles> named = ReadJournalFiles(Path("journal.db"));
  ASSERT_OK(named);
  EXPECT_EQ(named->incarnation, 4);
  EXPECT_EQ(named->jobs, 2);
  std::vector<std::string> needed, others;
  for (const ModelFile& model : named->models) (model.needed ? needed : others).push_back(model.path);
  EXPECT_THAT(needed, ElementsAre("jobs/job/model-000002.safetensors", "jobs/over/model-000008.safetensors"));
  EXPECT_THAT(others, ElementsAre("jobs/job/model-000001.safetensors", "jobs/job/model-000000.safetensors",
                                  "jobs/over/model-000009.safetensors", "jobs/over/model-000007.safetensors"));
  EXPECT_EQ(named->models[0].sha256, dataplane::Sha256Of(TestModel("model 2 of job")));
  EXPECT_EQ(named->layouts.at("over").hash(), TestLayout().hash());
  EXPECT_THAT(named->contributions, ElementsAre("spool/job/f0_r2_a1_4_00_w1.whole"));
  EXPECT_THAT(named->dataset_manifests, ElementsAre(dataplane::ToHex(dataplane::Sha256Of(manifest_))));
}

TEST_F(JournalSnapshotTest, NamesFromTheJournalStayInTheDirectory) {
  Sql("INSERT INTO contributions VALUES ('..', '/elsewhere/passwd')");
  EXPECT_THAT(ReadJournalFiles(Path("journal.db")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("spool/../passwd")));
}

TEST_F(JournalSnapshotTest, AForkIsAheadOfWhatItWasForkedFrom) {
  ASSERT_OK(SnapshotJournal(Path("journal.db"), dir_.Join("copy.db")));
  ASSERT_OK(ForkJournal(dir_.Join("copy.db")));
  EXPECT_EQ(Number(dir_.Join("copy.db"), "SELECT value FROM meta WHERE key = 'incarnation'"), 1004);
  EXPECT_EQ(Number(dir_.Join("copy.db"), "SELECT generation FROM sites"), 1'000'007);
  EXPECT_EQ(Number(dir_.Join("copy.db"), "SELECT value FROM meta WHERE key = 'schema_version'"), 1);
}

TEST_F(JournalSnapshotTest, RowsFitTheirChecksumsBeforeAndAfter) {
  Sql(kSealsTable);
  ASSERT_OK(SealAll(db_));
  ASSERT_OK(SnapshotJournal(Path("journal.db"), dir_.Join("copy.db")));
  ASSERT_OK(ForkJournal(dir_.Join("copy.db")));
  EXPECT_OK(SnapshotJournal(dir_.Join("copy.db"), dir_.Join("again.db"))) << "it is sealed as it is now";
  Sql("UPDATE commits SET sha256 = x'00' WHERE version = 2");
  EXPECT_THAT(SnapshotJournal(Path("journal.db"), dir_.Join("damaged.db")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("table commits")));
}

TEST_F(JournalSnapshotTest, WhatIsNoJournal) {
  EXPECT_THAT(SnapshotJournal(dir_.Join("none.db"), dir_.Join("a.db")), StatusIs(absl::StatusCode::kNotFound));
  WriteAt(dir_.Join("text.db"), std::string(8192, 'x'));
  EXPECT_THAT(SnapshotJournal(dir_.Join("text.db"), dir_.Join("b.db")), StatusIs(absl::StatusCode::kDataLoss));
  WriteAt(dir_.Join("empty.db"), "");
  EXPECT_THAT(ReadJournalFiles(dir_.Join("empty.db")), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(JournalSnapshotTest, ADamagedJournalIsNoBackup) {
  for (int i = 0; i < 200; ++i) Sql("INSERT INTO contributions VALUES ('over', '" + std::string(500, 'p') + "')");
  Sql("PRAGMA wal_checkpoint(TRUNCATE)");
  std::string bytes = Read(Path("journal.db"));
  for (size_t i = 3 * 4096; i < bytes.size(); i += 64) bytes[i] ^= 0x55;
  WriteAt(dir_.Join("damaged.db"), bytes);
  EXPECT_THAT(SnapshotJournal(dir_.Join("damaged.db"), dir_.Join("c.db")), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace causeway::backup
