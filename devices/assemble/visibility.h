#pragma once

#include <string>

#include "devices/assemble/facts.h"
#include "devices/assemble/gpu_records.h"

// Which GPUs the *_VISIBLE_DEVICES variables leave out, as each runtime reads them: entries are ordinals or
// UUIDs, a list ends at the first entry that names nothing, and an empty list shows no GPU.
namespace rumbo {

// "HIP_VISIBLE_DEVICES=0" where that hides the GPU; "" where none does or it cannot be told.
// HIP sees what ROCR_VISIBLE_DEVICES leaves, renumbered; CUDA_VISIBLE_DEVICES counts where
// HIP_VISIBLE_DEVICES is not set.
std::string HiddenFromHip(const Facts& facts, const GpuRecord& record);

std::string HiddenFromCuda(const Facts& facts, const GpuRecord& record);

// GGML_VK_VISIBLE_DEVICES, which is llama.cpp's own.
std::string HiddenFromVulkan(const Facts& facts, const VulkanDevice& device);

}  // namespace rumbo
