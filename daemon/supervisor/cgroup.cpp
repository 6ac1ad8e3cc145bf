#include "daemon/supervisor/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <sstream>
#include <vector>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "daemon/supervisor/processes.h"

namespace rumbo {
namespace {

constexpr char kPrefix[] = "rumbo-";
constexpr size_t kMaxText = 1 << 20;

bool WriteText(const std::string& path, const std::string& text) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Our own group of version 2; "" where there is none.
std::string OwnGroup(const std::string& given) {
  std::string root = given;
  if (root.empty()) {
    const auto mounts = ReadFile("/proc/self/mountinfo", kMaxText);
    if (!mounts.ok()) return "";
    std::istringstream lines(*mounts);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" - cgroup2 ") == std::string::npos) continue;
      std::istringstream words(line);
      std::string skip;
      words >> skip >> skip >> skip >> skip >> root;
      break;
    }
  }
  if (root.empty()) return "";
  const auto own = ReadFile("/proc/self/cgroup", kMaxText);
  if (!own.ok()) return "";
  const size_t at = own->rfind("0::/", 0) == 0 ? 0 : own->find("\n0::/");
  if (at == std::string::npos) return "";
  const size_t begin = own->find("0::/", at) + 3;
  const std::string path = own->substr(begin, own->find('\n', begin) - begin);
  return root + (path == "/" ? "" : path);
}

bool Populated(const std::string& group) {
  const auto events = ReadFile(group + "/cgroup.events", 4096);
  return events.ok() && events->find("populated 1") != std::string::npos;
}

void KillGroup(const std::string& group) {
  if (WriteText(group + "/cgroup.kill", "1")) return;
  // Before Linux 5.14: one by one, until none forks any more.
  for (int i = 0; i < 20; ++i) {
    const auto list = ReadFile(group + "/cgroup.procs", kMaxText);
    if (!list.ok() || list->empty()) return;
    std::istringstream pids(*list);
    for (pid_t pid; pids >> pid;) ::kill(pid, SIGKILL);
    ::poll(nullptr, 0, 5);
  }
}

void RemoveGroup(const std::string& group) {
  // It is busy until what was killed is gone.
  for (int i = 0; i < 200 && ::rmdir(group.c_str()) != 0 && errno == EBUSY; ++i) ::poll(nullptr, 0, 5);
}

std::vector<std::string> FoldersIn(const std::string& path) {
  std::vector<std::string> out;
  DIR* list = ::opendir(path.c_str());
  if (list == nullptr) return out;
  while (const dirent* entry = ::readdir(list)) {
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') out.push_back(entry->d_name);
  }
  ::closedir(list);
  return out;
}

}  // namespace

std::unique_ptr<WorkerGroup> WorkerGroup::Create(const std::string& name, const std::string& root) {
  const std::string own = OwnGroup(root);
  const std::optional<ProcessMark> self = ProcessMark::Of(::getpid());
  if (own.empty() || !self) return nullptr;
  const std::string parent = own + "/" + kPrefix + self->Text();
  if (::mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) return nullptr;
  // One process, one group: the end of a worker must not end the one that follows it under the same name.
  static std::atomic<uint64_t> made{0};
  const std::string path = parent + "/" + name + "." + std::to_string(++made);
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return nullptr;
  if (::access((path + "/cgroup.procs").c_str(), W_OK) != 0) {
    ::rmdir(path.c_str());
    return nullptr;
  }
  return std::unique_ptr<WorkerGroup>(new WorkerGroup(path));
}

WorkerGroup::~WorkerGroup() {
  KillAll();
  RemoveGroup(path_);
  ::rmdir(path_.substr(0, path_.rfind('/')).c_str());  // the last one takes our folder along
}

bool WorkerGroup::Add(int64_t pid) { return WriteText(path_ + "/cgroup.procs", std::to_string(pid)); }

void WorkerGroup::KillAll() {
  if (Populated(path_)) KillGroup(path_);
}

bool WorkerGroup::empty() const { return !Populated(path_); }

uint64_t WorkerGroup::OutOfMemoryKills() const {
  const auto events = ReadFile(path_ + "/memory.events", 4096);
  const size_t at = events.ok() ? events->find("oom_kill ") : std::string::npos;
  return at == std::string::npos ? 0 : std::strtoull(events->c_str() + at + 9, nullptr, 10);
}

int ReapWorkerGroups(const std::string& root) {
  const std::string own = OwnGroup(root);
  int ended = 0;
  if (own.empty()) return 0;
  for (const std::string& folder : FoldersIn(own)) {
    if (folder.rfind(kPrefix, 0) != 0) continue;
    const std::optional<ProcessMark> daemon = ProcessMark::FromText(folder.substr(sizeof kPrefix - 1));
    if (!daemon || ProcessMark::Of(daemon->pid) == daemon) continue;  // it lives
    const std::string parent = own + "/" + folder;
    for (const std::string& worker : FoldersIn(parent)) {
      const std::string group = parent + "/" + worker;
      if (Populated(group)) {
        ++ended;
        KillGroup(group);
      }
      RemoveGroup(group);
    }
    ::rmdir(parent.c_str());
  }
  return ended;
}

}  // namespace rumbo
