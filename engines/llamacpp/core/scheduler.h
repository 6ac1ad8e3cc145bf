#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engines/llamacpp/core/answer_text.h"
#include "engines/llamacpp/core/job.h"
#include "engines/llamacpp/core/kv_slots.h"
#include "engines/llamacpp/core/step_model.h"

namespace rumbo {

struct SchedulerOptions {
  uint32_t sessions = 1;             // requests that run at once
  uint32_t context_per_session = 0;  // tokens of prompt and answer each is guaranteed
  uint32_t prefill_chunk = 512;      // most prompt tokens per step
  uint32_t max_waiting = 4096;       // requests in the queue; more are refused
  bool share_prefixes = true;        // off: nothing is ever reused, not even a conversation's own beginning
  uint32_t draft_tokens = 0;         // most tokens guessed per answer and step, from what was said before
  bool draft_always = false;         // also where guesses cost more than they give: to measure them
  uint64_t host_cache_bytes = 0;     // host memory for states that leave the KV cache
  DiskCache* disk = nullptr;         // for those that leave host memory, and for what is idle
};

// Runs many answers over one model by continuous batching: each step computes one token for every running
// answer and, as far as that does not stall them, tokens of prompts. Prompts with a common beginning compute
// it once: what is cached is reused, and a request that arrives while another computes the same beginning
// waits for it.
//
// Threading: one thread for everything; nothing blocks but Step, for as long as the model computes.
// Ownership: borrows port and clock; owns the jobs. Sinks are called from within Submit, Cancel and Step.
class Scheduler {
 public:
  Scheduler(ModelPort* port, const Clock* clock, SchedulerOptions options);
  ~Scheduler();

  // Takes the job. Fails it at once where it can never run (kPromptTooLong) or the queue is full
  // (kQueueFull).
  void Submit(Job job);

  // Ends the job with kCancelled; its slot is free when this returns. Unknown ids are ignored.
  void Cancel(uint64_t id);

  // The sink of a job that answered OnChunk with false takes more.
  void Resume(uint64_t id);

  // Computes one step. False where nothing can be computed until a Submit, Cancel or Resume.
  bool Step();

  // While nothing runs: gives the disk one idle sequence that it does not have. False where there is nothing
  // to give, or something runs.
  bool PersistIdle() { return idle() && slots_.PersistOne(); }

  // Ends everything with `status`.
  void FailAll(const absl::Status& status);

  EngineStats stats() const;
  bool idle() const { return waiting_.empty() && running_.empty(); }

 private:
  enum class Phase { kHeld, kPrefill, kDecode };
  struct Run;
  using RunList = std::vector<std::unique_ptr<Run>>;

  // Admission.
  void Admit();
  bool TryAdmit(Job* job);
  uint32_t Need(const Job& job) const;
  void HoldOrPrefill(Run* run);
  void ReleaseHeld();

  // One step.
  struct Part {  // a run's share of the batch
    Run* run;
    size_t first;  // index in the batch
    uint32_t tokens;
    bool prefill;  // else the first token is the answer's, the others are guesses
  };
  std::vector<Run*> Decoding() const;  // by sequence
  bool MayBeLate() const;
  void CloseGaps();
  std::vector<Run*> Fillers(const std::vector<Run*>& decoding) const;
  std::vector<std::vector<TokenId>> Guesses(const std::vector<Run*>& decoding, uint32_t spare);
  uint32_t GuessesWorth(const Run& run, uint32_t decoding, uint32_t spare) const;
  void AddDecodes();
  void AddPrefill(Run* run, uint32_t end);
  std::vector<Run*> PrefillOrder();
  uint32_t ReadPrompts(const std::vector<Run*>& order, uint32_t budget);
  uint32_t AddNeighbours(const Run& first, const std::vector<Run*>& order, uint32_t tokens, uint32_t budget);
  uint32_t ChunkEnd(const Run& run, uint32_t budget, uint32_t more) const;
  bool ComputeBatch();
  void Account(double ms);
  void OnTrouble(DecodeResult result);
  void Announce(Run* run);
  bool LastWithAnswers() const;
  void FinishPrompt(Run* run);
  void TakePart(const Part& part);
  void TakeAnswerTokens(const Part& part);
  void TakeBackGuesses(Run* run);
  void TakeToken(Run* run, size_t batch_index);
  void Send(Run* run, bool last);

  void Finish(Run* run, const char* reason);
  void Fail(Run* run, const absl::Status& status);
  void Sweep();  // removes runs that are over
  Run* Find(uint64_t id);
  uint32_t Computed(const Run& run) const;

  ModelPort* const port_;
  const Clock* const clock_;
  const SchedulerOptions options_;
  KvSlots slots_;
  StepModel model_;
  std::deque<Job> waiting_;
  RunList running_;  // in order of admission
  std::vector<BatchToken> batch_;
  std::vector<Part> parts_;
  EngineStats stats_;
  uint64_t step_ = 0;
  double guess_ms_ = 0;     // making one guess, where the port makes them
  uint32_t gap_steps_ = 0;  // steps in a row whose streams had gaps between them
};

}  // namespace rumbo
