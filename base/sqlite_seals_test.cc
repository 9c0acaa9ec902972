#include "base/sqlite_seals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>

#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway {
namespace {

using ::testing::HasSubstr;

class SqliteSealsTest : public ::testing::Test {
 protected:
  SqliteSealsTest() {
    Open();
    Sql("CREATE TABLE things (name TEXT PRIMARY KEY, size INTEGER, bytes BLOB) STRICT, WITHOUT ROWID");
    Sql("CREATE TABLE others (id INTEGER PRIMARY KEY, thing TEXT REFERENCES things ON DELETE CASCADE)");
    Sql("INSERT INTO things VALUES ('a', 1, x'00ff'), ('b', NULL, x'')");
    EXPECT_FALSE(HasSeals(db_));
    Sql(kSealsTable);
    EXPECT_OK(SealAll(db_));
    EXPECT_TRUE(HasSeals(db_));
  }
  ~SqliteSealsTest() override { sqlite3_close(db_); }

  void Open() {
    sqlite3_close(db_);
    ASSERT_EQ(sqlite3_open(dir_.Join("db").c_str(), &db_), SQLITE_OK);
    Sql("PRAGMA foreign_keys = ON");
  }
  void Sql(const std::string& sql) {
    EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db_);
  }

  TempDir dir_;
  sqlite3* db_ = nullptr;
};

TEST_F(SqliteSealsTest, FollowTheChangesOfAConnectionThatKeepsThem) {
  ASSERT_OK(KeepSeals(db_));
  for (const char* change :
       {"INSERT INTO things VALUES ('c', 3, x'01')", "UPDATE things SET size = size + 1",
        "DELETE FROM things WHERE name = 'a'", "INSERT OR REPLACE INTO things VALUES ('b', 7, x'02')",
        "INSERT INTO others (thing) VALUES ('b'), ('b'), ('c')", "DELETE FROM things WHERE name = 'b'",
        "INSERT INTO things VALUES ('c', 9, x'03') ON CONFLICT (name) DO UPDATE SET size = excluded.size",
        "BEGIN; DELETE FROM things; ROLLBACK"}) {
    Sql(change);
    EXPECT_OK(CheckSeals(db_)) << change;
  }
  Open();
  EXPECT_OK(CheckSeals(db_));
}

TEST_F(SqliteSealsTest, WhatOthersChangeIsFoundAndNamed) {
  for (const char* change :
       {"UPDATE things SET bytes = x'00fe' WHERE name = 'a'", "UPDATE things SET size = 0 WHERE name = 'b'",
        "UPDATE things SET bytes = x'' WHERE name = 'a'", "DELETE FROM things WHERE name = 'a'",
        "INSERT INTO things VALUES ('c', 3, x'01')", "UPDATE seals SET seal = seal + 1 WHERE name = 'things'",
        "DELETE FROM seals WHERE name = 'things'"}) {
    Sql("BEGIN");
    Sql(change);
    EXPECT_THAT(CheckSeals(db_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("table things"))) << change;
    Sql("ROLLBACK");
  }
  EXPECT_OK(CheckSeals(db_));
  Sql("CREATE INDEX late ON things (size)");
  EXPECT_THAT(CheckSeals(db_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("sqlite_schema")));
}

TEST_F(SqliteSealsTest, AColumnAddedLaterIsAsOneThatWasThere) {
  Sql("ALTER TABLE things ADD COLUMN more TEXT NOT NULL DEFAULT ''");
  ASSERT_OK(SealAll(db_));
  ASSERT_OK(KeepSeals(db_));
  Sql("INSERT INTO things VALUES ('c', 3, x'01', 'm')");
  EXPECT_OK(CheckSeals(db_));
}

}  // namespace
}  // namespace causeway
