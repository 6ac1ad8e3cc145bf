#include "devices/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <sstream>

#include "devices/cpu/host_probe.h"
#include "devices/pci/pci_probe.h"

namespace rumbo {
namespace {

int64_t NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// "gpu-0000:03:00.0" -> "0000:03:00.0".
std::string KeyOf(const Device& d) { return d.id.substr(d.id.find('-') + 1); }

// The first of `names` that a sensor of the device offers; "" none.
std::string SensorFile(const Root& root, const std::string& dir, std::initializer_list<const char*> names) {
  for (const std::string& hwmon : root.List(dir + "/hwmon")) {
    for (const char* name : names) {
      const std::string file = dir + "/hwmon/" + hwmon + "/" + name;
      if (root.Exists(file)) return file;
    }
  }
  return "";
}

}  // namespace

LiveReader::LiveReader(const Topology& topology, Root root) : root_(std::move(root)) {
  for (const PciFunction& f : ReadPci(root_)) dirs_[f.key] = f.dir;
  if (const MemoryPool* system = topology.FindPool("pool-system")) {
    system_total_ = system->total_bytes;
    has_cgroup_limit_ = std::any_of(system->limits.begin(), system->limits.end(),
                                    [](const MemoryLimit& l) { return l.id == "limit-cgroup"; });
  }
  int processors = 0;
  for (const Device& d : topology.devices) {
    if (d.kind == DeviceKind::kCpu && !d.software && ++processors == 1) cpu_ = d.id;
  }
  if (processors > 1) cpu_.clear();
  for (const Device& d : topology.devices) {
    if (d.kind != DeviceKind::kCpu && d.parent.empty()) Watch(d, topology);
  }
}

void LiveReader::Watch(const Device& device, const Topology& topology) {
  Watched w;
  w.id = device.id;
  w.driver = device.driver;
  w.npu = device.kind == DeviceKind::kNpu;
  const std::string key = KeyOf(device);
  if (const auto it = dirs_.find(key); it != dirs_.end()) w.dir = it->second;
  if (!w.dir.empty()) {
    w.power_file = SensorFile(root_, w.dir, {"power1_average", "power1_input"});
    w.temperature_file = SensorFile(root_, w.dir, {"temp1_input"});
    for (const char* kind : {"pool-vram-", "pool-carveout-"}) {
      const MemoryPool* pool = topology.FindPool(kind + key);
      if (pool == nullptr || !pool->total_bytes) continue;
      w.vram_pool = pool->id;
      w.vram_total = pool->total_bytes;
    }
    w.gtt_limit = "limit-gtt-" + key;
  }
  watched_.push_back(std::move(w));
}

void LiveReader::ReadSystem(LiveReading& out) const {
  const MemoryFacts memory = ParseMemInfo(root_.Read("/proc/meminfo").text);
  std::optional<Bytes> free = memory.available;
  // Limits may come and go, but looking for new ones needs a probe.
  if (has_cgroup_limit_) {
    const CgroupFacts cgroup = ReadCgroups(root_, root_.Read("/proc/self/cgroup").text);
    if (cgroup.memory_limit) {
      const Bytes left = SaturatingSub(*cgroup.memory_limit, cgroup.memory_used.value_or(0));
      free = std::min(free.value_or(left), left);
      out.limits.push_back({"limit-cgroup", cgroup.memory_used});
    }
  }
  if (free && system_total_) free = std::min(*free, *system_total_);
  out.pools.push_back({"pool-system", free});
}

// The share of the last interval in which the processor's threads had work, by /proc/stat.
void LiveReader::ReadCpu(LiveReading& out) {
  if (cpu_.empty()) return;
  const std::string text = root_.Read("/proc/stat").text;
  std::istringstream line(text.substr(0, text.find('\n')));
  std::string word;
  line >> word;
  uint64_t total = 0, idle = 0, ticks = 0;
  for (int field = 0; field < 8 && line >> ticks; ++field) {
    total += ticks;
    if (field == 3 || field == 4) idle += ticks;  // idle, iowait
  }
  if (word != "cpu" || total == 0) return;
  const uint64_t busy = total - idle;
  if (cpu_total_ > 0 && total > cpu_total_ && busy >= cpu_busy_) {
    DeviceReading reading;
    reading.id = cpu_;
    reading.busy =
        std::min(1.0, static_cast<double>(busy - cpu_busy_) / static_cast<double>(total - cpu_total_));
    out.devices.push_back(std::move(reading));
  }
  cpu_total_ = total;
  cpu_busy_ = busy;
}

void LiveReader::ReadDevice(Watched& w, LiveReading& out) const {
  DeviceReading reading;
  reading.id = w.id;
  if (w.dir.empty()) return;  // known from a vendor library only: nothing cheap tells about it
  if (!root_.Exists(w.dir)) {
    reading.lost = true;
    reading.lost_reason = "the device is gone from the bus";
  } else if (!w.driver.empty() && root_.LinkName(w.dir + "/driver").empty() &&
             root_.Read(w.dir + "/uevent").text.find("DRIVER=") == std::string::npos) {
    reading.lost = true;
    reading.lost_reason = "its driver " + w.driver + " is no longer bound";
  }
  if (reading.lost) {
    out.devices.push_back(std::move(reading));
    return;
  }
  reading.suspended = root_.Read(w.dir + "/power/runtime_status").text == "suspended";
  if (!reading.suspended && w.npu) {
    // Cumulative microseconds: the load is the share since the last reading.
    const auto busy = ParseU64(root_.Read(w.dir + "/npu_busy_time_us").text);
    const int64_t now = NowMicros();
    if (busy && w.npu_busy_us && w.npu_read_at_us && *busy >= *w.npu_busy_us && now > *w.npu_read_at_us) {
      reading.busy = std::min(
          1.0, static_cast<double>(*busy - *w.npu_busy_us) / static_cast<double>(now - *w.npu_read_at_us));
    }
    w.npu_busy_us = busy;
    w.npu_read_at_us = now;
  } else if (!reading.suspended) {
    const auto busy = ParseU64(root_.Read(w.dir + "/gpu_busy_percent").text);
    if (busy && *busy <= 100) reading.busy = static_cast<double>(*busy) / 100.0;
    if (!w.power_file.empty()) {
      const auto microwatts = ParseU64(root_.Read(w.power_file).text);
      if (microwatts && *microwatts < 10'000'000'000)
        reading.power_watts = static_cast<double>(*microwatts) / 1e6;
    }
    if (!w.temperature_file.empty()) {
      const auto millidegrees = ParseU64(root_.Read(w.temperature_file).text);
      if (millidegrees && *millidegrees < 200'000)
        reading.temperature_c = static_cast<double>(*millidegrees) / 1e3;
    }
    if (!w.vram_pool.empty()) {
      const auto used = ParseU64(root_.Read(w.dir + "/mem_info_vram_used").text);
      if (used) out.pools.push_back({w.vram_pool, SaturatingSub(*w.vram_total, *used)});
    }
    const auto gtt = ParseU64(root_.Read(w.dir + "/mem_info_gtt_used").text);
    if (gtt) out.limits.push_back({w.gtt_limit, gtt});
  }
  out.devices.push_back(std::move(reading));
}

std::string MachineSignature(const Root& root) {
  // Nodes made anew by a driver reload have new inodes even under their old names.
  std::string out;
  for (const char* folder : {"/sys/class/drm", "/sys/class/accel"}) {
    for (const std::string& name : root.List(folder)) {
      if (name.find('-') != std::string::npos)
        continue;  // a connector, whose coming and going is a monitor's
      out += fmt::format("{}:{};", name, root.Inode(std::string(folder) + "/" + name));
    }
  }
  size_t functions = 0;  // which, not only how many: a card may have been exchanged
  for (const std::string& name : root.List("/sys/bus/pci/devices")) {
    functions = functions * 31 + std::hash<std::string>()(name);
  }
  out += fmt::format("pci:{:x};", functions);
  out += "kfd:" + root.Read("/sys/class/kfd/kfd/topology/generation_id").text + ";";
  out += root.Exists("/dev/nvidiactl") ? "nvidia;" : "";
  return out;
}

LiveReading LiveReader::Read() {
  LiveReading out;
  ReadSystem(out);
  ReadCpu(out);
  for (Watched& w : watched_) ReadDevice(w, out);
  out.signature = MachineSignature(root_);
  return out;
}

void ApplyLive(const LiveReading& reading, Topology& topology) {
  for (const PoolReading& p : reading.pools) {
    for (MemoryPool& pool : topology.pools) {
      if (pool.id != p.id || !p.free_bytes) continue;
      pool.free_bytes = pool.total_bytes ? std::min(*p.free_bytes, *pool.total_bytes) : *p.free_bytes;
    }
  }
  for (const LimitReading& l : reading.limits) {
    for (MemoryPool& pool : topology.pools) {
      for (MemoryLimit& limit : pool.limits) {
        if (limit.id == l.id && l.used_bytes) limit.used_bytes = l.used_bytes;
      }
    }
  }
  for (const DeviceReading& r : reading.devices) {
    if (!r.lost) continue;
    for (Device& d : topology.devices) {
      if (d.id != r.id && d.parent != r.id) continue;
      d.present = d.accessible = d.usable = false;
      d.reason = r.lost_reason;
      d.remedy = "Look into dmesg for a GPU reset or a bus error; the daemon probes again by itself.";
      for (BackendSupport& b : d.backends) b.usable = false, b.reason = r.lost_reason, b.remedy = d.remedy;
    }
  }
}

}  // namespace rumbo
