#include "engines/llamacpp/core/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "engines/llamacpp/core/ngram_drafter.h"

namespace rumbo {
namespace {

double Millis(Clock::TimePoint from, Clock::TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// A request waits for another's prompt only where that saves so many tokens.
constexpr uint32_t kMinHold = 32;

// A waiting prompt counts as shorter by so many tokens per millisecond it has waited, relative to the speed
// prompts are read with: short prompts go first, long ones not never.
constexpr double kAging = 0.5;

// An answer of unknown length is taken to have so many tokens.
constexpr uint32_t kTypicalAnswer = 128;

// One of so many tokens of the running answers may come late: their 95th percentile stays that of steps
// that are not stalled.
constexpr uint32_t kLateOneIn = 22;

// Chunks of fewer tokens are read together with those of the streams beside, with so many more where a prompt
// is then complete.
constexpr uint32_t kShortChunk = 64;
constexpr uint32_t kShortRest = 4;

// Steps without a guess that is worth it, after which a draft no longer follows an answer.
constexpr uint32_t kDraftPatience = 16;

// Steps that streams may have gaps between them before they are moved together.
constexpr uint32_t kGapPatience = 8;

absl::Status Cancelled() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled by the caller");
}

}  // namespace

struct Scheduler::Run {
  explicit Run(Job j) : job(std::move(j)), text(job.stop) {}

  Job job;
  AnswerText text;
  SequenceId sequence = -1;
  Phase phase = Phase::kPrefill;
  uint64_t leader = 0;         // kHeld: whose prompt is waited for
  uint32_t leader_length = 0;  // kHeld: up to where
  uint32_t cached = 0;         // prompt tokens that were not computed for this run
  uint32_t need = 0;           // prompt and answer together
  TokenId next = 0;            // kDecode: sampled, not computed yet
  uint32_t generated = 0;
  uint64_t read_in = 0;  // the last step that read of its prompt
  uint32_t late = 0;     // tokens that came late because prompts were read between
  NgramDrafter drafter;
  DraftPolicy draft_policy;
  uint32_t drafted = 0;
  uint32_t accepted = 0;
  bool guesses_in_kv = false;  // beyond what the slot counts
  uint32_t steps_without_guess = 0;
  bool draft_stopped = false;
  uint32_t unsent_tokens = 0;  // in pieces held back
  std::vector<TokenLogprob> unsent_logprobs;
  bool started = false;
  bool paused = false;
  bool over = false;
  Clock::TimePoint admitted{};
  Clock::TimePoint first_token{};
};

Scheduler::Scheduler(ModelPort* port, const Clock* clock, SchedulerOptions options)
    : port_(port),
      clock_(clock),
      options_(options),
      slots_(port, options.host_cache_bytes, options.disk),
      model_(options.prefill_chunk, !port->traits().unified) {
  RUMBO_CHECK(options_.sessions >= 1 && options_.sessions <= port->traits().sequences);
  RUMBO_CHECK(options_.prefill_chunk >= 1 && options_.prefill_chunk <= port->traits().batch);
}

Scheduler::~Scheduler() { FailAll(Cancelled()); }

uint32_t Scheduler::Need(const Job& job) const {
  const uint64_t all = job.prompt.size() + uint64_t{job.max_tokens};
  return static_cast<uint32_t>(std::min<uint64_t>(all, options_.context_per_session));
}

void Scheduler::Submit(Job job) {
  absl::Status refused;
  if (job.prompt.empty()) {
    refused = InvalidArgument("the prompt is empty");
  } else if (job.prompt.size() >= options_.context_per_session) {
    refused = Error(absl::StatusCode::kInvalidArgument, Reason::kPromptTooLong,
                    "the prompt has " + std::to_string(job.prompt.size()) +
                        " tokens and a session's context " + std::to_string(options_.context_per_session),
                    "Shorten the prompt, or load the model with more context per session.");
  } else if (waiting_.size() >= options_.max_waiting) {
    refused = RetryableError(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                             std::to_string(waiting_.size()) + " requests wait already", "Retry later.",
                             std::chrono::seconds(1));
  }
  if (!refused.ok()) {
    job.sink->OnEnd(refused, nullptr);
    return;
  }
  // Within a priority, first come first served.
  auto place = waiting_.end();
  while (place != waiting_.begin() && std::prev(place)->priority > job.priority) --place;
  waiting_.insert(place, std::move(job));
}

void Scheduler::Cancel(uint64_t id) {
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->id != id) continue;
    const std::shared_ptr<GenerateSink> sink = it->sink;
    waiting_.erase(it);
    sink->OnEnd(Cancelled(), nullptr);
    return;
  }
  if (Run* run = Find(id)) {
    Fail(run, Cancelled());
    Sweep();
  }
}

void Scheduler::Resume(uint64_t id) {
  if (Run* run = Find(id)) run->paused = false;
}

Scheduler::Run* Scheduler::Find(uint64_t id) {
  for (const auto& run : running_) {
    if (run->job.id == id && !run->over) return run.get();
  }
  return nullptr;
}

void Scheduler::FailAll(const absl::Status& status) {
  std::deque<Job> waiting;
  waiting.swap(waiting_);
  for (Job& job : waiting) job.sink->OnEnd(status, nullptr);
  for (const auto& run : running_) {
    if (!run->over) Fail(run.get(), status);
  }
  Sweep();
}

// ---- Admission ----

void Scheduler::Admit() {
  while (!waiting_.empty() && running_.size() < options_.sessions) {
    if (!TryAdmit(&waiting_.front())) break;
    waiting_.pop_front();
  }
}

bool Scheduler::TryAdmit(Job* job) {
  const uint32_t need = Need(*job);
  if (!options_.share_prefixes) job->cache_key = std::to_string(job->id);
  const auto lease = slots_.Acquire(job->cache_key, job->prompt, need);
  if (!lease) return false;
  auto run = std::make_unique<Run>(std::move(*job));
  run->sequence = lease->sequence;
  run->cached = lease->reused;
  run->need = need;
  run->admitted = clock_->Now();
  HoldOrPrefill(run.get());
  running_.push_back(std::move(run));
  return true;
}

// Waits for an earlier request that is computing a beginning of this prompt, or starts.
void Scheduler::HoldOrPrefill(Run* run) {
  run->phase = Phase::kPrefill;
  if (!options_.share_prefixes) return;
  const uint32_t have = Computed(*run);
  const auto most = static_cast<uint32_t>(run->job.prompt.size() - 1);
  uint32_t best = have + kMinHold - 1;
  for (const auto& other : running_) {
    if (other.get() == run) break;  // only earlier ones: no circles
    if (other->over || other->phase == Phase::kDecode) continue;
    if (other->job.cache_key != run->job.cache_key) continue;
    const uint32_t length = std::min(CommonPrefix(other->job.prompt, run->job.prompt), most);
    if (length <= best) continue;
    // What the other has read already was considered when the slot was acquired.
    if (length < Computed(*other)) continue;
    best = length;
    run->phase = Phase::kHeld;
    run->leader = other->job.id;
    run->leader_length = length;
  }
}

void Scheduler::ReleaseHeld() {
  for (const auto& run : running_) {
    if (run->over || run->phase != Phase::kHeld) continue;
    const Run* leader = Find(run->leader);
    if (leader != nullptr && Computed(*leader) < run->leader_length) continue;
    run->cached = slots_.Improve(run->sequence, run->job.prompt);
    HoldOrPrefill(run.get());
  }
}

uint32_t Scheduler::Computed(const Run& run) const {
  return static_cast<uint32_t>(slots_.tokens(run.sequence).size());
}

// ---- One step ----

bool Scheduler::Step() {
  ++step_;
  Admit();
  ReleaseHeld();
  uint32_t decoding = 0;
  for (const auto& run : running_) {
    if (run->phase == Phase::kPrefill && LastWithAnswers() && Computed(*run) + 1 == run->job.prompt.size()) {
      FinishPrompt(run.get());
    }
    decoding += run->phase == Phase::kDecode && !run->paused;
  }
  const std::vector<Run*> order = PrefillOrder();
  const uint32_t budget = order.empty() ? 0 : model_.PrefillTokens(decoding, MayBeLate());
  const Clock::TimePoint begin = clock_->Now();

  // A pool of cells for all takes everything in one pass over the weights; separate streams are computed one
  // by one, or the batch would be split where its sequences differ in length.
  const bool one_pass = port_->traits().unified;
  bool computed = false;
  if (!one_pass) CloseGaps();
  AddDecodes();
  if (!one_pass) computed |= ComputeBatch();
  const uint32_t read = ReadPrompts(order, budget);
  computed |= ComputeBatch() || read > 0;
  if (read > 0 && model_.IsLong(decoding, Millis(begin, clock_->Now()))) {
    for (Run* run : Decoding()) ++run->late;
  }
  Sweep();
  return computed;
}

// Reads up to about `budget` tokens of prompts. Returns how many.
uint32_t Scheduler::ReadPrompts(const std::vector<Run*>& order, uint32_t budget) {
  const uint32_t more = budget / 4;
  uint32_t read = 0;
  for (Run* run : order) {
    if (read >= budget) break;
    const uint32_t left = budget - read;
    if (read > 0 && left < StepModel::kFloor) break;  // a few tokens more cost as much as many
    if (run->over || run->read_in == step_) continue;
    const uint32_t begin = Computed(*run);
    const uint32_t end = ChunkEnd(*run, left, more);
    if (end == begin) continue;  // its last token comes with the answers' next
    AddPrefill(run, end);
    run->read_in = step_;
    read += end - begin;
    if (port_->traits().unified) continue;
    if (end - begin < kShortChunk)
      read += AddNeighbours(*run, order, end - begin, budget - std::min(budget, read));
    ComputeBatch();
  }
  return read;
}

// Short chunks of streams that follow each other are read in one pass: adds those next to `first`, of about
// `tokens` each, `budget` together. Returns how many tokens.
uint32_t Scheduler::AddNeighbours(const Run& first, const std::vector<Run*>& order, uint32_t tokens,
                                  uint32_t budget) {
  uint32_t added = 0;
  for (const int direction : {-1, 1}) {
    for (SequenceId next = first.sequence + direction;; next += direction) {
      const auto found = std::find_if(order.begin(), order.end(), [&](const Run* run) {
        return run->sequence == next && !run->over && run->read_in != step_;
      });
      if (found == order.end()) break;
      const uint32_t begin = Computed(**found);
      const uint32_t end = ChunkEnd(**found, tokens, kShortRest);
      if (end < begin + tokens || added + end - begin > budget) break;
      AddPrefill(*found, end);
      (*found)->read_in = step_;
      added += end - begin;
    }
  }
  std::sort(parts_.begin(), parts_.end(),
            [](const Part& a, const Part& b) { return a.run->sequence < b.run->sequence; });
  std::vector<BatchToken> sorted;
  for (Part& part : parts_) {
    const auto from = batch_.begin() + static_cast<ptrdiff_t>(part.first);
    part.first = sorted.size();
    sorted.insert(sorted.end(), from, from + part.tokens);
  }
  batch_.swap(sorted);
  return added;
}

std::vector<Scheduler::Run*> Scheduler::Decoding() const {
  std::vector<Run*> decoding;
  for (const auto& run : running_) {
    if (!run->over && run->phase == Phase::kDecode && !run->paused) decoding.push_back(run.get());
  }
  std::sort(decoding.begin(), decoding.end(),
            [](const Run* a, const Run* b) { return a->sequence < b->sequence; });
  return decoding;
}

// Whether what was late so far leaves room for another long step. Over all running answers together: a burst
// of prompts delays those more that began first.
bool Scheduler::MayBeLate() const {
  uint64_t late = 0;
  uint64_t tokens = 0;
  for (const Run* run : Decoding()) {
    late += run->late + 1;
    tokens += std::max(kLateOneIn, std::min(run->job.max_tokens, std::max(run->generated, kTypicalAnswer)));
  }
  return late * kLateOneIn <= tokens;
}

// Separate streams are computed in one pass only where their ids follow each other; each gap costs another
// pass over the weights. Moves the last stream into the first gap that is not in use, once gaps have stayed
// for a while.
void Scheduler::CloseGaps() {
  const std::vector<Run*> decoding = Decoding();
  SequenceId gap = -1;
  for (size_t i = 1; i < decoding.size() && gap < 0; ++i) {
    for (SequenceId next = decoding[i - 1]->sequence + 1; next < decoding[i]->sequence && gap < 0; ++next) {
      if (!slots_.IsLive(next)) gap = next;
    }
  }
  gap_steps_ = gap < 0 ? 0 : gap_steps_ + 1;
  if (gap_steps_ < kGapPatience) return;
  if (slots_.Move(decoding.back()->sequence, gap)) decoding.back()->sequence = gap;
  gap_steps_ = kGapPatience - 1;  // the next gap follows in the next step
}

// Prompts whose streams lie between those of running answers, by sequence: each adds one token to the
// answers' pass, so that it stays one.
std::vector<Scheduler::Run*> Scheduler::Fillers(const std::vector<Run*>& decoding) const {
  std::vector<Run*> fillers;
  if (port_->traits().unified || decoding.size() < 2) return fillers;
  for (const auto& run : running_) {
    if (run->over || run->phase != Phase::kPrefill) continue;
    if (run->sequence < decoding.front()->sequence || run->sequence > decoding.back()->sequence) continue;
    if (Computed(*run) + 1 < run->job.prompt.size()) fillers.push_back(run.get());
  }
  std::sort(fillers.begin(), fillers.end(),
            [](const Run* a, const Run* b) { return a->sequence < b->sequence; });
  return fillers;
}

void Scheduler::AddDecodes() {
  const std::vector<Run*> decoding = Decoding();
  const std::vector<Run*> fillers = Fillers(decoding);
  auto filler = fillers.begin();
  const PortTraits& traits = port_->traits();
  uint32_t spare = std::min(traits.outputs, traits.batch);
  spare -=
      std::min(spare, static_cast<uint32_t>(running_.size()));  // one output for each, also at a prompt's end
  std::vector<std::vector<TokenId>> all_guesses = Guesses(decoding, spare);
  for (size_t i = 0; i < decoding.size(); ++i) {
    Run* run = decoding[i];
    for (; filler != fillers.end() && (*filler)->sequence < run->sequence; ++filler) {
      if (batch_.size() + decoding.size() < traits.batch) AddPrefill(*filler, Computed(**filler) + 1);
    }
    if (batch_.size() >= traits.batch) break;
    const auto room = static_cast<ptrdiff_t>(traits.batch - batch_.size() - 1);
    std::vector<TokenId> guesses = std::move(all_guesses[i]);
    if (static_cast<ptrdiff_t>(guesses.size()) > room) guesses.resize(static_cast<size_t>(room));
    parts_.push_back({run, batch_.size(), static_cast<uint32_t>(1 + guesses.size()), false});
    auto position = static_cast<int32_t>(Computed(*run));
    batch_.push_back({run->next, position, run->sequence, true, run->job.adapters});
    for (const TokenId guess : guesses)
      batch_.push_back({guess, ++position, run->sequence, true, run->job.adapters});
  }
}

// Tokens that may well come next for each, as many as are worth computing along with the certain one and
// `spare` outputs allow.
std::vector<std::vector<TokenId>> Scheduler::Guesses(const std::vector<Run*>& decoding, uint32_t spare) {
  std::vector<std::vector<TokenId>> guesses(decoding.size());
  std::vector<DraftWish> wishes;
  std::vector<size_t> places;
  for (size_t i = 0; i < decoding.size(); ++i) {
    Run* run = decoding[i];
    const uint32_t most = GuessesWorth(*run, static_cast<uint32_t>(decoding.size()), spare);
    if (!port_->drafts()) {
      if (most > 0) guesses[i] = run->drafter.Draft(most);
      spare -= static_cast<uint32_t>(guesses[i].size());
      continue;
    }
    if (run->draft_stopped || run->generated == 0) continue;
    run->steps_without_guess = most > 0 ? 0 : run->steps_without_guess + 1;
    if (run->steps_without_guess >= kDraftPatience) {
      run->draft_stopped = true;
      port_->StopDrafting(run->sequence);
    }
    if (most == 0) continue;
    wishes.push_back({run->sequence, run->next, static_cast<int32_t>(Computed(*run)), most, {}});
    places.push_back(i);
    spare -= most;
  }
  if (wishes.empty()) return guesses;
  const Clock::TimePoint begin = clock_->Now();
  port_->Draft(wishes);
  size_t made = 0;
  for (size_t k = 0; k < wishes.size(); ++k) {
    made += wishes[k].tokens.size();
    guesses[places[k]] = std::move(wishes[k].tokens);
  }
  if (made > 0) {
    constexpr double kBlend = 0.2;
    const double ms = Millis(begin, clock_->Now()) / static_cast<double>(made);
    guess_ms_ += (guess_ms_ == 0 ? 1 : kBlend) * (ms - guess_ms_);
  }
  return guesses;
}

uint32_t Scheduler::GuessesWorth(const Run& run, uint32_t decoding, uint32_t spare) const {
  if (options_.draft_tokens == 0 || run.generated == 0) return 0;
  const PortTraits& traits = port_->traits();
  // Guesses that turn out wrong must be taken back: not possible in recurrent memory without snapshots, and
  // in a window that all sequences share the cells they pushed out may be gone.
  if (traits.window > 0 && traits.unified && traits.sequences > 1) return 0;
  const auto used = static_cast<uint32_t>(run.job.prompt.size()) + run.generated;
  uint32_t limit = std::min(options_.draft_tokens, options_.context_per_session - used);
  limit = std::min(limit, run.job.max_tokens - run.generated);
  limit = std::min(limit, spare);
  if (!traits.rewindable) limit = std::min(limit, traits.rollback);
  if (options_.draft_always) return limit;
  const double token_ms = model_.token_ms();
  const double fixed_ms = std::max(0.0, model_.decode_ms(decoding) - token_ms * decoding);
  const double extra_ms =
      !traits.unified && decoding > 1 ? fixed_ms : 0;  // another pass for streams of other length
  return run.draft_policy.Worth(limit, decoding, fixed_ms, token_ms, extra_ms, guess_ms_);
}

void Scheduler::AddPrefill(Run* run, uint32_t end) {
  Announce(run);
  const uint32_t begin = Computed(*run);
  parts_.push_back({run, batch_.size(), end - begin, true});
  for (uint32_t i = begin; i < end; ++i) {
    const bool last = i + 1 == run->job.prompt.size();
    batch_.push_back({run->job.prompt[i], static_cast<int32_t>(i), run->sequence, last, run->job.adapters});
  }
}

void Scheduler::Announce(Run* run) {
  if (run->started) return;
  run->started = true;
  run->job.sink->OnStarted({static_cast<uint32_t>(run->job.prompt.size()), run->cached});
}

// Each output costs a pass over the vocabulary's weights, which separate streams share only while decoding.
// So the last token of a prompt is computed with the answers' tokens, unless there are none.
bool Scheduler::LastWithAnswers() const { return !port_->traits().unified && running_.size() > 1; }

// All of the prompt but its last token is there.
void Scheduler::FinishPrompt(Run* run) {
  Announce(run);
  run->next = run->job.prompt.back();
  run->phase = Phase::kDecode;
}

std::vector<Scheduler::Run*> Scheduler::PrefillOrder() {
  const Clock::TimePoint now = clock_->Now();
  const double speed = model_.prefill_tok_s() / 1000;
  std::vector<std::pair<double, Run*>> keyed;
  for (const auto& run : running_) {
    if (run->over || run->phase != Phase::kPrefill) continue;
    const double remaining = static_cast<double>(run->job.prompt.size() - Computed(*run));
    keyed.emplace_back(remaining - kAging * speed * Millis(run->job.submitted, now), run.get());
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Run*> order;
  for (const auto& [key, run] : keyed) order.push_back(run);
  return order;
}

// Where the next chunk of a prompt ends: at most `budget` tokens on, or `more` beyond that where it then is
// complete, and at the points other requests wait for.
uint32_t Scheduler::ChunkEnd(const Run& run, uint32_t budget, uint32_t more) const {
  const uint32_t begin = Computed(run);
  const auto room = static_cast<uint32_t>(port_->traits().batch - batch_.size());
  const auto whole = static_cast<uint32_t>(run.job.prompt.size()) - (LastWithAnswers() ? 1 : 0);
  uint32_t end = whole <= begin + budget + more ? whole : begin + budget;
  end = std::min(end, begin + room);
  for (const auto& other : running_) {
    if (other->over || other->phase != Phase::kHeld || other->leader != run.job.id) continue;
    if (other->leader_length > begin) end = std::min(end, other->leader_length);
  }
  return end;
}

// Computes what was added, hands out the tokens and empties the batch. False where nothing was added.
bool Scheduler::ComputeBatch() {
  if (batch_.empty()) return false;
  const Clock::TimePoint begin = clock_->Now();
  const DecodeResult result = port_->Decode(batch_);
  slots_.Decoded();
  if (result == DecodeResult::kOk) {
    Account(Millis(begin, clock_->Now()));
    for (const Part& part : parts_) TakePart(part);
  } else {
    OnTrouble(result);
  }
  batch_.clear();
  parts_.clear();
  return true;
}

void Scheduler::Account(double ms) {
  uint32_t decodes = 0;
  uint32_t prompt_tokens = 0;
  for (const Part& part : parts_) (part.prefill ? prompt_tokens : decodes) += part.tokens;
  stats_.prompt_tokens += prompt_tokens;
  if (prompt_tokens == 0 || (!port_->traits().unified && decodes > 0)) {
    model_.AddDecode(decodes + prompt_tokens, ms);
  } else {
    model_.AddPrefill(prompt_tokens, std::max(0.0, ms - model_.decode_ms(decodes)));
  }
  constexpr double kBlend = 0.1;
  stats_.step_ms += (stats_.step_ms == 0 ? 1 : kBlend) * (ms - stats_.step_ms);
}

// Without room, although every request has its share: gives up a cached prompt or else the youngest request,
// and the next step tries again. A failed computation leaves all its sequences undefined.
void Scheduler::OnTrouble(DecodeResult result) {
  if (result == DecodeResult::kFailed) {
    for (const Part& part : parts_) Fail(part.run, Internal("the model could not be computed"));
    return;
  }
  if (slots_.EvictOne()) return;
  const auto youngest = std::max_element(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
    return a.run->admitted < b.run->admitted;
  });
  Fail(youngest->run,
       Error(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit, "the KV cache has no room left",
             "Load the model with more context or fewer sessions."));
}

void Scheduler::TakePart(const Part& part) {
  Run* run = part.run;
  if (!part.prefill) {
    TakeAnswerTokens(part);
    return;
  }
  for (uint32_t i = 0; i < part.tokens; ++i) {
    slots_.Append(run->sequence, &batch_[part.first + i].token, 1);
  }
  slots_.Checkpoint(run->sequence, Computed(*run) + 1 >= run->job.prompt.size());
  const size_t last = part.first + part.tokens - 1;
  if (batch_[last].output) TakeToken(run, last);
}

// The certain token and, as long as they are what would have been chosen anyway, the guesses after it.
void Scheduler::TakeAnswerTokens(const Part& part) {
  Run* run = part.run;
  const uint32_t guesses = part.tokens - 1;
  uint32_t right = 0;
  for (uint32_t i = 0; i < part.tokens; ++i) {
    slots_.Append(run->sequence, &batch_[part.first + i].token, 1);
    run->guesses_in_kv = i + 1 < part.tokens;
    TakeToken(run, part.first + i);
    if (run->over || !run->guesses_in_kv || run->next != batch_[part.first + i + 1].token) break;
    ++right;
  }
  if (guesses > 0) {
    run->drafted += guesses;
    run->accepted += right;
    stats_.drafted_tokens += guesses;
    stats_.accepted_tokens += right;
    if (port_->drafts()) port_->Accepted(run->sequence, right);
  }
  run->draft_policy.Record(guesses, right);
  if (!run->over) TakeBackGuesses(run);
}

void Scheduler::TakeBackGuesses(Run* run) {
  if (!run->guesses_in_kv) return;
  run->guesses_in_kv = false;
  if (!slots_.Truncate(run->sequence, Computed(*run)))
    Fail(run, Internal("wrong guesses could not be taken back"));
}

void Scheduler::TakeToken(Run* run, size_t batch_index) {
  Job& job = run->job;
  TokenLogprob logprob;
  const absl::StatusOr<TokenId> picked =
      job.sampler->Pick(port_->Logits(batch_index), job.logprobs ? &logprob : nullptr);
  if (!picked.ok()) {
    Fail(run, picked.status());
    return;
  }
  const TokenId token = *picked;
  job.sampler->Accept(token);
  const bool looks_back = options_.draft_tokens > 0 && !port_->drafts();  // else the port guesses
  if (run->generated == 0) {
    run->first_token = clock_->Now();
    run->phase = Phase::kDecode;
    if (looks_back) run->drafter.Append(job.prompt);
  }
  if (looks_back) run->drafter.Append(token);
  ++run->generated;
  ++run->unsent_tokens;
  ++stats_.generated_tokens;
  run->next = token;
  const bool end_of_text = port_->IsEndOfText(token);
  if (!end_of_text) {
    run->text.Add(port_->Piece(token, job.visible_control.contains(token)));
    if (job.logprobs) run->unsent_logprobs.push_back(std::move(logprob));
  }
  const char* reason = nullptr;
  if (run->text.stopped()) {
    reason = "stop_string";
  } else if (end_of_text) {
    reason = "stop";
  } else if (run->generated >= job.max_tokens) {
    reason = "length";
  } else if (job.prompt.size() + run->generated >= options_.context_per_session) {
    reason = "context";
  }
  Send(run, reason != nullptr);
  if (reason != nullptr && !run->over) Finish(run, reason);
}

// Hands the sink what may go out.
void Scheduler::Send(Run* run, bool last) {
  ChunkEvent chunk;
  std::string text = last ? run->text.TakeRest() : run->text.Take();
  if (run->job.format) {
    absl::Status status = run->job.format->Add(text, &chunk);
    if (status.ok() && last) status = run->job.format->Finish(&chunk);
    if (!status.ok()) {
      Fail(run, status);
      return;
    }
    if (!last && chunk.text.empty() && chunk.reasoning.empty() && chunk.tool_calls.empty()) return;
  } else {
    if (text.empty() && !last) return;
    chunk.text = std::move(text);
  }
  chunk.tokens = run->unsent_tokens;
  chunk.logprobs = std::move(run->unsent_logprobs);
  run->unsent_tokens = 0;
  run->unsent_logprobs.clear();
  if (!run->job.sink->OnChunk(chunk)) run->paused = true;
}

// ---- Ends ----

void Scheduler::Finish(Run* run, const char* reason) {
  const Clock::TimePoint now = clock_->Now();
  FinishedEvent event;
  event.reason = run->job.format && run->job.format->called_tools() && std::string_view(reason) == "stop"
                     ? "tool_calls"
                     : reason;
  event.stop_string = run->text.stop_string();
  event.prompt_tokens = static_cast<uint32_t>(run->job.prompt.size());
  event.cached_tokens = run->cached;
  event.completion_tokens = run->generated;
  event.queue_ms = Millis(run->job.submitted, run->admitted);
  event.ttft_ms = Millis(run->job.submitted, run->first_token);
  event.prompt_ms = Millis(run->admitted, run->first_token);
  event.decode_ms = Millis(run->first_token, now);
  event.total_ms = Millis(run->job.submitted, now);
  if (run->generated > 1 && event.decode_ms > 0) {
    event.decode_tok_s = (run->generated - 1) * 1000.0 / event.decode_ms;
  }
  event.drafted_tokens = run->drafted;
  event.accepted_tokens = run->accepted;
  TakeBackGuesses(run);
  if (run->over) return;
  run->over = true;
  stats_.cached_tokens += run->cached;
  slots_.Release(run->sequence, true);
  run->job.sink->OnEnd(absl::OkStatus(), &event);
}

void Scheduler::Fail(Run* run, const absl::Status& status) {
  if (run->over) return;
  run->over = true;
  slots_.Release(run->sequence, status.code() == absl::StatusCode::kCancelled);
  run->job.sink->OnEnd(status, nullptr);
}

void Scheduler::Sweep() {
  std::erase_if(running_, [](const auto& run) { return run->over; });
}

EngineStats Scheduler::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<uint32_t>(running_.size());
  stats.waiting = static_cast<uint32_t>(waiting_.size());
  stats.kv_used = slots_.cells_used();
  stats.kv_total = port_->traits().context_total;
  stats.prompt_tok_s = model_.prefill_tok_s();
  return stats;
}

}  // namespace rumbo
