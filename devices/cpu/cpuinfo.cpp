#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "devices/cpu/host_probe.h"

namespace rumbo {
namespace {

// Kernel flag -> our word. Only what engines choose code by.
const std::map<std::string_view, std::string_view>& IsaWords() {
  static const auto* words = new std::map<std::string_view, std::string_view>{
      {"sse4_2", "sse4_2"},
      {"avx", "avx"},
      {"avx2", "avx2"},
      {"f16c", "f16c"},
      {"fma", "fma"},
      {"bmi2", "bmi2"},
      {"avx_vnni", "avx_vnni"},
      {"avx512f", "avx512f"},
      {"avx512bw", "avx512bw"},
      {"avx512vl", "avx512vl"},
      {"avx512_vnni", "avx512_vnni"},
      {"avx512_bf16", "avx512_bf16"},
      {"avx512_fp16", "avx512_fp16"},
      {"amx_tile", "amx_tile"},
      {"amx_int8", "amx_int8"},
      {"amx_bf16", "amx_bf16"},
      {"asimd", "neon"},
      {"asimddp", "dotprod"},
      {"asimdhp", "fp16"},
      {"i8mm", "i8mm"},
      {"bf16", "bf16"},
      {"sve", "sve"},
      {"sve2", "sve2"},
      {"sme", "sme"},
  };
  return *words;
}

std::string VendorWord(std::string_view id) {
  if (id == "AuthenticAMD") return "AMD";
  if (id == "GenuineIntel") return "Intel";
  if (id == "0x41") return "ARM";
  if (id == "0x4e") return "NVIDIA";
  return std::string(id);
}

std::optional<Bytes> Kilobytes(std::string_view value) {
  const auto words = Words(value);
  if (words.empty() || (words.size() > 1 && words[1] != "kB")) return std::nullopt;
  const auto n = ParseU64(words[0]);
  return n ? CheckedMul(*n, kKiB) : std::nullopt;
}

}  // namespace

CpuFacts ParseCpuInfo(std::string_view text) {
  CpuFacts out;
  std::set<std::pair<uint64_t, uint64_t>> cores;
  std::set<uint64_t> packages;
  std::set<std::string> isa;
  int logical = 0;
  uint64_t package = 0;
  for (std::string_view line : Lines(text)) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = Trim(line.substr(0, colon));
    const std::string_view value = Trim(line.substr(colon + 1));
    if (key == "processor" && ParseU64(value)) {
      ++logical;
      package = 0;
    } else if (key == "model name" && out.model.empty()) {
      out.model = value.substr(0, 200);
    } else if ((key == "vendor_id" || key == "CPU implementer") && out.vendor.empty()) {
      out.vendor = VendorWord(value.substr(0, 64));
    } else if (key == "physical id") {
      if (const auto n = ParseU64(value)) packages.insert(package = *n);
    } else if (key == "core id") {
      if (const auto n = ParseU64(value)) cores.emplace(package, *n);
    } else if ((key == "flags" || key == "Features") && isa.empty()) {
      for (std::string_view word : Words(value)) {
        if (const auto it = IsaWords().find(word); it != IsaWords().end()) isa.emplace(it->second);
      }
    }
  }
  if (logical > 0) out.logical = logical;
  if (!cores.empty()) out.physical = static_cast<int>(cores.size());
  if (!packages.empty()) out.sockets = static_cast<int>(packages.size());
  out.isa.assign(isa.begin(), isa.end());
  return out;
}

MemoryFacts ParseMemInfo(std::string_view text) {
  std::map<std::string_view, Bytes> values;
  std::optional<Bytes> pages;
  for (std::string_view line : Lines(text)) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = Trim(line.substr(0, colon));
    if (key == "HugePages_Total")
      pages = ParseU64(line.substr(colon + 1));
    else if (const auto n = Kilobytes(line.substr(colon + 1)))
      values.emplace(key, *n);
  }
  const auto find = [&](std::string_view key) -> std::optional<Bytes> {
    const auto it = values.find(key);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
  MemoryFacts out;
  out.total = find("MemTotal");
  if (out.total == 0) out.total = std::nullopt;
  out.available = find("MemAvailable");
  out.available_source = "meminfo MemAvailable";
  if (!out.available && find("MemFree")) {  // kernels before 3.14
    out.available = SaturatingAdd(*find("MemFree"), find("Cached").value_or(0));
    out.available_source = "meminfo MemFree + Cached (no MemAvailable)";
  }
  if (!out.available) out.available_source.clear();
  if (out.total && out.available && *out.available > *out.total) {
    out.available = out.total;
    out.clamped = true;
    out.available_source += ", clamped to MemTotal";
  }
  if (pages && *pages > 0 && find("Hugepagesize")) out.huge_pages = CheckedMul(*pages, *find("Hugepagesize"));
  return out;
}

}  // namespace rumbo
