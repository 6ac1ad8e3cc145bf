#include "daemon/store/calibration_store.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>
#include <cstring>
#include <functional>

#include "base/status.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr int kKeep = 2000, kKeepOfAKind = 40;

constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS measurement(
  id INTEGER PRIMARY KEY, unix_s INTEGER NOT NULL, tuned INTEGER NOT NULL,
  engine TEXT NOT NULL, engine_version TEXT NOT NULL, engine_build TEXT NOT NULL, backend TEXT NOT NULL,
  device TEXT NOT NULL, driver_version TEXT NOT NULL, model_sha256 TEXT NOT NULL, quantization TEXT NOT NULL,
  sessions INTEGER NOT NULL, context_total INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
  predicted_decode REAL, measured_decode REAL, predicted_ttft REAL, measured_ttft REAL,
  predicted_load REAL, measured_load REAL, predicted_memory TEXT NOT NULL, measured_memory TEXT NOT NULL,
  predicted_aggregate REAL, measured_aggregate REAL, knobs TEXT NOT NULL);
PRAGMA user_version = 2;
)";

std::string ToJson(const std::vector<MemoryItem>& items) {
  json::array list;
  for (const MemoryItem& item : items) {
    list.push_back(json::object{
        {"pool", item.pool}, {"what", item.what}, {"bytes", item.bytes}, {"source", item.source}});
  }
  return json::serialize(list);
}

std::vector<MemoryItem> ItemsFromJson(const char* text) {
  std::vector<MemoryItem> items;
  boost::system::error_code error;
  const json::value value = json::parse(text == nullptr ? "[]" : text, error);
  if (error || !value.is_array()) return items;
  for (const json::value& v : value.get_array()) {
    const json::object* o = v.if_object();
    const auto text_of = [&](const char* key) {
      const json::value* field = o == nullptr ? nullptr : o->if_contains(key);
      return field != nullptr && field->is_string() ? std::string(field->get_string().c_str())
                                                    : std::string();
    };
    const json::value* bytes = o == nullptr ? nullptr : o->if_contains("bytes");
    MemoryItem item{text_of("pool"), text_of("what"), 0, text_of("source")};
    if (bytes != nullptr && bytes->is_uint64()) item.bytes = bytes->get_uint64();
    if (bytes != nullptr && bytes->is_int64() && bytes->get_int64() > 0)
      item.bytes = static_cast<Bytes>(bytes->get_int64());
    items.push_back(std::move(item));
  }
  return items;
}

// A prepared statement; binds and reads by position.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    ok_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr) == SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(const std::string& text) {
    if (ok_)
      sqlite3_bind_text(statement_, ++at_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    return *this;
  }
  Statement& Bind(int64_t n) {
    if (ok_) sqlite3_bind_int64(statement_, ++at_, n);
    return *this;
  }
  Statement& Bind(const std::optional<double>& value) {
    if (!ok_) return *this;
    value ? sqlite3_bind_double(statement_, ++at_, *value) : sqlite3_bind_null(statement_, ++at_);
    return *this;
  }
  int Step() { return ok_ ? sqlite3_step(statement_) : SQLITE_ERROR; }

  std::string Text(int i) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, i));
    return text == nullptr ? "" : text;
  }
  int64_t Int(int i) const { return sqlite3_column_int64(statement_, i); }
  std::optional<double> Real(int i) const {
    if (sqlite3_column_type(statement_, i) == SQLITE_NULL) return std::nullopt;
    return sqlite3_column_double(statement_, i);
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  bool ok_ = false;
  int at_ = 0;
};

absl::Status SqlError(sqlite3* db, const char* what) {
  const int code = sqlite3_errcode(db);
  const std::string text = std::string(what) + ": " + sqlite3_errmsg(db);
  if (code == SQLITE_FULL) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDiskFull, text,
                 "Free some space, then try again.");
  }
  return Internal(text);
}

class SqliteCalibrationStore final : public CalibrationStore {
 public:
  explicit SqliteCalibrationStore(sqlite3* db) : db_(db) {}
  ~SqliteCalibrationStore() override { sqlite3_close(db_); }

  absl::StatusOr<Calibration> Load() override {
    Calibration out;
    Statement s(db_,
                "SELECT engine, engine_version, engine_build, backend, device, driver_version, model_sha256, "
                "quantization, "
                "sessions, context_total, prompt_tokens, predicted_decode, measured_decode, predicted_ttft, "
                "measured_ttft, "
                "predicted_load, measured_load, predicted_memory, measured_memory, unix_s, tuned, "
                "predicted_aggregate, measured_aggregate, knobs FROM measurement ORDER BY id");
    int code;
    while ((code = s.Step()) == SQLITE_ROW) {
      Measurement m;
      m.key = {s.Text(0), s.Text(1), s.Text(2), s.Text(3), s.Text(4), s.Text(5), s.Text(6), s.Text(7)};
      m.sessions = static_cast<uint32_t>(s.Int(8));
      m.context_total = static_cast<uint32_t>(s.Int(9));
      m.prompt_tokens = static_cast<uint32_t>(s.Int(10));
      m.predicted_decode_tok_s = s.Real(11), m.measured_decode_tok_s = s.Real(12);
      m.predicted_ttft_ms = s.Real(13), m.measured_ttft_ms = s.Real(14);
      m.predicted_load_s = s.Real(15), m.measured_load_s = s.Real(16);
      m.predicted_memory = ItemsFromJson(s.Text(17).c_str());
      m.measured_memory = ItemsFromJson(s.Text(18).c_str());
      m.unix_s = s.Int(19);
      m.tuned = s.Int(20) != 0;
      m.predicted_aggregate_tok_s = s.Real(21), m.measured_aggregate_tok_s = s.Real(22);
      m.knobs = s.Text(23);
      AddMeasurement(out, std::move(m));
    }
    if (code != SQLITE_DONE) return SqlError(db_, "read measurements");
    return out;
  }

  absl::Status Add(const std::vector<Measurement>& batch) override {
    if (batch.empty()) return absl::OkStatus();
    if (Statement(db_, "BEGIN IMMEDIATE").Step() != SQLITE_DONE) return SqlError(db_, "keep measurements");
    absl::Status status;
    for (const Measurement& m : batch) status.Update(Insert(m));
    if (status.ok()) {
      // A busy model must not crowd out what others, or a tuning run, were measured at.
      Statement share(db_,
                      "DELETE FROM measurement WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() OVER ("
                      "PARTITION BY engine, engine_version, engine_build, backend, device, driver_version, "
                      "model_sha256, sessions, tuned, knobs, measured_decode IS NULL ORDER BY id DESC) AS n "
                      "FROM measurement) WHERE n > ?)");
      Statement trim(db_,
                     "DELETE FROM measurement WHERE id <= (SELECT id FROM measurement ORDER BY id DESC "
                     "LIMIT 1 OFFSET ?)");
      if (share.Bind(int64_t{kKeepOfAKind}).Step() != SQLITE_DONE ||
          trim.Bind(int64_t{kKeep}).Step() != SQLITE_DONE)
        status = SqlError(db_, "trim measurements");
    }
    if (status.ok() && Statement(db_, "COMMIT").Step() != SQLITE_DONE)
      status = SqlError(db_, "keep measurements");
    if (!status.ok()) Statement(db_, "ROLLBACK").Step();
    return status;
  }

  absl::StatusOr<int> Forget(const std::string& engine, const std::string& backend,
                             const std::string& device) override {
    Statement s(db_,
                "DELETE FROM measurement WHERE (?1 = '' OR engine = ?1) AND (?2 = '' OR backend = ?2) AND "
                "(?3 = '' OR device = ?3)");
    if (s.Bind(engine).Bind(backend).Bind(device).Step() != SQLITE_DONE)
      return SqlError(db_, "forget measurements");
    return sqlite3_changes(db_);
  }

 private:
  absl::Status Insert(const Measurement& m) {
    Statement s(
        db_,
        "INSERT INTO measurement(engine, engine_version, engine_build, backend, device, driver_version, "
        "model_sha256, "
        "quantization, sessions, context_total, prompt_tokens, predicted_decode, measured_decode, "
        "predicted_ttft, "
        "measured_ttft, predicted_load, measured_load, predicted_memory, measured_memory, unix_s, tuned, "
        "predicted_aggregate, measured_aggregate, knobs) "
        "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    const CalibrationKey& k = m.key;
    s.Bind(k.engine)
        .Bind(k.engine_version)
        .Bind(k.engine_build)
        .Bind(k.backend)
        .Bind(k.device)
        .Bind(k.driver_version);
    s.Bind(k.model_sha256).Bind(k.quantization);
    s.Bind(int64_t{m.sessions}).Bind(int64_t{m.context_total}).Bind(int64_t{m.prompt_tokens});
    s.Bind(m.predicted_decode_tok_s)
        .Bind(m.measured_decode_tok_s)
        .Bind(m.predicted_ttft_ms)
        .Bind(m.measured_ttft_ms);
    s.Bind(m.predicted_load_s)
        .Bind(m.measured_load_s)
        .Bind(ToJson(m.predicted_memory))
        .Bind(ToJson(m.measured_memory));
    s.Bind(m.unix_s).Bind(int64_t{m.tuned});
    s.Bind(m.predicted_aggregate_tok_s).Bind(m.measured_aggregate_tok_s).Bind(m.knobs);
    if (s.Step() != SQLITE_DONE) return SqlError(db_, "keep a measurement");
    return absl::OkStatus();
  }

  sqlite3* db_;
};

absl::StatusOr<sqlite3*> OpenOnce(const std::string& path) {
  sqlite3* db = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(path.c_str(), &db, flags, nullptr) != SQLITE_OK) {
    const absl::Status status = SqlError(db, "open the measurements");
    sqlite3_close(db);
    return status;
  }
  ::chmod(path.c_str(), 0600);
  sqlite3_busy_timeout(db, 2000);
  // Measurements of an older layout are few and soon made again.
  const auto version = [db] {
    Statement s(db, "PRAGMA user_version");
    return s.Step() == SQLITE_ROW ? s.Int(0) : 0;
  };
  if (version() == 1) sqlite3_exec(db, "DROP TABLE IF EXISTS measurement", nullptr, nullptr, nullptr);
  const bool ok = sqlite3_exec(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", nullptr,
                               nullptr, nullptr) == SQLITE_OK &&
                  sqlite3_exec(db, kSchema, nullptr, nullptr, nullptr) == SQLITE_OK;
  Statement probe(db, "SELECT COUNT(measured_memory), COUNT(knobs) FROM measurement");
  if (ok && probe.Step() == SQLITE_ROW) return db;
  const int code = sqlite3_errcode(db);
  const absl::Status status =
      code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_ERROR
          ? Error(absl::StatusCode::kDataLoss, Reason::kInternal, "the measurements are damaged")
          : SqlError(db, "open the measurements");
  sqlite3_close(db);
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CalibrationStore>> OpenCalibrationStore(const std::string& path) {
  auto db = OpenOnce(path);
  if (!db.ok() && db.status().code() == absl::StatusCode::kDataLoss) {
    if (std::rename(path.c_str(), (path + ".damaged").c_str()) != 0) return db.status();
    for (const char* suffix : {"-wal", "-shm"}) ::unlink((path + suffix).c_str());
    db = OpenOnce(path);
  }
  if (!db.ok()) return db.status();
  return std::unique_ptr<CalibrationStore>(new SqliteCalibrationStore(*db));
}

}  // namespace rumbo
