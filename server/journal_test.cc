#include "server/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/journal.pb.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string kBytes("a\0b\xff", 4);

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }

  void Reopen() {
    journal_.reset();
    ASSERT_OK_AND_ASSIGN(journal_, Journal::Open(path_));
  }

  static JobRow Job(const std::string& name) {
    JobRow row;
    row.name = name;
    row.spec = kBytes;
    return row;
  }
  static ContributionRow Contribution(int64_t round, const std::string& worker) {
    ContributionRow row;
    row.job = "job";
    row.round = round;
    row.worker = worker;
    return row;
  }

  // Runs SQL on the file, past the journal.
  void Execute(const std::string& path, const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }

  TempDir dir_;
  const std::string path_ = dir_.Join("journal.db");
  std::unique_ptr<Journal> journal_;
};

TEST_F(JournalTest, IncarnationsGrowOverRestarts) {
  EXPECT_THAT(journal_->NextIncarnation(), IsOkAndHolds(1));
  EXPECT_THAT(journal_->NextIncarnation(), IsOkAndHolds(2));
  Reopen();
  EXPECT_THAT(journal_->NextIncarnation(), IsOkAndHolds(3));
}

TEST_F(JournalTest, SitesTokensAndWorkers) {
  ASSERT_OK(journal_->PutSite({"b", 1}));
  ASSERT_OK(journal_->PutSite({"a", 1}));
  ASSERT_OK(journal_->PutToken({"t1", "a", kBytes, 16, 16, 1'700'000'000'000, false}));
  ASSERT_OK(journal_->AdmitWorker({"a-1", "a", "0abc", 1'800'000'000'000, false, 7, kBytes},
                                  {"t1", "a", kBytes, 16, 15, 1'700'000'000'000, true, "r1"}));
  ASSERT_OK(journal_->PutWorker({"b-1", "b", "0def", 5, true, 0}));
  ASSERT_OK(journal_->PutSite({"a", 2}));  // Must not take its workers along.
  Reopen();

  EXPECT_THAT(journal_->LoadSites(),
              IsOkAndHolds(ElementsAre(AllOf(Field(&SiteRow::name, "a"), Field(&SiteRow::generation, 2)),
                                       Field(&SiteRow::name, "b"))));
  ASSERT_OK_AND_ASSIGN(std::vector<TokenRow> tokens, journal_->LoadTokens());
  ASSERT_THAT(tokens, SizeIs(1));
  EXPECT_EQ(tokens[0].id, "t1");
  EXPECT_EQ(tokens[0].site, "a");
  EXPECT_EQ(tokens[0].sha256, kBytes);
  EXPECT_EQ(tokens[0].uses, 16);
  EXPECT_EQ(tokens[0].uses_left, 15);
  EXPECT_EQ(tokens[0].expires_ms, 1'700'000'000'000);
  EXPECT_TRUE(tokens[0].revoked);
  EXPECT_EQ(tokens[0].request_id, "r1");
  ASSERT_OK_AND_ASSIGN(std::vector<WorkerRow> workers, journal_->LoadWorkers());
  ASSERT_THAT(workers, SizeIs(2));
  EXPECT_EQ(workers[0].name, "a-1");
  EXPECT_EQ(workers[0].site, "a");
  EXPECT_EQ(workers[0].serial, "0abc");
  EXPECT_EQ(workers[0].cert_expires_ms, 1'800'000'000'000);
  EXPECT_FALSE(workers[0].removed);
  EXPECT_EQ(workers[0].incarnation, 7);
  EXPECT_EQ(workers[0].key_sha256, kBytes);
  EXPECT_TRUE(workers[1].removed);

  ASSERT_OK(journal_->RemoveSite("a"));
  ASSERT_OK(journal_->RemoveSite("never there"));
  EXPECT_THAT(journal_->LoadSites(), IsOkAndHolds(SizeIs(1)));
  EXPECT_THAT(journal_->LoadTokens(), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(journal_->LoadWorkers(), IsOkAndHolds(ElementsAre(Field(&WorkerRow::name, "b-1"))));
}

TEST_F(JournalTest, RowsNeedTheirSiteOrJob) {
  EXPECT_THAT(journal_->PutToken({"t", "nowhere"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->PutWorker({"w", "nowhere"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->PutPlan({"none", 1}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->PutProfile({"none", "w"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->AddContribution(Contribution(0, "w")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->CommitRound({"none"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->PutEvaluation({"none", 1}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->UpdateJob(Job("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST_F(JournalTest, AFailedTransactionChangesNothing) {
  ASSERT_OK(journal_->PutSite({"a", 1}));
  EXPECT_THAT(journal_->AdmitWorker({"a-1", "a"}, {"t", "nowhere"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->LoadWorkers(), IsOkAndHolds(IsEmpty()));

  ASSERT_OK(journal_->AddJob(Job("job")));
  ASSERT_OK(journal_->AddContribution(Contribution(3, "w")));
  const JobRow other = Job("other");
  EXPECT_THAT(journal_->CommitRound({"job", 0, 3, 4}, &other), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->LoadCommits("job"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(journal_->LoadContributions("job"), IsOkAndHolds(SizeIs(1)));
  EXPECT_OK(journal_->CommitRound({"job", 0, 3, 4})) << "the journal goes on after it";
}

TEST_F(JournalTest, Jobs) {
  JobRow row = Job("z");
  row.request_id = "r1";
  row.yaml = "name: z\n";
  row.state = 3;
  row.reason = "because";
  row.submitted_ms = 10;
  row.ended_ms = 20;
  row.layout = "layout";
  row.train_data = kBytes;
  row.test_data = "test";
  row.pinned_plan = "plan";
  ASSERT_OK(journal_->AddJob(row));
  ASSERT_OK(journal_->AddJob(Job("a")));
  ASSERT_OK(journal_->AddJob(Job("b")));  // No request id either.
  EXPECT_THAT(journal_->AddJob(Job("z")), StatusIs(absl::StatusCode::kAlreadyExists));
  JobRow same_request = Job("y");
  same_request.request_id = "r1";
  EXPECT_THAT(journal_->AddJob(same_request), StatusIs(absl::StatusCode::kAlreadyExists));
  Reopen();

  ASSERT_OK_AND_ASSIGN(std::vector<JobRow> jobs, journal_->LoadJobs());
  ASSERT_THAT(jobs, ElementsAre(Field(&JobRow::name, "z"), Field(&JobRow::name, "a"), Field(&JobRow::name, "b")));
  EXPECT_EQ(jobs[0].request_id, "r1");
  EXPECT_EQ(jobs[0].yaml, "name: z\n");
  EXPECT_EQ(jobs[0].spec, kBytes);
  EXPECT_EQ(jobs[0].state, 3);
  EXPECT_EQ(jobs[0].reason, "because");
  EXPECT_EQ(jobs[0].submitted_ms, 10);
  EXPECT_EQ(jobs[0].ended_ms, 20);
  EXPECT_EQ(jobs[0].layout, "layout");
  EXPECT_EQ(jobs[0].train_data, kBytes);
  EXPECT_EQ(jobs[0].test_data, "test");
  EXPECT_EQ(jobs[0].pinned_plan, "plan");
  EXPECT_EQ(jobs[1].request_id, "");
  EXPECT_EQ(jobs[1].layout, "");

  row.state = 6;
  row.train_data = "other";
  ASSERT_OK(journal_->UpdateJob(row));
  ASSERT_OK_AND_ASSIGN(jobs, journal_->LoadJobs());
  ASSERT_THAT(jobs, ElementsAre(Field(&JobRow::name, "z"), Field(&JobRow::name, "a"), Field(&JobRow::name, "b")));
  EXPECT_EQ(jobs[0].state, 6);
  EXPECT_EQ(jobs[0].train_data, "other");
  EXPECT_EQ(jobs[0].test_data, "test");
  EXPECT_EQ(jobs[1].state, 0);
}

TEST_F(JournalTest, PlansProfilesAndEvaluations) {
  ASSERT_OK(journal_->AddJob(Job("job")));
  ASSERT_OK(journal_->AddJob(Job("other")));
  ASSERT_OK(journal_->PutPlan({"job", 10, "ten", "shards"}));
  ASSERT_OK(journal_->PutPlan({"job", 9, kBytes, ""}));
  ASSERT_OK(journal_->PutPlan({"job", 9, "nine", kBytes}));
  ASSERT_OK(journal_->PutPlan({"other", 1, "", ""}));
  ASSERT_OK_AND_ASSIGN(std::vector<PlanRow> plans, journal_->LoadPlans("job"));
  ASSERT_THAT(plans, ElementsAre(Field(&PlanRow::number, 9), Field(&PlanRow::number, 10)));
  EXPECT_EQ(plans[0].job, "job");
  EXPECT_EQ(plans[0].plan, "nine");
  EXPECT_EQ(plans[0].shards, kBytes);
  EXPECT_THAT(journal_->LoadPlans("none"), IsOkAndHolds(IsEmpty()));

  ASSERT_OK(journal_->PutProfile({"job", "b", "old"}));
  ASSERT_OK(journal_->PutProfile({"job", "b", kBytes}));
  ASSERT_OK(journal_->PutProfile({"job", "a", ""}));
  ASSERT_OK_AND_ASSIGN(std::vector<ProfileRow> profiles, journal_->LoadProfiles("job"));
  ASSERT_THAT(profiles, ElementsAre(Field(&ProfileRow::worker, "a"), Field(&ProfileRow::worker, "b")));
  EXPECT_EQ(profiles[1].job, "job");
  EXPECT_EQ(profiles[1].profile, kBytes);

  ASSERT_OK(journal_->PutEvaluation({"job", 10, "ten"}));
  ASSERT_OK(journal_->PutEvaluation({"job", 2, "old"}));
  ASSERT_OK(journal_->PutEvaluation({"job", 2, kBytes}));
  ASSERT_OK_AND_ASSIGN(std::vector<EvaluationRow> evaluations, journal_->LoadEvaluations("job"));
  ASSERT_THAT(evaluations, ElementsAre(Field(&EvaluationRow::version, 2), Field(&EvaluationRow::version, 10)));
  EXPECT_EQ(evaluations[0].job, "job");
  EXPECT_EQ(evaluations[0].evaluation, kBytes);
}

TEST_F(JournalTest, ContributionsLiveUntilTheirRoundIsCommittedOrDropped) {
  ASSERT_OK(journal_->AddJob(Job("job")));
  ContributionRow row{"job", 0, 5, 2, "w1", 3, 4, 1000, kBytes, "spool/x", "info"};
  ASSERT_OK(journal_->AddContribution(row));
  row.samples = 1;
  EXPECT_THAT(journal_->AddContribution(row), StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_OK(journal_->AddContribution(Contribution(5, "w0")));
  ASSERT_OK(journal_->AddContribution(Contribution(6, "w0")));
  ASSERT_OK(journal_->AddContribution(Contribution(7, "w0")));
  ContributionRow fragment = Contribution(5, "w0");
  fragment.fragment = 1;
  ASSERT_OK(journal_->AddContribution(fragment));
  Reopen();

  ASSERT_OK_AND_ASSIGN(std::vector<ContributionRow> rows, journal_->LoadContributions("job"));
  ASSERT_THAT(rows, SizeIs(5));
  EXPECT_EQ(rows[0].worker, "w0");
  EXPECT_EQ(rows[1].job, "job");
  EXPECT_EQ(rows[1].fragment, 0);
  EXPECT_EQ(rows[1].round, 5);
  EXPECT_EQ(rows[1].attempt, 2);
  EXPECT_EQ(rows[1].worker, "w1");
  EXPECT_EQ(rows[1].generation, 3);
  EXPECT_EQ(rows[1].incarnation, 4);
  EXPECT_EQ(rows[1].samples, 1000);
  EXPECT_EQ(rows[1].sha256, kBytes);
  EXPECT_EQ(rows[1].path, "spool/x");
  EXPECT_EQ(rows[1].info, "info");

  JobRow job = Job("job");
  job.state = 6;
  ASSERT_OK(journal_->CommitRound({"job", 0, 5, 6, kBytes, "models/6", 2000, 99, "record"}, &job));
  ASSERT_OK(journal_->DropContributions("job", 0, 6));
  ASSERT_OK_AND_ASSIGN(rows, journal_->LoadContributions("job"));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].round, 7);
  EXPECT_EQ(rows[1].fragment, 1);

  EXPECT_THAT(journal_->CommitRound({"job", 0, 5, 6}), StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_OK(journal_->CommitRound({"job", 0, -1, 0}));
  ASSERT_OK_AND_ASSIGN(std::vector<CommitRow> commits, journal_->LoadCommits("job"));
  ASSERT_THAT(commits, ElementsAre(Field(&CommitRow::round, -1), Field(&CommitRow::round, 5)));
  EXPECT_EQ(commits[1].job, "job");
  EXPECT_EQ(commits[1].fragment, 0);
  EXPECT_EQ(commits[1].version, 6);
  EXPECT_EQ(commits[1].sha256, kBytes);
  EXPECT_EQ(commits[1].path, "models/6");
  EXPECT_EQ(commits[1].samples, 2000);
  EXPECT_EQ(commits[1].committed_ms, 99);
  EXPECT_EQ(commits[1].record, "record");
  EXPECT_THAT(journal_->LoadJobs(), IsOkAndHolds(ElementsAre(Field(&JobRow::state, 6))));
}

TEST_F(JournalTest, RollingBackTakesWhatCameLater) {
  for (const std::string name : {"job", "other"}) {
    ASSERT_OK(journal_->AddJob(Job(name)));
    for (int64_t version = 0; version < 4; ++version) {
      CommitRow commit;
      commit.job = name;
      commit.round = version - 1;
      commit.version = version;
      ASSERT_OK(journal_->CommitRound(commit));
      ASSERT_OK(journal_->PutEvaluation({name, version, kBytes}));
    }
  }
  ASSERT_OK(journal_->AddContribution(Contribution(3, "a-1")));
  ASSERT_OK(journal_->RollBack("job", 1));
  Reopen();
  EXPECT_THAT(journal_->LoadCommits("job"),
              IsOkAndHolds(ElementsAre(Field(&CommitRow::version, 0), Field(&CommitRow::version, 1))));
  EXPECT_THAT(journal_->LoadEvaluations("job"), IsOkAndHolds(SizeIs(2)));
  EXPECT_THAT(journal_->LoadContributions("job"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(journal_->LoadCommits("other"), IsOkAndHolds(SizeIs(4)));
}

TEST_F(JournalTest, WhatIsWrittenIsInTheFilesAtOnce) {
  ASSERT_OK(journal_->PutSite({"a", 5}));
  // As a crash would leave them: the journal is still open.
  for (const char* suffix : {"", "-wal"}) {
    std::filesystem::copy_file(path_ + suffix, dir_.Join("copy.db") + suffix);
  }
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Journal> copy, Journal::Open(dir_.Join("copy.db")));
  EXPECT_THAT(copy->LoadSites(), IsOkAndHolds(ElementsAre(Field(&SiteRow::generation, 5))));
}

TEST_F(JournalTest, TheFileIsInWalMode) {
  journal_.reset();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  sqlite3_stmt* mode = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &mode, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_step(mode), SQLITE_ROW);
  EXPECT_STREQ(reinterpret_cast<const char*>(sqlite3_column_text(mode, 0)), "wal");
  sqlite3_finalize(mode);
  sqlite3_close(db);
}

// Every write is on stable storage when it returns: also through a power cut. SQLite shows each new connection to its
// extensions; that is the way to the journal's own one here.
TEST_F(JournalTest, EveryTransactionIsSynced) {
  static sqlite3* connection = nullptr;
  const auto extension = reinterpret_cast<void (*)()>(+[](sqlite3* db, char**, const sqlite3_api_routines*) {
    connection = db;
    return SQLITE_OK;
  });
  ASSERT_EQ(sqlite3_auto_extension(extension), SQLITE_OK);
  Reopen();
  sqlite3_cancel_auto_extension(extension);
  ASSERT_NE(connection, nullptr);
  sqlite3_stmt* synchronous = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(connection, "PRAGMA synchronous", -1, &synchronous, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_step(synchronous), SQLITE_ROW);
  EXPECT_EQ(sqlite3_column_int(synchronous, 0), 2) << "not FULL";
  sqlite3_finalize(synchronous);
}

TEST_F(JournalTest, ThreadsShareIt) {
  ASSERT_OK(journal_->AddJob(Job("job")));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 10; ++i) {
        EXPECT_OK(journal_->CommitRound({"job", t, i, i}));
        EXPECT_OK(journal_->LoadCommits("job"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(journal_->LoadCommits("job"), IsOkAndHolds(SizeIs(40)));
}

TEST_F(JournalTest, ANewerSchemaIsRefused) {
  journal_.reset();
  Execute(path_, "UPDATE meta SET value = 4 WHERE key = 'schema_version'");
  EXPECT_THAT(Journal::Open(path_), StatusIs(absl::StatusCode::kFailedPrecondition,
                                             AllOf(HasSubstr("schema version 4"), HasSubstr("knows version 3"))));
}

// tests/golden has the dump of a journal that a program of version 1 wrote: two sites, one worker and one that was removed, a job that ended.
TEST_F(JournalTest, AJournalOfVersion1IsMigrated) {
  std::stringstream dump;
  dump << std::ifstream(CAUSEWAY_SOURCE_DIR "/tests/golden/journal_v1.sql").rdbuf();
  const std::string old = dir_.Join("old.db");
  Execute(old, dump.str());
  // A new one has the same tables, whatever the order of their columns.
  const auto columns = [&](const std::string& path) {
    std::multiset<std::string> found;
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    sqlite3_exec(
        db, "SELECT m.name || '.' || c.name || ' ' || c.type FROM sqlite_schema m, pragma_table_info(m.name) c",
        [](void* into, int, char** values, char**) {
          static_cast<std::multiset<std::string>*>(into)->insert(values[0]);
          return 0;
        },
        &found, nullptr);
    sqlite3_close(db);
    return found;
  };
  for (int start = 0; start < 2; ++start) {
    ASSERT_OK_AND_ASSIGN(std::unique_ptr<Journal> journal, Journal::Open(old));
    EXPECT_THAT(journal->LoadSites(), IsOkAndHolds(SizeIs(2)));
    EXPECT_THAT(journal->LoadTokens(), IsOkAndHolds(SizeIs(3)));
    ASSERT_OK_AND_ASSIGN(std::vector<WorkerRow> workers, journal->LoadWorkers());
    ASSERT_THAT(workers, SizeIs(2));
    EXPECT_EQ(workers[0].serial, "676c93c3885eb80881b43e4bb248482a");
    EXPECT_EQ(workers[0].key_sha256.size(), 32u);
    EXPECT_EQ(workers[0].previous_serial, start == 0 ? "" : "0abc");
    EXPECT_TRUE(workers[1].removed);
    workers[0].previous_serial = "0abc";
    ASSERT_OK(journal->PutWorker(workers[0]));
    EXPECT_THAT(journal->LoadJobs(), IsOkAndHolds(SizeIs(1)));
    EXPECT_THAT(journal->LoadCommits("job"), IsOkAndHolds(SizeIs(3)));
    EXPECT_THAT(journal->LoadEvaluations("job"), IsOkAndHolds(SizeIs(3)));
    EXPECT_THAT(journal->LoadPlans("job"), IsOkAndHolds(SizeIs(1)));
    EXPECT_THAT(journal->LoadProfiles("job"), IsOkAndHolds(SizeIs(2)));
    EXPECT_THAT(journal->NextIncarnation(), IsOkAndHolds(start + 2));
    journal.reset();
    EXPECT_EQ(columns(old), columns(path_));
  }
}

// Of version 2: a job in its third round, one of its two contributions there, a worker whose certificate is being renewed.
TEST_F(JournalTest, AJournalOfVersion2IsMigratedInMidRound) {
  std::stringstream dump;
  dump << std::ifstream(CAUSEWAY_SOURCE_DIR "/tests/golden/journal_v2.sql").rdbuf();
  const std::string old = dir_.Join("old.db");
  Execute(old, dump.str());
  for (int start = 0; start < 2; ++start) {
    ASSERT_OK_AND_ASSIGN(std::unique_ptr<Journal> journal, Journal::Open(old));
    ASSERT_OK_AND_ASSIGN(std::vector<WorkerRow> workers, journal->LoadWorkers());
    ASSERT_THAT(workers, SizeIs(2));
    EXPECT_EQ(workers[1].previous_serial, "5f1e0c8ad1a9b7e24c60d3f2b1a89077");
    ASSERT_OK_AND_ASSIGN(std::vector<ContributionRow> contributions, journal->LoadContributions("job"));
    ASSERT_THAT(contributions, SizeIs(1));
    EXPECT_EQ(contributions[0].worker, "a1");
    EXPECT_EQ(contributions[0].round, 2);
    EXPECT_EQ(contributions[0].samples, 100);
    EXPECT_THAT(journal->LoadCommits("job"), IsOkAndHolds(SizeIs(3)));
    ASSERT_OK_AND_ASSIGN(std::vector<JobRow> jobs, journal->LoadJobs());
    ASSERT_THAT(jobs, SizeIs(1));
    v1::StoredRuntime runtime;
    ASSERT_TRUE(runtime.ParseFromString(jobs[0].runtime));
    EXPECT_EQ(runtime.open_round().round(), 2);
    EXPECT_EQ(runtime.open_round().participants_size(), 2);
    EXPECT_THAT(journal->NextIncarnation(), IsOkAndHolds(start + 2));
  }
}

TEST_F(JournalTest, ForeignAndDamagedFilesAreRefused) {
  const std::string other = dir_.Join("other.db");
  Execute(other, "CREATE TABLE recipes (name TEXT)");
  EXPECT_THAT(Journal::Open(other), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another program")));

  std::ofstream(dir_.Join("text")) << std::string(5000, 'x');
  EXPECT_THAT(Journal::Open(dir_.Join("text")), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(dir_.Join("text"))));
  EXPECT_THAT(Journal::Open(dir_.Join("none/journal.db")), StatusIs(absl::StatusCode::kPermissionDenied));

  ASSERT_OK(journal_->AddJob(Job("job")));
  for (int i = 0; i < 200; ++i) ASSERT_OK(journal_->PutPlan({"job", i, std::string(1000, 'p'), ""}));
  journal_.reset();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path_) / 2));
  file << std::string(8192, '\x5a');
  file.close();
  EXPECT_THAT(Journal::Open(path_), StatusIs(absl::StatusCode::kDataLoss));
}

// Of each kind, in mid-round.
void WriteRows(Journal* journal) {
  ASSERT_OK(journal->NextIncarnation());
  ASSERT_OK(journal->PutSite({"a", 1}));
  ASSERT_OK(journal->PutToken({"t1", "a", kBytes, 16, 15, 1'700'000'000'000, false, "r1"}));
  ASSERT_OK(journal->PutWorker({"a-1", "a", "0abc", 1'800'000'000'000, false, 7, kBytes}));
  ASSERT_OK(journal->AddJob(
      {.name = "job", .request_id = "r2", .yaml = "name: job", .spec = kBytes, .state = 3, .runtime = kBytes}));
  ASSERT_OK(journal->PutPlan({"job", 1, kBytes, kBytes}));
  ASSERT_OK(journal->PutProfile({"job", "a-1", kBytes}));
  ASSERT_OK(journal->CommitRound({"job", 0, 0, 1, kBytes, "/m1", 100, 1'700'000'000'000, kBytes}));
  ASSERT_OK(journal->PutEvaluation({"job", 1, kBytes}));
  ASSERT_OK(journal->AddContribution({"job", 0, 1, 1'000'001, "a-1", 1, 7, 50, kBytes, "/p", kBytes}));
}

TEST_F(JournalTest, TheSealsFollowEveryChange) {
  const std::vector<std::function<absl::Status()>> changes = {
      [&] { return journal_->NextIncarnation().status(); },
      [&] {
        return journal_->PutSite({"a", 2});
      },
      [&] {
        return journal_->PutToken({"t1", "a", kBytes, 16, 14, 1'700'000'000'000, true});
      },
      [&] {
        return journal_->PutWorker({"a-1", "a", "0def", 1'800'000'000'000, true, 8, kBytes});
      },
      [&] {
        return journal_->AdmitWorker({"a-2", "a", "01"}, {"t1", "a", kBytes, 16, 13});
      },
      [&] { return journal_->UpdateJob({.name = "job", .state = 4, .reason = "so"}); },
      [&] {
        return journal_->PutPlan({"job", 1, "other", kBytes});
      },
      [&] {
        return journal_->PutProfile({"job", "a-1", "other"});
      },
      [&] {
        return journal_->PutEvaluation({"job", 1, "other"});
      },
      [&] {
        const JobRow job{.name = "job", .state = 5};
        return journal_->CommitRound({"job", 0, 1, 2}, &job);
      },
      [&] { return journal_->AddContribution(Contribution(2, "a-1")); },
      [&] { return journal_->DropContributions("job", 0, 2); },
      [&] { return journal_->RollBack("job", 1); },
      [&] { return journal_->RemoveSite("a"); },  // And with it its tokens and workers.
      [&] { return journal_->AddJob(Job("other")); },
      // What fails leaves them as they were.
      [&] { return journal_->AddJob(Job("other")).ok() ? absl::InternalError("twice") : absl::OkStatus(); },
  };
  WriteRows(journal_.get());
  for (size_t i = 0; i < changes.size(); ++i) {
    ASSERT_OK(changes[i]()) << i;
    Reopen();
    ASSERT_NE(journal_, nullptr) << i;
  }
}

TEST_F(JournalTest, RowsThatDoNotFitTheirChecksumAreNamed) {
  WriteRows(journal_.get());
  journal_.reset();
  const std::string original = dir_.Join("original.db");
  std::filesystem::copy_file(path_, original);
  for (const auto& [table, sql] : std::vector<std::pair<std::string, std::string>>{
           {"commits", "UPDATE commits SET sha256 = x'00'"},
           {"contributions", "DELETE FROM contributions"},
           {"evaluations", "INSERT INTO evaluations VALUES ('job', 2, x'')"},
           {"meta", "UPDATE meta SET value = 9 WHERE key = 'incarnation'"},
           {"workers", "UPDATE workers SET removed = 1"},
           {"sites", "UPDATE seals SET seal = seal + 1 WHERE name = 'sites'"},
           {"jobs", "DELETE FROM seals WHERE name = 'jobs'"},
           {"sqlite_schema", "CREATE INDEX late ON jobs (state)"},
           {"more", "CREATE TABLE more (a)"}}) {
    std::filesystem::copy_file(original, path_, std::filesystem::copy_options::overwrite_existing);
    Execute(path_, sql);
    EXPECT_THAT(Journal::Open(path_), StatusIs(absl::StatusCode::kDataLoss,
                                               AllOf(HasSubstr(path_), HasSubstr(absl::StrCat("table ", table)))));
  }
}

// All rows of all tables, as SQL would write them.
std::string Dump(const std::string& path) {
  std::string all;
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  const auto query = [db](const std::string& sql) {
    std::vector<std::string> rows;
    EXPECT_EQ(sqlite3_exec(
                  db, sql.c_str(),
                  [](void* into, int, char** values, char**) {
                    static_cast<std::vector<std::string>*>(into)->push_back(values[0]);
                    return 0;
                  },
                  &rows, nullptr),
              SQLITE_OK)
        << sqlite3_errmsg(db);
    return rows;
  };
  for (const std::string& table : query("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")) {
    const std::vector<std::string> columns =
        query(absl::StrCat("SELECT 'quote(' || name || ')' FROM pragma_table_info('", table, "')"));
    for (const std::string& row : query(absl::StrCat("SELECT ", absl::StrJoin(columns, "||','||"), " FROM ", table)))
      absl::StrAppend(&all, table, " ", row, "\n");
  }
  sqlite3_close(db);
  return all;
}

TEST_F(JournalTest, NoFlippedBitIsTakenForWhatWasWritten) {
  WriteRows(journal_.get());
  journal_.reset();
  std::stringstream stream;
  stream << std::ifstream(path_, std::ios::binary).rdbuf();
  const std::string bytes = stream.str();
  const std::string expected = Dump(path_);
  std::mt19937_64 random(1);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string damaged = bytes;
    const size_t bit = random() % (8 * bytes.size());
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    std::filesystem::remove(path_ + "-wal");
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << damaged;
    absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(path_);
    if (journal.ok()) {
      journal->reset();
      ASSERT_EQ(Dump(path_), expected) << "bit " << bit;  // It was in no row.
    } else {
      EXPECT_THAT(journal, StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_))) << "bit " << bit;
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

TEST_F(JournalTest, AnotherWriterIsAnError) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_THAT(journal_->NextIncarnation(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(journal_->PutSite({"a", 1}), StatusIs(absl::StatusCode::kFailedPrecondition));
  sqlite3_close(db);
  EXPECT_OK(journal_->PutSite({"a", 1}));
}

}  // namespace
}  // namespace causeway::server
