#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rumbo {

// Turns the pieces of tokens into text that may be sent: complete UTF-8 characters, nothing from a stop
// string on, nothing that may still become part of one. Single-threaded.
class AnswerText {
 public:
  explicit AnswerText(std::vector<std::string> stop_strings);

  // Adds a piece. O(piece * stop strings).
  void Add(std::string_view piece);

  // Text that may go out now, and forgets it. Ill-formed bytes become U+FFFD.
  std::string Take();

  // At the end of the answer: all that is held back. An incomplete character becomes one U+FFFD.
  std::string TakeRest();

  // The stop string that was met; nothing after it is ever taken. "" while none was.
  const std::string& stop_string() const { return stop_string_; }
  bool stopped() const { return !stop_string_.empty(); }

 private:
  // Bytes at the end of pending_ that may be the beginning of a stop string.
  size_t HeldBack() const;

  std::vector<std::string> stops_;
  size_t longest_stop_ = 0;
  std::string pending_;
  size_t searched_ = 0;  // no stop string begins before this offset of pending_
  std::string stop_string_;
};

}  // namespace rumbo
