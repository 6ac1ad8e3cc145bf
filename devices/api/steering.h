#pragma once

namespace rumbo {

// Environment variables that change what vendor runtimes see. Where one is set for the daemon or the user it
// is reported and a filter is honoured, but no vendor library we ask and no engine inherits it: their
// ordinals are those of the whole machine.
inline constexpr const char* kSteeringVariables[] = {
    "HSA_OVERRIDE_GFX_VERSION", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",     "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",       "CUDA_DEVICE_ORDER",    "GGML_VK_VISIBLE_DEVICES",
};

}  // namespace rumbo
