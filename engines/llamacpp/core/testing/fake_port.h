#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "engines/llamacpp/core/job.h"
#include "engines/llamacpp/core/model_port.h"

// A model made of arithmetic, for tests of the scheduler: the next token depends on every token before it, so that a
// prefix taken from the wrong sequence or cut at the wrong place changes the answer.
namespace rumbo {

class FakePort final : public ModelPort {
 public:
  static constexpr uint32_t kVocabulary = 1000;
  static constexpr TokenId kEnd = 0;

  explicit FakePort(PortTraits traits) : traits_(traits), held_(traits.sequences), oldest_(traits.sequences, 0) {
    traits_.vocabulary = kVocabulary;
  }

  // What the model says after `history`. Never kEnd.
  static TokenId Next(const std::vector<TokenId>& history) {
    uint64_t hash = 1469598103934665603ull;
    for (const TokenId token : history) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211ull;
    return static_cast<TokenId>(1 + hash % (kVocabulary - 1));
  }

  const PortTraits& traits() const override { return traits_; }

  DecodeResult Decode(std::span<const BatchToken> batch) override {
    RUMBO_CHECK(batch.size() <= traits_.batch);
    ++decodes;
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
      auto& sequence = held_[static_cast<size_t>(batch[i].sequence)];
      RUMBO_CHECK(batch[i].position == static_cast<int32_t>(sequence.size()));
      sequence.push_back(batch[i].token);
      RUMBO_CHECK(sequence.size() <= traits_.context_per_sequence);
      ++tokens_computed;
      if (batch[i].output) outputs_[i] = sequence;
      if (traits_.window > 0) {
        auto& oldest = oldest_[static_cast<size_t>(batch[i].sequence)];
        oldest = std::max(oldest, static_cast<int32_t>(sequence.size()) - static_cast<int32_t>(traits_.window + slack));
      }
    }
    return DecodeResult::kOk;
  }

  float* Logits(size_t batch_index) override {
    RUMBO_CHECK(!outputs_[batch_index].empty());
    logits_.assign(kVocabulary, 0.0f);
    logits_[static_cast<size_t>(Next(outputs_[batch_index]))] = 10.0f;
    return logits_.data();
  }

  bool CopyPrefix(SequenceId from, SequenceId to, uint32_t length) override {
    ++copies;
    auto& source = held_[static_cast<size_t>(from)];
    RUMBO_CHECK(length <= source.size());
    RUMBO_CHECK(traits_.rewindable || length == source.size());
    held_[static_cast<size_t>(to)].assign(source.begin(), source.begin() + length);
    oldest_[static_cast<size_t>(to)] = oldest_[static_cast<size_t>(from)];
    return true;
  }

  bool Truncate(SequenceId sequence, uint32_t length) override {
    auto& tokens = held_[static_cast<size_t>(sequence)];
    if (length != 0 && length < tokens.size() && !traits_.rewindable) {
      tokens.clear();
      return false;
    }
    if (length < tokens.size()) tokens.resize(length);
    if (length == 0) oldest_[static_cast<size_t>(sequence)] = 0;
    return true;
  }

  int32_t OldestPosition(SequenceId sequence) const override {
    return held_[static_cast<size_t>(sequence)].empty() ? -1 : oldest_[static_cast<size_t>(sequence)];
  }

  SequenceState Save(SequenceId, bool) override { return {}; }
  bool Restore(SequenceId, const SequenceState&, bool) override { return false; }
  bool IsEndOfText(TokenId token) const override { return token == kEnd; }
  std::string Piece(TokenId token, bool) const override { return " " + std::to_string(token); }

  int decodes = 0;
  int copies = 0;
  uint64_t tokens_computed = 0;
  uint32_t slack = 0;  // tokens a window keeps beyond its size
  bool fail_next = false;
  std::vector<size_t> batch_sizes;

 private:
  PortTraits traits_;
  std::vector<std::vector<TokenId>> held_;
  std::vector<int32_t> oldest_;
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
