#include "devices/api/topology_json.h"

#include <cstdint>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rumbo;
  const auto parsed = TopologyFromJson({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  const std::string once = TopologyToJson(*parsed);
  const auto again = TopologyFromJson(once);
  RUMBO_CHECK(again.ok());
  RUMBO_CHECK(TopologyToJson(*again) == once);
  return 0;
}
