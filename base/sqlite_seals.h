#ifndef CAUSEWAY_BASE_SQLITE_SEALS_H_
#define CAUSEWAY_BASE_SQLITE_SEALS_H_

#include "absl/status/status.h"

struct sqlite3;

namespace causeway {

// Checksums of the tables of an SQLite database, which itself finds pages that are no pages, but not a bit that has flipped in a row.
//
// A table's seal is the exclusive or of its rows' digests (XXH3-64 of kind, length and value of each column, the columns in alphabetical order), so
// that it depends neither on the order of rows nor on when a column was added, and follows a change at the price of one row. The seals lie in the
// table `seals` (kSealsTable); the table of tables has one, too. The functions keep no state of their own and may be called wherever the connection
// may be used; all but the first return errors of SQLite as Internal or DataLoss with its message.
inline constexpr char kSealsTable[] =
    "CREATE TABLE seals (name TEXT PRIMARY KEY, seal INTEGER NOT NULL) STRICT, WITHOUT ROWID";

// Whether the database has seals.
bool HasSeals(sqlite3* db);

// Seals all tables as they are. In a transaction of the caller.
absl::Status SealAll(sqlite3* db);

// Errors: DataLoss, naming the table whose rows do not fit its seal.
absl::Status CheckSeals(sqlite3* db);

// From now on each change that this connection makes is put into the seals, in the same transaction (by temporary triggers). The schema must not
// change afterwards.
absl::Status KeepSeals(sqlite3* db);

}  // namespace causeway

#endif  // CAUSEWAY_BASE_SQLITE_SEALS_H_
