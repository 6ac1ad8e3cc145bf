#include "engines/llamacpp/llama/llama_sampler.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <unordered_map>

#include "base/status.h"
#include "engines/llamacpp/core/top_tokens.h"
#include "engines/llamacpp/llama/llama_port.h"
#include "llama.h"
#include "reasoning-budget.h"

namespace rumbo {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

struct SamplerDeleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPtr = std::unique_ptr<llama_sampler, SamplerDeleter>;

// Most candidates that are picked out of the vocabulary before the chain sees them.
constexpr uint32_t kMaxFastTopK = 4096;
// Candidates tried against the grammar before it is applied to the whole vocabulary.
constexpr uint32_t kGrammarCandidates = 256;

uint32_t FoldSeed(const std::optional<uint64_t>& seed) {
  if (!seed) return std::random_device{}() & 0x7fffffffu;
  const uint32_t folded = static_cast<uint32_t>(*seed) ^ static_cast<uint32_t>(*seed >> 32);
  return folded == LLAMA_DEFAULT_SEED ? 0 : folded;  // that value means "random" to libllama
}

class LlamaSampler final : public Sampler {
 public:
  LlamaSampler(const llama_vocab* vocab, const SamplerSpec& spec)
      : vocab_(vocab),
        vocabulary_(static_cast<size_t>(llama_vocab_n_tokens(vocab))),
        params_(spec.params),
        end_of_text_(spec.end_of_text),
        greedy_(params_.temperature.value_or(0.8f) <= 0),
        top_k_(params_.top_k.value_or(40)),
        penalty_window_(params_.repeat_last_n.value_or(64)) {
    int32_t count = 0;
    const TokenId* tokens = llama_vocab_get_suppress_tokens(vocab, &count);
    if (tokens != nullptr && count > 0) suppressed_ = {tokens, static_cast<size_t>(count)};
    penalised_ = penalty_window_ > 0 &&
                 (params_.repeat_penalty.value_or(1) != 1 || params_.presence_penalty.value_or(0) != 0 ||
                  params_.frequency_penalty.value_or(0) != 0);
  }

  absl::Status Build(const SamplerSpec& spec, std::span<const TokenId> prompt);
  absl::StatusOr<TokenId> Pick(float* logits, TokenLogprob* logprob) override;
  void Accept(TokenId token) override;

 private:
  absl::Status BuildGrammar(const SamplerSpec& spec);
  void BuildChain(std::span<const TokenId> prompt);
  bool GrammarActive() const;
  void AcceptInGrammar(TokenId token);
  void Adjust(float* logits) const;
  void Count(TokenId token);
  void FillLogprob(std::span<const float> logits, std::vector<ScoredToken>* top, double* norm) const;

  // Candidates of the small fast path: the `k` best that the grammar allows. False where the whole vocabulary
  // must be looked at.
  bool FastCandidates(std::span<const float> logits, uint32_t k);
  void AllCandidates(std::span<const float> logits);
  void ApplyGrammar();
  bool GrammarAllows(TokenId token) const;
  TokenId PickFromCandidates();

  const llama_vocab* const vocab_;
  const size_t vocabulary_;
  const SamplingParams params_;
  const std::vector<TokenId> end_of_text_;
  const bool greedy_;
  const uint32_t top_k_;
  const uint32_t penalty_window_;
  std::span<const TokenId> suppressed_;  // tokens the model file says are never to be sampled
  bool penalised_ = false;
  bool whole_vocabulary_ = false;  // some sampler of the chain needs every token
  uint32_t accepted_ = 0;

  SamplerPtr chain_;
  SamplerPtr grammar_;
  SamplerPtr thinking_;  // watches for the end of thinking, for a lazy grammar
  std::deque<TokenId> recent_;
  std::unordered_map<TokenId, uint32_t> recent_counts_;
  std::vector<ScoredToken> top_;
  std::vector<llama_token_data> candidates_;
  llama_token_data_array array_{};
};

absl::Status LlamaSampler::Build(const SamplerSpec& spec, std::span<const TokenId> prompt) {
  RUMBO_RETURN_IF_ERROR(BuildGrammar(spec));
  BuildChain(prompt);
  if (penalised_) {
    const size_t begin = prompt.size() - std::min<size_t>(prompt.size(), penalty_window_);
    for (const TokenId token : prompt.subspan(begin)) Count(token);
  }
  return absl::OkStatus();
}

absl::Status LlamaSampler::BuildGrammar(const SamplerSpec& spec) {
  if (spec.grammar.empty()) return absl::OkStatus();
  if (spec.grammar_lazy) {
    std::vector<const char*> patterns;
    for (const std::string& pattern : spec.trigger_patterns) patterns.push_back(pattern.c_str());
    grammar_.reset(llama_sampler_init_grammar_lazy_patterns(
        vocab_, spec.grammar.c_str(), "root", patterns.data(), patterns.size(), spec.trigger_tokens.data(),
        spec.trigger_tokens.size()));
    if (!spec.thinking_start.empty() && !spec.thinking_end.empty()) {
      thinking_.reset(
          common_reasoning_budget_init(vocab_, {spec.thinking_start}, spec.thinking_end, {}, INT_MAX));
      for (const TokenId token : spec.grammar_prefill) llama_sampler_accept(thinking_.get(), token);
    }
  } else {
    grammar_.reset(llama_sampler_init_grammar(vocab_, spec.grammar.c_str(), "root"));
  }
  if (!grammar_) {
    return InvalidArgument("the grammar does not parse, has no rule \"root\", or is left-recursive",
                           "See llama.cpp's grammars/README.md for GBNF.");
  }
  if (!spec.grammar_lazy) {
    for (const TokenId token : spec.grammar_prefill) llama_sampler_accept(grammar_.get(), token);
  }
  return absl::OkStatus();
}

bool LlamaSampler::GrammarActive() const {
  if (!grammar_) return false;
  if (!thinking_) return true;
  const auto state = common_reasoning_budget_get_state(thinking_.get());
  return state == REASONING_BUDGET_IDLE || state == REASONING_BUDGET_DONE;
}

void LlamaSampler::AcceptInGrammar(TokenId token) {
  const bool active = GrammarActive();
  if (thinking_) {
    llama_sampler_accept(thinking_.get(), token);
    // What ends the thinking may be what wakes the grammar.
    if (!active && common_reasoning_budget_get_state(thinking_.get()) == REASONING_BUDGET_DONE) {
      if (const auto* end = common_reasoning_budget_get_end_match(thinking_.get())) {
        for (const TokenId t : *end) llama_sampler_accept(grammar_.get(), t);
      }
    }
  }
  if (active) llama_sampler_accept(grammar_.get(), token);
}

// The order of llama.cpp: DRY, top-k, typical, top-p, min-p, XTC, temperature. Penalties and biases are
// applied to the logits before.
void LlamaSampler::BuildChain(std::span<const TokenId> prompt) {
  const uint32_t seed = FoldSeed(params_.seed);
  llama_sampler_chain_params chain_params = llama_sampler_chain_default_params();
  chain_params.no_perf = true;
  chain_.reset(llama_sampler_chain_init(chain_params));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain_.get(), sampler); };
  const float temperature = params_.temperature.value_or(0.8f);

  if (params_.dry_multiplier.value_or(0) != 0) {
    whole_vocabulary_ = true;
    const char* breakers[] = {"\n", ":", "\"", "*"};
    llama_sampler* dry =
        llama_sampler_init_dry(vocab_, *params_.dry_multiplier, params_.dry_base.value_or(1.75f),
                               static_cast<int32_t>(params_.dry_allowed_length.value_or(2)),
                               static_cast<int32_t>(penalty_window_), breakers, 4);
    for (const TokenId token : prompt) llama_sampler_accept(dry, token);
    add(dry);
  }
  if (greedy_) {
    add(llama_sampler_init_greedy());
    return;
  }
  const uint32_t mirostat = params_.mirostat.value_or(0);
  if (mirostat > 0) {
    whole_vocabulary_ = true;
    add(llama_sampler_init_temp(temperature));
    const float tau = params_.mirostat_tau.value_or(5.0f);
    const float eta = params_.mirostat_eta.value_or(0.1f);
    add(mirostat == 1 ? llama_sampler_init_mirostat(static_cast<int32_t>(vocabulary_), seed, tau, eta, 100)
                      : llama_sampler_init_mirostat_v2(seed, tau, eta));
    return;
  }
  if (top_k_ == 0 || top_k_ > kMaxFastTopK) whole_vocabulary_ = true;
  if (top_k_ > 0) add(llama_sampler_init_top_k(static_cast<int32_t>(top_k_)));
  if (params_.typical_p.value_or(1) < 1) add(llama_sampler_init_typical(*params_.typical_p, 1));
  const float top_p = params_.top_p.value_or(0.95f);
  if (top_p < 1) add(llama_sampler_init_top_p(top_p, 1));
  const float min_p = params_.min_p.value_or(0.05f);
  if (min_p > 0) add(llama_sampler_init_min_p(min_p, 1));
  if (params_.xtc_probability.value_or(0) > 0) {
    add(llama_sampler_init_xtc(*params_.xtc_probability, params_.xtc_threshold.value_or(0.1f), 1, seed));
  }
  add(llama_sampler_init_temp(temperature));
  add(llama_sampler_init_dist(seed));
}

void LlamaSampler::Count(TokenId token) {
  recent_.push_back(token);
  ++recent_counts_[token];
  if (recent_.size() > penalty_window_) {
    const auto it = recent_counts_.find(recent_.front());
    if (--it->second == 0) recent_counts_.erase(it);
    recent_.pop_front();
  }
}

// Biases, bans and penalties touch few tokens, so they are applied to the logits in place.
void LlamaSampler::Adjust(float* logits) const {
  for (const auto& [token, bias] : params_.logit_bias) logits[token] += bias;
  if (params_.ignore_eos || accepted_ < params_.min_tokens.value_or(0)) {
    for (const TokenId token : end_of_text_) logits[token] = kBanned;
  }
  for (const TokenId token : suppressed_) logits[token] = kBanned;
  if (!penalised_) return;
  const float repeat = params_.repeat_penalty.value_or(1);
  const float frequency = params_.frequency_penalty.value_or(0);
  const float presence = params_.presence_penalty.value_or(0);
  for (const auto& [token, count] : recent_counts_) {
    float& logit = logits[token];
    logit = logit <= 0 ? logit * repeat : logit / repeat;
    logit -= static_cast<float>(count) * frequency + presence;
  }
}

void LlamaSampler::FillLogprob(std::span<const float> logits, std::vector<ScoredToken>* top,
                               double* norm) const {
  *norm = LogSumExp(logits);
  TopTokens(logits, params_.logprobs.value_or(0), top);
}

bool LlamaSampler::GrammarAllows(TokenId token) const {
  llama_token_data single{token, 1.0f, 0.0f};
  llama_token_data_array array{&single, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &array);
  return single.logit != kBanned;
}

bool LlamaSampler::FastCandidates(std::span<const float> logits, uint32_t k) {
  const bool constrained = GrammarActive();
  if (constrained) k = std::max(k, kGrammarCandidates);
  TopTokens(logits, k, &top_);
  candidates_.clear();
  for (const ScoredToken& token : top_) candidates_.push_back({token.id, token.logit, 0.0f});
  array_ = {candidates_.data(), candidates_.size(), -1, true};
  if (!constrained) return true;
  const uint32_t wanted = greedy_ ? 1 : top_k_;
  // Greedy: usually the best token fits, and one check is cheap.
  if (greedy_ && !candidates_.empty() && GrammarAllows(candidates_.front().id)) {
    array_.size = 1;
    return true;
  }
  ApplyGrammar();
  return array_.size >= wanted;
}

void LlamaSampler::AllCandidates(std::span<const float> logits) {
  candidates_.resize(vocabulary_);
  for (size_t i = 0; i < vocabulary_; ++i) candidates_[i] = {static_cast<TokenId>(i), logits[i], 0.0f};
  array_ = {candidates_.data(), candidates_.size(), -1, false};
  if (GrammarActive()) ApplyGrammar();
}

// Removes what the grammar forbids, keeping the order.
void LlamaSampler::ApplyGrammar() {
  llama_sampler_apply(grammar_.get(), &array_);
  size_t kept = 0;
  for (size_t i = 0; i < array_.size; ++i) {
    if (array_.data[i].logit != kBanned) array_.data[kept++] = array_.data[i];
  }
  array_.size = kept;
}

TokenId LlamaSampler::PickFromCandidates() {
  if (array_.size == 0) return -1;
  llama_sampler_apply(chain_.get(), &array_);
  return array_.selected < 0 ? -1 : array_.data[array_.selected].id;
}

absl::StatusOr<TokenId> LlamaSampler::Pick(float* logits, TokenLogprob* logprob) {
  const std::span<const float> row(logits, vocabulary_);
  std::vector<ScoredToken> best;
  double norm = 0;
  std::vector<float> raw;
  if (logprob != nullptr) {
    FillLogprob(row, &best, &norm);
    raw.assign(row.begin(), row.end());
  }
  Adjust(logits);

  TokenId token = -1;
  if (greedy_ && !whole_vocabulary_ && !GrammarActive()) {
    token = ArgMax(row);
  } else {
    if (whole_vocabulary_ || !FastCandidates(row, greedy_ ? 1 : top_k_)) AllCandidates(row);
    token = PickFromCandidates();
  }
  if (token < 0) {
    if (GrammarActive()) {
      // The grammar is complete but ends were banned (ignore_eos, min_tokens): the answer ends all the same.
      for (const TokenId end : end_of_text_) {
        if (GrammarAllows(end)) return end;
      }
      return Internal("the grammar allows no further token");
    }
    return Internal("the model gave no usable probabilities (NaN)");
  }
  if (logprob != nullptr) {
    logprob->id = token;
    logprob->piece = TokenPiece(vocab_, token, true);
    logprob->logprob = static_cast<float>(raw[static_cast<size_t>(token)] - norm);
    for (const ScoredToken& t : best) {
      logprob->top.push_back({t.id, TokenPiece(vocab_, t.id, true), static_cast<float>(t.logit - norm)});
    }
  }
  return token;
}

void LlamaSampler::Accept(TokenId token) {
  ++accepted_;
  if (penalised_) Count(token);
  if (grammar_) AcceptInGrammar(token);
  if (!greedy_ || whole_vocabulary_) llama_sampler_accept(chain_.get(), token);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sampler>> MakeSampler(const llama_vocab* vocab, const SamplerSpec& spec,
                                                     std::span<const TokenId> prompt) {
  auto sampler = std::make_unique<LlamaSampler>(vocab, spec);
  try {
    RUMBO_RETURN_IF_ERROR(sampler->Build(spec, prompt));
  } catch (const std::exception& e) {
    return InvalidArgument(std::string("the grammar cannot be used: ") + e.what());
  }
  return std::unique_ptr<Sampler>(std::move(sampler));
}

}  // namespace rumbo
