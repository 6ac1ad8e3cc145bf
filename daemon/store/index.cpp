#include "daemon/store/index.h"

#include <sys/stat.h>

#include <boost/json.hpp>

#include "base/status.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr char kSchema[] = R"(
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
PRAGMA foreign_keys=ON;
CREATE TABLE IF NOT EXISTS models(
  name TEXT PRIMARY KEY,
  pinned INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE IF NOT EXISTS variants(
  model TEXT NOT NULL REFERENCES models(name) ON DELETE CASCADE,
  id TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  files TEXT NOT NULL,          -- JSON array: names below blobs/, or objects {name, sha256, bytes, adopted, mtime}
  bytes INTEGER NOT NULL,
  descriptor TEXT NOT NULL,     -- JSON of rumbo-inspect
  added INTEGER NOT NULL,       -- seconds since the epoch
  source TEXT NOT NULL DEFAULT '',
  pull TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(model, id)) STRICT;
)";

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) {
    rc_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(const std::string& text) {
    if (rc_ == SQLITE_OK)
      rc_ = sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                              SQLITE_TRANSIENT);
    return *this;
  }
  Statement& Bind(int64_t number) {
    if (rc_ == SQLITE_OK) rc_ = sqlite3_bind_int64(statement_, ++bound_, number);
    return *this;
  }
  // True while there is a row.
  bool Step() {
    if (rc_ != SQLITE_OK && rc_ != SQLITE_ROW) return false;
    rc_ = sqlite3_step(statement_);
    return rc_ == SQLITE_ROW;
  }
  // Runs to the end.
  absl::Status Run() {
    while (Step()) {
    }
    return status();
  }
  absl::Status status() const {
    if (rc_ == SQLITE_OK || rc_ == SQLITE_ROW || rc_ == SQLITE_DONE) return absl::OkStatus();
    if (rc_ == SQLITE_FULL || (rc_ == SQLITE_IOERR && sqlite3_system_errno(db_) == ENOSPC)) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kDiskFull,
                   "the model index cannot grow: the disk is full", "Free some space, then try again.");
    }
    return Internal(std::string("model index: ") + sqlite3_errmsg(db_));
  }
  std::string Text(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return text ? std::string(text, sqlite3_column_bytes(statement_, column)) : "";
  }
  int64_t Number(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  sqlite3* const db_;
  sqlite3_stmt* statement_ = nullptr;
  int rc_ = SQLITE_OK;
  int bound_ = 0;
};

std::string FilesToJson(const std::vector<StoredFile>& files) {
  json::array out;
  for (const StoredFile& file : files) {
    json::object entry{{"sha256", file.sha256}, {"bytes", file.bytes}, {"mtime", file.mtime_ns}};
    if (!file.name.empty()) entry["name"] = file.name;
    if (!file.adopted.empty()) entry["adopted"] = file.adopted;
    out.push_back(std::move(entry));
  }
  return json::serialize(out);
}

std::vector<StoredFile> FilesFromJson(const std::string& text, const std::string& sha256, uint64_t bytes) {
  std::vector<StoredFile> out;
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (error || !value.is_array()) return out;
  for (const json::value& entry : value.get_array()) {
    StoredFile file;
    if (entry.is_string()) {  // before there were sets
      file.sha256 = sha256;
      file.bytes = bytes;
    } else if (const json::object* object = entry.if_object()) {
      const auto get = [&](const char* key) {
        const json::value* v = object->if_contains(key);
        return v != nullptr && v->is_string() ? std::string(v->get_string().c_str()) : std::string();
      };
      const auto number = [&](const char* key) {
        const json::value* v = object->if_contains(key);
        return v != nullptr && v->is_int64() ? v->get_int64() : 0;
      };
      file.name = get("name");
      file.sha256 = get("sha256");
      file.adopted = get("adopted");
      file.bytes = static_cast<uint64_t>(number("bytes"));
      file.mtime_ns = number("mtime");
    }
    out.push_back(std::move(file));
  }
  return out;
}

std::vector<IndexRow> Collect(Statement& rows) {
  std::vector<IndexRow> out;
  while (rows.Step()) {
    IndexRow row;
    row.model = rows.Text(0);
    row.pinned = rows.Number(1) != 0;
    row.variant = rows.Text(2);
    row.sha256 = rows.Text(3);
    row.bytes = static_cast<uint64_t>(rows.Number(5));
    row.files = FilesFromJson(rows.Text(4), row.sha256, row.bytes);
    row.descriptor = rows.Text(6);
    row.added_unix_s = rows.Number(7);
    row.source = rows.Text(8);
    row.pull = rows.Text(9);
    out.push_back(std::move(row));
  }
  return out;
}

#define RUMBO_SELECT                                                                                         \
  "SELECT m.name, m.pinned, v.id, v.sha256, v.files, v.bytes, v.descriptor, v.added, v.source, v.pull FROM " \
  "models m "                                                                                                \
  "JOIN variants v ON v.model = m.name "

}  // namespace

absl::Status ModelIndex::Open(const std::string& path) {
  sqlite3* db = nullptr;
  if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                      nullptr) != SQLITE_OK ||
      sqlite3_exec(db, kSchema, nullptr, nullptr, nullptr) != SQLITE_OK) {
    const std::string what = db ? sqlite3_errmsg(db) : "out of memory";
    sqlite3_close(db);
    return Error(
        absl::StatusCode::kFailedPrecondition, Reason::kInternal, "the model index cannot be opened: " + what,
        "Check the state folder's disk and permissions; moving models.sqlite away makes an empty index.");
  }
  // An index from before these columns; where they are, SQLite refuses, which is fine.
  sqlite3_exec(db, "ALTER TABLE variants ADD COLUMN source TEXT NOT NULL DEFAULT ''", nullptr, nullptr,
               nullptr);
  sqlite3_exec(db, "ALTER TABLE variants ADD COLUMN pull TEXT NOT NULL DEFAULT ''", nullptr, nullptr,
               nullptr);
  ::chmod(path.c_str(), 0600);
  sqlite3_busy_timeout(db, 5000);
  db_ = db;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<IndexRow>> ModelIndex::Rows() {
  Statement rows(db_, RUMBO_SELECT "ORDER BY m.name, v.id");
  std::vector<IndexRow> out = Collect(rows);
  RUMBO_RETURN_IF_ERROR(rows.status());
  return out;
}

absl::StatusOr<std::vector<IndexRow>> ModelIndex::RowsOf(const std::string& model) {
  Statement rows(db_, RUMBO_SELECT "WHERE m.name = ? ORDER BY v.id");
  rows.Bind(model);
  std::vector<IndexRow> out = Collect(rows);
  RUMBO_RETURN_IF_ERROR(rows.status());
  return out;
}

absl::Status ModelIndex::Put(const IndexRow& row, bool beside) {
  RUMBO_RETURN_IF_ERROR(Statement(db_, "BEGIN IMMEDIATE").Run());
  const auto write = [&]() -> absl::Status {
    RUMBO_RETURN_IF_ERROR(Statement(db_, "INSERT INTO models(name) VALUES(?) ON CONFLICT(name) DO NOTHING")
                              .Bind(row.model)
                              .Run());
    RUMBO_RETURN_IF_ERROR(Statement(db_, "DELETE FROM variants WHERE model=? AND (?=0 OR id=?)")
                              .Bind(row.model)
                              .Bind(int64_t{beside})
                              .Bind(row.variant)
                              .Run());
    return Statement(db_,
                     "INSERT INTO variants(model,id,sha256,files,bytes,descriptor,added,source,pull) "
                     "VALUES(?,?,?,?,?,?,?,?,?)")
        .Bind(row.model)
        .Bind(row.variant)
        .Bind(row.sha256)
        .Bind(FilesToJson(row.files))
        .Bind(static_cast<int64_t>(row.bytes))
        .Bind(row.descriptor)
        .Bind(row.added_unix_s)
        .Bind(row.source)
        .Bind(row.pull)
        .Run();
  };
  absl::Status status = write();
  if (status.ok()) status = Statement(db_, "COMMIT").Run();
  if (!status.ok()) Statement(db_, "ROLLBACK").Run().IgnoreError();
  return status;
}

absl::Status ModelIndex::Remove(const std::string& model) {
  return Statement(db_, "DELETE FROM models WHERE name=?").Bind(model).Run();
}

absl::Status ModelIndex::SetPinned(const std::string& model, bool pinned) {
  return Statement(db_, "UPDATE models SET pinned=? WHERE name=?").Bind(int64_t{pinned}).Bind(model).Run();
}

}  // namespace rumbo
