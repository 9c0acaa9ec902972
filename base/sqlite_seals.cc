#include "base/sqlite_seals.h"

#include <sqlite3.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace causeway {
namespace {

absl::Status ErrorOf(sqlite3* db, absl::string_view doing) {
  const std::string message = absl::StrCat("cannot ", doing, ": ", sqlite3_errmsg(db));
  const int code = sqlite3_errcode(db);
  return code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? absl::DataLossError(message) : absl::InternalError(message);
}

absl::Status Execute(sqlite3* db, const std::string& sql) {
  return sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus() : ErrorOf(db, "seal");
}

absl::Status ForEachRow(sqlite3* db, const std::string& sql, const std::function<void(sqlite3_stmt*)>& see) {
  sqlite3_stmt* prepared = nullptr;
  if (sqlite3_prepare_v2(db, sql.c_str(), -1, &prepared, nullptr) != SQLITE_OK) return ErrorOf(db, "read");
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, sqlite3_finalize);
  int step;
  while ((step = sqlite3_step(prepared)) == SQLITE_ROW) see(prepared);
  return step == SQLITE_DONE ? absl::OkStatus() : ErrorOf(db, "read");
}

absl::StatusOr<std::vector<std::string>> Texts(sqlite3* db, const std::string& sql) {
  std::vector<std::string> texts;
  RETURN_IF_ERROR(ForEachRow(db, sql, [&](sqlite3_stmt* row) {
    const unsigned char* text = sqlite3_column_text(row, 0);
    texts.emplace_back(text == nullptr ? "" : reinterpret_cast<const char*>(text));
  }));
  return texts;
}

// seal(SEAL, VALUE...): SEAL with a row of these values put in, or taken out.
void SealFunction(sqlite3_context* context, int count, sqlite3_value** values) {
  std::string row;
  for (int i = 1; i < count; ++i) {
    const int type = sqlite3_value_type(values[i]);  // Before what follows converts numbers to text.
    const char* data = static_cast<const char*>(sqlite3_value_blob(values[i]));
    const absl::string_view value(data, static_cast<size_t>(sqlite3_value_bytes(values[i])));
    absl::StrAppend(&row, type, " ", value.size(), " ", value);
  }
  sqlite3_result_int64(context,
                       sqlite3_value_int64(values[0]) ^ static_cast<int64_t>(XXH3_64bits(row.data(), row.size())));
}

absl::Status Register(sqlite3* db) {
  return sqlite3_create_function_v2(db, "seal", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr, SealFunction, nullptr,
                                    nullptr, nullptr) == SQLITE_OK
             ? absl::OkStatus()
             : ErrorOf(db, "seal");
}

// All but that of the seals; and the table of tables, whose rows change only when the schema does.
absl::StatusOr<std::vector<std::string>> Tables(sqlite3* db) {
  return Texts(db,
               "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'seals' UNION SELECT 'sqlite_schema'");
}

absl::StatusOr<std::vector<std::string>> Columns(sqlite3* db, const std::string& table) {
  ASSIGN_OR_RETURN(std::vector<std::string> columns,
                   Texts(db, absl::StrCat("SELECT name FROM pragma_table_info('", table, "') ORDER BY name")));
  // Where a table's pages lie is no row's content.
  if (table == "sqlite_schema") std::erase(columns, "rootpage");
  if (columns.empty()) return absl::DataLossError(absl::StrCat("damaged: table ", table, " has no columns"));
  return columns;
}

absl::StatusOr<int64_t> SealOf(sqlite3* db, const std::string& table) {
  ASSIGN_OR_RETURN(const std::vector<std::string> columns, Columns(db, table));
  int64_t seal = 0;
  RETURN_IF_ERROR(ForEachRow(db, absl::StrCat("SELECT seal(0, ", absl::StrJoin(columns, ", "), ") FROM ", table),
                             [&](sqlite3_stmt* row) { seal ^= sqlite3_column_int64(row, 0); }));
  return seal;
}

}  // namespace

bool HasSeals(sqlite3* db) {
  const absl::StatusOr<std::vector<std::string>> found =
      Texts(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'seals'");
  return found.ok() && !found->empty();
}

absl::Status SealAll(sqlite3* db) {
  RETURN_IF_ERROR(Register(db));
  RETURN_IF_ERROR(Execute(db, "DELETE FROM seals"));
  ASSIGN_OR_RETURN(const std::vector<std::string> tables, Tables(db));
  for (const std::string& table : tables) {
    ASSIGN_OR_RETURN(const int64_t seal, SealOf(db, table));
    RETURN_IF_ERROR(Execute(db, absl::StrCat("INSERT INTO seals VALUES ('", table, "', ", seal, ")")));
  }
  return absl::OkStatus();
}

absl::Status CheckSeals(sqlite3* db) {
  RETURN_IF_ERROR(Register(db));
  ASSIGN_OR_RETURN(const std::vector<std::string> tables, Tables(db));
  for (const std::string& table : tables) {
    ASSIGN_OR_RETURN(const int64_t seal, SealOf(db, table));
    std::vector<int64_t> stored;
    RETURN_IF_ERROR(ForEachRow(db, absl::StrCat("SELECT seal FROM seals WHERE name = '", table, "'"),
                               [&](sqlite3_stmt* row) { stored.push_back(sqlite3_column_int64(row, 0)); }));
    if (stored != std::vector<int64_t>{seal})
      return absl::DataLossError(absl::StrCat("damaged: the rows of table ", table, " do not fit their checksum"));
  }
  return absl::OkStatus();
}

absl::Status KeepSeals(sqlite3* db) {
  RETURN_IF_ERROR(Register(db));
  // Recursive triggers: what OR REPLACE takes out fires them, too.
  RETURN_IF_ERROR(Execute(db, "PRAGMA recursive_triggers = ON"));
  ASSIGN_OR_RETURN(const std::vector<std::string> tables, Tables(db));
  for (const std::string& table : tables) {
    if (table == "sqlite_schema") continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> columns, Columns(db, table));
    const auto change = [&](absl::string_view row) {
      return absl::StrCat("UPDATE seals SET seal = seal(seal, ", row, ".",
                          absl::StrJoin(columns, absl::StrCat(", ", row, ".")), ") WHERE name = '", table, "'; ");
    };
    const auto trigger = [&](absl::string_view event, const std::string& body) {
      return absl::StrCat("CREATE TEMP TRIGGER seal_", event, "_", table, " AFTER ", event, " ON main.", table,
                          " BEGIN ", body, "END;");
    };
    RETURN_IF_ERROR(Execute(db, trigger("INSERT", change("NEW"))));
    RETURN_IF_ERROR(Execute(db, trigger("DELETE", change("OLD"))));
    RETURN_IF_ERROR(Execute(db, trigger("UPDATE", change("OLD") + change("NEW"))));
  }
  return absl::OkStatus();
}

}  // namespace causeway
