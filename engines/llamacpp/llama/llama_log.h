#pragma once

#include <string>

namespace rumbo {

// Sends libllama's and ggml's warnings and errors to stderr and keeps the last ones. Call InstallLog once,
// before anything of libllama.
void InstallLog();

// The last error or warning lines since the last call, newest last, at most 1,000 bytes. Any thread.
std::string TakeLogLines();

}  // namespace rumbo
