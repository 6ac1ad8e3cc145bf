#include "devices/cpu/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace rumbo {
namespace {

using SteadyTime = std::chrono::steady_clock;

constexpr Bytes kPerThread = 32 * kMiB;
constexpr Bytes kLeast = 128 * kMiB;
constexpr Bytes kMost = kGiB;

class Mapping {
 public:
  explicit Mapping(Bytes bytes) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    data_ = static_cast<uint64_t*>(p);
    madvise(p, bytes, MADV_HUGEPAGE);
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  uint64_t* data() const { return data_; }

 private:
  uint64_t* data_ = nullptr;
  Bytes bytes_;
};

// Eight independent sums, so that loads and not additions are the bound.
uint64_t ReadAll(const uint64_t* data, size_t count) {
  uint64_t sum[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t k = 0; k < 8; ++k) sum[k] += data[i + k];
  }
  uint64_t total = 0;
  for (uint64_t s : sum) total += s;
  return total;
}

}  // namespace

std::optional<BandwidthMeasurement> MeasureReadBandwidth(int threads, std::optional<Bytes> available,
                                                         std::chrono::milliseconds budget) {
  threads = std::clamp(threads, 1, 256);
  Bytes total = std::clamp(kPerThread * static_cast<Bytes>(threads), kLeast, kMost);
  if (available && total > *available / 4) return std::nullopt;
  const size_t per_thread = total / sizeof(uint64_t) / threads / 8 * 8;
  const Mapping mapping(total);
  if (mapping.data() == nullptr) return std::nullopt;

  const auto start = SteadyTime::now();
  SteadyTime::time_point pass_start = start;
  double best_s = 1e9;
  bool done = false;
  int passes = -1;  // the first step only faults the pages in
  std::barrier sync(threads, [&]() noexcept {
    const auto now = SteadyTime::now();
    if (passes > 0) best_s = std::min(best_s, std::chrono::duration<double>(now - pass_start).count());
    done = passes > 2 && now - start > budget;
    ++passes;
    pass_start = SteadyTime::now();
  });
  std::vector<uint64_t> sums(threads);
  const auto work = [&](int index) {
    uint64_t* slice = mapping.data() + per_thread * index;
    std::memset(slice, 1, per_thread * sizeof(uint64_t));
    uint64_t sum = 0;
    sync.arrive_and_wait();
    while (!done) {
      sum += ReadAll(slice, per_thread);
      sync.arrive_and_wait();
    }
    sums[index] = sum;
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
  }
  uint64_t check = 0;
  for (uint64_t s : sums) check ^= s;
  // `check` is used, so the reads above happen.
  if (check == 42 || best_s <= 0) return std::nullopt;
  const Bytes bytes = per_thread * sizeof(uint64_t) * threads;
  return BandwidthMeasurement{static_cast<double>(bytes) / best_s, threads, bytes, ""};
}

}  // namespace rumbo
