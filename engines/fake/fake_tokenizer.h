#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace rumbo {

// Words with the space before them; ids are given in order of first sight, so that text -> ids -> text is
// exact. Thread-safe. Remembers at most kMaxWords words.
class FakeTokenizer {
 public:
  static constexpr size_t kMaxWords = 1 << 20;

  // O(text). Does not remember anything.
  static uint32_t Count(std::string_view text);
  // kResourceExhausted beyond kMaxWords.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text);
  // kInvalidArgument for an id that was never given out.
  absl::StatusOr<std::string> Decode(int32_t id);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::string> words_;
};

}  // namespace rumbo
