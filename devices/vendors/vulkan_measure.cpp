#include <algorithm>
#include <cmath>

#include "devices/vendors/vendors.h"
#include "devices/vendors/vulkan_compute.h"

namespace rumbo {
namespace {

// SPIR-V of shaders/, made by the build.
constexpr uint32_t kCopyCode[] = {
#include "copy.spv.inc"
};
constexpr uint32_t kMatmulCode[] = {
#include "matmul.spv.inc"
};

constexpr double kBudgetSeconds = 0.15;  // for the timed part of each kernel
// Above the last-level caches of cards (128 MiB and more), in both directions.
constexpr Bytes kCardBuffer = 256 * kMiB;
constexpr Bytes kSoftwareBuffer = 64 * kMiB;

// Seconds of one dispatch: the best of several batches, each long enough to hide the cost of a submission.
std::optional<double> BestTime(VulkanCompute& gpu, const VulkanCompute::Kernel& kernel, uint32_t parameter,
                               uint32_t x, uint32_t y) {
  if (!gpu.Time(kernel, parameter, x, y, 1)) return std::nullopt;  // compiles, faults pages in
  const auto once = gpu.Time(kernel, parameter, x, y, 1);
  if (!once || *once <= 0) return std::nullopt;
  const int repeats = static_cast<int>(std::clamp(kBudgetSeconds / 5 / *once, 1.0, 200.0));
  double best = *once;
  for (double spent = *once; spent < kBudgetSeconds;) {
    const auto seconds = gpu.Time(kernel, parameter, x, y, repeats);
    if (!seconds || *seconds <= 0) return std::nullopt;
    best = std::min(best, *seconds / repeats);
    spent += *seconds;
  }
  return best;
}

void MeasureCopy(VulkanCompute& gpu, Bytes bytes, DeviceMeasurement& out) {
  const VulkanBuffer source = gpu.MakeBuffer(bytes, false), target = gpu.MakeBuffer(bytes, false);
  const auto kernel = gpu.MakeKernel(kCopyCode, std::size(kCopyCode), {source, target});
  gpu.Fill(source, 1.5f);
  gpu.Fill(target, 0.0f);
  const auto seconds = BestTime(gpu, kernel, static_cast<uint32_t>(bytes / 16), 2048, 1);
  const size_t floats = bytes / sizeof(float);
  for (size_t offset : {size_t{0}, floats / 2, floats - 64}) {
    const std::vector<float> got = gpu.Read(target, offset, 64);
    if (got.size() != 64 || std::any_of(got.begin(), got.end(), [](float f) { return f != 1.5f; })) {
      out.error = gpu.error().empty() ? "the copy kernel's result is wrong" : gpu.error();
      return;
    }
  }
  if (!seconds) return;
  out.copy_bytes_s = std::round(2.0 * static_cast<double>(bytes) / *seconds);
  out.buffer_bytes = bytes;
}

void MeasureMatmul(VulkanCompute& gpu, uint32_t n, DeviceMeasurement& out) {
  const Bytes bytes = Bytes{n} * n * sizeof(float);
  const VulkanBuffer a = gpu.MakeBuffer(bytes, false), b = gpu.MakeBuffer(bytes, false),
                     c = gpu.MakeBuffer(bytes, false);
  const auto kernel = gpu.MakeKernel(kMatmulCode, std::size(kMatmulCode), {a, b, c});
  gpu.Fill(a, 1.0f);
  gpu.Fill(b, 0.5f);
  const auto seconds = BestTime(gpu, kernel, n, n / 64, n / 64);
  const float want = 0.5f * static_cast<float>(n);
  for (size_t offset : {size_t{0}, size_t{n} * n / 2, size_t{n} * n - 64}) {
    const std::vector<float> got = gpu.Read(c, offset, 64);
    if (got.size() != 64 || std::any_of(got.begin(), got.end(), [&](float f) { return f != want; })) {
      out.error = gpu.error().empty() ? "the matrix kernel's result is wrong" : gpu.error();
      return;
    }
  }
  if (seconds) out.matmul_flops = std::round(2.0 * n * n * n / *seconds);
}

}  // namespace

Measurements MeasureVulkan() {
  Measurements out;
  const VulkanInstance instance;
  out.error = instance.error();
  for (size_t i = 0; i < instance.devices().size(); ++i) {
    const VulkanDevice described = ReadVulkanDevice(instance, static_cast<int>(i));
    DeviceMeasurement m;
    m.backend = "vulkan";
    m.key = described.uuid;
    m.driver_info = described.driver_info;
    m.name = described.name;
    const bool software = described.type == "cpu";
    Bytes bytes = software ? kSoftwareBuffer : kCardBuffer;
    for (const VulkanHeap& heap : described.heaps) {
      if (heap.device_local) bytes = std::min(bytes, heap.size / 8 / kMiB * kMiB);
    }
    {
      VulkanCompute gpu(instance, instance.devices()[i]);
      if (bytes > 0) MeasureCopy(gpu, bytes, m);
      if (m.error.empty()) m.error = gpu.error();
    }
    {
      VulkanCompute gpu(instance, instance.devices()[i]);
      MeasureMatmul(gpu, software ? 256 : 1024, m);
      if (m.error.empty()) m.error = gpu.error();
    }
    out.devices.push_back(std::move(m));
  }
  return out;
}

}  // namespace rumbo
