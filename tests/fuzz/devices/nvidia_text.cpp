#include "devices/nvidia/nvidia_text.h"

#include <cstdint>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rumbo;
  const NvidiaFacts facts = ParseNvidiaSmi({reinterpret_cast<const char*>(data), size});
  for (const NvidiaGpu& gpu : facts.gpus) {
    RUMBO_CHECK(!gpu.total || !gpu.free || *gpu.free <= *gpu.total);
    RUMBO_CHECK(!gpu.power_limit_w || (*gpu.power_limit_w > 0 && *gpu.power_limit_w <= 1e5));
    RUMBO_CHECK(gpu.mig.size() <= 64);
  }
  return 0;
}
