#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/api/request.h"
#include "engines/llamacpp/core/model_port.h"

struct llama_vocab;

namespace rumbo {

// Everything a sampler is made of. The grammar is already checked and in GBNF.
struct SamplerSpec {
  SamplingParams params;
  std::string grammar;  // "" none
  // The grammar applies only from one of these on; false: from the start.
  bool grammar_lazy = false;
  std::vector<std::string> trigger_patterns;  // regular expressions
  std::vector<TokenId> trigger_tokens;
  // Tokens at the end of the prompt that the grammar counts as its beginning.
  std::vector<TokenId> grammar_prefill;
  // Token sequences that begin and end the model's thinking; a lazy grammar sleeps while it thinks.
  std::vector<TokenId> thinking_start;
  std::vector<std::vector<TokenId>> thinking_end;
  std::vector<TokenId> end_of_text;  // all tokens that end an answer
};

// Builds the sampler of one request. `prompt` primes the penalties. Any thread.
// Defaults where a parameter is absent: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, typical_p 1,
// repeat penalty 1 over 64 tokens, no presence, frequency or DRY penalty, no XTC, no mirostat.
// kInvalidArgument where the grammar does not parse.
absl::StatusOr<std::unique_ptr<Sampler>> MakeSampler(const llama_vocab* vocab, const SamplerSpec& spec,
                                                     std::span<const TokenId> prompt);

}  // namespace rumbo
