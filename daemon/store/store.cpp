#include "daemon/store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <openssl/evp.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <vector>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "base/utf8.h"

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
  files TEXT NOT NULL,          -- JSON array of names below blobs/
  bytes INTEGER NOT NULL,
  descriptor TEXT NOT NULL,     -- JSON of rumbo-inspect
  added INTEGER NOT NULL,       -- seconds since the epoch
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
    if (rc_ == SQLITE_FULL) {
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

std::string Hex(const unsigned char* data, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < size; ++i) {
    out += kDigits[data[i] >> 4];
    out += kDigits[data[i] & 15];
  }
  return out;
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_, EVP_sha256(), nullptr); }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  void Update(const void* data, size_t size) { EVP_DigestUpdate(context_, data, size); }
  std::string Finish() {
    unsigned char digest[32];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_, digest, &size);
    return Hex(digest, size);
  }

 private:
  EVP_MD_CTX* const context_;
};

// A file that removes itself unless it was renamed.
struct Temporary {
  std::string path;
  UniqueFd fd;
  ~Temporary() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

class Store final : public ModelStore {
 public:
  Store(std::string dir, InspectFn inspect, Executor* executor, WallClock* wall)
      : dir_(std::move(dir)),
        blobs_(dir_ + "/blobs"),
        inspect_(std::move(inspect)),
        executor_(executor),
        wall_(wall) {}
  ~Store() override { sqlite3_close(db_); }

  void List(Callback<std::vector<StoredModel>> done) override {
    executor_->Post([this, done = std::move(done)] {
      if (absl::Status opened = Open(); !opened.ok()) return done(opened);
      done(ListAll());
    });
  }

  void Import(ImportSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
              std::function<void(const StepProgress&)> progress, Callback<StoredModel> done) override {
    executor_->Post(
        [this, spec = std::move(spec), cancelled, progress = std::move(progress), done = std::move(done)] {
          if (absl::Status opened = Open(); !opened.ok()) return done(opened);
          done(ImportFile(spec, *cancelled, progress));
        });
  }

  void Delete(std::string name, Callback<Bytes> done) override {
    executor_->Post([this, name = std::move(name), done = std::move(done)] {
      if (absl::Status opened = Open(); !opened.ok()) return done(opened);
      done(DeleteModel(name));
    });
  }

  void SetPinned(std::string name, bool pinned, Callback<bool> done) override {
    executor_->Post([this, name = std::move(name), pinned, done = std::move(done)] {
      if (absl::Status opened = Open(); !opened.ok()) return done(opened);
      const absl::Status status =
          Statement(db_, "UPDATE models SET pinned=? WHERE name=?").Bind(int64_t{pinned}).Bind(name).Run();
      if (status.ok()) {
        done(pinned);
      } else {
        done(status);
      }
    });
  }

 private:
  absl::Status Open() {
    if (db_ != nullptr) return absl::OkStatus();
    RUMBO_RETURN_IF_ERROR(MakeDirectories(blobs_, 0700));
    const std::string path = dir_ + "/models.sqlite";
    sqlite3* db = nullptr;
    if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        nullptr) != SQLITE_OK ||
        sqlite3_exec(db, kSchema, nullptr, nullptr, nullptr) != SQLITE_OK) {
      const std::string what = db ? sqlite3_errmsg(db) : "out of memory";
      sqlite3_close(db);
      return Error(
          absl::StatusCode::kFailedPrecondition, Reason::kInternal,
          "the model index cannot be opened: " + what,
          "Check the state folder's disk and permissions; moving models.sqlite away makes an empty index.");
    }
    ::chmod(path.c_str(), 0600);
    sqlite3_busy_timeout(db, 5000);
    db_ = db;
    RemoveLeftovers();
    return absl::OkStatus();
  }

  // What an import that did not finish left behind.
  void RemoveLeftovers() const {
    DIR* dir = ::opendir(blobs_.c_str());
    if (dir == nullptr) return;
    while (const dirent* entry = ::readdir(dir)) {
      const std::string name = entry->d_name;
      if (name.rfind("tmp-", 0) == 0) ::unlink((blobs_ + "/" + name).c_str());
    }
    ::closedir(dir);
  }

  absl::StatusOr<std::vector<StoredModel>> ListAll() {
    std::vector<StoredModel> models;
    Statement rows(
        db_,
        "SELECT m.name, m.pinned, v.id, v.sha256, v.files, v.bytes, v.descriptor, v.added FROM models m "
        "JOIN variants v ON v.model = m.name ORDER BY m.name, v.id");
    while (rows.Step()) {
      if (models.empty() || models.back().name != rows.Text(0))
        models.push_back({rows.Text(0), {}, rows.Number(1) != 0});
      StoredVariant variant;
      variant.id = rows.Text(2);
      variant.sha256 = rows.Text(3);
      variant.added_unix_s = rows.Number(7);
      if (absl::StatusOr<ModelDescriptor> descriptor = DescriptorFromJson(rows.Text(6)); descriptor.ok()) {
        variant.descriptor = std::move(*descriptor);
      } else {
        variant.state = "damaged";
      }
      boost::system::error_code error;
      const json::value files = json::parse(rows.Text(4), error);
      Bytes bytes = 0;
      for (const json::value& file : files.is_array() ? files.as_array() : json::array()) {
        variant.files.push_back(blobs_ + "/" + std::string(file.as_string()));
        struct stat info;
        if (::stat(variant.files.back().c_str(), &info) == 0) bytes += info.st_size;
      }
      if (variant.files.empty() || bytes != static_cast<Bytes>(rows.Number(5))) variant.state = "damaged";
      models.back().variants.push_back(std::move(variant));
    }
    RUMBO_RETURN_IF_ERROR(rows.status());
    return models;
  }

  absl::StatusOr<StoredModel> Get(const std::string& name) {
    RUMBO_ASSIGN_OR_RETURN(std::vector<StoredModel> models, ListAll());
    for (StoredModel& model : models) {
      if (model.name == name) return std::move(model);
    }
    return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound, "no model is called " + name);
  }

  absl::StatusOr<StoredModel> ImportFile(const ImportSpec& spec, const std::atomic<bool>& cancelled,
                                         const std::function<void(const StepProgress&)>& progress) {
    RUMBO_RETURN_IF_ERROR(CheckModelName(spec.name));
    if (!spec.variant.empty() && (!CheckModelName(spec.variant).ok() || spec.variant.size() > 64))
      return InvalidArgument("'" + EscapeForLog(spec.variant, 80) + "' cannot be the name of a variant",
                             "Use up to 64 letters, digits and ._:@+-, beginning with a letter or digit.");
    UniqueFd source(::open(spec.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!source.valid()) return ErrnoStatus(errno, "open " + EscapeForLog(spec.path));
    struct stat info;
    if (::fstat(source.get(), &info) != 0) return ErrnoStatus(errno, "stat " + EscapeForLog(spec.path));
    if (!S_ISREG(info.st_mode)) return ErrnoStatus(EISDIR, EscapeForLog(spec.path) + " is not a model file");
    progress({.step = "inspect"});
    // First the source, so that what is no model is refused before anything is copied; then the copy, which
    // nobody else can change.
    RUMBO_RETURN_IF_ERROR(inspect_(spec.path).status());
    struct statvfs disk;
    if (::statvfs(blobs_.c_str(), &disk) == 0 &&
        SaturatingMul(disk.f_bavail, disk.f_frsize) < static_cast<Bytes>(info.st_size)) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kDiskFull,
                   "the model takes " + FormatBytes(info.st_size) + " and the disk has " +
                       FormatBytes(SaturatingMul(disk.f_bavail, disk.f_frsize)),
                   "Free some space, or choose another --state-dir.");
    }
    Temporary copy;
    copy.path = blobs_ + "/tmp-" + std::to_string(::getpid()) + "-" + std::to_string(++temporaries_);
    copy.fd.reset(::open(copy.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!copy.fd.valid()) return ErrnoStatus(errno, "create a file in the store");
    RUMBO_ASSIGN_OR_RETURN(const std::string sha256,
                           CopyAndHash(source.get(), copy.fd.get(), info.st_size, cancelled, progress));
    if (!spec.expected_sha256.empty() && spec.expected_sha256 != sha256) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kHashMismatch,
                   "the file's sha256 is " + sha256 + ", not " + EscapeForLog(spec.expected_sha256, 80),
                   "Get the file again from its source.");
    }
    const std::string blob = "sha256-" + sha256;
    const std::string path = blobs_ + "/" + blob;
    RUMBO_RETURN_IF_ERROR(CheckFree(spec, sha256));
    struct stat existing;
    if (::stat(path.c_str(), &existing) != 0 || existing.st_size != info.st_size) {
      progress({.step = "verify"});
      if (::fchmod(copy.fd.get(), 0400) != 0 || ::fsync(copy.fd.get()) != 0)
        return ErrnoStatus(errno, "sync the stored file");
      if (::rename(copy.path.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename the stored file");
      copy.path.clear();
      UniqueFd dir(::open(blobs_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (dir.valid()) ::fsync(dir.get());
    }
    absl::StatusOr<ModelDescriptor> descriptor = inspect_(path);
    if (descriptor.ok()) descriptor->files = {path};
    const absl::Status indexed =
        descriptor.ok() ? Index(spec, sha256, blob, info.st_size, *descriptor) : descriptor.status();
    if (!indexed.ok()) {
      RemoveIfUnused(blob);
      return indexed;
    }
    return Get(spec.name);
  }

  // The name is free, or holds this very content, or may be replaced.
  absl::Status CheckFree(const ImportSpec& spec, const std::string& sha256) {
    // A variant stands in the way of another file of its own name only.
    Statement row(db_, "SELECT sha256 FROM variants WHERE model=? AND sha256<>? AND (?='' OR id=?)");
    row.Bind(spec.name).Bind(sha256).Bind(spec.variant).Bind(spec.variant);
    if (row.Step() && !spec.replace) {
      return Error(absl::StatusCode::kAlreadyExists, Reason::kModelExists,
                   spec.variant.empty() ? spec.name + " is the name of another model"
                                        : spec.name + " has another variant " + spec.variant,
                   "Choose another --name, or `rumbo rm " + spec.name + "` first.");
    }
    return row.status();
  }

  absl::StatusOr<std::string> CopyAndHash(int from, int to, int64_t size, const std::atomic<bool>& cancelled,
                                          const std::function<void(const StepProgress&)>& progress) {
    // Where the file system can share blocks, only the hash costs time.
    const bool shared = ::ioctl(to, FICLONE, from) == 0;
    ::posix_fadvise(from, 0, 0, POSIX_FADV_SEQUENTIAL);
    Sha256 hash;
    std::vector<char> buffer(1 << 20);
    int64_t done = 0, reported = 0;
    for (;;) {
      if (cancelled)
        return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the import was cancelled");
      const ssize_t n = ::read(from, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "read the model file");
      if (n == 0) break;
      hash.Update(buffer.data(), n);
      for (ssize_t written = 0; !shared && written < n;) {
        const ssize_t w = ::write(to, buffer.data() + written, n - written);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return ErrnoStatus(errno, "write to the store");
        written += w;
      }
      done += n;
      if (done - reported >= (16 << 20) || done == size) {
        reported = done;
        progress({.step = "copy",
                  .done_bytes = static_cast<uint64_t>(done),
                  .total_bytes = static_cast<uint64_t>(size),
                  .fraction = size > 0 ? static_cast<double>(done) / static_cast<double>(size) : 1.0});
      }
    }
    if (done != size) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid,
                   "the file changed while it was read", "Import it again.");
    }
    return hash.Finish();
  }

  absl::Status Index(const ImportSpec& spec, const std::string& sha256, const std::string& blob,
                     int64_t bytes, const ModelDescriptor& descriptor) {
    const std::string& name = spec.name;
    RUMBO_RETURN_IF_ERROR(Statement(db_, "BEGIN IMMEDIATE").Run());
    const auto write = [&]() -> absl::Status {
      RUMBO_RETURN_IF_ERROR(
          Statement(db_, "INSERT INTO models(name) VALUES(?) ON CONFLICT(name) DO NOTHING").Bind(name).Run());
      RUMBO_RETURN_IF_ERROR(Statement(db_, "DELETE FROM variants WHERE model=? AND (?='' OR id=?)")
                                .Bind(name)
                                .Bind(spec.variant)
                                .Bind(spec.variant)
                                .Run());
      return Statement(db_,
                       "INSERT INTO variants(model,id,sha256,files,bytes,descriptor,added) "
                       "VALUES(?,?,?,?,?,?,?)")
          .Bind(name)
          .Bind(spec.variant.empty() ? "default" : spec.variant)
          .Bind(sha256)
          .Bind(json::serialize(json::array{blob}))
          .Bind(bytes)
          .Bind(DescriptorToJson(descriptor))
          .Bind(wall_->UnixSeconds())
          .Run();
    };
    absl::Status status = write();
    if (status.ok()) status = Statement(db_, "COMMIT").Run();
    if (!status.ok()) Statement(db_, "ROLLBACK").Run().IgnoreError();
    return status;
  }

  Bytes RemoveIfUnused(const std::string& blob) {
    Statement users(db_, "SELECT COUNT(*) FROM variants WHERE files LIKE ?");
    users.Bind("%\"" + blob + "\"%");
    if (!users.Step() || users.Number(0) > 0) return 0;
    const std::string path = blobs_ + "/" + blob;
    struct stat info;
    if (::stat(path.c_str(), &info) != 0 || ::unlink(path.c_str()) != 0) return 0;
    return info.st_size;
  }

  absl::StatusOr<Bytes> DeleteModel(const std::string& name) {
    RUMBO_ASSIGN_OR_RETURN(const StoredModel model, Get(name));
    RUMBO_RETURN_IF_ERROR(Statement(db_, "DELETE FROM models WHERE name=?").Bind(name).Run());
    Bytes freed = 0;
    for (const StoredVariant& variant : model.variants) freed += RemoveIfUnused("sha256-" + variant.sha256);
    return freed;
  }

  const std::string dir_;
  const std::string blobs_;
  const InspectFn inspect_;
  Executor* const executor_;
  WallClock* const wall_;
  sqlite3* db_ = nullptr;
  uint64_t temporaries_ = 0;
};

}  // namespace

std::unique_ptr<ModelStore> NewModelStore(std::string dir, InspectFn inspect, Executor* executor,
                                          WallClock* wall) {
  return std::make_unique<Store>(std::move(dir), std::move(inspect), executor, wall);
}

absl::Status CheckModelName(const std::string& name) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  bool good = !name.empty() && name.size() <= 200 && alphanumeric(name.front()) && name.back() != '/' &&
              name.find("..") == std::string::npos && name.find("//") == std::string::npos;
  for (const char c : name)
    good = good && (alphanumeric(c) || std::string_view("._:/@+-").find(c) != std::string_view::npos);
  if (good) return absl::OkStatus();
  return InvalidArgument(
      "\"" + EscapeForLog(name, 80) + "\" cannot be the name of a model",
      "Use up to 200 letters, digits and . _ : / @ + -, beginning with a letter or digit.");
}

}  // namespace rumbo
