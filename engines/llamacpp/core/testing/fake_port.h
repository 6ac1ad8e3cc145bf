#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "engines/llamacpp/core/job.h"
#include "engines/llamacpp/core/model_port.h"

// A model made of arithmetic, for tests of the scheduler: the next token depends on every token before it, so
// that a prefix taken from the wrong sequence or cut at the wrong place changes the answer.
namespace rumbo {

class FakePort : public ModelPort {
 public:
  static constexpr uint32_t kVocabulary = 1000;
  static constexpr TokenId kEnd = 0;

  explicit FakePort(PortTraits traits)
      : traits_(traits),
        held_(traits.sequences),
        oldest_(traits.sequences, 0),
        state_at_(traits.sequences, 0) {
    traits_.vocabulary = kVocabulary;
  }

  // What the model says after `history`. Never kEnd.
  static TokenId Next(const std::vector<TokenId>& history) {
    uint64_t hash = 1469598103934665603ull;
    for (const TokenId token : history) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211ull;
    return static_cast<TokenId>(1 + hash % (kVocabulary - 1));
  }

  // Says the numbers 1 to 50 over and over, but at every seventieth token as Next would.
  static TokenId NextRepeating(const std::vector<TokenId>& history) {
    return history.size() % 70 == 0 ? Next(history) : static_cast<TokenId>(1 + history.size() % 50);
  }

  const PortTraits& traits() const override { return traits_; }

  DecodeResult Decode(std::span<const BatchToken> batch) override {
    RUMBO_CHECK(batch.size() <= traits_.batch);
    ++decodes;
    waiting_.clear();
    passes += Passes(batch);
    if (on_decode) on_decode(batch);
    batch_sizes.push_back(batch.size());
    if (fail_next) {
      fail_next = false;
      return DecodeResult::kFailed;
    }
    if (traits_.unified) {
      size_t cells = batch.size();
      for (const auto& sequence : held_) cells += sequence.size();
      if (cells > traits_.context_total) return DecodeResult::kNoRoom;
    }
    outputs_.assign(batch.size(), {});
    for (size_t i = 0; i < batch.size(); ++i) {
      auto& sequence = held_[Index(batch[i].sequence)];
      RUMBO_CHECK(batch[i].position == static_cast<int32_t>(sequence.size()));
      RUMBO_CHECK(state_at_[Index(batch[i].sequence)] == sequence.size());
      sequence.push_back(batch[i].token);
      state_at_[Index(batch[i].sequence)] = sequence.size();
      RUMBO_CHECK(sequence.size() <= traits_.context_per_sequence);
      ++tokens_computed;
      if (batch[i].output) outputs_[i] = sequence;
      if (traits_.window > 0) {
        auto& oldest = oldest_[Index(batch[i].sequence)];
        oldest = std::max(
            oldest, static_cast<int32_t>(sequence.size()) - static_cast<int32_t>(traits_.window + slack));
      }
    }
    return DecodeResult::kOk;
  }

  float* Logits(size_t batch_index) override {
    RUMBO_CHECK(!outputs_[batch_index].empty());
    logits_.assign(kVocabulary, 0.0f);
    const auto& history = outputs_[batch_index];
    logits_[static_cast<size_t>(repeats ? NextRepeating(history) : Next(history))] = 10.0f;
    return logits_.data();
  }

  bool Copy(SequenceId from, SequenceId to) override {
    ++copies;
    if (!traits_.unified) waiting_.emplace_back(from, to);
    held_[Index(to)] = held_[Index(from)];
    oldest_[Index(to)] = oldest_[Index(from)];
    state_at_[Index(to)] = state_at_[Index(from)];
    return true;
  }

  // Windows and recurrent states that do not belong to the new length make the sequence useless: Decode
  // checks that.
  bool Truncate(SequenceId sequence, uint32_t length) override {
    auto& tokens = held_[Index(sequence)];
    if (length == 0) {
      tokens.clear();
      oldest_[Index(sequence)] = 0;
      state_at_[Index(sequence)] = 0;
      return true;
    }
    if (length < tokens.size()) tokens.resize(length);
    if (state_at_[Index(sequence)] == length) return true;
    const int64_t needed = std::max<int64_t>(0, int64_t{length} - traits_.window);
    const bool held = traits_.rewindable && (traits_.window == 0 || oldest_[Index(sequence)] <= needed);
    state_at_[Index(sequence)] = held ? length : kDamaged;
    return true;
  }

  int32_t OldestPosition(SequenceId sequence) const override {
    return held_[Index(sequence)].empty() ? -1 : oldest_[Index(sequence)];
  }

  SequenceState Save(SequenceId sequence, bool only_window) override {
    ++saves;
    for (const auto& [from, to] : waiting_) RUMBO_CHECK(to != sequence);
    SequenceState state;
    const auto put = [&](int64_t value) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
      state.bytes.insert(state.bytes.end(), bytes, bytes + sizeof(value));
    };
    const auto& tokens = held_[Index(sequence)];
    put(static_cast<int64_t>(tokens.size()));
    put(std::max<int64_t>(0, traits_.window == 0 ? 0 : static_cast<int64_t>(tokens.size()) - traits_.window));
    if (!only_window) {
      for (const TokenId token : tokens) put(token);
    }
    return state;
  }

  bool Restore(SequenceId sequence, const SequenceState& state, bool only_window) override {
    ++restores;
    for (const auto& [from, to] : waiting_) RUMBO_CHECK(from != sequence && to != sequence);
    std::vector<int64_t> values(state.bytes.size() / sizeof(int64_t));
    std::copy(state.bytes.begin(), state.bytes.end(), reinterpret_cast<uint8_t*>(values.data()));
    RUMBO_CHECK(values.size() >= 2);
    auto& tokens = held_[Index(sequence)];
    if (only_window) {
      RUMBO_CHECK(static_cast<size_t>(values[0]) <= tokens.size());
    } else {
      RUMBO_CHECK(tokens.empty());
      for (size_t i = 2; i < values.size(); ++i) tokens.push_back(static_cast<TokenId>(values[i]));
    }
    state_at_[Index(sequence)] = static_cast<size_t>(values[0]);
    oldest_[Index(sequence)] = static_cast<int32_t>(values[1]);
    return true;
  }

  bool IsEndOfText(TokenId token) const override { return token == kEnd; }
  std::string Piece(TokenId token, bool) const override { return " " + std::to_string(token); }

  int decodes = 0;
  int passes = 0;  // over the weights, with separate streams
  int copies = 0;
  int saves = 0;
  int restores = 0;
  uint64_t tokens_computed = 0;
  uint32_t slack = 0;  // tokens a window keeps beyond its size
  bool fail_next = false;
  bool repeats = false;
  std::vector<size_t> batch_sizes;
  std::function<void(std::span<const BatchToken>)> on_decode;

 private:
  // Separate streams share a pass where their ids follow each other and they have equally many tokens.
  static int Passes(std::span<const BatchToken> batch) {
    int passes = 0;
    std::pair<SequenceId, size_t> last{-2, 0};
    for (size_t i = 0; i < batch.size();) {
      size_t end = i;
      while (end < batch.size() && batch[end].sequence == batch[i].sequence) ++end;
      if (batch[i].sequence != last.first + 1 || end - i != last.second) ++passes;
      last = {batch[i].sequence, end - i};
      i = end;
    }
    return passes;
  }

  static constexpr size_t kDamaged = SIZE_MAX;
  static size_t Index(SequenceId sequence) { return static_cast<size_t>(sequence); }

  PortTraits traits_;
  std::vector<std::vector<TokenId>> held_;
  std::vector<int32_t> oldest_;
  std::vector<std::pair<SequenceId, SequenceId>> waiting_;  // copies that the next Decode makes
  std::vector<size_t> state_at_;  // the length that windows and recurrent states belong to
  std::vector<std::vector<TokenId>> outputs_;
  std::vector<float> logits_;
};

// Takes the largest logit; after `end_after` tokens the end.
class FakeSampler final : public Sampler {
 public:
  explicit FakeSampler(uint32_t end_after = UINT32_MAX) : end_after_(end_after) {}
  absl::StatusOr<TokenId> Pick(float* logits, TokenLogprob* logprob) override {
    TokenId best = 0;
    for (TokenId i = 0; i < static_cast<TokenId>(FakePort::kVocabulary); ++i) {
      if (logits[i] > logits[best]) best = i;
    }
    if (picked_++ >= end_after_) best = FakePort::kEnd;
    if (logprob != nullptr) logprob->id = best;
    return best;
  }
  void Accept(TokenId) override {}

 private:
  const uint32_t end_after_;
  uint32_t picked_ = 0;
};

class FakeSink final : public GenerateSink {
 public:
  void OnStarted(const StartedEvent& event) override {
    started = event;
    ++started_count;
  }
  bool OnChunk(ChunkEvent& chunk) override {
    text += chunk.text;
    tokens += chunk.tokens;
    ++chunks;
    return !full;
  }
  void OnEnd(const absl::Status& s, const FinishedEvent* f) override {
    ++ends;
    status = s;
    if (f != nullptr) finished = *f;
  }

  StartedEvent started;
  FinishedEvent finished;
  std::string text;
  absl::Status status;
  uint32_t tokens = 0;
  int chunks = 0, ends = 0, started_count = 0;
  bool full = false;
};

}  // namespace rumbo
