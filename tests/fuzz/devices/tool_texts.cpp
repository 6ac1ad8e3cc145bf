// What people paste into bug reports. The first byte chooses the tool.
#include "devices/tools/tool_texts.h"

#include <cstdint>

#include "base/check.h"
#include "devices/api/topology_json.h"
#include "devices/assemble/assemble.h"
#include "devices/nvidia/nvidia_text.h"
#include "devices/tools/tool_probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rumbo;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  ToolFacts tools;
  switch (data[0] % 5) {
    case 0:
      tools.vulkan = ParseVulkaninfo(text);
      break;
    case 1:
      tools.hip = ParseRocminfo(text);
      break;
    case 2:
      tools.rocm_smi = ParseRocmSmi(text);
      break;
    case 3:
      tools.npus = ParseXrtSmi(text);
      break;
    case 4:
      tools.nvidia = ParseNvidiaSmi(text);
      break;
  }
  Facts facts;
  facts.live = false;
  MergeTools(tools, facts);
  const Topology t = Assemble(facts);
  for (const MemoryPool& p : t.pools)
    RUMBO_CHECK(!p.free_bytes || !p.total_bytes || *p.free_bytes <= *p.total_bytes);
  for (const Device& d : t.devices) {
    for (const std::string& pool : d.pools) RUMBO_CHECK(t.FindPool(pool) != nullptr);
  }
  RUMBO_CHECK(TopologyFromJson(TopologyToJson(t)).ok());
  return 0;
}
