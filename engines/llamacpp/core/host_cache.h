#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "engines/llamacpp/core/model_port.h"

namespace rumbo {

// States of sequences that had to leave the KV cache, in host memory, up to a number of bytes. When full,
// what is cheapest to lose goes: few tokens, long unused.
//
// Threading: the decode loop's thread only.
class HostCache {
 public:
  struct Entry {
    std::string key;
    std::vector<TokenId> tokens;
    SequenceState state;
    int32_t oldest = 0;  // smallest position in every layer
    uint64_t last_used = 0;
  };

  explicit HostCache(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Keeps the entry, unless another holds all its tokens or it alone exceeds the limit. Entries whose tokens
  // it begins with are dropped.
  void Put(Entry entry);

  // The entry with the longest beginning of `prompt` that `usable(entry, common tokens)` accepts; null where
  // none has one. The pointer holds until the next Put.
  template <typename Usable>
  const Entry* Find(const std::string& key, const std::vector<TokenId>& prompt, uint32_t* length,
                    Usable usable);

  uint64_t bytes() const { return bytes_; }
  uint64_t max_bytes() const { return max_bytes_; }
  size_t size() const { return entries_.size(); }

 private:
  void DropCheapest();

  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  uint64_t tick_ = 0;
  std::list<Entry> entries_;
};

// The number of equal tokens at the beginning.
uint32_t CommonPrefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b);

template <typename Usable>
const HostCache::Entry* HostCache::Find(const std::string& key, const std::vector<TokenId>& prompt,
                                        uint32_t* length, Usable usable) {
  Entry* best = nullptr;
  *length = 0;
  for (Entry& entry : entries_) {
    if (entry.key != key) continue;
    const uint32_t common = usable(entry, CommonPrefix(entry.tokens, prompt));
    if (common > *length) {
      best = &entry;
      *length = common;
    }
  }
  if (best != nullptr) best->last_used = ++tick_;
  return best;
}

}  // namespace rumbo
