#pragma once

#include <memory>
#include <string>

#include "daemon/http/answer_encoder.h"

namespace rumbo {

struct OllamaAnswerOptions {
  bool chat = false;
  bool stream = true;
  std::string model;  // as the client wrote it
};

std::unique_ptr<AnswerEncoder> NewOllamaEncoder(OllamaAnswerOptions options);

// Now, or a second of Unix time, as Ollama writes times: "2026-01-31T12:00:00.123456789Z".
std::string Rfc3339Now();
std::string Rfc3339(int64_t unix_s);

// What a model's name alone loads or unloads: {"model":..,"done":true,"done_reason":"load"}.
std::string OllamaLoadAnswer(const OllamaAnswerOptions& options, const char* done_reason);

}  // namespace rumbo
