#include "engines/fake/fake_tokenizer.h"

#include "base/status.h"

namespace rumbo {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The end of the word that begins at `at`, spaces before it included; trailing space is a word of its own.
size_t WordEnd(std::string_view text, size_t at) {
  while (at < text.size() && IsSpace(text[at])) ++at;
  while (at < text.size() && !IsSpace(text[at])) ++at;
  return at;
}

}  // namespace

uint32_t FakeTokenizer::Count(std::string_view text) {
  uint32_t count = 0;
  for (size_t at = 0; at < text.size(); at = WordEnd(text, at)) ++count;
  return count;
}

absl::StatusOr<std::vector<int32_t>> FakeTokenizer::Encode(std::string_view text) {
  std::vector<int32_t> out;
  const std::lock_guard lock(mutex_);
  for (size_t at = 0; at < text.size();) {
    const size_t end = WordEnd(text, at);
    std::string word(text.substr(at, end - at));
    at = end;
    auto it = ids_.find(word);
    if (it == ids_.end()) {
      if (words_.size() >= kMaxWords) {
        return Error(absl::StatusCode::kResourceExhausted, Reason::kRequestTooLarge,
                     "the fake engine's vocabulary is full");
      }
      it = ids_.emplace(word, static_cast<int32_t>(words_.size())).first;
      words_.push_back(std::move(word));
    }
    out.push_back(it->second);
  }
  return out;
}

absl::StatusOr<std::string> FakeTokenizer::Decode(int32_t id) {
  const std::lock_guard lock(mutex_);
  if (id < 0 || static_cast<size_t>(id) >= words_.size()) {
    return InvalidArgument("ids holds " + std::to_string(id) + ", which is no token of this model");
  }
  return words_[static_cast<size_t>(id)];
}

}  // namespace rumbo
