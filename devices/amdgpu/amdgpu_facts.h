#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace rumbo {

struct GcVersion {
  int major = 0, minor = 0, revision = 0;
  auto operator<=>(const GcVersion&) const = default;
};

struct CarveoutOption {
  int index = 0;
  std::string text;  // "High (64 GB)"
  std::optional<Bytes> bytes;
};

// What amdgpu's sysfs says about one card. Absent files stay nullopt or "".
struct AmdgpuCard {
  std::optional<Bytes> vram_total, vram_used, vis_vram_total;
  std::optional<Bytes> gtt_total, gtt_used;
  bool board_info = false;  // the file exists: discrete
  std::string vram_vendor;  // "" absent or "unknown"
  bool uma = false;         // uma/ exists: unified
  std::optional<int> carveout_index;
  std::vector<CarveoutOption> carveout_options;
  std::optional<GcVersion> gc;    // ip_discovery
  std::string compute_partition;  // "SPX", "CPX" ...
  std::string memory_partition;   // "NPS1" ...
  std::string unique_id;          // "" where meaningless (0)
  std::string product_name;
  bool ecc = false;                    // the driver counts memory errors of this card
  std::optional<bool> fusion;          // DRM ids_flags; nullopt not asked
  std::vector<std::string> malformed;  // files that held nonsense
};

struct AmdgpuModule {
  std::optional<Bytes> ttm_pages_limit;     // bytes
  std::optional<Bytes> ttm_page_pool_size;  // bytes
  std::optional<Bytes> gttsize;             // amdgpu.gttsize where set (> 0)
  std::string version;                      // out-of-tree driver's version
};

struct AmdgpuFacts {
  std::map<std::string, AmdgpuCard> cards;  // by PciFunction::key
  AmdgpuModule module;
};

}  // namespace rumbo
