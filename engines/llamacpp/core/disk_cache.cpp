#include "engines/llamacpp/core/disk_cache.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/status.h"

namespace rumbo {
namespace {

// States that wait to be written; more are dropped, so that a slow disk never fills the memory.
constexpr uint64_t kMaxWaiting = 512ull << 20;
constexpr uint32_t kMaxTokens = 1u << 24;
constexpr uint32_t kMaxText = 8192;  // bytes of a fingerprint or key
constexpr char kMagic[8] = {'R', 'U', 'M', 'B', 'O', 'K', 'V', '1'};
constexpr std::string_view kSuffix = ".kv";

// What a file begins with. Fingerprint, key, tokens and the state follow.
struct Head {
  char magic[8];
  uint64_t head_sum;  // of the rest of this and of what follows up to the state
  uint64_t state_sum;
  uint64_t state_bytes;
  uint32_t fingerprint_bytes;
  uint32_t key_bytes;
  uint32_t tokens;
  int32_t oldest;
};
static_assert(sizeof(Head) == 48);

// Tells bit rot, truncation and mixed-up files from whole ones; no defence against an attacker, who would
// have to be the user.
uint64_t Sum(std::string_view data, uint64_t seed = 0x9e3779b97f4a7c15ull) {
  uint64_t sum = seed ^ data.size();
  const auto mix = [&](uint64_t word) {
    sum = (sum ^ word) * 0xff51afd7ed558ccdull;
    sum ^= sum >> 32;
  };
  while (data.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data.data(), 8);
    mix(word);
    data.remove_prefix(8);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, data.data(), data.size());
  mix(rest);
  return sum;
}

std::string_view Bytes(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

std::string_view TokenBytes(const std::vector<TokenId>& tokens) {
  return Bytes(tokens.data(), tokens.size() * sizeof(TokenId));
}

uint64_t HeadSum(const Head& head, std::string_view fingerprint, std::string_view key,
                 std::string_view tokens) {
  constexpr size_t kFrom = offsetof(Head, state_sum);
  uint64_t sum = Sum(Bytes(reinterpret_cast<const char*>(&head) + kFrom, sizeof(Head) - kFrom));
  for (const std::string_view part : {fingerprint, key, tokens}) sum = Sum(part, sum);
  return sum;
}

bool BeginsWith(const std::vector<TokenId>& longer, const std::vector<TokenId>& shorter) {
  return longer.size() >= shorter.size() && std::equal(shorter.begin(), shorter.end(), longer.begin());
}

// The same for the same tokens of the same owner and model.
std::string NameOf(std::string_view fingerprint, const CachedSequence& sequence) {
  const uint64_t a = Sum(sequence.key, Sum(fingerprint));
  const uint64_t b = Sum(TokenBytes(sequence.tokens), a);
  char name[64];
  std::snprintf(name, sizeof name, "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return std::string(name) + std::string(kSuffix);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::Open(Options options) {
  RUMBO_ASSIGN_OR_RETURN(std::unique_ptr<PrivateFolder> folder, PrivateFolder::Open(options.folder));
  std::unique_ptr<DiskCache> cache(new DiskCache(std::move(options), std::move(folder)));
  cache->Scan();
  cache->writer_ = std::thread([raw = cache.get()] { raw->WriterLoop(); });
  return cache;
}

DiskCache::DiskCache(Options options, std::unique_ptr<PrivateFolder> folder)
    : options_(std::move(options)), folder_(std::move(folder)) {}

DiskCache::~DiskCache() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (writer_.joinable()) writer_.join();
}

void DiskCache::Scan() {
  for (const PrivateFolder::File& file : folder_->List()) {
    if (!file.name.ends_with(kSuffix)) continue;
    stats_.bytes += file.bytes;
    if (ReadHead(file)) continue;
    folder_->Remove(file.name);
    stats_.bytes -= file.bytes;
    ++stats_.deleted;
  }
  items_.sort([](const Item& a, const Item& b) { return a.changed_s < b.changed_s; });
  foreign_.sort([](const auto& a, const auto& b) { return a.changed_s < b.changed_s; });
  const std::lock_guard lock(mutex_);
  MakeRoom(0);  // the quota may be smaller than last time
}

// False where the file is broken.
bool DiskCache::ReadHead(const PrivateFolder::File& file) {
  Head head{};
  if (!folder_->Read(file.name, 0, &head, sizeof(head)).ok()) return false;
  if (std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0) return false;
  if (head.fingerprint_bytes > kMaxText || head.key_bytes > kMaxText || head.tokens > kMaxTokens ||
      head.tokens == 0) {
    return false;
  }
  const uint64_t meta = uint64_t{head.fingerprint_bytes} + head.key_bytes + head.tokens * sizeof(TokenId);
  if (file.bytes < sizeof(head) + meta || head.state_bytes != file.bytes - sizeof(head) - meta) return false;
  std::string fingerprint(head.fingerprint_bytes, '\0');
  Item item;
  item.key.resize(head.key_bytes);
  item.tokens.resize(head.tokens);
  uint64_t at = sizeof(head);
  for (const auto& [to, size] : {std::pair<void*, size_t>{fingerprint.data(), fingerprint.size()},
                                 {item.key.data(), item.key.size()},
                                 {item.tokens.data(), item.tokens.size() * sizeof(TokenId)}}) {
    if (!folder_->Read(file.name, at, to, size).ok()) return false;
    at += size;
  }
  if (head.head_sum != HeadSum(head, fingerprint, item.key, TokenBytes(item.tokens))) return false;
  if (fingerprint != options_.fingerprint) {
    foreign_.push_back(file);
    return true;
  }
  item.id = next_id_++;
  item.name = file.name;
  item.oldest = head.oldest;
  item.bytes = file.bytes;
  item.changed_s = file.changed_s;
  items_.push_back(std::move(item));
  return true;
}

bool DiskCache::Holds(const std::string& key, const std::vector<TokenId>& tokens) const {
  const std::lock_guard lock(mutex_);
  const auto holds = [&](const auto& item) { return item.key == key && BeginsWith(item.tokens, tokens); };
  return std::any_of(items_.begin(), items_.end(), holds) ||
         std::any_of(waiting_.begin(), waiting_.end(), holds);
}

void DiskCache::Put(CachedSequence sequence) {
  const uint64_t bytes = sequence.state.bytes.size();
  if (bytes == 0 || bytes > options_.max_bytes || Holds(sequence.key, sequence.tokens)) return;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_bytes_ + bytes > kMaxWaiting) {
      ++stats_.failed;
      return;
    }
    waiting_bytes_ += bytes;
    waiting_.push_back(std::move(sequence));
  }
  wake_.notify_one();
}

std::optional<uint64_t> DiskCache::Find(const std::string& key, uint32_t more_than,
                                        const std::function<uint32_t(const Item&)>& usable) const {
  const std::lock_guard lock(mutex_);
  std::optional<uint64_t> best;
  for (const Item& item : items_) {
    if (item.key != key) continue;
    const uint32_t length = usable(item);
    if (length <= more_than) continue;
    more_than = length;
    best = item.id;
  }
  return best;
}

std::optional<CachedSequence> DiskCache::Load(uint64_t id) {
  Item item;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(items_.begin(), items_.end(), [&](const Item& i) { return i.id == id; });
    if (it == items_.end()) return std::nullopt;
    it->last_used = ++tick_;
    item = *it;
  }
  Head head{};
  CachedSequence sequence;
  absl::Status status = folder_->Read(item.name, 0, &head, sizeof(head));
  const uint64_t meta =
      options_.fingerprint.size() + item.key.size() + item.tokens.size() * sizeof(TokenId) + sizeof(head);
  // The file may be another one since it was found.
  bool whole = status.ok() && std::memcmp(head.magic, kMagic, sizeof(kMagic)) == 0 &&
               head.tokens == item.tokens.size() && item.bytes >= meta &&
               head.state_bytes == item.bytes - meta &&
               head.head_sum == HeadSum(head, options_.fingerprint, item.key, TokenBytes(item.tokens));
  if (whole) {
    sequence.state.bytes.resize(head.state_bytes);
    whole = folder_->Read(item.name, meta, sequence.state.bytes.data(), head.state_bytes).ok() &&
            Sum(Bytes(sequence.state.bytes.data(), sequence.state.bytes.size())) == head.state_sum;
  }
  const std::lock_guard lock(mutex_);
  if (whole) {
    ++stats_.loaded;
    sequence.key = std::move(item.key);
    sequence.tokens = std::move(item.tokens);
    sequence.oldest = item.oldest;
    return sequence;
  }
  const auto it = std::find_if(items_.begin(), items_.end(), [&](const Item& i) { return i.id == id; });
  if (it != items_.end()) {
    // Another process may have taken it away; else it is broken.
    if (status.code() != absl::StatusCode::kNotFound) ++stats_.deleted;
    Forget(it, true);
  }
  return std::nullopt;
}

void DiskCache::Forget(std::list<Item>::iterator item, bool remove) {
  if (remove) folder_->Remove(item->name);
  stats_.bytes -= std::min(stats_.bytes, item->bytes);
  items_.erase(item);
}

// Deletes files until `bytes` more stay within the quota: foreign ones first, then what is cheapest to lose.
// With mutex_ held. False where they never will.
bool DiskCache::MakeRoom(uint64_t bytes) {
  if (bytes > options_.max_bytes) return false;
  while (stats_.bytes + bytes > options_.max_bytes) {
    if (!foreign_.empty()) {
      folder_->Remove(foreign_.front().name);
      stats_.bytes -= std::min(stats_.bytes, foreign_.front().bytes);
      foreign_.pop_front();
      continue;
    }
    if (items_.empty()) return false;
    const auto worth = [this](const Item& item) {
      return static_cast<double>(item.tokens.size()) / static_cast<double>(tick_ - item.last_used + 1);
    };
    // Equal worth: the oldest, which stands first.
    Forget(std::min_element(items_.begin(), items_.end(),
                            [&](const Item& a, const Item& b) { return worth(a) < worth(b); }),
           true);
  }
  return true;
}

void DiskCache::WriterLoop() {
  pthread_setname_np(pthread_self(), "kv-writer");
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    // It stays in the queue meanwhile, so that Holds tells of it.
    const CachedSequence& sequence = waiting_.front();
    lock.unlock();
    WriteOne(sequence);
    lock.lock();
    waiting_bytes_ -= waiting_.front().state.bytes.size();
    waiting_.pop_front();
    if (waiting_.empty()) idle_.notify_all();
  }
}

void DiskCache::WriteOne(const CachedSequence& sequence) {
  Head head{};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  const std::string_view tokens = TokenBytes(sequence.tokens);
  const std::string_view state = Bytes(sequence.state.bytes.data(), sequence.state.bytes.size());
  head.state_sum = Sum(state);
  head.state_bytes = state.size();
  head.fingerprint_bytes = static_cast<uint32_t>(options_.fingerprint.size());
  head.key_bytes = static_cast<uint32_t>(sequence.key.size());
  head.tokens = static_cast<uint32_t>(sequence.tokens.size());
  head.oldest = sequence.oldest;
  head.head_sum = HeadSum(head, options_.fingerprint, sequence.key, tokens);
  const std::string_view parts[] = {Bytes(&head, sizeof(head)), options_.fingerprint, sequence.key, tokens,
                                    state};
  Item item;
  for (const std::string_view part : parts) item.bytes += part.size();
  item.name = NameOf(options_.fingerprint, sequence);
  item.key = sequence.key;
  item.tokens = sequence.tokens;
  item.oldest = sequence.oldest;
  bool fits = sequence.key.size() <= kMaxText && sequence.tokens.size() <= kMaxTokens;
  {
    const std::lock_guard lock(mutex_);
    // What this one begins with is not needed beside it.
    for (auto it = items_.begin(); it != items_.end();) {
      const auto next = std::next(it);
      if (it->key == item.key && BeginsWith(item.tokens, it->tokens)) Forget(it, true);
      it = next;
    }
    fits = fits && MakeRoom(item.bytes);
  }
  const absl::Status status = fits ? folder_->Write(item.name, parts) : absl::OkStatus();
  const std::lock_guard lock(mutex_);
  if (!fits || !status.ok()) {
    ++stats_.failed;
    return;
  }
  item.id = next_id_++;
  item.last_used = ++tick_;
  stats_.bytes += item.bytes;
  ++stats_.written;
  items_.push_back(std::move(item));
}

void DiskCache::Flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return waiting_.empty(); });
}

DiskCache::Stats DiskCache::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.files = items_.size();
  return stats;
}

}  // namespace rumbo
