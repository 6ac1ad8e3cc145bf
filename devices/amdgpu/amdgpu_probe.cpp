#include "devices/amdgpu/amdgpu_probe.h"

namespace rumbo {
namespace {

constexpr uint32_t kAmdGraphics = 0x1002;
constexpr Bytes kPage = 4096;              // TTM counts these whatever the CPU's page size
constexpr Bytes kAbsurd = Bytes{1} << 50;  // 1 PiB on one card: the file is wrong

class CardReader {
 public:
  CardReader(const Root& root, const std::string& dir) : root_(root), dir_(dir) {}

  AmdgpuCard Read() {
    Size("mem_info_vram_total", card_.vram_total);
    Size("mem_info_vram_used", card_.vram_used);
    Size("mem_info_vis_vram_total", card_.vis_vram_total);
    Size("mem_info_gtt_total", card_.gtt_total);
    Size("mem_info_gtt_used", card_.gtt_used);
    card_.board_info = root_.Exists(dir_ + "/board_info");
    card_.vram_vendor = Text("mem_info_vram_vendor");
    if (card_.vram_vendor == "unknown") card_.vram_vendor.clear();
    Uma();
    Discovery();
    card_.compute_partition = Text("current_compute_partition");
    card_.memory_partition = Text("current_memory_partition");
    card_.unique_id = Text("unique_id");
    if (ParseHex(card_.unique_id).value_or(0) == 0) card_.unique_id.clear();
    card_.product_name = Text("product_name");
    card_.ecc = root_.Exists(dir_ + "/ras/umc_err_count");
    return std::move(card_);
  }

 private:
  std::string Text(const char* name) { return root_.Read(dir_ + "/" + name, 4096).text.substr(0, 200); }

  void Size(const char* name, std::optional<Bytes>& out) {
    const FileText text = root_.Read(dir_ + "/" + name);
    if (text.state == ReadState::kMissing) return;
    out = ParseU64(text.text);
    if (out && *out > kAbsurd) out = std::nullopt;
    if (!out) card_.malformed.emplace_back(name);
  }

  void Uma() {
    card_.uma = root_.Exists(dir_ + "/uma");
    if (!card_.uma) return;
    const auto index = ParseU64(root_.Read(dir_ + "/uma/carveout").text);
    if (index && *index < 64) card_.carveout_index = static_cast<int>(*index);
    card_.carveout_options = ParseCarveoutOptions(root_.Read(dir_ + "/uma/carveout_options").text);
  }

  // ip_discovery/die/D/11/0: hw_id 11 is GC, the graphics core.
  void Discovery() {
    for (const std::string& die : root_.List(dir_ + "/ip_discovery/die")) {
      const std::string gc = dir_ + "/ip_discovery/die/" + die + "/11/0/";
      const auto major = ParseU64(root_.Read(gc + "major").text);
      const auto minor = ParseU64(root_.Read(gc + "minor").text);
      const auto revision = ParseU64(root_.Read(gc + "revision").text);
      if (!major || !minor || !revision || *major > 255 || *minor > 255 || *revision > 255) continue;
      card_.gc = GcVersion{static_cast<int>(*major), static_cast<int>(*minor), static_cast<int>(*revision)};
      return;
    }
  }

  const Root& root_;
  const std::string& dir_;
  AmdgpuCard card_;
};

std::optional<Bytes> Pages(const Root& root, const char* path) {
  const auto pages = ParseU64(root.Read(path).text);
  if (!pages || *pages == 0) return std::nullopt;
  const auto bytes = CheckedMul(*pages, kPage);
  return bytes && *bytes <= kAbsurd ? bytes : std::nullopt;
}

struct GcRow {
  GcVersion gc;
  std::string_view gfx;
  std::optional<bool> apu;
};

// GC block -> LLVM target and kind: the kernel's kfd_device.c and its APU and dGPU lists.
constexpr GcRow kGc[] = {
    {{9, 0, 1}, "gfx900", false},   {{9, 1, 0}, "gfx902", true},    {{9, 2, 1}, "gfx904", false},
    {{9, 2, 2}, "gfx902", true},    {{9, 3, 0}, "gfx90c", true},    {{9, 4, 0}, "gfx906", false},
    {{9, 4, 1}, "gfx908", false},   {{9, 4, 2}, "gfx90a", false},   {{9, 4, 3}, "gfx942", {}},
    {{9, 4, 4}, "gfx942", false},   {{9, 5, 0}, "gfx950", false},   {{10, 1, 10}, "gfx1010", false},
    {{10, 1, 1}, "gfx1011", false}, {{10, 1, 2}, "gfx1012", false}, {{10, 1, 3}, "gfx1013", true},
    {{10, 1, 4}, "gfx1013", true},  {{10, 3, 0}, "gfx1030", false}, {{10, 3, 1}, "gfx1033", true},
    {{10, 3, 2}, "gfx1031", false}, {{10, 3, 3}, "gfx1035", true},  {{10, 3, 4}, "gfx1032", false},
    {{10, 3, 5}, "gfx1034", false}, {{10, 3, 6}, "gfx1036", true},  {{10, 3, 7}, "gfx1036", true},
    {{11, 0, 0}, "gfx1100", false}, {{11, 0, 1}, "gfx1103", true},  {{11, 0, 2}, "gfx1102", false},
    {{11, 0, 3}, "gfx1101", false}, {{11, 0, 4}, "gfx1103", true},  {{11, 5, 0}, "gfx1150", true},
    {{11, 5, 1}, "gfx1151", true},  {{11, 5, 2}, "gfx1152", true},  {{11, 5, 3}, "gfx1153", true},
    {{12, 0, 0}, "gfx1200", false}, {{12, 0, 1}, "gfx1201", false},
};

const GcRow* FindGc(const GcVersion& gc) {
  for (const GcRow& row : kGc) {
    if (row.gc == gc) return &row;
  }
  return nullptr;
}

}  // namespace

AmdgpuFacts ReadAmdgpu(const Root& root, const std::vector<PciFunction>& functions) {
  AmdgpuFacts out;
  for (const PciFunction& f : functions) {
    if (f.kind != PciKind::kGpu || f.vendor != kAmdGraphics) continue;
    out.cards.emplace(f.key, CardReader(root, f.dir).Read());
  }
  out.module.ttm_pages_limit = Pages(root, "/sys/module/ttm/parameters/pages_limit");
  out.module.ttm_page_pool_size = Pages(root, "/sys/module/ttm/parameters/page_pool_size");
  const auto gttsize = ParseI64(root.Read("/sys/module/amdgpu/parameters/gttsize").text);
  if (gttsize && *gttsize > 0) out.module.gttsize = CheckedMul(static_cast<Bytes>(*gttsize), kMiB);
  out.module.version = root.Read("/sys/module/amdgpu/version").text.substr(0, 64);
  return out;
}

std::vector<CarveoutOption> ParseCarveoutOptions(std::string_view text) {
  std::vector<CarveoutOption> out;
  for (std::string_view line : Lines(text)) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || out.size() == 64) continue;
    const auto index = ParseU64(line.substr(0, colon));
    if (!index || *index >= 64) continue;
    CarveoutOption option{
        static_cast<int>(*index), std::string(Trim(line.substr(colon + 1)).substr(0, 100)), {}};
    const size_t open = option.text.rfind('(');
    if (open != std::string::npos && option.text.ends_with(')')) {
      const auto words = Words(std::string_view(option.text).substr(open + 1, option.text.size() - open - 2));
      const auto size = words.size() == 2 ? ParseU64(words[0]) : std::nullopt;
      if (size && words[1] == "MB") option.bytes = CheckedMul(*size, kMiB);
      if (size && words[1] == "GB") option.bytes = CheckedMul(*size, kGiB);
    }
    out.push_back(std::move(option));
  }
  return out;
}

std::string GfxTargetOf(const GcVersion& gc) {
  const GcRow* row = FindGc(gc);
  return row == nullptr ? "" : std::string(row->gfx);
}

std::optional<bool> GcIsApu(const GcVersion& gc) {
  const GcRow* row = FindGc(gc);
  return row == nullptr ? std::nullopt : row->apu;
}

std::optional<bool> GfxIsApu(std::string_view gfx_target) {
  std::optional<bool> out;
  for (const GcRow& row : kGc) {
    if (row.gfx != gfx_target) continue;
    if (!row.apu || (out && *out != *row.apu)) return std::nullopt;
    out = row.apu;
  }
  return out;
}

}  // namespace rumbo
