#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/llamacpp/core/job.h"
#include "engines/llamacpp/llama/chat_template.h"
#include "engines/llamacpp/llama/model_loader.h"

namespace rumbo {

// Turns a request into a job: checks it, renders and tokenises the prompt, builds the sampler. id, submitted
// and sink are left to the caller. Thread-safe. `chat` may be null. Errors: as ValidateSampling,
// ChatTemplate::Render, EncodeText; kInvalidArgument for tokens outside the vocabulary and constraints that
// cannot be kept; kNotImplemented.
absl::StatusOr<Job> PrepareJob(const LoadedModel& model, const ChatTemplate* chat, GenerateRequest request);

// The conversation as the model sees it.
absl::StatusOr<std::string> RenderPrompt(const ChatTemplate* chat, const ChatInput& input);

// The words of LoadedInfo.capabilities.
std::vector<std::string> Capabilities(const LoadedModel& model, const ChatTemplate* chat);

}  // namespace rumbo
