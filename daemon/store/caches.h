#pragma once

#include <string>
#include <vector>

#include "daemon/store/library.h"

namespace rumbo {

// Where other programs keep models: environment first, then their defaults.
std::vector<std::string> DefaultCacheRoots();

// Models in the caches under `roots`, each "huggingface:PATH", "ollama:PATH" or "lmstudio:PATH". Reads
// folders and Ollama's manifests, nothing else; follows no link out of its cache; at most 10,000 models.
// Blocking.
std::vector<CachedModel> ScanCaches(const std::vector<std::string>& roots);

}  // namespace rumbo
