#include "engines/llamacpp/llama/speculation.h"

#include <algorithm>

#include "base/status.h"
#include "engines/llamacpp/llama/llama_log.h"
#include "engines/llamacpp/llama/settings_check.h"
#include "llama.h"
#include "speculative.h"

namespace rumbo {
namespace {

// The batch that this pack's libllama-common takes: llama.cpp changed it between builds of one version.
template <typename B>
B BatchOf(bool (*)(common_speculative*, const B&));
using SpecBatch = decltype(BatchOf(&common_speculative_process));

// Fills batches of either kind with what the target computed.
template <typename B>
class BatchMaker {
 public:
  explicit BatchMaker(llama_context* context) : batch_(context) {}
  const B& Make(std::span<const BatchToken> tokens) {
    batch_.clear();
    for (const BatchToken& t : tokens) batch_.add(t.token, t.position, t.sequence, t.output);
    return batch_;
  }

 private:
  B batch_;
};

template <>
class BatchMaker<llama_batch> {
 public:
  explicit BatchMaker(llama_context* context)
      : batch_(llama_batch_init(static_cast<int32_t>(llama_n_batch(context)), 0, 1)) {}
  ~BatchMaker() { llama_batch_free(batch_); }
  BatchMaker(const BatchMaker&) = delete;
  BatchMaker& operator=(const BatchMaker&) = delete;
  const llama_batch& Make(std::span<const BatchToken> tokens) {
    batch_.n_tokens = 0;
    for (const BatchToken& t : tokens) {
      const int32_t i = batch_.n_tokens++;
      batch_.token[i] = t.token;
      batch_.pos[i] = t.position;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = t.sequence;
      batch_.logits[i] = t.output ? 1 : 0;
    }
    return batch_;
  }

 private:
  llama_batch batch_;
};

absl::Status NoGuesses(const std::string& why, const char* next_step) {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing, why, next_step);
}

class CommonSpeculation final : public Speculation {
 public:
  ~CommonSpeculation() override {
    if (spec_ != nullptr) common_speculative_free(spec_);
    if (context_ != nullptr) llama_free(context_);
    if (own_model_ != nullptr) llama_model_free(own_model_);
  }

  absl::Status Init(LoadedModel* target, const std::vector<std::string>& draft_files, uint32_t tokens) {
    const llama_model* model = target->model;
    const bool heads = draft_files.empty();
    if (heads && llama_model_n_layer_nextn(model) <= 0) {
      return NoGuesses("the model has no heads that guess ahead",
                       "Name a draft model, or set draft_tokens to 0.");
    }
    if (!heads) RUMBO_RETURN_IF_ERROR(LoadDraft(draft_files));
    llama_context_params params = llama_context_default_params();
    params.n_ctx = llama_n_ctx(target->context);
    params.n_seq_max = target->sequences;
    params.n_batch = llama_n_batch(target->context);
    params.n_ubatch = llama_n_ubatch(target->context);
    RUMBO_ASSIGN_OR_RETURN(const uint32_t outputs,
                           ExtraNumber(target->settings, "outputs", target->sequences + 1, 1, 65536));
    params.n_outputs_max = std::min(params.n_batch, outputs);
    params.n_threads = llama_n_threads(target->context);
    params.n_threads_batch = llama_n_threads_batch(target->context);
    params.kv_unified = *target->settings.kv_unified;
    params.swa_full = *target->settings.swa_full;
    params.no_perf = true;
    if (heads) params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    params.ctx_other = target->context;
    context_ = llama_init_from_model(heads ? target->model : own_model_, params);
    if (context_ == nullptr) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit,
                   "the context of the draft could not be made: " + TakeLogLines(),
                   "Ask for less context or fewer sessions, or set draft_tokens to 0.");
    }
    llama_attach_threadpool(context_, target->threadpool, target->threadpool_batch);
    return Start(target, heads, tokens);
  }

  void Decoded(std::span<const BatchToken> batch) override {
    llama_memory_t memory = llama_get_memory(context_);
    kept_.clear();
    for (const BatchToken& token : batch) {
      // Hidden states of the target are told apart by their place in its batch, so heads follow all of it.
      if (left_[Index(token.sequence)] && !heads_) continue;
      // Guesses of the step before lie where the target's tokens go.
      if (kept_.empty() || kept_.back().sequence != token.sequence)
        llama_memory_seq_rm(memory, token.sequence, token.position, -1);
      kept_.push_back(token);
    }
    if (!kept_.empty() && !common_speculative_process(spec_, maker_->Make(kept_))) LeaveAll(kept_);
  }

  void Draft(std::span<DraftWish> wishes) override {
    for (DraftWish& wish : wishes) {
      wish.tokens.clear();
      if (left_[Index(wish.sequence)] || wish.most == 0) continue;
      llama_memory_seq_rm(llama_get_memory(context_), wish.sequence, wish.position, -1);
      common_speculative_draft_params& params = common_speculative_get_draft_params(spec_, wish.sequence);
      params.drafting = true;
      params.n_max = static_cast<int32_t>(wish.most);
      params.pos0 = wish.position;
      params.id_last = wish.last;
      params.prompt = &no_prompt_;
      params.result = &wish.tokens;
    }
    common_speculative_draft(spec_);
    for (DraftWish& wish : wishes) {
      drafted_[Index(wish.sequence)] = !wish.tokens.empty();
      if (wish.tokens.size() > wish.most) wish.tokens.resize(wish.most);
    }
  }

  void Accepted(SequenceId sequence, uint32_t count) override {
    if (left_[Index(sequence)] || !drafted_[Index(sequence)]) return;
    common_speculative_accept(spec_, sequence, static_cast<uint16_t>(count));
  }

  void Leave(SequenceId sequence) override {
    left_[Index(sequence)] = true;
    llama_memory_seq_rm(llama_get_memory(context_), sequence, -1, -1);
  }

  void Copy(SequenceId from, SequenceId to) override {
    llama_memory_t memory = llama_get_memory(context_);
    llama_memory_seq_rm(memory, to, -1, -1);
    llama_memory_seq_cp(memory, from, to, -1, -1);
    left_[Index(to)] = left_[Index(from)];
    drafted_[Index(to)] = false;
  }

  void Truncate(SequenceId sequence, uint32_t length) override {
    if (length == 0) left_[Index(sequence)] = drafted_[Index(sequence)] = false;
    llama_memory_seq_rm(llama_get_memory(context_), sequence, static_cast<int32_t>(length), -1);
  }

  std::vector<MemoryItem> memory() const override { return memory_; }

 private:
  static size_t Index(SequenceId sequence) { return static_cast<size_t>(sequence); }

  absl::Status LoadDraft(const std::vector<std::string>& files) {
    llama_model_params params = llama_model_default_params();
    ggml_backend_dev_t none[] = {nullptr};
    params.devices = none;
    params.n_gpu_layers = 0;
    TakeLogLines();
    std::vector<const char*> paths;
    for (const std::string& file : files) paths.push_back(file.c_str());
    own_model_ = llama_model_load_from_splits(paths.data(), paths.size(), params);
    if (own_model_ == nullptr) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kModelInvalid,
                   "the draft model could not be loaded", "Check the file: `rumbo check`.");
    }
    if (llama_model_is_recurrent(own_model_) || llama_model_is_hybrid(own_model_)) {
      return NoGuesses("the draft model keeps a state that guesses cannot be taken back from",
                       "Use a draft model with attention alone.");
    }
    return absl::OkStatus();
  }

  absl::Status Start(LoadedModel* target, bool heads, uint32_t tokens) {
    heads_ = heads;
    params_.types = {heads ? COMMON_SPECULATIVE_TYPE_DRAFT_MTP : COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE};
    params_.draft.n_max = static_cast<int32_t>(tokens);
    params_.draft.ctx_tgt = target->context;
    params_.draft.ctx_dft = context_;
    params_.draft.backend_sampling = false;
    try {
      spec_ = common_speculative_init(params_, target->sequences);
      maker_ = std::make_unique<BatchMaker<SpecBatch>>(target->context);
    } catch (const std::exception& e) {
      return NoGuesses(std::string("the draft does not go with the model: ") + e.what(),
                       "Use a draft model of the same vocabulary.");
    }
    if (spec_ == nullptr) return Internal("libllama-common made no speculation");
    left_.assign(target->sequences, false);
    drafted_.assign(target->sequences, false);
    memory_ = DraftMemory(context_, !heads);
    return absl::OkStatus();
  }

  void LeaveAll(const std::vector<BatchToken>& tokens) {
    for (const BatchToken& token : tokens) Leave(token.sequence);
  }

  llama_model* own_model_ = nullptr;
  llama_context* context_ = nullptr;
  common_speculative* spec_ = nullptr;
  common_params_speculative params_;
  std::unique_ptr<BatchMaker<SpecBatch>> maker_;
  bool heads_ = false;
  std::vector<bool> left_;     // sequences that are not followed
  std::vector<bool> drafted_;  // sequences whose last guesses came from here
  std::vector<BatchToken> kept_;
  const llama_tokens no_prompt_;
  std::vector<MemoryItem> memory_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Speculation>> Speculation::Make(LoadedModel* target,
                                                               const std::vector<std::string>& draft_files,
                                                               uint32_t draft_tokens) {
  auto speculation = std::make_unique<CommonSpeculation>();
  RUMBO_RETURN_IF_ERROR(speculation->Init(target, draft_files, draft_tokens));
  return std::unique_ptr<Speculation>(std::move(speculation));
}

}  // namespace rumbo
