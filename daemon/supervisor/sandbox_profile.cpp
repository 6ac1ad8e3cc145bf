#include "daemon/supervisor/sandbox_profile.h"

#include <cstdlib>
#include <filesystem>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

class Words {
 public:
  Words(const CatalogEngine& engine, const std::string& backend) : engine_(engine), backend_(backend) {}

  // The backend's word, else the engine's, else `otherwise`.
  std::string Word(const std::string& key, const std::string& otherwise) const {
    for (const std::string& name : {backend_ + "." + key, key}) {
      const auto it = engine_.sandbox.find(name);
      if (it != engine_.sandbox.end()) return it->second;
    }
    return otherwise;
  }
  absl::StatusOr<bool> Is(const std::string& key, const std::string& yes, const std::string& no) const {
    const std::string word = Word(key, no);
    if (word != yes && word != no) {
      return InvalidArgument("the catalog's sandbox of " + engine_.name + " has " + key + ": " + word,
                             "It is " + yes + " or " + no + ".");
    }
    return word == yes;
  }
  std::vector<std::string> Paths(const std::string& key, const SandboxFolders& folders) const {
    std::vector<std::string> out;
    for (const std::string& name : {key, backend_ + "." + key}) {
      const auto it = engine_.sandbox.find(name);
      if (it == engine_.sandbox.end()) continue;
      const std::string& text = it->second;
      for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        if (end > at) Add(text.substr(at, end - at), folders, out);
        at = end + 1;
      }
    }
    return out;
  }

 private:
  static void Add(std::string path, const SandboxFolders& folders, std::vector<std::string>& out) {
    for (const auto& [word, folder] :
         {std::pair("{home}", &folders.home), std::pair("{cache}", &folders.cache),
          std::pair("{drivers}", &folders.drivers)}) {
      if (path.rfind(word, 0) != 0) continue;
      if (folder->empty()) return;
      path.replace(0, std::string(word).size(), *folder);
    }
    if (path.front() == '/') out.push_back(std::move(path));
  }

  const CatalogEngine& engine_;
  const std::string backend_;
};

// The file itself where `path` is a link to it: Landlock judges what a path leads to.
std::string Target(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

}  // namespace

absl::StatusOr<SandboxOptions> WorkerSandbox(const CatalogEngine& engine, const LaunchSpec& spec,
                                             const SandboxFolders& folders) {
  const Words words(engine, spec.backend);
  for (const auto& [key, value] : engine.sandbox) {
    const std::string name = key.substr(key.find('.') == std::string::npos ? 0 : key.find('.') + 1);
    if (name != "network" && name != "exec" && name != "jit" && name != "read" && name != "write" &&
        name != "devices") {
      return InvalidArgument("the catalog's sandbox of " + engine.name + " has the unknown key " + key);
    }
  }
  SandboxOptions options;
  RUMBO_ASSIGN_OR_RETURN(const bool exec, words.Is("exec", "allowed", "denied"));
  RUMBO_ASSIGN_OR_RETURN(const bool jit, words.Is("jit", "allowed", "none"));
  RUMBO_ASSIGN_OR_RETURN(const bool loopback, words.Is("network", "loopback", "none"));
  if (loopback) return InvalidArgument("a worker has no network: " + engine.name + " asks for loopback");
  options.deny_exec = !exec;
  options.deny_jit = !jit;
  options.read_only = words.Paths("read", folders);
  options.read_write = words.Paths("write", folders);
  options.devices = words.Paths("devices", folders);
  for (const std::string& file : spec.files) options.read_only.push_back(Target(file));
  for (const std::string& file : spec.draft_files) options.read_only.push_back(Target(file));
  for (const LaunchSpec::Adapter& adapter : spec.adapters) options.read_only.push_back(Target(adapter.file));
  // What else is named in settings; only paths are taken for it.
  for (const auto& [key, value] : spec.settings.extra) {
    std::error_code ignored;
    if (value.rfind('/', 0) == 0 && std::filesystem::is_regular_file(value, ignored))
      options.read_only.push_back(Target(value));
  }
  if (!spec.cache_dir.empty()) options.read_write.push_back(spec.cache_dir);
  return options;
}

}  // namespace rumbo
