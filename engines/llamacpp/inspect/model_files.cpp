#include "engines/llamacpp/inspect/model_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/os/files.h"
#include "base/status.h"
#include "engines/llamacpp/inspect/errors.h"

namespace rumbo {
namespace {

constexpr int kMaxParts = 512;
constexpr size_t kSuffix = sizeof("-00001-of-00002.gguf") - 1;

absl::StatusOr<UniqueFd> OpenOne(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return NotAModelFile();
  return fd;
}

// The number of parts that the name promises; 1 for every other name.
int PartsOf(const std::string& path) {
  if (path.size() < kSuffix) return 1;
  int index = 0, count = 0, used = 0;
  const std::string suffix = path.substr(path.size() - kSuffix);
  if (std::sscanf(suffix.c_str(), "-%5d-of-%5d.gguf%n", &index, &count, &used) != 2) return 1;
  if (used != static_cast<int>(kSuffix) || index != 1 || count < 1 || count > kMaxParts) return 1;
  return count;
}

// The files of a folder that say what the model is.
absl::StatusOr<ModelFiles> OpenFolder(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return ErrnoStatus(errno, "open " + path);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    static const std::set<std::string> kWanted = {"config.json",
                                                  "model.safetensors.index.json",
                                                  "tokenizer_config.json",
                                                  "chat_template.jinja",
                                                  "tokenizer.json",
                                                  "tokenizer.model",
                                                  "vocab.txt"};
    const bool tensors = name.size() > 12 && name.substr(name.size() - 12) == ".safetensors";
    if ((tensors || kWanted.count(name) > 0) && names.size() < kMaxParts) names.push_back(name);
  }
  ::closedir(folder);
  if (names.empty()) return NotAModelFile();
  std::sort(names.begin(), names.end());
  ModelFiles files;
  files.folder = true;
  for (const std::string& name : names) {
    RUMBO_ASSIGN_OR_RETURN(UniqueFd fd, OpenOne(path + "/" + name));
    files.fds.push_back(std::move(fd));
    files.names.push_back(path + "/" + name);
  }
  return files;
}

}  // namespace

absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& path) {
  if (path.find('\0') != std::string::npos) return InvalidArgument("a path contains a NUL byte");
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return OpenFolder(path);
  ModelFiles files;
  const int parts = PartsOf(path);
  for (int i = 1; i <= parts; ++i) {
    std::string name = path;
    if (i > 1) {
      char suffix[2 * kSuffix];
      std::snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", i, parts);
      name = path.substr(0, path.size() - kSuffix) + suffix;
    }
    RUMBO_ASSIGN_OR_RETURN(UniqueFd fd, OpenOne(name));
    files.fds.push_back(std::move(fd));
    files.names.push_back(name);
  }
  return files;
}

}  // namespace rumbo
