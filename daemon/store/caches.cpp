#include "daemon/store/caches.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/os/files.h"
#include "daemon/store/manifest.h"
#include "daemon/store/reference.h"

namespace rumbo {
namespace {

constexpr size_t kMaxModels = 10000;
constexpr size_t kMaxEntries = 20000;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<std::string> NamesIn(const std::string& dir) {
  std::vector<std::string> names;
  DIR* folder = ::opendir(dir.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && names.size() < kMaxEntries) names.push_back(name);
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::string Real(const std::string& path) {
  char real[PATH_MAX];
  return ::realpath(path.c_str(), real) == nullptr ? "" : real;
}

bool Below(const std::string& path, const std::string& root) {
  const std::string real = Real(path), base = Real(root);
  return !real.empty() && !base.empty() && real.size() > base.size() &&
         real.compare(0, base.size(), base) == 0 && real[base.size()] == '/';
}

// The model files of one folder (and, for the hub's, below it), as a listing.
void ListFiles(const std::string& root, const std::string& dir, const std::string& prefix, int depth,
               RemoteModel& out) {
  for (const std::string& name : NamesIn(dir)) {
    const std::string path = dir + "/" + name, relative = prefix + name;
    struct stat info;
    if (out.files.size() >= kMaxEntries || ::stat(path.c_str(), &info) != 0 || !Below(path, root)) continue;
    if (S_ISDIR(info.st_mode) && depth > 0) {
      ListFiles(root, path, relative + "/", depth - 1, out);
    } else if (S_ISREG(info.st_mode) && CheckRemotePath(relative).ok()) {
      out.files.push_back({relative, static_cast<uint64_t>(info.st_size), "", "", ""});
    }
  }
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

class Scanner {
 public:
  void HuggingFace(const std::string& root) {
    for (const std::string& name : NamesIn(root)) {
      if (name.rfind("models--", 0) != 0) continue;
      const size_t split = name.find("--", 8);
      if (split == std::string::npos) continue;
      const std::string repository = name.substr(split + 2);
      const std::string base = root + "/" + name;
      // What "main" points at, else any: an old snapshot is a model too, but not the one meant.
      std::string snapshot;
      if (const auto ref = ReadFile(base + "/refs/main", 128); ref.ok()) {
        snapshot = *ref;
        while (!snapshot.empty() && (snapshot.back() == '\n' || snapshot.back() == ' ')) snapshot.pop_back();
      }
      const std::vector<std::string> snapshots = NamesIn(base + "/snapshots");
      if (std::find(snapshots.begin(), snapshots.end(), snapshot) == snapshots.end())
        snapshot = snapshots.empty() ? "" : snapshots.back();
      if (!snapshot.empty()) Folder("huggingface", base, base + "/snapshots/" + snapshot, repository);
    }
  }

  void LmStudio(const std::string& root) {
    for (const std::string& publisher : NamesIn(root)) {
      for (const std::string& repository : NamesIn(root + "/" + publisher))
        Folder("lmstudio", root, root + "/" + publisher + "/" + repository, repository);
    }
  }

  void Ollama(const std::string& root) {
    const std::string manifests = root + "/manifests";
    for (const std::string& host : NamesIn(manifests)) {
      for (const std::string& space : NamesIn(manifests + "/" + host)) {
        for (const std::string& name : NamesIn(manifests + "/" + host + "/" + space)) {
          const std::string dir = manifests + "/" + host + "/" + space + "/" + name;
          for (const std::string& tag : NamesIn(dir)) Manifest(root, dir + "/" + tag, space, name, tag);
        }
      }
    }
  }

  std::vector<CachedModel> Take() { return std::move(out_); }

 private:
  void Manifest(const std::string& root, const std::string& path, const std::string& space,
                const std::string& name, const std::string& tag) {
    CachedModel model;
    model.cache = "ollama";
    model.name = (space == "library" ? "" : space + "/") + name + ":" + tag;
    const auto text = ReadFile(path, 4 << 20);
    const auto manifest = text.ok() ? ParseOciManifest(*text) : text.status();
    if (!manifest.ok()) return Refuse(std::move(model), "its manifest cannot be read");
    for (const RemoteFile& file : manifest->files) {
      if (file.path == "model") {
        model.path = root + "/blobs/sha256-" + file.sha256;
        model.bytes = file.bytes.value_or(0);
      }
    }
    struct stat info;
    if (model.path.empty()) return Refuse(std::move(model), "it has no weights of its own");
    if (::stat(model.path.c_str(), &info) != 0 || static_cast<Bytes>(info.st_size) != model.bytes)
      return Refuse(std::move(model), "its weights are missing or not complete");
    if (!Below(model.path, root)) return Refuse(std::move(model), "its weights lie outside the cache");
    Add(std::move(model));
  }

  void Folder(const std::string& cache, const std::string& root, const std::string& dir,
              const std::string& repository) {
    RemoteModel listing;
    ListFiles(root, dir, "", cache == "huggingface" ? 2 : 1, listing);
    const std::vector<RemoteVariant> variants = VariantsOf(listing);
    for (const RemoteVariant& variant : variants) {
      if (variant.format == "onnx") continue;
      CachedModel model;
      model.cache = cache;
      model.name = variants.size() == 1 ? repository : repository + ":" + variant.id;
      model.path = variant.format == "gguf" ? dir + "/" + variant.files[0].path : dir;
      model.bytes = variant.bytes;
      if (!variant.problem.empty()) {
        Refuse(std::move(model), variant.problem);
      } else {
        Add(std::move(model));
      }
    }
  }

  void Refuse(CachedModel model, const std::string& why) {
    model.state = "refused";
    model.text = why;
    if (out_.size() < kMaxModels) out_.push_back(std::move(model));
  }

  void Add(CachedModel model) {
    model.name = Lower(model.name);
    if (!CheckModelName(model.name).ok()) return;
    std::string name = model.name;
    for (int n = 2; !names_.insert(name).second; ++n) name = model.name + "-" + std::to_string(n);
    model.name = name;
    if (out_.size() < kMaxModels) out_.push_back(std::move(model));
  }

  std::vector<CachedModel> out_;
  std::set<std::string> names_;
};

}  // namespace

std::vector<std::string> DefaultCacheRoots() {
  std::vector<std::string> roots;
  const std::string home = Environment("HOME");
  if (const std::string hub = Environment("HF_HUB_CACHE"); !hub.empty()) {
    roots.push_back("huggingface:" + hub);
  } else if (const std::string hf = Environment("HF_HOME"); !hf.empty()) {
    roots.push_back("huggingface:" + hf + "/hub");
  } else if (!home.empty()) {
    roots.push_back("huggingface:" + home + "/.cache/huggingface/hub");
  }
  if (const std::string models = Environment("OLLAMA_MODELS"); !models.empty()) {
    roots.push_back("ollama:" + models);
  } else if (!home.empty()) {
    roots.push_back("ollama:" + home + "/.ollama/models");
  }
  roots.push_back("ollama:/usr/share/ollama/.ollama/models");
  if (!home.empty()) {
    roots.push_back("lmstudio:" + home + "/.lmstudio/models");
    roots.push_back("lmstudio:" + home + "/.cache/lm-studio/models");
  }
  return roots;
}

std::vector<CachedModel> ScanCaches(const std::vector<std::string>& roots) {
  Scanner scanner;
  std::set<std::string> seen;
  for (const std::string& root : roots) {
    const size_t colon = root.find(':');
    if (colon == std::string::npos) continue;
    const std::string kind = root.substr(0, colon), path = root.substr(colon + 1), real = Real(path);
    if (real.empty() || !seen.insert(real).second) continue;
    if (kind == "huggingface") scanner.HuggingFace(path);
    if (kind == "ollama") scanner.Ollama(path);
    if (kind == "lmstudio") scanner.LmStudio(path);
  }
  return scanner.Take();
}

}  // namespace rumbo
