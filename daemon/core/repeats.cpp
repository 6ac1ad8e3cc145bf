#include "daemon/core/repeats.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "base/status.h"

namespace rumbo {
namespace {

constexpr std::chrono::minutes kRepeatable{10};
constexpr std::chrono::seconds kUnheard{30};
constexpr size_t kMaxAnswer = 16 << 20;
constexpr size_t kMaxAll = 256 << 20;
constexpr size_t kMaxEntries = 10000;

size_t SizeOf(const ChunkEvent& chunk) {
  size_t size = sizeof chunk + chunk.text.size() + chunk.reasoning.size();
  for (const TokenLogprob& l : chunk.logprobs) {
    size += sizeof l + l.piece.size() + l.top.size() * (sizeof(TokenAlternative) + 16);
  }
  for (const ToolCallDelta& t : chunk.tool_calls) {
    size += sizeof t + t.id.size() + t.name.size() + t.arguments_json.size();
  }
  return size;
}

struct EndEvent {
  absl::Status status;
  std::optional<FinishedEvent> finished;
};
using Event = std::variant<Placement, StartedEvent, ChunkEvent, EndEvent>;

absl::Status Cancelled() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the request was cancelled");
}

// Text in which no two different lists of fields look the same.
class Fields {
 public:
  void Add(std::string_view text) {
    out_ += std::to_string(text.size());
    out_ += ':';
    out_ += text;
  }
  template <typename T>
  void Number(const T& value) {
    Add(std::to_string(value));
  }
  template <typename T>
  void Maybe(const std::optional<T>& value) {
    value ? Number(*value) : Add("-");
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace

std::string FingerprintOf(const InferenceRequest& request) {
  Fields f;
  f.Add(request.model);
  const GenerateInput& input = request.generate.input;
  f.Number(static_cast<int>(input.kind));
  f.Add(input.prompt);
  for (const int32_t token : input.tokens) f.Number(token);
  for (const ChatMessage& message : input.chat.messages) {
    f.Add(message.role);
    for (const ContentPart& part : message.content) {
      f.Add(part.text);
      f.Add(part.data);
    }
    for (const ToolCall& call : message.tool_calls)
      f.Add(call.id + "\n" + call.name + "\n" + call.arguments_json);
    f.Add(message.tool_call_id);
    f.Add(message.reasoning);
  }
  for (const Tool& tool : input.chat.tools) f.Add(tool.name + "\n" + tool.parameters_json_schema);
  f.Add(input.chat.tool_choice);
  const SamplingParams& s = request.generate.sampling;
  f.Maybe(s.max_tokens);
  f.Maybe(s.temperature);
  f.Maybe(s.top_p);
  f.Maybe(s.top_k);
  f.Maybe(s.min_p);
  f.Maybe(s.seed);
  f.Maybe(s.logprobs);
  for (const std::string& stop : s.stop) f.Add(stop);
  f.Add(s.json_schema);
  f.Add(s.grammar);
  f.Add(s.regex);
  return f.Take();
}

// One answer, from its beginning, and those who listen to it. Events reach a listener one at a time, in
// order, from whichever thread has one for it; never under the lock.
class RepeatTable::Kept final : public AnswerSink, public std::enable_shared_from_this<Kept> {
 public:
  explicit Kept(Executor* executor) : executor_(executor) {}

  // A listener's place in the answer.
  struct Place {
    std::shared_ptr<AnswerSink> sink;
    size_t next = 0;
    bool busy = false, paused = false, left = false, over = false;
  };

  void SetCall(std::unique_ptr<GenerateCall> call) {
    std::unique_ptr<GenerateCall> ended;
    std::lock_guard lock(mutex_);
    (over_ ? ended : call_) = std::move(call);
  }

  std::shared_ptr<Place> Join(std::shared_ptr<AnswerSink> sink) {
    auto place = std::make_shared<Place>();
    place->sink = std::move(sink);
    std::lock_guard lock(mutex_);
    places_.push_back(place);
    ++heard_;
    return place;
  }

  // Gives `place` what it has not had yet. The lock is let go around each event.
  void Serve(const std::shared_ptr<Place>& place) {
    std::unique_lock lock(mutex_);
    if (place->busy || place->over) return;
    place->busy = true;
    for (;;) {
      if (place->left) {
        place->over = true;
        lock.unlock();
        place->sink->OnEnd(Cancelled(), nullptr);
        lock.lock();
        break;
      }
      if (place->paused || place->next == events_.size()) break;
      Event event = events_[place->next++];
      if (std::holds_alternative<EndEvent>(event)) place->over = true;
      if (std::holds_alternative<ChunkEvent>(event))
        place->paused = true;  // the sink may resume while it is in it
      lock.unlock();
      const bool go_on = Deliver(*place->sink, event);
      lock.lock();
      if (go_on && std::holds_alternative<ChunkEvent>(event)) place->paused = false;
      if (place->over) break;
    }
    place->busy = false;
    if (place->over) std::erase(places_, place);
  }

  void Resume(const std::shared_ptr<Place>& place) {
    {
      std::lock_guard lock(mutex_);
      place->paused = false;
    }
    // Not here: the caller may hold what its sink needs.
    executor_->Post([self = shared_from_this(), place] { self->Serve(place); });
  }

  void Leave(const std::shared_ptr<Place>& place) {
    {
      std::lock_guard lock(mutex_);
      if (place->left || place->over) return;
      place->left = true;
      if (places_.size() == 1 && !over_) {
        executor_->PostAfter(kUnheard, [weak = weak_from_this(), heard = heard_] {
          if (const auto self = weak.lock()) self->EndUnheard(heard);
        });
      }
    }
    executor_->Post([self = shared_from_this(), place] { self->Serve(place); });
  }

  void OnPlaced(const Placement& placement) override { Add(placement, 0); }
  void OnStarted(const StartedEvent& event) override { Add(event, 0); }
  bool OnChunk(ChunkEvent& chunk) override {
    const size_t size = SizeOf(chunk);
    Add(std::move(chunk), size);
    return true;
  }
  void OnEnd(const absl::Status& status, const FinishedEvent* finished) override {
    std::unique_ptr<GenerateCall> call;
    bool too_long;
    {
      std::lock_guard lock(mutex_);
      call = std::move(call_);
      over_ = true;
      too_long = too_long_;
    }
    const absl::Status told =
        too_long ? Error(absl::StatusCode::kResourceExhausted, Reason::kRequestTooLarge,
                         "answers with an idempotency key have at most 16 MiB", "Ask without the key.")
                 : status;
    Add(EndEvent{told, finished == nullptr || too_long ? std::nullopt : std::optional(*finished)}, 0);
  }

  bool over() const {
    std::lock_guard lock(mutex_);
    return over_;
  }
  // Ended without an answer: it may be tried again.
  bool failed() const {
    std::lock_guard lock(mutex_);
    if (events_.empty()) return false;
    const EndEvent* end = std::get_if<EndEvent>(&events_.back());
    return end != nullptr && !end->status.ok();
  }
  size_t bytes() const {
    std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  static bool Deliver(AnswerSink& sink, Event& event) {
    if (auto* placement = std::get_if<Placement>(&event)) sink.OnPlaced(*placement);
    if (auto* started = std::get_if<StartedEvent>(&event)) sink.OnStarted(*started);
    if (auto* chunk = std::get_if<ChunkEvent>(&event)) return sink.OnChunk(*chunk);
    if (auto* end = std::get_if<EndEvent>(&event))
      sink.OnEnd(end->status, end->finished ? &*end->finished : nullptr);
    return true;
  }

  void Add(Event event, size_t size) {
    std::vector<std::shared_ptr<Place>> places;
    {
      std::lock_guard lock(mutex_);
      if (!over_ && bytes_ + size > kMaxAnswer) {
        if (!std::exchange(too_long_, true)) {
          executor_->Post([self = shared_from_this()] { self->EndCall(); });
        }
        return;
      }
      bytes_ += size;
      events_.push_back(std::move(event));
      places = places_;
    }
    for (const auto& place : places) Serve(place);
  }

  void EndCall() {
    std::unique_ptr<GenerateCall> call;
    std::lock_guard lock(mutex_);
    call = std::move(call_);
  }

  // Nobody came back.
  void EndUnheard(uint64_t heard) {
    {
      std::lock_guard lock(mutex_);
      const bool listened =
          std::any_of(places_.begin(), places_.end(), [](const auto& p) { return !p->left; });
      if (heard != heard_ || listened || over_) return;
    }
    EndCall();
  }

  Executor* const executor_;
  mutable std::mutex mutex_;
  std::unique_ptr<GenerateCall> call_;
  std::vector<Event> events_;
  std::vector<std::shared_ptr<Place>> places_;
  size_t bytes_ = 0;
  uint64_t heard_ = 0;
  bool over_ = false;
  bool too_long_ = false;
};

class RepeatTable::Listener final : public GenerateCall {
 public:
  Listener(std::shared_ptr<Kept> answer, std::shared_ptr<Kept::Place> place)
      : answer_(std::move(answer)), place_(std::move(place)) {}
  ~Listener() override { Cancel(); }
  void Cancel() override { answer_->Leave(place_); }
  void Resume() override { answer_->Resume(place_); }

 private:
  const std::shared_ptr<Kept> answer_;
  const std::shared_ptr<Kept::Place> place_;
};

// Under the lock. Old ones go, and ended ones where too much is kept.
void RepeatTable::MakeRoom() {
  const TimePoint now = executor_->clock().Now();
  std::erase_if(entries_, [&](const auto& entry) {
    return now - entry.second.begun > kRepeatable && entry.second.answer->over();
  });
  size_t bytes = 0;
  for (const auto& [key, entry] : entries_) bytes += entry.answer->bytes();
  while (bytes > kMaxAll || entries_.size() >= kMaxEntries) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->second.answer->over() && (oldest == entries_.end() || it->second.begun < oldest->second.begun))
        oldest = it;
    }
    if (oldest == entries_.end()) return;
    bytes -= oldest->second.answer->bytes();
    entries_.erase(oldest);
  }
}

std::unique_ptr<GenerateCall> RepeatTable::Generate(InferenceRequest request,
                                                    std::shared_ptr<AnswerSink> sink,
                                                    const StartRequest& start) {
  const auto key = std::pair(request.generate.owner, request.idempotency_key);
  std::string fingerprint = FingerprintOf(request);
  std::shared_ptr<Kept> answer;
  absl::Status refused;
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    MakeRoom();
    const auto it = entries_.find(key);
    if (it != entries_.end() && !it->second.answer->failed()) {
      answer = it->second.answer;
      if (it->second.fingerprint != fingerprint) {
        refused = InvalidArgument("the idempotency key stood for another request before", "Use a new key.");
      }
    } else if (it == entries_.end() && entries_.size() >= kMaxEntries) {
      refused = RetryableError(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                               "too many requests with idempotency keys are under way", "Try again later.",
                               std::chrono::seconds(1));
    } else {
      first = true;
      answer = std::make_shared<Kept>(executor_);
      entries_[key] = {std::move(fingerprint), executor_->clock().Now(), answer};
    }
  }
  if (!refused.ok()) {
    sink->OnEnd(refused, nullptr);
    return nullptr;
  }
  auto place = answer->Join(std::move(sink));
  if (first) {
    request.idempotency_key.clear();
    answer->SetCall(start(std::move(request), answer));
  } else {
    executor_->Post([answer, place] { answer->Serve(place); });
  }
  return std::make_unique<Listener>(answer, place);
}

}  // namespace rumbo
