#include <algorithm>
#include <cmath>
#include <map>

#include "devices/cpu/host_probe.h"

namespace rumbo {
namespace {

// v1 without a limit says LONG_MAX rounded down to a page; anything near it is "no limit".
constexpr Bytes kNoLimit = Bytes{1} << 60;

// One line of /proc/self/cgroup: "4:memory:/a/b" or "0::/a/b".
struct Membership {
  std::string controllers;
  std::string path;
};

std::vector<Membership> ParseSelfCgroup(std::string_view text) {
  std::vector<Membership> out;
  for (std::string_view line : Lines(text)) {
    const size_t a = line.find(':');
    const size_t b = a == std::string_view::npos ? a : line.find(':', a + 1);
    if (b == std::string_view::npos || out.size() == 64) continue;
    std::string path(Trim(line.substr(b + 1)));
    // "/../x" is a cgroup outside our namespace: only what is below the mount can be read.
    if (path.find("..") != std::string::npos) path = "/";
    out.push_back({std::string(line.substr(a + 1, b - a - 1)), path});
  }
  return out;
}

bool HasController(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// The group and its ancestors, leaf first, down to "" (the mount itself). At most 64 deep.
std::vector<std::string> SelfAndAncestors(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  std::vector<std::string> out;
  while (!path.empty() && out.size() < 64) {
    out.push_back(path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  out.emplace_back();
  return out;
}

std::string Shown(const std::string& group) { return group.empty() ? "/" : group; }

// Value of "key" in a memory.stat; nullopt where absent.
std::optional<Bytes> Stat(std::string_view text, std::string_view key) {
  for (std::string_view line : Lines(text)) {
    const auto words = Words(line);
    if (words.size() == 2 && words[0] == key) return ParseU64(words[1]);
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(const Root& root, CgroupFacts& out) : root_(root), out_(out) {}

  // Keeps the limit that leaves the least. `used` is unknown where its file is.
  void Memory(const std::string& dir, const std::string& group, const char* limit_file,
              const char* usage_file, const char* cache_key) {
    const FileText limit_text = root_.Read(dir + "/" + limit_file);
    if (limit_text.state == ReadState::kMissing || limit_text.text == "max") return;
    const auto limit = ParseU64(limit_text.text);
    if (!limit_text.ok() || !limit) {
      out_.memory_unreadable = true;
      return;
    }
    if (*limit >= kNoLimit) return;
    const auto usage = ParseU64(root_.Read(dir + "/" + usage_file).text);
    const auto cache = Stat(root_.Read(dir + "/memory.stat").text, cache_key);
    std::optional<Bytes> used;
    if (usage) used = SaturatingSub(*usage, std::min(*usage, cache.value_or(0)));
    const Bytes left = SaturatingSub(*limit, used.value_or(0));
    if (out_.memory_limit && left >= left_) return;
    left_ = left;
    out_.memory_limit = *limit;
    out_.memory_used = used;
    out_.memory_source = std::string("cgroup ") + limit_file + " of " + Shown(group);
  }

  void Quota(std::optional<int64_t> quota_us, std::optional<int64_t> period_us, const std::string& source) {
    if (!quota_us || !period_us || *period_us <= 0 || *quota_us <= 0) {
      out_.cpu_unreadable = true;
      return;
    }
    const double cpus = static_cast<double>(*quota_us) / static_cast<double>(*period_us);
    if (out_.cpu_quota && cpus >= *out_.cpu_quota) return;
    out_.cpu_quota = cpus;
    out_.cpu_quota_source = source;
  }

  void CpuMaxV2(const std::string& dir, const std::string& group) {
    const FileText text = root_.Read(dir + "/cpu.max");
    if (text.state == ReadState::kMissing) return;
    const auto words = Words(text.text);
    if (!words.empty() && words[0] == "max") return;
    if (words.empty()) {
      out_.cpu_unreadable = true;
      return;
    }
    Quota(ParseI64(words[0]), words.size() > 1 ? ParseI64(words[1]) : 100000,
          "cgroup cpu.max of " + Shown(group));
  }

  void CpuQuotaV1(const std::string& dir, const std::string& group) {
    const FileText text = root_.Read(dir + "/cpu.cfs_quota_us");
    if (text.state == ReadState::kMissing || text.text == "-1") return;
    Quota(ParseI64(text.text), ParseI64(root_.Read(dir + "/cpu.cfs_period_us").text),
          "cgroup cpu.cfs_quota_us of " + Shown(group));
  }

  void CpuSet(const std::string& dir, const std::string& group, const char* file) {
    const FileText text = root_.Read(dir + "/" + file);
    if (text.state == ReadState::kMissing || (text.ok() && text.text.empty())) return;
    const auto count = CountCpuList(text.text);
    if (!count) {
      out_.cpu_unreadable = true;
      return;
    }
    if (out_.cpuset && *count >= *out_.cpuset) return;
    out_.cpuset = count;
    out_.cpuset_source = std::string("cgroup ") + file + " of " + Shown(group);
  }

  void V2(const std::string& mount, const std::string& path) {
    for (const std::string& group : SelfAndAncestors(path)) {
      const std::string dir = mount + group;
      Memory(dir, group, "memory.max", "memory.current", "inactive_file");
      Memory(dir, group, "memory.high", "memory.current", "inactive_file");
      CpuMaxV2(dir, group);
      CpuSet(dir, group, "cpuset.cpus.effective");
    }
  }

  // Returns whether the controller is mounted as v1.
  bool V1(const std::string& controllers, const std::string& path) {
    bool found = false;
    for (const char* name : {"memory", "cpu", "cpuset"}) {
      if (!HasController(controllers, name)) continue;
      std::string mount = std::string("/sys/fs/cgroup/") + name;
      if (!root_.Exists(mount)) mount = "/sys/fs/cgroup/" + controllers;  // "cpu,cpuacct"
      if (!root_.Exists(mount)) continue;
      found = true;
      for (const std::string& group : SelfAndAncestors(path)) {
        const std::string dir = mount + group;
        if (name == std::string_view("memory")) {
          Memory(dir, group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
        } else if (name == std::string_view("cpu")) {
          CpuQuotaV1(dir, group);
        } else {
          CpuSet(dir, group,
                 root_.Exists(dir + "/cpuset.effective_cpus") ? "cpuset.effective_cpus" : "cpuset.cpus");
        }
      }
    }
    return found;
  }

 private:
  const Root& root_;
  CgroupFacts& out_;
  Bytes left_ = 0;
};

}  // namespace

CgroupFacts ReadCgroups(const Root& root, std::string_view self_cgroup) {
  CgroupFacts out;
  Reader reader(root, out);
  bool v1 = false;
  bool v2 = false;
  std::vector<Membership> groups = ParseSelfCgroup(self_cgroup);
  if (groups.empty()) groups.push_back({"", "/"});  // unreadable: at least the mount's own limits
  for (const Membership& group : groups) {
    if (!group.controllers.empty()) {
      v1 = reader.V1(group.controllers, group.path) || v1;
      continue;
    }
    // A hybrid host mounts v2 at "unified", beside the v1 controllers that hold the limits.
    std::string mount = "/sys/fs/cgroup";
    if (root.Exists("/sys/fs/cgroup/unified")) mount += "/unified";
    if (!root.Exists(mount)) continue;
    v2 = true;
    reader.V2(mount, group.path);
  }
  out.version = v1 && v2 ? "hybrid v1" : v1 ? "v1" : v2 ? "v2" : "";
  return out;
}

}  // namespace rumbo
