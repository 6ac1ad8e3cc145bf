#include "engines/llamacpp/llama/prepare.h"

#include <algorithm>
#include <regex>

#include "base/status.h"
#include "chat.h"
#include "engines/api/sampling_limits.h"
#include "engines/llamacpp/llama/chat_format.h"
#include "engines/llamacpp/llama/constraint.h"
#include "engines/llamacpp/llama/llama_port.h"
#include "engines/llamacpp/llama/llama_sampler.h"
#include "engines/llamacpp/llama/tokenizer.h"
#include "llama.h"

namespace rumbo {
namespace {

absl::Status NoTemplate() {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
               "the model has no chat template",
               "Send a raw prompt, or give a template when loading the model.");
}

absl::StatusOr<std::vector<TokenId>> PromptTokens(const LoadedModel& model, const GenerateInput& input) {
  if (input.kind == GenerateInput::Kind::kPrompt) return EncodeText(model, input.prompt, true, true);
  RUMBO_RETURN_IF_ERROR(CheckTokens(model, input.tokens, "tokens"));
  return input.tokens;
}

// The tokens of a marker, without the space some tokenisers put before the first.
std::vector<TokenId> MarkerTokens(const LoadedModel& model, const std::string& text) {
  if (text.empty()) return {};
  auto tokens = EncodeText(model, text, false, true);
  if (!tokens.ok()) return {};
  if (!tokens->empty()) {
    const std::string piece = TokenPiece(llama_model_get_vocab(model.model), tokens->front(), true);
    if (!piece.empty() && piece.front() == ' ' && text.front() != ' ') tokens->erase(tokens->begin());
  }
  return *std::move(tokens);
}

std::string EscapeRegex(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Takes over the grammar, its triggers and markers that the template wants for tools and schemas.
absl::Status UseTemplateGrammar(const LoadedModel& model, const common_chat_params& params, SamplerSpec* spec,
                                Job* job) {
  for (const std::string& text : params.preserved_tokens) {
    const std::vector<TokenId> tokens = MarkerTokens(model, text);
    if (tokens.size() == 1) job->visible_control.insert(tokens.front());
  }
  if (params.grammar.empty()) return absl::OkStatus();
  RUMBO_RETURN_IF_ERROR(CheckGrammarShape(params.grammar));
  spec->grammar = params.grammar;
  spec->grammar_lazy = params.grammar_lazy;
  spec->grammar_prefill = MarkerTokens(model, params.generation_prompt);
  spec->thinking_start = MarkerTokens(model, params.thinking_start_tag);
  for (const std::string& tag : params.thinking_end_tags)
    spec->thinking_end.push_back(MarkerTokens(model, tag));
  for (const common_grammar_trigger& trigger : params.grammar_triggers) {
    switch (trigger.type) {
      case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN:
        spec->trigger_tokens.push_back(trigger.token);
        break;
      case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: {
        const std::vector<TokenId> tokens = MarkerTokens(model, trigger.value);
        if (tokens.size() == 1 && job->visible_control.contains(tokens.front())) {
          spec->trigger_tokens.push_back(tokens.front());
        } else {
          spec->trigger_patterns.push_back(EscapeRegex(trigger.value));
        }
        break;
      }
      case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN:
        spec->trigger_patterns.push_back(trigger.value);
        break;
      case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: {
        std::string pattern = trigger.value;
        if (pattern.empty() || pattern.front() != '^') pattern.insert(0, "^");
        if (pattern.size() < 2 || pattern.back() != '$') pattern += '$';
        spec->trigger_patterns.push_back(pattern);
        break;
      }
    }
  }
  return absl::OkStatus();
}

// The template's grammar for a required call lets the answer talk first, and small models then talk until
// their tokens are spent. Leaves only white space of that freedom in the root rule where it has the generated
// form; other grammars stay as they are.
void RequireCallFirst(std::string* grammar) {
  const size_t begin = grammar->find("root ::= ");
  if (begin == std::string::npos || (begin > 0 && (*grammar)[begin - 1] != '\n')) return;
  const size_t end = std::min(grammar->find('\n', begin), grammar->size());
  const std::string root = grammar->substr(begin, end - begin);
  static const std::regex talk(" until-[0-9]+\\? tool-calls$");
  grammar->replace(begin, end - begin, std::regex_replace(root, talk, " [ \\n]{0,4} tool-calls"));
}

// A conversation: prompt, grammar, answer format.
absl::Status PrepareChat(const LoadedModel& model, const ChatTemplate* chat, const GenerateRequest& request,
                         SamplerSpec* spec, Job* job) {
  if (chat == nullptr) return NoTemplate();
  const SamplingParams& sampling = request.sampling;
  const ChatInput& input = request.input.chat;
  const bool tools = !input.tools.empty() && input.tool_choice != "none";
  if (tools && !(sampling.grammar.empty() && sampling.regex.empty())) {
    return InvalidArgument("tools cannot be combined with a grammar or a regular expression");
  }
  if (!sampling.json_schema.empty()) RUMBO_RETURN_IF_ERROR(CheckSchemaConstraint(sampling.json_schema));
  RUMBO_ASSIGN_OR_RETURN(const RenderedChat rendered, chat->Render(input, sampling));
  const common_chat_params& params = *rendered.params;
  RUMBO_ASSIGN_OR_RETURN(job->prompt, EncodeText(model, rendered.prompt, true, true));
  for (const std::string& stop : params.additional_stops) job->stop.push_back(stop);

  const bool thinks = !params.thinking_end_tags.empty();
  if (tools || (thinks && !sampling.json_schema.empty())) {
    RUMBO_RETURN_IF_ERROR(UseTemplateGrammar(model, params, spec, job));
    if (spec->grammar.empty() && !sampling.json_schema.empty()) {
      return NotImplemented("a JSON schema with this chat template");
    }
    if (spec->grammar.empty() && input.tool_choice == "required") {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                   "tool_choice required cannot be enforced with this chat template",
                   "Use tool_choice auto.");
    }
    if (tools && input.tool_choice == "required") RequireCallFirst(&spec->grammar);
  } else {
    RUMBO_RETURN_IF_ERROR(UseTemplateGrammar(model, params, spec, job));
    spec->grammar.clear();
    RUMBO_ASSIGN_OR_RETURN(spec->grammar, ConstraintGrammar(sampling));
    spec->grammar_lazy = false;
    spec->grammar_prefill.clear();
    // The whole answer is what the constraint describes.
    if (!spec->grammar.empty()) return absl::OkStatus();
  }
  RUMBO_ASSIGN_OR_RETURN(job->format, MakeChatFormat(params, tools, input.continue_final_message));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> PrepareJob(const LoadedModel& model, const ChatTemplate* chat, GenerateRequest request) {
  if (model.embeds) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                 "the model is loaded for vectors and makes no answers", "Use Embed or Rerank.");
  }
  RUMBO_RETURN_IF_ERROR(ValidateSampling(request.sampling));
  const SamplingParams& sampling = request.sampling;
  std::vector<TokenId> biased;
  for (const auto& [token, bias] : sampling.logit_bias) biased.push_back(token);
  RUMBO_RETURN_IF_ERROR(CheckTokens(model, biased, "sampling.logit_bias"));

  Job job;
  job.stop = sampling.stop;
  SamplerSpec spec;
  spec.params = sampling;
  spec.end_of_text = model.end_of_text;
  if (request.input.kind == GenerateInput::Kind::kChat) {
    RUMBO_RETURN_IF_ERROR(PrepareChat(model, chat, request, &spec, &job));
  } else {
    RUMBO_ASSIGN_OR_RETURN(job.prompt, PromptTokens(model, request.input));
    RUMBO_ASSIGN_OR_RETURN(spec.grammar, ConstraintGrammar(sampling));
  }
  RUMBO_ASSIGN_OR_RETURN(job.sampler, MakeSampler(llama_model_get_vocab(model.model), spec, job.prompt));
  job.cache_key = request.owner;
  job.priority = request.priority;
  job.max_tokens = sampling.max_tokens.value_or(UINT32_MAX);
  job.logprobs = sampling.logprobs.has_value();
  return job;
}

absl::StatusOr<std::string> RenderPrompt(const ChatTemplate* chat, const ChatInput& input) {
  if (chat == nullptr) return NoTemplate();
  RUMBO_ASSIGN_OR_RETURN(RenderedChat rendered, chat->Render(input, {}));
  return rendered.prompt;
}

std::vector<std::string> Capabilities(const LoadedModel& model, const ChatTemplate* chat) {
  std::vector<std::string> words;
  if (model.embeds) return {model.pooling == "rank" ? "rerank" : "embed"};
  if (llama_model_has_decoder(model.model)) {
    words.push_back("generate");
    words.push_back("logprobs");
    words.push_back("grammar");
    if (chat != nullptr) {
      words.push_back("chat");
      if (chat->supports_tools()) words.push_back("tools");
      if (chat->supports_thinking()) words.push_back("reasoning");
    }
  }
  return words;
}

}  // namespace rumbo
