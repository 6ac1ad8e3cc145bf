// The small text parsers: whatever the bytes, a value or "unknown", and the promised ranges.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "devices/amdgpu/amdgpu_probe.h"
#include "devices/cpu/host_probe.h"
#include "devices/pci/pci_probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rumbo;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const CpuFacts cpu = ParseCpuInfo(text);
  RUMBO_CHECK(!cpu.physical || *cpu.physical > 0);
  const MemoryFacts memory = ParseMemInfo(text);
  RUMBO_CHECK(!memory.total || !memory.available || *memory.available <= *memory.total);
  const auto count = CountCpuList(text);
  RUMBO_CHECK(!count || (*count > 0 && *count <= 65536));
  const std::string address = PciAddress(text);
  RUMBO_CHECK(address.empty() || PciAddress(address) == address);
  const size_t half = text.find('\n');
  const auto rate =
      LinkRate(text.substr(0, half), half == std::string_view::npos ? "" : text.substr(half + 1));
  RUMBO_CHECK(!rate || (*rate > 0 && *rate < 1e12));
  RUMBO_CHECK(ParseCarveoutOptions(text).size() <= 64);
  ReadCgroups(Root("/nonexistent"), text);
  return 0;
}
