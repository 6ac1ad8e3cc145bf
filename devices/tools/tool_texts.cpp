#include "devices/tools/tool_texts.h"

#include <fmt/format.h>

#include "devices/pci/pci_probe.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDevices = 1024;

struct KeyValue {
  std::string_view key, value;
  size_t indent = 0;
};

// "  key   <separator> value"; an empty key where the line has no separator.
KeyValue Split(std::string_view line, char separator) {
  KeyValue out;
  out.indent = std::min(line.find_first_not_of(" \t"), line.size());
  const size_t at = line.find(separator);
  if (at == std::string_view::npos) return out;
  out.key = Trim(line.substr(0, at));
  out.value = Trim(line.substr(at + 1));
  return out;
}

std::string_view AfterPrefix(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

std::string VulkanType(std::string_view word) {
  const std::string_view type = AfterPrefix(word, "PHYSICAL_DEVICE_TYPE_");
  if (type == "INTEGRATED_GPU") return "integrated";
  if (type == "DISCRETE_GPU") return "discrete";
  if (type == "VIRTUAL_GPU") return "virtual";
  return type == "CPU" ? "cpu" : "other";
}

uint32_t Hex32(std::string_view text) {
  const auto n = ParseHex(text);
  return n && *n <= 0xffffffff ? static_cast<uint32_t>(*n) : 0;
}

void SetVulkanField(const KeyValue& line, VulkanDevice& d) {
  if (line.key == "deviceName") d.name = line.value.substr(0, 256);
  if (line.key == "deviceType") d.type = VulkanType(line.value);
  if (line.key == "vendorID") d.vendor = Hex32(line.value);
  if (line.key == "deviceID") d.device = Hex32(line.value);
  if (line.key == "driverName") d.driver = line.value.substr(0, 256);
  if (line.key == "driverInfo") d.driver_info = line.value.substr(0, 256);
  if (line.key == "apiVersion") d.api_version = line.value.substr(0, 64);
  if (line.key == "deviceUUID") {
    d.uuid.clear();
    for (char c : line.value.substr(0, 64)) {
      if (c != '-') d.uuid += c;
    }
  }
  // The excerpts of some reports name no driver; RADV and llvmpipe say who they are in the device's name.
  if (line.key == "deviceName" && d.driver.empty()) {
    if (line.value.find("RADV") != std::string_view::npos) d.driver = "radv";
    if (line.value.find("llvmpipe") != std::string_view::npos) d.driver = "llvmpipe";
  }
}

// "33406976(0x1fdc000) KB"
std::optional<Bytes> RocKilobytes(std::string_view value) {
  const auto n = ParseU64(value.substr(0, value.find('(')));
  return n ? CheckedMul(*n, kKiB) : std::nullopt;
}

std::optional<uint64_t> LeadingNumber(std::string_view value) {
  return ParseU64(value.substr(0, value.find('(')));
}

void SetRocField(const KeyValue& line, std::string_view segment, HipDevice& d) {
  if (line.key == "Name" && line.indent == 2) d.gfx_target = line.value.substr(0, line.value.find(':'));
  if (line.key == "Marketing Name") d.name = line.value.substr(0, 256);
  if (line.key == "Memory Properties") d.apu = line.value.find("APU") != std::string_view::npos;
  if (line.key == "Chip ID")
    d.device_id = static_cast<uint32_t>(LeadingNumber(line.value).value_or(0) & 0xffff);
  if (line.key == "Compute Unit") {
    const auto n = LeadingNumber(line.value);
    if (n && *n > 0 && *n < 65536) d.compute_units = static_cast<int>(*n);
  }
  if (line.key == "BDFID") {
    const auto id = LeadingNumber(line.value);
    if (id && *id > 0 && *id <= 0xffff)
      d.address = fmt::format("0000:{:02x}:{:02x}.{:x}", *id >> 8, (*id >> 3) & 0x1f, *id & 7);
  }
  if (line.key == "Size" && segment.starts_with("GLOBAL") &&
      segment.find("COARSE") != std::string_view::npos && !d.total) {
    d.total = RocKilobytes(line.value);
  }
}

std::string JsonText(const json::object& object, std::string_view key) {
  const json::value* v = object.if_contains(json::string_view(key.data(), key.size()));
  const json::string* s = v == nullptr ? nullptr : v->if_string();
  return s == nullptr ? "" : std::string(s->data(), std::min<size_t>(s->size(), 256));
}

}  // namespace

VulkanFacts ParseVulkaninfo(std::string_view text) {
  VulkanFacts out;
  std::optional<Bytes> heap_size;
  for (std::string_view raw : Lines(text)) {
    const std::string_view line = Trim(raw);
    if (line.starts_with("GPU") && line.ends_with(":") && out.devices.size() < kMaxDevices) {
      const auto index = ParseU64(line.substr(3, line.size() - 4));
      if (index && *index < kMaxDevices) out.devices.emplace_back().index = static_cast<int>(*index);
      continue;
    }
    if (out.devices.empty()) continue;
    VulkanDevice& d = out.devices.back();
    const KeyValue field = Split(raw, '=');
    SetVulkanField(field, d);
    // "size = 2147483648 (0x80000000) (2.00 GiB)", then its flags.
    if (field.key == "size") {
      heap_size = ParseU64(field.value.substr(0, field.value.find(' ')));
      if (heap_size && d.heaps.size() < 16) d.heaps.push_back({*heap_size, {}, {}, false});
    }
    if (line == "MEMORY_HEAP_DEVICE_LOCAL_BIT" && !d.heaps.empty()) d.heaps.back().device_local = true;
  }
  return out;
}

HipFacts ParseRocminfo(std::string_view text) {
  HipFacts out;
  std::vector<HipDevice> agents;
  std::vector<bool> is_gpu;
  std::string segment;
  for (std::string_view raw : Lines(text)) {
    if (raw.starts_with("Agent ") && agents.size() < kMaxDevices) {
      agents.emplace_back();
      is_gpu.push_back(false);
      segment.clear();
      continue;
    }
    if (agents.empty()) continue;
    const KeyValue field = Split(raw, ':');
    if (field.key == "Device Type") is_gpu.back() = field.value == "GPU";
    if (field.key == "Segment") segment = field.value;
    SetRocField(field, segment, agents.back());
  }
  for (size_t i = 0; i < agents.size(); ++i) {
    if (!is_gpu[i]) continue;
    agents[i].index = static_cast<int>(out.devices.size());
    out.devices.push_back(std::move(agents[i]));
  }
  return out;
}

std::vector<std::pair<PciFunction, AmdgpuCard>> ParseRocmSmi(std::string_view text) {
  std::vector<std::pair<PciFunction, AmdgpuCard>> out;
  json::error_code error;
  json::parse_options options;
  options.max_depth = json_fields::kMaxDepth;
  // Before the document some versions print warnings.
  const size_t start = text.find('{');
  if (start == std::string_view::npos || text.size() > json_fields::kMaxInput) return out;
  const json::value document = json::parse({text.data() + start, text.size() - start}, error, {}, options);
  const json::object* cards = error ? nullptr : document.if_object();
  if (cards == nullptr) return out;
  for (const auto& [name, value] : *cards) {
    const json::object* fields = value.if_object();
    if (fields == nullptr || !name.starts_with("card") || out.size() == kMaxDevices) continue;
    PciFunction f;
    f.address = PciAddress(JsonText(*fields, "PCI Bus"));
    if (f.address.empty()) continue;
    f.key = f.address;
    f.vendor = 0x1002;
    f.driver = "amdgpu";
    if (const uint32_t id = Hex32(JsonText(*fields, "Device ID"))) f.device = id;
    if (!f.device) {  // older versions: "GPU ID"
      if (const uint32_t id = Hex32(JsonText(*fields, "GPU ID"))) f.device = id;
    }
    if (const auto revision = ParseHex(JsonText(*fields, "Device Rev")))
      f.revision = static_cast<uint32_t>(*revision & 0xff);
    AmdgpuCard card;
    card.vram_total = ParseU64(JsonText(*fields, "VRAM Total Memory (B)"));
    card.vram_used = ParseU64(JsonText(*fields, "VRAM Total Used Memory (B)"));
    card.vis_vram_total = ParseU64(JsonText(*fields, "VIS_VRAM Total Memory (B)"));
    card.gtt_total = ParseU64(JsonText(*fields, "GTT Total Memory (B)"));
    card.gtt_used = ParseU64(JsonText(*fields, "GTT Total Used Memory (B)"));
    card.vram_vendor = JsonText(*fields, "GPU memory vendor");
    if (card.vram_vendor == "unknown" || card.vram_vendor == "N/A") card.vram_vendor.clear();
    out.emplace_back(std::move(f), std::move(card));
  }
  return out;
}

std::vector<std::pair<PciFunction, NpuFacts>> ParseXrtSmi(std::string_view text) {
  std::vector<std::pair<PciFunction, NpuFacts>> out;
  std::string firmware;
  for (std::string_view line : Lines(text)) {
    const KeyValue field = Split(line, ':');
    if (field.key == "NPU Firmware Version") firmware = field.value.substr(0, 64);
    // "|[0000:be:00.1]  |RyzenAI-npu5  |"
    const size_t open = line.find("|["), close = line.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open ||
        out.size() == kMaxDevices)
      continue;
    PciFunction f;
    f.address = PciAddress(line.substr(open + 2, close - open - 2));
    const size_t bar = line.find('|', close);
    if (f.address.empty() || bar == std::string_view::npos) continue;
    const size_t end = std::min(line.find('|', bar + 1), line.size());
    NpuFacts npu;
    npu.key = f.key = f.address;
    npu.vbnv = Trim(line.substr(bar + 1, end - bar - 1)).substr(0, 100);
    npu.fw_version = firmware;
    f.kind = PciKind::kNpu;
    f.vendor = 0x1022;
    f.driver = "amdxdna";
    out.emplace_back(std::move(f), std::move(npu));
  }
  return out;
}

}  // namespace rumbo
