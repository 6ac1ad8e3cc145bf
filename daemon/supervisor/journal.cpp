#include "daemon/supervisor/journal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <sstream>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "daemon/supervisor/processes.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr size_t kMaxJournal = 4 << 20;
constexpr size_t kMaxLeases = 1000;

template <typename T>
void Put(json::object& into, const char* key, const std::optional<T>& value) {
  if (value) into[key] = *value;
}

json::object ToJson(const LeaseSpec& lease) {
  json::object out;
  out["model"] = lease.model;
  out["priority"] = static_cast<int>(lease.priority);
  out["uid"] = lease.client.uid;
  out["app"] = lease.client.app;
  Put(out, "sessions", lease.workload.sessions);
  Put(out, "context", lease.workload.context);
  out["objective"] = lease.workload.objective;
  out["device_kind"] = lease.contract.device_kind;
  Put(out, "min_context", lease.contract.min_context);
  Put(out, "min_tokens_per_s", lease.contract.min_tokens_per_s);
  out["local_only"] = lease.contract.local_only;
  return out;
}

std::string Text(const json::object& from, const char* key) {
  const json::value* value = from.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

std::optional<uint32_t> Number(const json::object& from, const char* key) {
  const json::value* value = from.if_contains(key);
  boost::system::error_code error;
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const auto number = value->to_number<uint32_t>(error);
  return error ? std::nullopt : std::optional(number);
}

LeaseSpec FromJson(const json::object& from) {
  LeaseSpec lease;
  lease.model = Text(from, "model");
  lease.priority = static_cast<Priority>(std::min<uint32_t>(Number(from, "priority").value_or(1), 2));
  lease.client.uid = Number(from, "uid").value_or(::geteuid());
  lease.client.app = Text(from, "app");
  lease.workload.sessions = Number(from, "sessions");
  lease.workload.context = Number(from, "context");
  lease.workload.objective = Text(from, "objective");
  lease.contract.device_kind = Text(from, "device_kind");
  lease.contract.min_context = Number(from, "min_context");
  const json::value* speed = from.if_contains("min_tokens_per_s");
  boost::system::error_code error;
  if (speed != nullptr && speed->is_number())
    lease.contract.min_tokens_per_s = speed->to_number<double>(error);
  const json::value* local = from.if_contains("local_only");
  lease.contract.local_only = local != nullptr && local->is_bool() && local->as_bool();
  return lease;
}

class FileLeaseJournal final : public LeaseJournal {
 public:
  FileLeaseJournal(std::string path, Executor* disk) : path_(std::move(path)), disk_(disk) {}

  void Save(std::vector<LeaseSpec> leases) override {
    disk_->Post([path = path_, leases = std::move(leases)] {
      json::array list;
      for (const LeaseSpec& lease : leases) list.push_back(ToJson(lease));
      const absl::Status written = WriteFileAtomically(path, json::serialize(list));
      if (!written.ok()) spdlog::warn("leases are not recorded: {}", MessageOf(written));
    });
  }

  void Load(Callback<std::vector<LeaseSpec>> done) override {
    disk_->Post([path = path_, done = std::move(done)] {
      std::vector<LeaseSpec> leases;
      const auto text = ReadFile(path, kMaxJournal);
      if (!text.ok()) {
        if (absl::IsNotFound(text.status())) return done(std::move(leases));
        return done(text.status());
      }
      boost::system::error_code error;
      const json::value list = json::parse(*text, error);
      if (error || !list.is_array()) return done(InvalidArgument("the record of leases is damaged"));
      for (const json::value& entry : list.as_array()) {
        if (entry.is_object() && leases.size() < kMaxLeases) leases.push_back(FromJson(entry.as_object()));
      }
      std::erase_if(leases, [](const LeaseSpec& lease) { return lease.model.empty(); });
      done(std::move(leases));
    });
  }

 private:
  const std::string path_;
  Executor* const disk_;
};

// True where exactly that process was there and is gone now.
bool End(const ProcessMark& mark, const std::string& executable) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(mark.pid), 0u)));
  // Looked at only once the descriptor stands for it: from here on the number cannot pass to another.
  if (!pidfd.valid() || ProcessMark::Of(mark.pid) != mark || ExecutableOf(mark.pid) != executable)
    return false;
  if (::getpgid(static_cast<pid_t>(mark.pid)) == mark.pid) ::kill(static_cast<pid_t>(-mark.pid), SIGKILL);
  ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  pollfd ended{pidfd.get(), POLLIN, 0};
  return ::poll(&ended, 1, 2000) > 0;
}

}  // namespace

std::unique_ptr<LeaseJournal> NewLeaseJournal(std::string state_dir, Executor* disk) {
  return std::make_unique<FileLeaseJournal>(state_dir + "/leases.json", disk);
}

int WorkerRecord::Reap() {
  std::lock_guard lock(mutex_);
  int ended = 0;
  if (const auto text = ReadFile(path_, 1 << 20); text.ok()) {
    std::istringstream lines(*text);
    Worker w;
    while (lines >> w.pid >> w.start >> w.executable) {
      if (w.pid > 1 && End({w.pid, w.start}, w.executable)) ++ended;
    }
  }
  workers_.clear();
  ::unlink(path_.c_str());
  return ended;
}

void WorkerRecord::Add(int64_t pid) {
  const std::optional<ProcessMark> mark = ProcessMark::Of(pid);
  if (!mark) return;
  std::lock_guard lock(mutex_);
  workers_.push_back({pid, mark->start, ExecutableOf(pid)});
  Write();
}

void WorkerRecord::Remove(int64_t pid) {
  std::lock_guard lock(mutex_);
  if (std::erase_if(workers_, [pid](const Worker& w) { return w.pid == pid; }) > 0) Write();
}

void WorkerRecord::Write() {
  std::string text;
  for (const Worker& w : workers_)
    text += std::to_string(w.pid) + " " + std::to_string(w.start) + " " + w.executable + "\n";
  // Whole or not at all also where we are killed; after a crash of the machine none of it matters.
  const std::string next = path_ + ".new";
  UniqueFd fd(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid() || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(next.c_str(), path_.c_str()) != 0) {
    spdlog::warn("workers are not recorded: {}", MessageOf(ErrnoStatus(errno, "write " + path_)));
  }
}

}  // namespace rumbo
