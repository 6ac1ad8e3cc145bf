#include "engines/llamacpp/llama/prepare.h"

#include "base/status.h"
#include "chat.h"
#include "engines/api/sampling_limits.h"
#include "engines/llamacpp/llama/llama_sampler.h"
#include "engines/llamacpp/llama/tokenizer.h"
#include "llama.h"

namespace rumbo {
namespace {

absl::Status NoTemplate() {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing, "the model has no chat template",
               "Send a raw prompt, or give a template when loading the model.");
}

absl::StatusOr<std::vector<TokenId>> PromptTokens(const LoadedModel& model, const GenerateInput& input,
                                                  const RenderedChat* rendered) {
  switch (input.kind) {
    case GenerateInput::Kind::kTokens:
      RUMBO_RETURN_IF_ERROR(CheckTokens(model, input.tokens, "tokens"));
      return input.tokens;
    case GenerateInput::Kind::kPrompt:
      return EncodeText(model, input.prompt, true, true);
    case GenerateInput::Kind::kChat:
      return EncodeText(model, rendered->prompt, true, true);
  }
  return Internal("unknown input");
}

}  // namespace

absl::StatusOr<Job> PrepareJob(const LoadedModel& model, const ChatTemplate* chat, GenerateRequest request) {
  RUMBO_RETURN_IF_ERROR(ValidateSampling(request.sampling));
  const SamplingParams& sampling = request.sampling;
  std::vector<TokenId> biased;
  for (const auto& [token, bias] : sampling.logit_bias) biased.push_back(token);
  RUMBO_RETURN_IF_ERROR(CheckTokens(model, biased, "sampling.logit_bias"));
  if (!sampling.json_schema.empty()) return NotImplemented("json_schema");
  if (!sampling.regex.empty()) return NotImplemented("regex");
  if (!request.adapters.empty()) return NotImplemented("adapters");

  RenderedChat rendered;
  if (request.input.kind == GenerateInput::Kind::kChat) {
    if (chat == nullptr) return NoTemplate();
    if (!request.input.chat.tools.empty()) return NotImplemented("tools");
    RUMBO_ASSIGN_OR_RETURN(rendered, chat->Render(request.input.chat, sampling));
  }
  Job job;
  RUMBO_ASSIGN_OR_RETURN(job.prompt, PromptTokens(model, request.input, &rendered));
  SamplerSpec spec;
  spec.params = sampling;
  spec.grammar = sampling.grammar;
  spec.end_of_text = EndOfTextTokens(model);
  RUMBO_ASSIGN_OR_RETURN(job.sampler, MakeSampler(llama_model_get_vocab(model.model), spec, job.prompt));
  job.cache_key = request.owner;
  job.priority = request.priority;
  job.max_tokens = sampling.max_tokens.value_or(UINT32_MAX);
  job.logprobs = sampling.logprobs.has_value();
  job.stop = sampling.stop;
  if (rendered.params) {
    for (const std::string& stop : rendered.params->additional_stops) job.stop.push_back(stop);
  }
  return job;
}

absl::StatusOr<std::string> RenderPrompt(const ChatTemplate* chat, const ChatInput& input) {
  if (chat == nullptr) return NoTemplate();
  RUMBO_ASSIGN_OR_RETURN(RenderedChat rendered, chat->Render(input, {}));
  return rendered.prompt;
}

std::vector<std::string> Capabilities(const LoadedModel& model, const ChatTemplate* chat) {
  std::vector<std::string> words;
  if (llama_model_has_decoder(model.model)) {
    words.push_back("generate");
    words.push_back("logprobs");
    words.push_back("grammar");
    if (chat != nullptr) words.push_back("chat");
  }
  return words;
}

}  // namespace rumbo
