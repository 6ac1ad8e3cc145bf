#include "engines/llamacpp/core/host_cache.h"

#include <algorithm>

namespace rumbo {

uint32_t CommonPrefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const size_t n = std::min(a.size(), b.size());
  const auto [ia, ib] = std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin());
  return static_cast<uint32_t>(ia - a.begin());
}

void HostCache::Put(Entry entry) {
  const uint64_t size = entry.state.bytes.size();
  large_.reset();
  if (size > max_bytes_ && disk_ != nullptr && !entry.persisted) disk_->Put(std::move(entry));
  if (size == 0 || size > max_bytes_) return;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool same_key = it->key == entry.key;
    const uint32_t common = same_key ? CommonPrefix(it->tokens, entry.tokens) : 0;
    if (same_key && common == entry.tokens.size()) {
      it->last_used = ++tick_;
      return;
    }
    if (same_key && common == it->tokens.size()) {
      bytes_ -= it->state.bytes.size();
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
  while (bytes_ + size > max_bytes_) DropCheapest();
  entry.last_used = ++tick_;
  bytes_ += size;
  entries_.push_back(std::move(entry));
}

void HostCache::DropCheapest() {
  const auto worth = [this](const Entry& e) {
    return static_cast<double>(e.tokens.size()) / static_cast<double>(tick_ - e.last_used + 1);
  };
  const auto victim = std::min_element(entries_.begin(), entries_.end(),
                                       [&](const Entry& a, const Entry& b) { return worth(a) < worth(b); });
  bytes_ -= victim->state.bytes.size();
  if (disk_ != nullptr && !victim->persisted) disk_->Put(std::move(*victim));
  entries_.erase(victim);
}

HostCache::Entry* HostCache::Read(uint64_t id) {
  auto sequence = disk_->Load(id);
  if (!sequence) return nullptr;
  Entry entry;
  static_cast<CachedSequence&>(entry) = *std::move(sequence);
  entry.persisted = true;
  // Beside an entry that holds all its tokens, or too large to be one, it is kept for this use alone.
  const bool held = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.key == entry.key && CommonPrefix(e.tokens, entry.tokens) == entry.tokens.size();
  });
  if (held || entry.state.bytes.size() > max_bytes_) {
    large_ = std::move(entry);
    return &*large_;
  }
  Put(std::move(entry));
  return &entries_.back();
}

bool HostCache::PersistOne() {
  if (disk_ == nullptr) return false;
  for (Entry& entry : entries_) {
    if (entry.persisted) continue;
    entry.persisted = true;
    disk_->Put(entry);
    return true;
  }
  return false;
}

}  // namespace rumbo
