#include "engines/llamacpp/core/kv_slots.h"

#include <algorithm>

#include "base/check.h"

namespace rumbo {
namespace {

// Below this a prefix is not worth a copy: every chat of one model begins with the same few tokens.
constexpr uint32_t kMinCopy = 16;

}  // namespace

uint32_t CommonPrefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const size_t n = std::min(a.size(), b.size());
  const auto [ia, ib] = std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin());
  return static_cast<uint32_t>(ia - a.begin());
}

KvSlots::KvSlots(ModelPort* port) : port_(port), slots_(port->traits().sequences) {}

bool KvSlots::CanReuse(SequenceId sequence, uint32_t length) const {
  const size_t held = slots_[Index(sequence)].tokens.size();
  if (length == 0 || length > held) return false;
  if (length == held) return true;
  const PortTraits& traits = port_->traits();
  if (!traits.rewindable) return false;
  if (traits.window == 0) return true;
  const int32_t oldest = port_->OldestPosition(sequence);
  const int64_t needed = std::max<int64_t>(0, int64_t{length} - traits.window);
  return oldest >= 0 && oldest <= needed;
}

KvSlots::Source KvSlots::BestSource(const std::string& key, const std::vector<TokenId>& prompt,
                                    SequenceId except) const {
  Source best;
  const auto most = static_cast<uint32_t>(prompt.size() - 1);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state == State::kFree || slot.key != key || static_cast<SequenceId>(i) == except) continue;
    const uint32_t length = std::min(CommonPrefix(slot.tokens, prompt), most);
    const bool better = length > best.length ||
                        (length == best.length && length > 0 && slot.state == State::kRetained);
    if (better && CanReuse(static_cast<SequenceId>(i), length)) {
      best = {static_cast<SequenceId>(i), length};
    }
  }
  return best;
}

uint32_t KvSlots::Reusable(const std::string& key, const std::vector<TokenId>& prompt) const {
  return BestSource(key, prompt, -1).length;
}

SequenceId KvSlots::CheapestRetained(SequenceId except) const {
  SequenceId cheapest = -1;
  double lowest = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != State::kRetained || static_cast<SequenceId>(i) == except) continue;
    // Cost of computing it again, per time it has lain unused.
    const double worth = static_cast<double>(slot.tokens.size()) / static_cast<double>(tick_ - slot.last_used + 1);
    if (cheapest < 0 || worth < lowest) {
      cheapest = static_cast<SequenceId>(i);
      lowest = worth;
    }
  }
  return cheapest;
}

void KvSlots::MakeFree(Slot* slot, SequenceId sequence) {
  port_->Truncate(sequence, 0);
  slot->state = State::kFree;
  slot->tokens.clear();
  slot->key.clear();
  slot->need = 0;
}

bool KvSlots::EvictOne() {
  const SequenceId victim = CheapestRetained(-1);
  if (victim < 0) return false;
  MakeFree(&slots_[Index(victim)], victim);
  return true;
}

SequenceId KvSlots::TakeSlot(SequenceId except) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state == State::kFree) return static_cast<SequenceId>(i);
  }
  const SequenceId victim = CheapestRetained(except);
  if (victim >= 0) MakeFree(&slots_[Index(victim)], victim);
  return victim;
}

// In a unified cache, frees cells until `need` more are guaranteed beside what live requests were promised.
// Shared cells are counted once per sequence, which errs on the safe side.
bool KvSlots::MakeRoom(uint32_t need, SequenceId except) {
  if (!port_->traits().unified) return true;
  uint64_t promised = need;
  uint64_t retained = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state == State::kLive) promised += slots_[i].need;
    if (slots_[i].state == State::kRetained && static_cast<SequenceId>(i) != except) {
      retained += slots_[i].tokens.size();
    }
  }
  const uint64_t total = port_->traits().context_total;
  if (promised > total) return false;
  while (promised + retained > total) {
    const SequenceId victim = CheapestRetained(except);
    RUMBO_CHECK(victim >= 0);
    retained -= slots_[Index(victim)].tokens.size();
    MakeFree(&slots_[Index(victim)], victim);
  }
  return true;
}

std::optional<KvSlots::Lease> KvSlots::Acquire(const std::string& key, const std::vector<TokenId>& prompt,
                                               uint32_t need) {
  RUMBO_CHECK(!prompt.empty());
  ++tick_;
  Source source = BestSource(key, prompt, -1);
  if (source.length < kMinCopy && source.sequence >= 0 &&
      slots_[Index(source.sequence)].state == State::kLive) {
    source = {};
  }
  if (!MakeRoom(need, source.sequence)) return std::nullopt;

  SequenceId target = -1;
  if (source.sequence >= 0 && slots_[Index(source.sequence)].state == State::kRetained) {
    // Work on in place where this goes on from most of what is there; else keep that for others.
    const bool continues = 2 * source.length >= slots_[Index(source.sequence)].tokens.size();
    if (continues || source.length < kMinCopy) target = source.sequence;
  }
  if (target < 0) target = TakeSlot(source.sequence);
  if (target < 0 && source.sequence >= 0 && slots_[Index(source.sequence)].state == State::kRetained) {
    target = source.sequence;
  }
  if (target < 0) return std::nullopt;

  Slot& slot = slots_[Index(target)];
  uint32_t reused = 0;
  if (target == source.sequence) {
    reused = source.length;
    if (slot.tokens.size() > reused && !port_->Truncate(target, reused)) reused = 0;
  } else if (source.sequence >= 0) {
    slots_[Index(source.sequence)].last_used = tick_;
    if (port_->CopyPrefix(source.sequence, target, source.length)) reused = source.length;
  }
  slot.state = State::kLive;
  slot.key = key;
  slot.tokens.assign(prompt.begin(), prompt.begin() + reused);
  slot.need = need;
  slot.last_used = tick_;
  ++live_;
  return Lease{target, reused};
}

uint32_t KvSlots::Improve(SequenceId sequence, const std::vector<TokenId>& prompt) {
  Slot& slot = slots_[Index(sequence)];
  RUMBO_CHECK(slot.state == State::kLive);
  const Source source = BestSource(slot.key, prompt, sequence);
  if (source.length < slot.tokens.size() + kMinCopy) return static_cast<uint32_t>(slot.tokens.size());
  slots_[Index(source.sequence)].last_used = ++tick_;
  slot.tokens.clear();
  if (port_->CopyPrefix(source.sequence, sequence, source.length)) {
    slot.tokens.assign(prompt.begin(), prompt.begin() + source.length);
  }
  return static_cast<uint32_t>(slot.tokens.size());
}

void KvSlots::Append(SequenceId sequence, const TokenId* tokens, size_t count) {
  Slot& slot = slots_[Index(sequence)];
  slot.tokens.insert(slot.tokens.end(), tokens, tokens + count);
}

bool KvSlots::Truncate(SequenceId sequence, uint32_t length) {
  Slot& slot = slots_[Index(sequence)];
  if (!port_->Truncate(sequence, length)) {
    slot.tokens.clear();
    return false;
  }
  slot.tokens.resize(std::min<size_t>(slot.tokens.size(), length));
  return true;
}

void KvSlots::Release(SequenceId sequence, bool keep) {
  Slot& slot = slots_[Index(sequence)];
  RUMBO_CHECK(slot.state == State::kLive);
  --live_;
  if (!keep || slot.tokens.empty()) {
    MakeFree(&slot, sequence);
    return;
  }
  slot.state = State::kRetained;
  slot.need = 0;
  slot.last_used = ++tick_;
}

uint64_t KvSlots::cells_used() const {
  uint64_t used = 0;
  for (const Slot& slot : slots_) used += slot.tokens.size();
  return used;
}

}  // namespace rumbo
