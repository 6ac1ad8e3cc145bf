#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "engines/llamacpp/core/disk_cache.h"
#include "engines/llamacpp/core/model_port.h"

namespace rumbo {

// States of sequences that had to leave the KV cache, in host memory, up to a number of bytes. When full,
// what is cheapest to lose goes: few tokens, long unused. With a disk it goes there, and comes back from
// there.
//
// Threading: the decode loop's thread only. Ownership: borrows the disk cache, which may be null.
class HostCache {
 public:
  struct Entry : CachedSequence {
    uint64_t last_used = 0;
    bool persisted = false;
  };

  explicit HostCache(uint64_t max_bytes, DiskCache* disk = nullptr) : max_bytes_(max_bytes), disk_(disk) {}

  // Keeps the entry, unless another holds all its tokens or it alone exceeds the limit. Entries whose tokens
  // it begins with are dropped.
  void Put(Entry entry);

  // The entry with the longest beginning of `prompt` that `usable(entry or disk item, common tokens)`
  // accepts; null where none has one. Reads from the disk what is clearly longer there. The pointer holds
  // until the next Put or Find.
  template <typename Usable>
  const Entry* Find(const std::string& key, const std::vector<TokenId>& prompt, uint32_t* length,
                    Usable usable);

  // Gives the disk one entry that it does not have. False where there is none.
  bool PersistOne();

  uint64_t bytes() const { return bytes_; }
  uint64_t max_bytes() const { return max_bytes_; }
  size_t size() const { return entries_.size(); }

 private:
  // What is on the disk must save so many tokens more to be worth reading.
  static constexpr uint32_t kMinRead = 64;

  void DropCheapest();
  // Makes the item an entry; null where the file is gone or broken.
  Entry* Read(uint64_t id);

  const uint64_t max_bytes_;
  DiskCache* const disk_;
  std::optional<Entry> large_;  // read from the disk, over max_bytes alone
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
  if (disk_ != nullptr) {
    uint32_t longer = *length;
    const auto id = disk_->Find(key, *length + kMinRead, [&](const DiskCache::Item& item) {
      const uint32_t common = usable(item, CommonPrefix(item.tokens, prompt));
      longer = std::max(longer, common);
      return common;
    });
    Entry* read = id ? Read(*id) : nullptr;
    if (read != nullptr) {
      best = read;
      *length = longer;
    } else if (id) {
      return Find(key, prompt, length, usable);  // without the broken one
    }
  }
  if (best != nullptr) best->last_used = ++tick_;
  return best;
}

}  // namespace rumbo
