// What a vendor child prints (it may have been killed in the middle, or be somebody else), and what is
// concluded. The first byte chooses the vendor.
#include <cstdint>

#include "base/check.h"
#include "devices/api/topology_json.h"
#include "devices/assemble/assemble.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rumbo;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Facts facts;
  const auto take = [&](auto parsed, auto& into) {
    if (parsed.ok()) into = *std::move(parsed);
  };
  if (data[0] % 3 == 0) take(json_fields::FromJson<VulkanFacts>(text, "vulkan", ""), facts.vulkan);
  if (data[0] % 3 == 1) take(json_fields::FromJson<HipFacts>(text, "hip", ""), facts.hip);
  if (data[0] % 3 == 2) take(json_fields::FromJson<NvidiaFacts>(text, "nvml", ""), facts.nvidia);
  const Topology t = Assemble(facts);
  for (const MemoryPool& p : t.pools)
    RUMBO_CHECK(!p.free_bytes || !p.total_bytes || *p.free_bytes <= *p.total_bytes);
  for (const Device& d : t.devices) {
    for (const std::string& pool : d.pools) RUMBO_CHECK(t.FindPool(pool) != nullptr);
  }
  RUMBO_CHECK(TopologyFromJson(TopologyToJson(t)).ok());
  return 0;
}
