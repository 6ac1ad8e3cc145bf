#pragma once

#include <string>

namespace rumbo {

// Models of about 100 KB with real shapes and random weights, for tests of what depends on the kind of
// memory: "full" (llama, every layer sees everything), "window" (gemma2, every second layer a window of 32
// tokens), "recurrent" (mamba) and "hybrid" (lfm2). Weights are F32, so that rounding is small; equal seeds
// give equal files. The vocabulary is the 256 bytes and three control tokens.
//
// Writes the file; false where that fails or the kind is unknown.
bool WriteTinyModel(const std::string& kind, const std::string& path);

inline constexpr int kTinyVocabulary = 259;
inline constexpr int kTinyWindow = 32;

}  // namespace rumbo
