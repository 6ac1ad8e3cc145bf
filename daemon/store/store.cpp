#include "daemon/store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/blob_files.h"
#include "daemon/store/fetch/journal.h"
#include "daemon/store/pull_record.h"
#include "daemon/store/reasons.h"

namespace rumbo {
namespace {

constexpr Bytes kSpare = 64 * kMiB;  // left free on the disk

// A file that removes itself unless it was renamed.
struct Temporary {
  std::string path;
  UniqueFd fd;
  ~Temporary() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

struct Source {
  std::string path;
  std::string name;  // in the set
};

int64_t MtimeNs(const struct stat& info) {
  return static_cast<int64_t>(info.st_mtim.tv_sec) * 1000000000 + info.st_mtim.tv_nsec;
}

std::vector<std::string> NamesIn(const std::string& dir) {
  std::vector<std::string> names;
  DIR* folder = ::opendir(dir.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && std::string_view(text).substr(text.size() - end.size()) == end;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool IsPickle(const std::string& name) {
  for (const char* end : {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}) {
    if (EndsWith(name, end)) return true;
  }
  return false;
}

class Store final : public ModelKeeper {
 public:
  Store(StoreOptions options, InspectFn inspect, Executor* executor, WallClock* wall)
      : ModelKeeper(options.dir),
        options_(std::move(options)),
        blobs_(dir_ + "/blobs"),
        sets_(dir_ + "/sets"),
        partial_(dir_ + "/partial"),
        inspect_(std::move(inspect)),
        executor_(executor),
        wall_(wall) {}

  void List(Callback<std::vector<StoredModel>> done) override {
    Do<std::vector<StoredModel>>(std::move(done), [this] { return ListAll(); });
  }
  void Import(ImportSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
              std::function<void(const StepProgress&)> progress, Callback<StoredModel> done) override {
    Do<StoredModel>(std::move(done),
                    [this, spec = std::move(spec), cancelled, progress = std::move(progress)] {
                      return ImportAny(spec, *cancelled, progress);
                    });
  }
  void Delete(std::string name, Callback<Bytes> done) override {
    Do<Bytes>(std::move(done), [this, name = std::move(name)] { return DeleteModel(name); });
  }
  void SetPinned(std::string name, bool pinned, Callback<bool> done) override {
    Do<bool>(std::move(done), [this, name = std::move(name), pinned]() -> absl::StatusOr<bool> {
      RUMBO_RETURN_IF_ERROR(index_.SetPinned(name, pinned));
      return pinned;
    });
  }
  void Verify(std::vector<std::string> names, std::shared_ptr<std::atomic<bool>> cancelled,
              std::function<void(const StepProgress&)> progress,
              Callback<std::vector<VerifyResult>> done) override {
    Do<std::vector<VerifyResult>>(
        std::move(done), [this, names = std::move(names), cancelled, progress = std::move(progress)] {
          return VerifyAll(names, *cancelled, progress);
        });
  }
  void Collect(bool dry_run, std::vector<std::string> busy, Callback<Garbage> done) override {
    Do<Garbage>(std::move(done),
                [this, dry_run, busy = std::move(busy)] { return CollectAll(dry_run, busy); });
  }
  void Export(std::string name, std::string to, std::shared_ptr<std::atomic<bool>> cancelled,
              std::function<void(const StepProgress&)> progress,
              Callback<std::vector<std::string>> done) override {
    Do<std::vector<std::string>>(std::move(done), [this, name = std::move(name), to = std::move(to),
                                                   cancelled, progress = std::move(progress)] {
      return ExportModel(name, to, *cancelled, progress);
    });
  }
  void Rows(std::string name, Callback<std::vector<IndexRow>> done) override {
    Do<std::vector<IndexRow>>(std::move(done),
                              [this, name = std::move(name)] { return index_.RowsOf(name); });
  }
  void CheckRoom(Bytes bytes, Callback<bool> done) override {
    Do<bool>(std::move(done), [this, bytes]() -> absl::StatusOr<bool> {
      RUMBO_RETURN_IF_ERROR(Room(bytes));
      return true;
    });
  }

  absl::Status CheckUnchanged(const std::vector<std::string>& paths) override {
    for (const std::string& path : paths) {
      StoredFile file;
      {
        std::lock_guard lock(stamps_mutex_);
        const auto it = stamps_.find(path);
        if (it == stamps_.end()) continue;
        file = it->second;
      }
      struct stat info;
      const bool there = ::stat(path.c_str(), &info) == 0;
      const bool same_size = there && static_cast<uint64_t>(info.st_size) == file.bytes;
      if (same_size && (file.mtime_ns == 0 || MtimeNs(info) == file.mtime_ns)) continue;
      if (same_size && HasHash(path, file.sha256)) {
        std::lock_guard lock(stamps_mutex_);
        stamps_[path].mtime_ns = MtimeNs(info);
        continue;
      }
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kHashMismatch,
                   std::string("a file of the model is ") + (there ? "not what was stored" : "gone"),
                   "`rumbo models verify` says which model; pull or import it again.");
    }
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Do(Callback<T> done, std::function<absl::StatusOr<T>()> work) {
    executor_->Post([this, done = std::move(done), work = std::move(work)] {
      if (absl::Status opened = Open(); !opened.ok()) return done(opened);
      done(work());
    });
  }

  absl::Status Open() {
    if (index_.open()) return absl::OkStatus();
    for (const std::string& dir : {blobs_, sets_, partial_})
      RUMBO_RETURN_IF_ERROR(MakeDirectories(dir, 0700));
    RUMBO_RETURN_IF_ERROR(index_.Open(dir_ + "/models.sqlite"));
    for (const std::string& name : NamesIn(blobs_)) {
      if (name.rfind("tmp-", 0) == 0) ::unlink((blobs_ + "/" + name).c_str());
    }
    for (const std::string& name : NamesIn(partial_)) {
      if (name.rfind("head-", 0) == 0) ::unlink((partial_ + "/" + name).c_str());
    }
    return absl::OkStatus();
  }

  std::string BlobPath(const std::string& sha256) const { return blobs_ + "/sha256-" + sha256; }

  // The folder of a set, by the hashes and names in it.
  std::string SetDir(const std::vector<StoredFile>& files) const {
    Sha256 hash;
    for (const StoredFile& file : files) {
      const std::string text = file.name + "\n" + file.sha256 + "\n";
      hash.Update(text.data(), text.size());
    }
    return sets_ + "/" + hash.Finish().substr(0, 32);
  }

  static bool IsSet(const std::vector<StoredFile>& files) { return !files.empty() && !files[0].name.empty(); }

  std::vector<std::string> PathsOf(const IndexRow& row) const {
    std::vector<std::string> paths;
    const std::string set = IsSet(row.files) ? SetDir(row.files) : "";
    for (const StoredFile& file : row.files) {
      paths.push_back(!file.adopted.empty() ? file.adopted
                      : !set.empty()        ? set + "/" + file.name
                                            : BlobPath(file.sha256));
    }
    return paths;
  }

  // ---- List ----

  // What the files of complete models were like; for CheckUnchanged, which any thread calls.
  void Remember(const IndexRow& row, const std::vector<std::string>& paths) {
    std::lock_guard lock(stamps_mutex_);
    for (size_t i = 0; i < paths.size() && row.pull.empty(); ++i) stamps_[paths[i]] = row.files[i];
  }

  absl::StatusOr<std::vector<StoredModel>> ListAll() {
    RUMBO_ASSIGN_OR_RETURN(std::vector<IndexRow> rows, index_.Rows());
    std::vector<StoredModel> models;
    for (IndexRow& row : rows) {
      if (models.empty() || models.back().name != row.model) models.push_back({row.model, {}, row.pinned});
      models.back().variants.push_back(Describe(row));
    }
    return models;
  }

  StoredVariant Describe(const IndexRow& row) {
    StoredVariant variant;
    variant.id = row.variant;
    variant.sha256 = row.sha256;
    variant.added_unix_s = row.added_unix_s;
    variant.files = PathsOf(row);
    if (absl::StatusOr<ModelDescriptor> descriptor = DescriptorFromJson(row.descriptor); descriptor.ok()) {
      variant.descriptor = std::move(*descriptor);
    } else if (row.pull.empty()) {
      variant.state = "damaged";
    }
    if (!row.source.empty()) variant.descriptor.metadata["rumbo.source"] = row.source;
    if (!row.pull.empty()) {
      variant.state = "incomplete";
      variant.descriptor.metadata["rumbo.done_bytes"] = std::to_string(DoneBytes(row.pull));
      variant.descriptor.file_bytes = row.bytes;
      return variant;
    }
    Remember(row, variant.files);
    for (size_t i = 0; i < row.files.size(); ++i) {
      const StoredFile& file = row.files[i];
      struct stat info;
      const bool there = ::stat(variant.files[i].c_str(), &info) == 0;
      if (!there || static_cast<uint64_t>(info.st_size) != file.bytes) variant.state = "damaged";
      // Written to since it came: only its hash can tell whether that did harm.
      if (there && variant.state == "complete" && file.mtime_ns != 0 && MtimeNs(info) != file.mtime_ns &&
          !HasHash(variant.files[i], file.sha256)) {
        variant.state = "damaged";
      }
    }
    if (row.files.empty()) variant.state = "damaged";
    if (damaged_.count(row.model) > 0) variant.state = "damaged";
    return variant;
  }

  static bool HasHash(const std::string& path, const std::string& sha256) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return false;
    const std::atomic<bool> never{false};
    const auto hash = HashFile(fd.get(), never, nullptr);
    return hash.ok() && *hash == sha256;
  }

  uint64_t DoneBytes(const std::string& pull) const {
    const auto text = ReadFile(partial_ + "/" + pull + ".pull", 16 << 20);
    const auto record = text.ok() ? PullRecordFromJson(*text) : text.status();
    if (!record.ok()) return 0;
    uint64_t done = 0;
    for (const PullRecord::File& file : record->files) {
      struct stat info;
      if (!file.sha256.empty() && ::stat(BlobPath(file.sha256).c_str(), &info) == 0) {
        done += static_cast<uint64_t>(info.st_size);
      } else if (const auto journal = Journal::Read(partial_ + "/" + file.key + ".journal")) {
        done += journal->durable.total();
      }
    }
    return done;
  }

  absl::StatusOr<StoredModel> Get(const std::string& name) {
    RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> rows, index_.RowsOf(name));
    if (rows.empty())
      return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound,
                   "no model is called " + EscapeForLog(name, 200));
    StoredModel model{name, {}, rows[0].pinned};
    for (const IndexRow& row : rows) model.variants.push_back(Describe(row));
    return model;
  }

  // ---- Import ----

  absl::StatusOr<StoredModel> ImportAny(const ImportSpec& spec, const std::atomic<bool>& cancelled,
                                        const std::function<void(const StepProgress&)>& progress) {
    RUMBO_RETURN_IF_ERROR(CheckModelName(spec.name));
    if (!spec.variant.empty() && (!CheckModelName(spec.variant).ok() || spec.variant.size() > 64))
      return InvalidArgument("'" + EscapeForLog(spec.variant, 80) + "' cannot be the name of a variant",
                             "Use up to 64 letters, digits and ._:@+-, beginning with a letter or digit.");
    if (spec.path.rfind(partial_ + "/", 0) == 0 && EndsWith(spec.path, ".pull")) return TakePull(spec);
    if (spec.path.rfind("link:", 0) == 0) return Adopt(spec, spec.path.substr(5), cancelled, progress);
    RUMBO_ASSIGN_OR_RETURN(const std::vector<Source> sources, SourcesOf(spec.path));
    progress({.step = "inspect"});
    // First the source, so that what is no model is refused before anything is copied; then the copy, which
    // nobody else can change.
    RUMBO_RETURN_IF_ERROR(inspect_(spec.path).status());
    Bytes total = 0;
    for (const Source& source : sources) {
      struct stat info;
      if (::stat(source.path.c_str(), &info) == 0)
        total = SaturatingAdd(total, static_cast<Bytes>(info.st_size));
    }
    RUMBO_RETURN_IF_ERROR(Room(total));
    IndexRow row;
    row.model = spec.name;
    if (!spec.variant.empty()) row.variant = spec.variant;
    row.added_unix_s = wall_->UnixSeconds();
    std::vector<Temporary> copies(sources.size());
    Bytes before = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      RUMBO_ASSIGN_OR_RETURN(StoredFile file,
                             CopyIn(sources[i], copies[i], before, total, cancelled, progress));
      before += file.bytes;
      row.bytes += file.bytes;
      row.files.push_back(std::move(file));
    }
    row.sha256 = row.files[0].sha256;
    if (!spec.expected_sha256.empty() && spec.expected_sha256 != row.sha256) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kHashMismatch,
                   "the file's sha256 is " + row.sha256 + ", not " + EscapeForLog(spec.expected_sha256, 80),
                   "Get the file again from its source.");
    }
    RUMBO_RETURN_IF_ERROR(CheckFree(spec, row.sha256));
    progress({.step = "verify"});
    for (size_t i = 0; i < copies.size(); ++i) RUMBO_RETURN_IF_ERROR(KeepBlob(copies[i], row.files[i]));
    return Finish(row, !spec.variant.empty());
  }

  // The files behind a path: itself, all parts of a split set, or what a folder needs.
  static absl::StatusOr<std::vector<Source>> SourcesOf(const std::string& path) {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "open " + EscapeForLog(path));
    if (S_ISDIR(info.st_mode)) return FolderSources(path);
    if (!S_ISREG(info.st_mode)) return ErrnoStatus(EISDIR, EscapeForLog(path) + " is not a model file");
    const std::string name = BaseName(path);
    if (IsPickle(name)) return Pickle(name);
    const auto split = ParseSplitName(name);
    if (!split || split->count == 1) return std::vector<Source>{{path, ""}};
    const std::string folder = path.substr(0, path.size() - name.size());
    std::vector<Source> out;
    for (uint32_t i = 1; i <= split->count; ++i) {
      char suffix[40];
      std::snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", i, split->count);
      const std::string part = split->stem + suffix;
      if (::stat((folder + part).c_str(), &info) != 0) {
        return Error(absl::StatusCode::kFailedPrecondition, kModelIncomplete,
                     "part " + std::to_string(i) + " of " + std::to_string(split->count) +
                         " is missing: " + EscapeForLog(part, 200),
                     "Put all parts into one folder, then import part 1.");
      }
      out.push_back({folder + part, part});
    }
    if (split->index != 1) {
      return InvalidArgument(
          "that is part " + std::to_string(split->index) + " of a split model",
          "Import part 1: " + EscapeForLog(out[0].name, 200) + "; the others come with it.");
    }
    return out;
  }

  static absl::Status Pickle(const std::string& name) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid,
                 EscapeForLog(name, 120) + " is a pickle: loading it runs code that is in it",
                 "Take the model as safetensors or GGUF.");
  }

  static absl::StatusOr<std::vector<Source>> FolderSources(const std::string& path) {
    RemoteModel listing;
    std::string pickle;
    for (const std::string& name : NamesIn(path)) {
      struct stat info;
      if (::stat((path + "/" + name).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      if (IsPickle(name)) pickle = name;
      if (CheckRemotePath(name).ok())
        listing.files.push_back({name, static_cast<uint64_t>(info.st_size), "", "", ""});
    }
    for (const RemoteVariant& variant : VariantsOf(listing)) {
      if (variant.format == "gguf") continue;
      std::vector<Source> out;
      for (const RemoteFile& file : variant.files) out.push_back({path + "/" + file.path, file.path});
      return out;
    }
    if (!pickle.empty()) return Pickle(pickle);
    return Error(absl::StatusCode::kInvalidArgument, Reason::kNotAFile,
                 EscapeForLog(path) + " is a folder without a model that can be taken as a whole",
                 "Give a .gguf file, or a folder with config.json and .safetensors files.");
  }

  absl::StatusOr<StoredFile> CopyIn(const Source& from, Temporary& copy, Bytes before, Bytes total,
                                    const std::atomic<bool>& cancelled,
                                    const std::function<void(const StepProgress&)>& progress) {
    UniqueFd source(::open(from.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!source.valid()) return ErrnoStatus(errno, "open " + EscapeForLog(from.path));
    struct stat info;
    if (::fstat(source.get(), &info) != 0) return ErrnoStatus(errno, "stat " + EscapeForLog(from.path));
    if (!S_ISREG(info.st_mode)) return ErrnoStatus(EISDIR, EscapeForLog(from.path) + " is not a model file");
    copy.path = blobs_ + "/tmp-" + std::to_string(::getpid()) + "-" + std::to_string(++temporaries_);
    copy.fd.reset(::open(copy.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!copy.fd.valid()) return ErrnoStatus(errno, "create a file in the store");
    uint64_t reported = 0;
    const auto report = [&](uint64_t done) {
      if (done - reported < (16 << 20) && before + done < total) return;
      reported = done;
      progress(Step("copy", before + done, total));
    };
    RUMBO_ASSIGN_OR_RETURN(const std::string sha256,
                           CopyAndHash(source.get(), copy.fd.get(), info.st_size, cancelled, report));
    return StoredFile{from.name, sha256, static_cast<uint64_t>(info.st_size), "", 0};
  }

  static StepProgress Step(const char* step, uint64_t done, uint64_t total) {
    StepProgress out;
    out.step = step;
    out.done_bytes = done;
    out.total_bytes = total;
    out.fraction = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
    return out;
  }

  // The temporary becomes the blob of its hash; where that is there already and sound, the copy goes.
  absl::Status KeepBlob(Temporary& copy, StoredFile& file) {
    const std::string path = BlobPath(file.sha256);
    struct stat info;
    if (::stat(path.c_str(), &info) == 0 && static_cast<uint64_t>(info.st_size) == file.bytes &&
        HasHash(path, file.sha256)) {
      file.mtime_ns = MtimeNs(info);
      return absl::OkStatus();
    }
    RUMBO_RETURN_IF_ERROR(Settle(copy.fd.get(), copy.path, path));
    copy.path.clear();
    if (::fstat(copy.fd.get(), &info) == 0) file.mtime_ns = MtimeNs(info);
    return absl::OkStatus();
  }

  // Links the set, looks at what is now in the store, indexes it; `beside` the model's other variants.
  absl::StatusOr<StoredModel> Finish(IndexRow& row, bool beside = false) {
    const auto finish = [&]() -> absl::Status {
      RUMBO_RETURN_IF_ERROR(LinkSet(row.files));
      const std::vector<std::string> paths = PathsOf(row);
      const bool folder = IsSet(row.files) && !EndsWith(row.files[0].name, ".gguf");
      RUMBO_ASSIGN_OR_RETURN(ModelDescriptor descriptor, inspect_(folder ? SetDir(row.files) : paths[0]));
      descriptor.files = paths;
      if (IsSet(row.files)) descriptor.file_bytes = std::max<Bytes>(descriptor.file_bytes, row.bytes);
      row.descriptor = DescriptorToJson(descriptor);
      return index_.Put(row, beside);
    };
    RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> old, index_.RowsOf(row.model));
    if (absl::Status status = finish(); !status.ok()) {
      Release({row});
      return status;
    }
    damaged_.erase(row.model);
    Release(old);
    return Get(row.model);
  }

  absl::Status LinkSet(const std::vector<StoredFile>& files) const {
    if (!IsSet(files)) return absl::OkStatus();
    const std::string dir = SetDir(files);
    RUMBO_RETURN_IF_ERROR(MakeDirectories(dir, 0700));
    for (const StoredFile& file : files) {
      if (!file.adopted.empty()) continue;
      const std::string path = dir + "/" + file.name, blob = BlobPath(file.sha256);
      struct stat there, wanted;
      if (::stat(blob.c_str(), &wanted) != 0) return ErrnoStatus(errno, "find a blob");
      if (::lstat(path.c_str(), &there) == 0) {
        if (there.st_ino == wanted.st_ino) continue;
        ::unlink(path.c_str());
      }
      if (::link(blob.c_str(), path.c_str()) != 0 && ::symlink(blob.c_str(), path.c_str()) != 0)
        return ErrnoStatus(errno, "link a file of a set");
    }
    return absl::OkStatus();
  }

  // The name is free, or holds this very content, or an unfinished download, or may be replaced.
  absl::Status CheckFree(const ImportSpec& spec, const std::string& sha256) {
    RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> rows, index_.RowsOf(spec.name));
    for (const IndexRow& row : rows) {
      // A variant stands in the way of another file of its own name only.
      if (!spec.variant.empty() && row.variant != spec.variant) continue;
      if (row.pull.empty() && row.sha256 != sha256 && !spec.replace) {
        return Error(absl::StatusCode::kAlreadyExists, Reason::kModelExists,
                     spec.variant.empty() ? spec.name + " is the name of another model"
                                          : spec.name + " has another variant " + spec.variant,
                     "Choose another --name, or `rumbo rm " + spec.name + "` first.");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Room(Bytes bytes) const {
    const Bytes free = FreeBytes(blobs_);
    const Bytes spare = std::min(kSpare, free / 16);
    if (free < SaturatingAdd(bytes, spare)) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kDiskFull,
                   "the model takes " + FormatBytes(bytes) + " and the disk has " + FormatBytes(free),
                   "Free some space (`rumbo models gc`, `rumbo rm`), or choose another --state-dir.");
    }
    if (options_.quota == 0) return absl::OkStatus();
    Bytes used = 0;
    for (const std::string& dir : {blobs_, partial_}) {
      for (const std::string& name : NamesIn(dir)) {
        struct stat info;
        if (::stat((dir + "/" + name).c_str(), &info) == 0)
          used = SaturatingAdd(used, static_cast<Bytes>(info.st_blocks) * 512);
      }
    }
    if (SaturatingAdd(used, bytes) > options_.quota) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kDiskFull,
                   "the model takes " + FormatBytes(bytes) + "; " + FormatBytes(used) +
                       " of the store's quota of " + FormatBytes(options_.quota) + " are used",
                   "Delete models (`rumbo rm`, `rumbo models gc`), or raise the option store-quota.");
    }
    return absl::OkStatus();
  }

  // ---- Downloads ----

  absl::StatusOr<StoredModel> TakePull(const ImportSpec& spec) {
    RUMBO_ASSIGN_OR_RETURN(const std::string text, ReadFile(spec.path, 16 << 20));
    RUMBO_ASSIGN_OR_RETURN(PullRecord record, PullRecordFromJson(text));
    if (record.model != spec.name) return Internal("the record of a download is of another model");
    ImportSpec check = spec;
    check.replace = record.replace;
    RUMBO_RETURN_IF_ERROR(CheckFree(check, record.files[0].sha256));
    IndexRow row;
    row.model = spec.name;
    row.variant = record.variant;
    row.added_unix_s = wall_->UnixSeconds();
    row.source = record.reference;
    row.sha256 = record.files[0].sha256;
    if (!record.complete) {
      RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> old, index_.RowsOf(spec.name));
      if (!old.empty() && old[0].pull.empty())
        return Get(spec.name);  // the old one serves until the new is here
      row.pull = PullIdFor(spec.name);
      row.bytes = record.total();
      ModelDescriptor descriptor;
      descriptor.format = record.format;
      row.descriptor = record.descriptor.empty() ? DescriptorToJson(descriptor) : record.descriptor;
      RUMBO_RETURN_IF_ERROR(index_.Put(row));
      return Get(spec.name);
    }
    for (const PullRecord::File& file : record.files) {
      RUMBO_ASSIGN_OR_RETURN(StoredFile stored, TakeFile(file));
      row.bytes += stored.bytes;
      row.files.push_back(std::move(stored));
    }
    auto model = Finish(row);
    if (model.ok()) ::unlink(spec.path.c_str());
    return model;
  }

  // One finished file of partial/ into blobs/.
  absl::StatusOr<StoredFile> TakeFile(const PullRecord::File& file) {
    if (!IsSha256(file.sha256)) return Internal("a finished download without a hash");
    StoredFile out{file.name, file.sha256, file.bytes.value_or(0), "", 0};
    const std::string from = partial_ + "/" + file.key, to = BlobPath(file.sha256);
    struct stat info;
    UniqueFd fd(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (fd.valid()) {
      if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return Internal("a download is no file");
      RUMBO_RETURN_IF_ERROR(Settle(fd.get(), from, to));
      ::unlink((from + ".journal").c_str());
    } else if (::stat(to.c_str(), &info) != 0) {
      return ErrnoStatus(errno, "find a finished download");
    }
    if (::stat(to.c_str(), &info) != 0) return ErrnoStatus(errno, "find a blob");
    if (file.bytes && static_cast<uint64_t>(info.st_size) != *file.bytes)
      return Internal("a blob has another length");
    out.bytes = static_cast<uint64_t>(info.st_size);
    out.mtime_ns = MtimeNs(info);
    return out;
  }

  // ---- Adoption ----

  absl::StatusOr<StoredModel> Adopt(const ImportSpec& spec, const std::string& path,
                                    const std::atomic<bool>& cancelled,
                                    const std::function<void(const StepProgress&)>& progress) {
    if (path.empty() || path[0] != '/') return InvalidArgument("only an absolute path can be adopted");
    if (!spec.variant.empty())
      return InvalidArgument("a variant cannot be adopted",
                             "Adopt the file as a model of its own, or import it.");
    RUMBO_ASSIGN_OR_RETURN(const std::vector<Source> sources, SourcesOf(path));
    progress({.step = "inspect"});
    RUMBO_ASSIGN_OR_RETURN(ModelDescriptor descriptor, inspect_(path));
    IndexRow row;
    row.model = spec.name;
    row.added_unix_s = wall_->UnixSeconds();
    row.source = "adopted:" + path;
    for (const Source& source : sources) {
      UniqueFd fd(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      struct stat info;
      if (!fd.valid() || ::fstat(fd.get(), &info) != 0)
        return ErrnoStatus(errno, "open " + EscapeForLog(source.path));
      const uint64_t before = row.bytes;
      RUMBO_ASSIGN_OR_RETURN(const std::string sha256, HashFile(fd.get(), cancelled, [&](uint64_t done) {
                               if (done % (64 << 20) == 0)
                                 progress(Step("hash", before + done, descriptor.file_bytes));
                             }));
      // Both caches name blobs by their hash: one that has another is damaged.
      RUMBO_RETURN_IF_ERROR(CheckBlobName(source.path, sha256));
      row.files.push_back(
          {source.name, sha256, static_cast<uint64_t>(info.st_size), source.path, MtimeNs(info)});
      row.bytes += static_cast<uint64_t>(info.st_size);
    }
    row.sha256 = row.files[0].sha256;
    RUMBO_RETURN_IF_ERROR(CheckFree(spec, row.sha256));
    descriptor.files = PathsOf(row);
    row.descriptor = DescriptorToJson(descriptor);
    RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> old, index_.RowsOf(spec.name));
    RUMBO_RETURN_IF_ERROR(index_.Put(row));
    damaged_.erase(spec.name);
    Release(old);
    return Get(spec.name);
  }

  static absl::Status CheckBlobName(const std::string& path, const std::string& sha256) {
    char real[PATH_MAX];
    if (::realpath(path.c_str(), real) == nullptr) return ErrnoStatus(errno, "open " + EscapeForLog(path));
    std::string name = BaseName(real);
    if (name.rfind("sha256-", 0) == 0) name.erase(0, 7);
    if (!IsSha256(name) || name == sha256) return absl::OkStatus();
    return Error(absl::StatusCode::kInvalidArgument, Reason::kHashMismatch,
                 "the cache's file is damaged: it is named " + name + " and its sha256 is " + sha256,
                 "Fetch the model again there, or pull it.");
  }

  // ---- Removal ----

  // Removes files of `rows` that no row of the index refers to any more; the bytes freed.
  Bytes Release(const std::vector<IndexRow>& rows) {
    const auto left = index_.Rows();
    if (!left.ok()) return 0;
    std::set<std::string> used, sets;
    for (const IndexRow& row : *left) {
      for (const StoredFile& file : row.files) {
        if (file.adopted.empty()) used.insert(file.sha256);
      }
      if (IsSet(row.files)) sets.insert(SetDir(row.files));
    }
    Bytes freed = 0;
    for (const IndexRow& row : rows) {
      if (IsSet(row.files) && sets.count(SetDir(row.files)) == 0) RemoveSet(SetDir(row.files));
      for (const StoredFile& file : row.files) {
        if (!file.adopted.empty() || used.count(file.sha256) > 0) continue;
        struct stat info;
        const std::string path = BlobPath(file.sha256);
        if (::stat(path.c_str(), &info) == 0 && ::unlink(path.c_str()) == 0)
          freed += static_cast<Bytes>(info.st_size);
      }
    }
    return freed;
  }

  static void RemoveSet(const std::string& dir) {
    for (const std::string& name : NamesIn(dir)) ::unlink((dir + "/" + name).c_str());
    ::rmdir(dir.c_str());
  }

  absl::StatusOr<Bytes> DeleteModel(const std::string& name) {
    RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> rows, index_.RowsOf(name));
    if (rows.empty())
      return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound,
                   "no model is called " + EscapeForLog(name, 200));
    RUMBO_RETURN_IF_ERROR(index_.Remove(name));
    damaged_.erase(name);
    Bytes freed = Release(rows);
    for (const IndexRow& row : rows) {
      if (row.pull.empty()) continue;
      const std::string path = partial_ + "/" + row.pull + ".pull";
      const auto text = ReadFile(path, 16 << 20);
      const auto record = text.ok() ? PullRecordFromJson(*text) : text.status();
      ::unlink(path.c_str());
      const std::set<std::string> others = KeysInUse();
      for (const PullRecord::File& file : record.ok() ? record->files : std::vector<PullRecord::File>()) {
        if (others.count(file.key) == 0) freed += RemovePartial(file.key);
      }
    }
    return freed;
  }

  Bytes RemovePartial(const std::string& key) const {
    struct stat info;
    const std::string path = partial_ + "/" + key;
    ::unlink((path + ".journal").c_str());
    if (::stat(path.c_str(), &info) != 0 || ::unlink(path.c_str()) != 0) return 0;
    return static_cast<Bytes>(info.st_blocks) * 512;
  }

  // What the records of downloads refer to.
  std::set<std::string> KeysInUse() const {
    std::set<std::string> keys;
    for (const std::string& name : NamesIn(partial_)) {
      if (!EndsWith(name, ".pull")) continue;
      const auto text = ReadFile(partial_ + "/" + name, 16 << 20);
      const auto record = text.ok() ? PullRecordFromJson(*text) : text.status();
      if (!record.ok()) continue;
      for (const PullRecord::File& file : record->files) keys.insert(file.key);
    }
    return keys;
  }

  absl::StatusOr<Garbage> CollectAll(bool dry_run, const std::vector<std::string>& busy) {
    RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> rows, index_.Rows());
    std::set<std::string> blobs, sets, pulls;
    for (const IndexRow& row : rows) {
      for (const StoredFile& file : row.files) blobs.insert("sha256-" + file.sha256);
      if (IsSet(row.files)) sets.insert(BaseName(SetDir(row.files)));
      if (!row.pull.empty()) pulls.insert(row.pull + ".pull");
    }
    std::set<std::string> keys = KeysInUse();
    keys.insert(busy.begin(), busy.end());
    Garbage out;
    const auto take = [&](const std::string& dir, const std::string& name, const std::string& what,
                          bool file) {
      struct stat info;
      Bytes bytes = 0;
      if (file && ::stat((dir + "/" + name).c_str(), &info) == 0)
        bytes = static_cast<Bytes>(info.st_blocks) * 512;
      out.items.push_back({what, bytes});
      out.bytes = SaturatingAdd(out.bytes, bytes);
      if (dry_run) return;
      if (file) {
        ::unlink((dir + "/" + name).c_str());
      } else {
        RemoveSet(dir + "/" + name);
      }
    };
    for (const std::string& name : NamesIn(sets_)) {
      if (sets.count(name) == 0) take(sets_, name, "set " + name, false);
    }
    for (const std::string& name : NamesIn(blobs_)) {
      if (blobs.count(name) == 0) take(blobs_, name, "blob " + name, true);
    }
    for (const std::string& name : NamesIn(partial_)) {
      const std::string key = EndsWith(name, ".journal") ? name.substr(0, name.size() - 8) : name;
      const bool used =
          EndsWith(name, ".pull") ? pulls.count(name) > 0 || Busy(name, busy) : keys.count(key) > 0;
      if (!used) take(partial_, name, "download " + name, true);
    }
    return out;
  }

  static bool Busy(const std::string& name, const std::vector<std::string>& busy) {
    return std::find(busy.begin(), busy.end(), name) != busy.end();
  }

  // ---- Verify, export ----

  absl::StatusOr<std::vector<VerifyResult>> VerifyAll(
      const std::vector<std::string>& names, const std::atomic<bool>& cancelled,
      const std::function<void(const StepProgress&)>& progress) {
    RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> rows, index_.Rows());
    std::vector<VerifyResult> out;
    uint64_t total = 0, before = 0;
    std::vector<const IndexRow*> chosen;
    for (const IndexRow& row : rows) {
      if (!names.empty() && std::find(names.begin(), names.end(), row.model) == names.end()) continue;
      chosen.push_back(&row);
      total += row.bytes;
    }
    for (const std::string& name : names) {
      if (std::none_of(rows.begin(), rows.end(), [&](const IndexRow& row) { return row.model == name; }))
        return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound,
                     "no model is called " + EscapeForLog(name, 200));
    }
    for (const IndexRow* row : chosen) {
      VerifyResult result{row->model, "ok", ""};
      const std::vector<std::string> paths = PathsOf(*row);
      if (!row->pull.empty()) result.state = "incomplete";
      for (size_t i = 0; i < paths.size() && result.state == "ok"; ++i) {
        UniqueFd fd(::open(paths[i].c_str(), O_RDONLY | O_CLOEXEC));
        if (!fd.valid()) {
          result.state = "missing";
          result.text = BaseName(paths[i]) + ": " + MessageOf(ErrnoStatus(errno, "open"));
          break;
        }
        const auto hash = HashFile(fd.get(), cancelled, [&](uint64_t done) {
          if (done % (64 << 20) == 0) progress(Step("verify", before + done, total));
        });
        if (!hash.ok() && absl::IsCancelled(hash.status())) return hash.status();
        if (!hash.ok() || *hash != row->files[i].sha256) {
          result.state = "damaged";
          result.text =
              BaseName(paths[i]) + (hash.ok() ? ": its sha256 is " + *hash + ", not " + row->files[i].sha256
                                              : ": " + MessageOf(hash.status()));
        }
      }
      before += row->bytes;
      // One sound variant does not mend another.
      if (row == chosen.front() || (row - 1)->model != row->model) damaged_.erase(row->model);
      if (result.state == "damaged" || result.state == "missing") damaged_.insert(row->model);
      out.push_back(std::move(result));
    }
    return out;
  }

  absl::StatusOr<std::vector<std::string>> ExportModel(
      const std::string& name, const std::string& to, const std::atomic<bool>& cancelled,
      const std::function<void(const StepProgress&)>& progress) {
    RUMBO_ASSIGN_OR_RETURN(const std::vector<IndexRow> rows, index_.RowsOf(name));
    if (rows.empty() || !rows[0].pull.empty()) {
      return Error(
          absl::StatusCode::kNotFound, Reason::kModelNotFound,
          rows.empty() ? "no model is called " + EscapeForLog(name, 200) : name + " is not complete");
    }
    struct stat info;
    if (to.empty() || to[0] != '/' || ::stat(to.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
      return InvalidArgument("\"" + EscapeForLog(to, 120) + "\" is no folder", "Give an existing folder.");
    std::vector<std::string> written;
    uint64_t before = 0;
    const std::vector<std::string> paths = PathsOf(rows[0]);
    for (size_t i = 0; i < paths.size(); ++i) {
      const StoredFile& file = rows[0].files[i];
      std::string target = file.name;
      if (target.empty()) {
        target = name;
        for (char& c : target) {
          if (c == '/' || c == ':') c = '-';
        }
        target += ".gguf";
      }
      Temporary copy;
      UniqueFd from(::open(paths[i].c_str(), O_RDONLY | O_CLOEXEC));
      if (!from.valid() || ::fstat(from.get(), &info) != 0) return ErrnoStatus(errno, "open a stored file");
      copy.path = to + "/" + target;
      copy.fd.reset(::open(copy.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
      if (!copy.fd.valid()) {
        const int error = errno;
        copy.path.clear();
        return ErrnoStatus(error, "create " + EscapeForLog(target, 200));
      }
      RUMBO_ASSIGN_OR_RETURN(
          const std::string sha256,
          CopyAndHash(from.get(), copy.fd.get(), info.st_size, cancelled, [&](uint64_t done) {
            if (done % (64 << 20) == 0) progress(Step("copy", before + done, rows[0].bytes));
          }));
      if (sha256 != file.sha256) {
        damaged_.insert(name);
        return Error(absl::StatusCode::kDataLoss, Reason::kHashMismatch, name + " is damaged in the store",
                     "Pull or import it again.");
      }
      if (::fsync(copy.fd.get()) != 0) return ErrnoStatus(errno, "sync " + EscapeForLog(target, 200));
      written.push_back(std::exchange(copy.path, ""));
      before += file.bytes;
    }
    return written;
  }

  const StoreOptions options_;
  const std::string blobs_, sets_, partial_;
  const InspectFn inspect_;
  Executor* const executor_;
  WallClock* const wall_;
  ModelIndex index_;
  uint64_t temporaries_ = 0;
  std::mutex stamps_mutex_;
  std::map<std::string, StoredFile> stamps_;  // by path
  std::set<std::string> damaged_;             // models that Verify or Export found so
};

}  // namespace

std::unique_ptr<ModelKeeper> NewModelStore(StoreOptions options, InspectFn inspect, Executor* executor,
                                           WallClock* wall) {
  return std::make_unique<Store>(std::move(options), std::move(inspect), executor, wall);
}

}  // namespace rumbo
