#include "engines/llamacpp/llama/llama_log.h"

#include <cstdio>
#include <mutex>

#include "llama.h"
#include "log.h"

namespace rumbo {
namespace {

constexpr size_t kKeptBytes = 1000;

std::mutex g_mutex;
std::string g_lines;
ggml_log_level g_level = GGML_LOG_LEVEL_NONE;  // of the last line, for continuations

void OnLog(ggml_log_level level, const char* text, void*) {
  const std::lock_guard lock(g_mutex);
  if (level != GGML_LOG_LEVEL_CONT) g_level = level;
  if (g_level != GGML_LOG_LEVEL_ERROR && g_level != GGML_LOG_LEVEL_WARN) return;
  std::fputs(text, stderr);
  g_lines += text;
  if (g_lines.size() > kKeptBytes) g_lines.erase(0, g_lines.size() - kKeptBytes);
}

}  // namespace

void InstallLog() {
  llama_log_set(OnLog, nullptr);
  // libllama-common's own log warns once for each conversation.
  common_log_set_verbosity_thold(LOG_LEVEL_ERROR);
}

std::string TakeLogLines() {
  const std::lock_guard lock(g_mutex);
  std::string lines;
  lines.swap(g_lines);
  return lines;
}

}  // namespace rumbo
