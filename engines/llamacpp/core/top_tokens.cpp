#include "engines/llamacpp/core/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>

// The loops are written so that the compiler makes vector code of them, for each instruction set once.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define RUMBO_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RUMBO_VECTOR_CLONES
#endif

namespace rumbo {
namespace {

constexpr size_t kBlock = 64;
constexpr float kNone = -std::numeric_limits<float>::infinity();

// The largest of kBlock floats; NaN counts as minus infinity.
RUMBO_VECTOR_CLONES float BlockMax(const float* x) {
  float lanes[16];
  for (int j = 0; j < 16; ++j) lanes[j] = kNone;
  for (size_t i = 0; i < kBlock; i += 16) {
    for (int j = 0; j < 16; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  }
  float best = kNone;
  for (int j = 0; j < 16; ++j) best = lanes[j] > best ? lanes[j] : best;
  return best;
}

RUMBO_VECTOR_CLONES double SumExp(const float* x, size_t n, float shift) {
  // A polynomial exp, exact to about 1e-7 relative, that the compiler can vectorise.
  double total = 0;
  float lanes[16] = {};
  size_t i = 0;
  const auto fast = [](float v) {
    v = v < -87.0f ? -87.0f : v;
    const float t = v * 1.44269504f;
    const float f = std::nearbyint(t);
    const float r = v - f * 0.693145752f - f * 1.42860677e-6f;
    float p = 1.98756915e-4f;
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345195e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    union {
      int32_t bits;
      float value;
    } scale{(static_cast<int32_t>(f) + 127) << 23};
    return p * scale.value;
  };
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 16; ++j) {
      const float v = x[i + j] - shift;
      const float e = fast(v);
      lanes[j] += v == v ? e : 0.0f;
    }
    if ((i & 0xFFF) == 0) {  // keep float sums short
      for (float& lane : lanes) {
        total += lane;
        lane = 0;
      }
    }
  }
  for (const float lane : lanes) total += lane;
  for (; i < n; ++i) {
    const float v = x[i] - shift;
    if (v == v) total += fast(v);
  }
  return total;
}

float Largest(std::span<const float> logits) {
  float best = kNone;
  size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) best = std::max(best, BlockMax(logits.data() + i));
  for (; i < logits.size(); ++i) best = logits[i] > best ? logits[i] : best;
  return best;
}

// Worse first: the heap's top is the token to replace.
bool Better(const ScoredToken& a, const ScoredToken& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

}  // namespace

int32_t ArgMax(std::span<const float> logits) {
  float best = kNone;
  int32_t id = -1;
  const auto scan = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (logits[i] > best) {
        best = logits[i];
        id = static_cast<int32_t>(i);
      }
    }
  };
  size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    if (BlockMax(logits.data() + i) > best) scan(i, i + kBlock);
  }
  scan(i, logits.size());
  return id;
}

void TopTokens(std::span<const float> logits, uint32_t k, std::vector<ScoredToken>* out) {
  out->clear();
  if (k == 0) return;
  float threshold = kNone;  // what a logit must exceed
  const auto scan = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (!(logits[i] > threshold)) continue;
      if (out->size() == k) {
        std::pop_heap(out->begin(), out->end(), Better);
        out->pop_back();
      }
      out->push_back({static_cast<int32_t>(i), logits[i]});
      std::push_heap(out->begin(), out->end(), Better);
      if (out->size() == k) threshold = out->front().logit;
    }
  };
  size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    if (BlockMax(logits.data() + i) > threshold) scan(i, i + kBlock);
  }
  scan(i, logits.size());
  std::sort(out->begin(), out->end(), Better);
}

double LogSumExp(std::span<const float> logits) {
  const float shift = Largest(logits);
  if (shift == kNone) return -std::numeric_limits<double>::infinity();
  return shift + std::log(SumExp(logits.data(), logits.size(), shift));
}

}  // namespace rumbo
