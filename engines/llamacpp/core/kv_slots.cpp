#include "engines/llamacpp/core/kv_slots.h"

#include <algorithm>

#include "base/check.h"

namespace rumbo {
namespace {

// Below this a prefix is not worth a copy: every chat of one model begins with the same few tokens.
constexpr uint32_t kMinCopy = 16;
// What is in host memory must save more to be worth the way back.
constexpr uint32_t kMinRestore = 64;
// Tokens between checkpoints.
constexpr uint32_t kMarkDistance = 512;

}  // namespace

KvSlots::KvSlots(ModelPort* port, uint64_t host_bytes, DiskCache* disk)
    : port_(port),
      disk_(disk),
      host_(NeedsMarks() ? host_bytes / 2 : host_bytes, disk),
      max_checkpoint_bytes_(host_bytes - host_.max_bytes()),
      slots_(port->traits().sequences) {}

bool KvSlots::NeedsMarks() const { return !port_->traits().rewindable || port_->traits().window > 0; }

uint32_t KvSlots::Reachable(SequenceId sequence, uint32_t common, bool* from_mark) const {
  const Slot& slot = slots_[Index(sequence)];
  const PortTraits& traits = port_->traits();
  *from_mark = false;
  if (common == 0 || common == slot.tokens.size()) return common;
  if (traits.rewindable) {
    if (traits.window == 0) return common;
    const int32_t oldest = port_->OldestPosition(sequence);
    if (oldest >= 0 && oldest <= std::max<int64_t>(0, int64_t{common} - traits.window)) return common;
  }
  uint32_t best = 0;
  for (const Mark& mark : slot.marks) {
    if (mark.length <= common) best = mark.length;
  }
  *from_mark = best > 0;
  return best;
}

KvSlots::Source KvSlots::BestSource(const std::string& key, const std::vector<TokenId>& prompt,
                                    SequenceId except) {
  Source best;
  const auto most = static_cast<uint32_t>(prompt.size() - 1);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const auto sequence = static_cast<SequenceId>(i);
    if (slot.state == State::kFree || slot.key != key || sequence == except) continue;
    bool from_mark = false;
    const uint32_t length =
        Reachable(sequence, std::min(CommonPrefix(slot.tokens, prompt), most), &from_mark);
    const bool better =
        length > best.length || (length == best.length && length > 0 && slot.state == State::kRetained);
    if (better) best = {sequence, nullptr, length, from_mark};
  }
  uint32_t length = 0;
  const HostCache::Entry* entry = host_.Find(key, prompt, &length, [&](const auto& e, uint32_t common) {
    common = std::min(common, most);
    if (common == e.tokens.size()) return common;
    const PortTraits& traits = port_->traits();
    const bool held =
        traits.rewindable &&
        (traits.window == 0 || e.oldest <= std::max<int64_t>(0, int64_t{common} - traits.window));
    return held ? common : 0;
  });
  if (entry != nullptr && length >= best.length + kMinRestore) best = {-1, entry, length, false};
  return best;
}

SequenceId KvSlots::CheapestRetained(SequenceId except) const {
  SequenceId cheapest = -1;
  double lowest = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != State::kRetained || static_cast<SequenceId>(i) == except) continue;
    // Cost of computing it again, per time it has lain unused.
    const double worth =
        static_cast<double>(slot.tokens.size()) / static_cast<double>(tick_ - slot.last_used + 1);
    if (cheapest < 0 || worth < lowest) {
      cheapest = static_cast<SequenceId>(i);
      lowest = worth;
    }
  }
  return cheapest;
}

void KvSlots::DropMarks(Slot* slot, uint32_t longer_than) {
  while (!slot->marks.empty() && slot->marks.back().length > longer_than) {
    checkpoint_bytes_ -= slot->marks.back().state.bytes.size();
    slot->marks.pop_back();
  }
}

CachedSequence KvSlots::StateOf(SequenceId sequence) const {
  const Slot& slot = slots_[Index(sequence)];
  CachedSequence entry;
  entry.oldest = port_->OldestPosition(sequence);
  // Only what is in the window is saved.
  if (port_->traits().window > 0) {
    entry.oldest = std::max<int32_t>(entry.oldest, static_cast<int32_t>(slot.tokens.size()) -
                                                       static_cast<int32_t>(port_->traits().window));
  }
  entry.state = port_->Save(sequence, false);
  entry.key = slot.key;
  entry.tokens = slot.tokens;
  return entry;
}

void KvSlots::SaveToHost(SequenceId sequence) {
  const Slot& slot = slots_[Index(sequence)];
  // What was only just copied there is elsewhere too.
  if (host_.max_bytes() == 0 || slot.tokens.size() < kMinRestore || slot.copied_to) return;
  HostCache::Entry entry;
  static_cast<CachedSequence&>(entry) = StateOf(sequence);
  entry.persisted = slot.persisted;
  host_.Put(std::move(entry));
}

bool KvSlots::PersistOne() {
  if (disk_ == nullptr) return false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.state != State::kRetained || slot.persisted || slot.copied_to) continue;
    slot.persisted = true;
    if (slot.tokens.size() < kMinRestore || disk_->Holds(slot.key, slot.tokens)) continue;
    disk_->Put(StateOf(static_cast<SequenceId>(i)));
    return true;
  }
  return host_.PersistOne();
}

void KvSlots::MakeFree(SequenceId sequence, bool to_host) {
  if (to_host) SaveToHost(sequence);
  Slot& slot = slots_[Index(sequence)];
  port_->Truncate(sequence, 0);
  DropMarks(&slot, 0);
  const bool copied_from = slot.copied_from, copied_to = slot.copied_to;
  slot = Slot();
  slot.copied_from = copied_from;
  slot.copied_to = copied_to;
}

void KvSlots::Decoded() {
  for (Slot& slot : slots_) slot.copied_from = slot.copied_to = false;
}

bool KvSlots::EvictOne() {
  const SequenceId victim = CheapestRetained(-1);
  if (victim < 0) return false;
  MakeFree(victim, true);
  return true;
}

SequenceId KvSlots::TakeSlot(SequenceId except) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state == State::kFree) return static_cast<SequenceId>(i);
  }
  const SequenceId victim = CheapestRetained(except);
  if (victim >= 0) MakeFree(victim, true);
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
    MakeFree(victim, true);
  }
  return true;
}

bool KvSlots::CutBack(SequenceId sequence, const std::deque<Mark>& marks, uint32_t length, bool from_mark) {
  if (from_mark) {
    const auto mark =
        std::find_if(marks.begin(), marks.end(), [&](const Mark& m) { return m.length == length; });
    RUMBO_CHECK(mark != marks.end());
    if (!port_->Restore(sequence, mark->state, true)) return false;
  }
  return port_->Truncate(sequence, length);
}

bool KvSlots::CopyNow(SequenceId from, SequenceId to) {
  if (port_->traits().unified) return port_->Copy(from, to);
  const SequenceState state = port_->Save(from, false);
  port_->Truncate(to, 0);
  return !state.bytes.empty() && port_->Restore(to, state, false);
}

uint32_t KvSlots::Install(const Source& source, SequenceId target) {
  Slot& slot = slots_[Index(target)];
  bool held = false;
  if (source.entry != nullptr) {
    port_->Truncate(target, 0);
    held = port_->Restore(target, source.entry->state, false);
    if (held && source.length < source.entry->tokens.size()) held = port_->Truncate(target, source.length);
    if (held) slot.tokens.assign(source.entry->tokens.begin(), source.entry->tokens.begin() + source.length);
  } else if (source.sequence == target) {
    held =
        source.length == slot.tokens.size() || CutBack(target, slot.marks, source.length, source.from_mark);
    if (held) slot.tokens.resize(source.length);
  } else {
    Slot& from = slots_[Index(source.sequence)];
    if (source.from_mark) {
      held = CopyNow(source.sequence, target);
    } else {
      held = port_->Copy(source.sequence, target);
      from.copied_from = slot.copied_to = !port_->traits().unified;
    }
    if (held && source.length < from.tokens.size()) {
      held = CutBack(target, from.marks, source.length, source.from_mark);
    }
    if (held) slot.tokens.assign(from.tokens.begin(), from.tokens.begin() + source.length);
  }
  if (!held) {
    port_->Truncate(target, 0);
    slot.tokens.clear();
  }
  DropMarks(&slot, static_cast<uint32_t>(slot.tokens.size()));
  return static_cast<uint32_t>(slot.tokens.size());
}

// Copies that wait for the next Decode would go over what is restored now, or take it along.
bool KvSlots::CanInstall(const Source& source, SequenceId target) const {
  const bool restores = source.entry != nullptr || source.from_mark;
  const Slot& slot = slots_[Index(target)];
  if (restores && (slot.copied_from || slot.copied_to)) return false;
  return !source.from_mark || source.sequence == target || !slots_[Index(source.sequence)].copied_to;
}

std::optional<KvSlots::Lease> KvSlots::Acquire(const std::string& key, const std::vector<TokenId>& prompt,
                                               uint32_t need) {
  RUMBO_CHECK(!prompt.empty());
  ++tick_;
  Source source = BestSource(key, prompt, -1);
  const bool retained = source.sequence >= 0 && slots_[Index(source.sequence)].state == State::kRetained;
  if (source.sequence >= 0 && !retained && source.length < kMinCopy) source = {};
  if (!MakeRoom(need, source.sequence)) return std::nullopt;

  SequenceId target = -1;
  if (retained) {
    // Work on in place where this goes on from most of what is there; else keep that for others.
    const bool continues = 2 * source.length >= slots_[Index(source.sequence)].tokens.size();
    if (continues || source.length < kMinCopy) target = source.sequence;
  }
  if (target < 0) target = TakeSlot(source.sequence);
  if (target < 0 && retained) target = source.sequence;
  if (target < 0) return std::nullopt;
  if (target == source.sequence && 2 * source.length < slots_[Index(target)].tokens.size())
    SaveToHost(target);
  // Evicting may have moved entries of the host cache about.
  if (source.entry != nullptr) source = BestSource(key, prompt, target);
  if (!CanInstall(source, target)) source = {};

  Slot& slot = slots_[Index(target)];
  slot.state = State::kLive;
  slot.key = key;
  slot.need = need;
  slot.last_used = tick_;
  ++live_;
  uint32_t reused = 0;
  if (source.sequence >= 0 || source.entry != nullptr) {
    if (source.sequence >= 0) slots_[Index(source.sequence)].last_used = tick_;
    reused = Install(source, target);
  }
  return Lease{target, reused};
}

uint32_t KvSlots::Improve(SequenceId sequence, const std::vector<TokenId>& prompt) {
  Slot& slot = slots_[Index(sequence)];
  RUMBO_CHECK(slot.state == State::kLive);
  const Source source = BestSource(slot.key, prompt, sequence);
  if (source.length < slot.tokens.size() + kMinCopy || !CanInstall(source, sequence))
    return static_cast<uint32_t>(slot.tokens.size());
  if (source.sequence >= 0) slots_[Index(source.sequence)].last_used = ++tick_;
  return Install(source, sequence);
}

void KvSlots::Append(SequenceId sequence, const TokenId* tokens, size_t count) {
  Slot& slot = slots_[Index(sequence)];
  slot.tokens.insert(slot.tokens.end(), tokens, tokens + count);
}

bool KvSlots::Truncate(SequenceId sequence, uint32_t length) {
  Slot& slot = slots_[Index(sequence)];
  const bool done = port_->Truncate(sequence, length);
  slot.tokens.resize(done ? std::min<size_t>(slot.tokens.size(), length) : 0);
  DropMarks(&slot, static_cast<uint32_t>(slot.tokens.size()));
  return done;
}

void KvSlots::Checkpoint(SequenceId sequence, bool end) {
  if (!NeedsMarks() || max_checkpoint_bytes_ == 0) return;
  Slot& slot = slots_[Index(sequence)];
  const auto length = static_cast<uint32_t>(slot.tokens.size());
  // While all fits into the window any length can be gone back to.
  if (port_->traits().rewindable && length <= port_->traits().window) return;
  const uint32_t last = slot.marks.empty() ? 0 : slot.marks.back().length;
  if (length < last + (end ? kMinRestore : kMarkDistance)) return;
  Mark mark{length, port_->Save(sequence, true)};
  if (mark.state.bytes.empty() || mark.state.bytes.size() > max_checkpoint_bytes_) return;
  checkpoint_bytes_ += mark.state.bytes.size();
  slot.marks.push_back(std::move(mark));
  // Over the limit: the slot with most checkpoints gives up every second one's elder.
  while (checkpoint_bytes_ > max_checkpoint_bytes_) {
    const auto most = std::max_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
      return a.marks.size() < b.marks.size();
    });
    checkpoint_bytes_ -= most->marks.front().state.bytes.size();
    most->marks.pop_front();
  }
}

void KvSlots::Release(SequenceId sequence, bool keep) {
  Slot& slot = slots_[Index(sequence)];
  RUMBO_CHECK(slot.state == State::kLive);
  --live_;
  if (!keep || slot.tokens.empty()) {
    MakeFree(sequence, false);
    return;
  }
  slot.state = State::kRetained;
  slot.persisted = false;
  slot.need = 0;
  slot.last_used = ++tick_;
}

bool KvSlots::Move(SequenceId from, SequenceId to) {
  Slot& source = slots_[Index(from)];
  Slot& target = slots_[Index(to)];
  RUMBO_CHECK(source.state == State::kLive && target.state != State::kLive);
  if (source.copied_from || source.copied_to || target.copied_from || target.copied_to) return false;
  SequenceState displaced;
  if (target.state == State::kRetained) displaced = port_->Save(to, false);
  if (!CopyNow(from, to)) {
    // What was retained there is gone.
    DropMarks(&target, 0);
    target = Slot();
    return false;
  }
  port_->Truncate(from, 0);
  if (target.state == State::kRetained && !port_->Restore(from, displaced, false)) {
    DropMarks(&target, 0);
    target = Slot();
  }
  std::swap(source, target);
  return true;
}

uint64_t KvSlots::cells_used() const {
  uint64_t used = 0;
  for (const Slot& slot : slots_) used += slot.tokens.size();
  return used;
}

}  // namespace rumbo
