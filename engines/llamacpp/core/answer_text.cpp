#include "engines/llamacpp/core/answer_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace rumbo {

AnswerText::AnswerText(std::vector<std::string> stop_strings) : stops_(std::move(stop_strings)) {
  for (const std::string& stop : stops_) longest_stop_ = std::max(longest_stop_, stop.size());
}

void AnswerText::Add(std::string_view piece) {
  if (stopped()) return;
  pending_.append(piece);
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = pending_.find(stop, searched_);
    if (at < first) {
      first = at;
      stop_string_ = stop;
    }
  }
  if (first != std::string::npos) {
    pending_.resize(first);
  } else if (longest_stop_ > 0 && pending_.size() >= longest_stop_) {
    searched_ = pending_.size() - longest_stop_ + 1;
  }
}

size_t AnswerText::HeldBack() const {
  if (stopped()) return 0;
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > held; --length) {
      if (std::string_view(pending_).substr(pending_.size() - length) ==
          std::string_view(stop).substr(0, length)) {
        held = length;
        break;
      }
    }
  }
  return held;
}

std::string AnswerText::Take() {
  const size_t free = pending_.size() - HeldBack();
  const size_t length = CompleteUtf8Prefix(std::string_view(pending_).substr(0, free));
  if (length == 0) return {};
  std::string text = SanitizeUtf8(std::string_view(pending_).substr(0, length));
  pending_.erase(0, length);
  searched_ -= std::min(searched_, length);
  return text;
}

std::string AnswerText::TakeRest() {
  std::string text = SanitizeUtf8(pending_);
  pending_.clear();
  searched_ = 0;
  return text;
}

}  // namespace rumbo
