#pragma once

#include "absl/status/statusor.h"
#include "engines/api/settings.h"

namespace rumbo {

// What the model says about itself, as far as settings depend on it.
struct ModelLimits {
  uint32_t context_trained = 0;
  uint32_t usable_cpus = 1;
};

// The settings with every default filled in, or kInvalidArgument naming the one that is out of range; more
// context per session than trained for is kContextTooLarge. Pure.
absl::StatusOr<EngineSettings> CompleteSettings(const EngineSettings& asked, const ModelLimits& limits);

// The number in settings.extra[key]; `fallback` where absent. kInvalidArgument where it is none or out of
// range.
absl::StatusOr<uint32_t> ExtraNumber(const EngineSettings& settings, const char* key, uint32_t fallback,
                                     uint32_t low, uint32_t high);

// The number of bytes in settings.extra[key]; 0 where absent.
absl::StatusOr<Bytes> ExtraBytes(const EngineSettings& settings, const char* key);

}  // namespace rumbo
