#include "devices/profiles/profile.h"

#include <dirent.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

constexpr size_t kMaxFile = 256 * 1024;
constexpr int kMaxDevices = 256;

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

[[noreturn]] void Fail(const YAML::Node& node, const std::string& what) {
  throw YAML::RepresentationException(node.Mark(), what);  // caught in ParseProfile
}

// Builds one topology; throws YAML::Exception on malformed input.
class Builder {
 public:
  Builder(std::string_view name, const ChipTable& chips)
      : chips_(chips), origin_("profile " + std::string(name)) {
    out_.source = "profile:" + std::string(name);
  }

  Topology Build(const YAML::Node& root) {
    out_.name = root["title"].as<std::string>();
    out_.system = root["system"] ? root["system"].as<std::string>() : "linux";
    if (root["interconnect"]) out_.interconnect = root["interconnect"].as<std::string>();
    if (const YAML::Node p = root["price"]) {
      out_.price = Price{p["amount"].as<double>(), p["currency"].as<std::string>(),
                         p["date"] ? p["date"].as<std::string>() : "", p["source"].as<std::string>()};
    }
    Host(root["host"]);
    for (const YAML::Node& gpu : root["gpus"]) {
      for (int i = Count(gpu); i > 0; --i) Gpu(gpu);
    }
    for (const YAML::Node& npu : root["npus"]) Npu(npu);
    std::sort(out_.pools.begin(), out_.pools.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    return std::move(out_);
  }

 private:
  static int Count(const YAML::Node& node) {
    const int count = node["count"] ? node["count"].as<int>() : 1;
    if (count < 1 || count > 64) Fail(node, "count must be from 1 to 64");
    return count;
  }

  const Chip& ChipOf(const YAML::Node& node) {
    const std::string id = node["chip"].as<std::string>();
    const Chip* chip = chips_.FindId(id);
    if (chip == nullptr) Fail(node, "no chip of the id " + id);
    if (out_.devices.size() >= kMaxDevices) Fail(node, "too many devices");
    return *chip;
  }

  Device Start(const Chip& chip, DeviceKind kind, const YAML::Node& node) {
    if (chip.kind != kind) Fail(node, "chip " + chip.id + " is of another kind");
    Device d;
    d.kind = kind;
    d.name = chip.name;
    d.vendor = chip.vendor;
    d.gfx_target = chip.gfx_target;
    d.memory_kind = chip.memory_kind;
    d.memory_kind_rule = origin_;
    if (!chip.pci.empty()) d.pci_id = chip.pci.front();
    if (!chip.revisions.empty()) d.pci_revision = chip.revisions.front();
    d.present = d.accessible = d.usable = true;
    d.reason = "as described by " + origin_;
    d.evidence = {"chip: " + chip.id};
    FillFrom(chip, origin_, d);
    return d;
  }

  // "{value: N, source: text}" of bytes.
  static Sourced<Bytes> Size(const YAML::Node& node) {
    Sourced<Bytes> out;
    out.value = node["value"].as<Bytes>();
    out.source = node["source"].as<std::string>();
    if (*out.value == 0) Fail(node, "a size must be above 0");
    return out;
  }

  MemoryPool Pool(std::string id, PoolKind kind, const YAML::Node& node, Bytes in_use) {
    const Sourced<Bytes> size = Size(node);
    MemoryPool pool;
    pool.id = std::move(id);
    pool.kind = kind;
    pool.total_bytes = size.value;
    pool.free_bytes = SaturatingSub(*size.value, in_use);
    pool.source = origin_ + ": " + size.source;
    if (in_use > 0) pool.source += fmt::format("; free: less {} for an idle system", FormatBytes(in_use));
    return pool;
  }

  void Host(const YAML::Node& node) {
    out_.pools.push_back(Pool("pool-system", PoolKind::kSystem, node["memory"], kIdleSystem));
    Device cpu = Start(ChipOf(node), DeviceKind::kCpu, node);
    cpu.id = "cpu0";
    cpu.pools = {"pool-system"};
    cpu.cores_physical = node["cores"].as<int>();
    cpu.cores_logical = node["threads"].as<int>();
    if (*cpu.cores_physical < 1 || *cpu.cores_logical < *cpu.cores_physical)
      Fail(node, "cores and threads do not fit");
    cpu.threads_allowed = cpu.cores_logical;
    cpu.threads_allowed_source = origin_;
    cpu.isa = node["isa"].as<std::vector<std::string>>();
    cpu.backends = {Backend("cpu", cpu, "")};
    out_.devices.push_back(std::move(cpu));
  }

  BackendSupport Backend(const std::string& name, const Device& d, const std::string& selector) {
    BackendSupport b;
    b.name = name;
    b.usable = true;
    b.reason = d.reason;
    b.selector = selector;
    b.pools = d.pools;
    b.may_span_pools = name == "vulkan" && d.pools.size() > 1;
    return b;
  }

  void Gpu(const YAML::Node& node) {
    Device d = Start(ChipOf(node), DeviceKind::kGpu, node);
    // Made-up addresses, one bus per card, so that ids look like a probe's.
    d.pci_address =
        fmt::format("0000:{:02x}:00.0", d.memory_kind == MemoryKind::kUnified ? 0xc5 : 3 + 0x20 * gpus_);
    d.id = "gpu-" + d.pci_address;
    if (d.memory_kind == MemoryKind::kDiscrete) {
      d.pools = {"pool-vram-" + d.pci_address};
      out_.pools.push_back(Pool(d.pools[0], PoolKind::kVram, node["vram"], 0));
    } else {
      Unified(node, d);
    }
    if (node["link_gbps"]) {
      d.link_bytes_s = {node["link_gbps"]["value"].as<double>() * 1e9,
                        origin_ + ": " + node["link_gbps"]["source"].as<std::string>()};
    }
    for (const YAML::Node& b : node["backends"])
      d.backends.push_back(Backend(b.as<std::string>(), d, std::to_string(gpus_)));
    if (d.backends.empty()) Fail(node, "a GPU needs its backends");
    ++gpus_;
    out_.devices.push_back(std::move(d));
  }

  void Unified(const YAML::Node& node, Device& d) {
    MemoryPool& system = out_.pools.front();
    d.pools = {"pool-system"};
    Bytes gtt = 0;
    if (node["gtt"]) {
      const Sourced<Bytes> size = Size(node["gtt"]);
      gtt = std::min(*size.value, *system.total_bytes);
      system.limits.push_back(
          {"limit-gtt-" + d.pci_address, LimitKind::kGtt, gtt, 0, {d.id}, {}, origin_ + ": " + size.source});
    }
    if (!node["carveout"]) return;
    const std::string id = "pool-carveout-" + d.pci_address;
    MemoryPool carveout = Pool(id, PoolKind::kCarveout, node["carveout"], 0);
    if (gtt > *carveout.total_bytes)
      d.pools = {"pool-system", id};
    else
      d.pools = {id, "pool-system"};
    out_.pools.push_back(std::move(carveout));
  }

  void Npu(const YAML::Node& node) {
    Device d = Start(ChipOf(node), DeviceKind::kNpu, node);
    d.pci_address = "0000:c6:00.1";
    d.id = "npu-" + d.pci_address;
    d.pools = {"pool-system"};
    d.backends = {Backend(d.vendor == "AMD" ? "xdna" : "openvino", d, "/dev/accel/accel0")};
    out_.devices.push_back(std::move(d));
  }

  // What an idle system with a desktop takes of main memory.
  static constexpr Bytes kIdleSystem = 3 * kGiB;

  const ChipTable& chips_;
  std::string origin_;
  Topology out_;
  int gpus_ = 0;
};

std::string SomeNames() {
  std::string out;
  for (const std::string& name : ListProfiles()) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

std::vector<std::string> ProfileDirs() {
  std::vector<std::string> out;
  if (const char* share = getenv("RUMBO_SHARE"); share != nullptr && *share != '\0')
    out.push_back(std::string(share) + "/profiles");
  out.push_back(ExecutableDir() + "/../share/rumbo/profiles");
  return out;
}

std::vector<std::string> ListProfiles() {
  std::set<std::string> names;
  for (const std::string& dir : ProfileDirs()) {
    const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(dir.c_str()), closedir);
    while (const dirent* entry = open ? readdir(open.get()) : nullptr) {
      std::string_view name = entry->d_name;
      if (!name.ends_with(".yaml")) continue;
      name.remove_suffix(5);
      if (IsName(name)) names.emplace(name);
    }
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<Topology> LoadProfile(std::string_view name) {
  if (IsName(name)) {
    for (const std::string& dir : ProfileDirs()) {
      const auto text = ReadFile(dir + "/" + std::string(name) + ".yaml", kMaxFile);
      if (text.ok()) return ParseProfile(name, *text, ChipTable::BuiltIn());
      if (text.status().code() != absl::StatusCode::kNotFound) return text.status();
    }
  }
  const std::string names = SomeNames();
  return Error(absl::StatusCode::kNotFound, Reason::kProfileNotFound,
               fmt::format("there is no hardware profile '{}'", std::string(name.substr(0, 100))),
               names.empty() ? "Set RUMBO_SHARE to the folder that holds profiles/."
                             : "Choose one of: " + names + ".");
}

absl::StatusOr<Topology> ParseProfile(std::string_view name, std::string_view yaml, const ChipTable& chips) {
  try {
    return Builder(name, chips).Build(YAML::Load(std::string(yaml)));
  } catch (const YAML::Exception& e) {
    return InvalidArgument(fmt::format("profile {}: {}", std::string(name), e.what()),
                           "Fix the profile's YAML.");
  }
}

}  // namespace rumbo
