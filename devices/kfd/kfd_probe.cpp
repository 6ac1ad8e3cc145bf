#include "devices/kfd/kfd_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace rumbo {
namespace {

constexpr std::string_view kNodes = "/sys/class/kfd/kfd/topology/nodes";
constexpr size_t kMaxNodes = 1024;
constexpr Bytes kAbsurd = Bytes{1} << 50;

// "key value" lines; a negative or malformed value leaves the key out.
using Properties = std::map<std::string, uint64_t, std::less<>>;

Properties ParseProperties(std::string_view text) {
  Properties out;
  for (std::string_view line : Lines(text)) {
    const auto words = Words(line);
    if (words.size() != 2 || out.size() == 256) continue;
    if (const auto n = ParseU64(words[1])) out.emplace(std::string(words[0]), *n);
  }
  return out;
}

std::optional<uint64_t> Find(const Properties& p, std::string_view key) {
  const auto it = p.find(key);
  return it == p.end() ? std::nullopt : std::optional(it->second);
}

std::optional<uint32_t> Id(const Properties& p, std::string_view key) {
  const auto n = Find(p, key);
  return n && *n > 0 && *n <= 0xffff ? std::optional(static_cast<uint32_t>(*n)) : std::nullopt;
}

// Sum of the node's banks of the given types: 0 is system memory, 1 and 2 visible and invisible VRAM.
std::optional<Bytes> BankBytes(const Root& root, const std::string& dir,
                               std::initializer_list<uint64_t> types) {
  std::optional<Bytes> sum;
  for (const std::string& bank : root.List(dir + "/mem_banks")) {
    const Properties p = ParseProperties(root.Read(dir + "/mem_banks/" + bank + "/properties").text);
    const auto type = Find(p, "heap_type");
    const auto size = Find(p, "size_in_bytes");
    if (!type || !size || std::find(types.begin(), types.end(), *type) == types.end()) continue;
    sum = SaturatingAdd(sum.value_or(0), *size);
  }
  if (sum && (*sum == 0 || *sum > kAbsurd)) return std::nullopt;
  return sum;
}

KfdNode GpuNode(const Root& root, int index, const std::string& dir, const Properties& p) {
  KfdNode node;
  node.index = index;
  if (const auto location = Find(p, "location_id"); location && *location <= 0xffff) {
    node.says_address = true;
    node.address = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", Find(p, "domain").value_or(0) & 0xffffffff,
                               *location >> 8, (*location >> 3) & 0x1f, *location & 7);
  }
  node.name = root.Read(dir + "/name").text.substr(0, 100);
  node.gfx_target = GfxTargetOfKfd(Find(p, "gfx_target_version").value_or(0));
  node.vendor = Id(p, "vendor_id");
  node.device = Id(p, "device_id");
  const auto minor = Find(p, "drm_render_minor");
  if (minor && *minor > 0 && *minor < 1000000) node.render_minor = static_cast<int>(*minor);
  const uint64_t simds = Find(p, "simd_count").value_or(0);
  const uint64_t per_cu = Find(p, "simd_per_cu").value_or(0);
  if (per_cu > 0 && simds / per_cu > 0 && simds / per_cu < 65536) {
    node.compute_units = static_cast<int>(simds / per_cu);
  }
  node.vram_bank_bytes = BankBytes(root, dir, {1, 2});
  const auto local = Find(p, "local_mem_size");
  if (!node.vram_bank_bytes && local && *local > 0 && *local <= kAbsurd) node.vram_bank_bytes = local;
  const uint64_t unique = Find(p, "unique_id").value_or(0);
  if (unique != 0) node.unique_id = fmt::format("{:016x}", unique);
  node.cwsr_size = Find(p, "cwsr_size").has_value();
  node.xgmi = Find(p, "hive_id").value_or(0) != 0;
  return node;
}

}  // namespace

std::string GfxTargetOfKfd(uint64_t version) {
  const uint64_t major = version / 10000, minor = version / 100 % 100, step = version % 100;
  if (major == 0 || major > 99 || minor > 15 || step > 15) return "";
  return fmt::format("gfx{}{:x}{:x}", major, minor, step);
}

KfdFacts ReadKfd(const Root& root) {
  KfdFacts out;
  out.node = root.Access("/dev/kfd");
  out.present = root.Exists(kNodes);
  std::vector<int> indexes;
  for (const std::string& name : root.List(kNodes)) {
    const auto n = ParseU64(name);
    if (n && *n < 65536 && indexes.size() < kMaxNodes) indexes.push_back(static_cast<int>(*n));
  }
  std::sort(indexes.begin(), indexes.end());
  for (int index : indexes) {
    const std::string dir = fmt::format("{}/{}", kNodes, index);
    const FileText text = root.Read(dir + "/properties");
    const Properties p = ParseProperties(text.text);
    if (!text.ok() || p.empty()) {
      // A node we may not see (another container's) has an unreadable or empty file.
      out.malformed.push_back(fmt::format("node {}: properties", index));
      continue;
    }
    if (Find(p, "simd_count").value_or(0) == 0) {  // a CPU
      if (const auto bytes = BankBytes(root, dir, {0})) {
        out.system_bytes = SaturatingAdd(out.system_bytes.value_or(0), *bytes);
      }
      continue;
    }
    out.gpus.push_back(GpuNode(root, index, dir, p));
  }
  return out;
}

}  // namespace rumbo
