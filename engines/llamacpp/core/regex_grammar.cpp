#include "engines/llamacpp/core/regex_grammar.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

bool IsAlnum(uint32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool IsHex(uint32_t c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f'); }

// A character as it may stand in a GBNF literal or class.
void Put(std::string* out, uint32_t c) {
  if (IsAlnum(c) || c == ' ' || c == '_') {
    out->push_back(static_cast<char>(c));
    return;
  }
  char text[12];
  std::snprintf(text, sizeof text, c < 0x80 ? "\\x%02X" : c < 0x10000 ? "\\u%04X" : "\\U%08X", c);
  *out += text;
}

const char* ClassBody(uint32_t letter) {
  switch (letter) {
    case 'd':
    case 'D':
      return "0-9";
    case 'w':
    case 'W':
      return "A-Za-z0-9_";
    case 's':
    case 'S':
      return " \\t\\n\\r\\x0B\\x0C";
    default:
      return nullptr;
  }
}

class Parser {
 public:
  explicit Parser(std::string_view regex) {
    for (size_t i = 0; i < regex.size();) characters_.push_back(Decode(regex, &i));
  }

  absl::StatusOr<std::string> Run() {
    if (At('^')) ++at_;
    std::string body;
    RUMBO_RETURN_IF_ERROR(Alternatives(&body));
    if (at_ < characters_.size()) return Refuse("an unbalanced )");
    return "root ::= " + body + "\n";
  }

 private:
  // Well-formed UTF-8 is a precondition.
  static uint32_t Decode(std::string_view text, size_t* i) {
    const auto byte = [&] { return static_cast<unsigned char>(text[(*i)++]); };
    const uint32_t first = byte();
    if (first < 0x80) return first;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    uint32_t c = first & (0x3Fu >> more);
    for (int k = 0; k < more; ++k) c = c << 6 | (byte() & 0x3F);
    return c;
  }

  bool At(uint32_t c, size_t ahead = 0) const {
    return at_ + ahead < characters_.size() && characters_[at_ + ahead] == c;
  }
  bool Ends() const { return at_ >= characters_.size(); }

  absl::Status Refuse(const std::string& what) const {
    return InvalidArgument("sampling.regex has " + what + " at character " + std::to_string(at_),
                           "Write it without; docs/sampling.md lists what is understood.");
  }

  absl::Status Alternatives(std::string* out) {
    if (++depth_ > kMaxRegexDepth) return Refuse("groups nested too deep");
    std::string all;
    for (;;) {
      std::string branch;
      RUMBO_RETURN_IF_ERROR(Sequence(&branch));
      all += branch.empty() ? "\"\"" : branch;
      if (!At('|')) break;
      ++at_;
      all += " | ";
    }
    --depth_;
    *out += all;
    return absl::OkStatus();
  }

  absl::Status Sequence(std::string* out) {
    while (!Ends() && !At('|') && !At(')')) {
      if (At('$')) {
        const bool last = at_ + 1 == characters_.size();
        if (!last || depth_ > 1) return Refuse("a $ that is not at the end");
        ++at_;
        continue;
      }
      std::string item;
      RUMBO_RETURN_IF_ERROR(Item(&item));
      RUMBO_RETURN_IF_ERROR(Quantifier(&item));
      if (!out->empty()) *out += ' ';
      *out += item;
    }
    return absl::OkStatus();
  }

  absl::Status Item(std::string* out) {
    const uint32_t c = characters_[at_];
    switch (c) {
      case '(':
        return Group(out);
      case '[':
        return Class(out);
      case '.':
        ++at_;
        *out = "[^\\n]";
        return absl::OkStatus();
      case '\\':
        return Escape(out);
      case '*':
      case '+':
      case '?':
      case '{':
        return Refuse("nothing to repeat");
      case '^':
        return Refuse("a ^ that is not at the beginning");
      default:
        ++at_;
        return Literal(c, out);
    }
  }

  static absl::Status Literal(uint32_t c, std::string* out) {
    *out = "\"";
    Put(out, c);
    *out += '"';
    return absl::OkStatus();
  }

  absl::Status Group(std::string* out) {
    ++at_;
    if (At('?')) {
      ++at_;
      if (At(':')) {
        ++at_;
      } else if (At('<') || At('P')) {
        RUMBO_RETURN_IF_ERROR(GroupName());
      } else {
        return Refuse("a group that is neither plain, (?: nor named");
      }
    }
    std::string body;
    RUMBO_RETURN_IF_ERROR(Alternatives(&body));
    if (!At(')')) return Refuse("an unbalanced (");
    ++at_;
    *out = "(" + body + ")";
    return absl::OkStatus();
  }

  absl::Status GroupName() {
    if (At('P')) ++at_;
    if (!At('<') || At('=', 1) || At('!', 1)) return Refuse("look-behind or a back reference");
    while (!Ends() && !At('>')) ++at_;
    if (Ends()) return Refuse("a group name without end");
    ++at_;
    return absl::OkStatus();
  }

  // The character an escape stands for; at_ is on the letter after the backslash and is moved past the
  // escape.
  absl::StatusOr<uint32_t> EscapedCharacter() {
    if (Ends()) return Refuse("a backslash with nothing after it");
    const uint32_t c = characters_[at_];
    ++at_;
    switch (c) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      default:
        if (IsAlnum(c)) {
          --at_;
          return Refuse(std::string("\\") + static_cast<char>(c) + ", which is not understood,");
        }
        return c;
    }
  }

  absl::StatusOr<uint32_t> Hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      if (Ends() || !IsHex(characters_[at_])) return Refuse("an incomplete hexadecimal escape");
      const uint32_t c = characters_[at_];
      value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value == 0 || (value >= 0xD800 && value < 0xE000)) return Refuse("an escape that is no character");
    return value;
  }

  absl::Status Escape(std::string* out) {
    ++at_;
    if (!Ends()) {
      const uint32_t letter = characters_[at_];
      if (const char* body = ClassBody(letter)) {
        ++at_;
        *out = std::string(letter < 'a' ? "[^" : "[") + body + "]";
        return absl::OkStatus();
      }
    }
    RUMBO_ASSIGN_OR_RETURN(const uint32_t c, EscapedCharacter());
    return Literal(c, out);
  }

  absl::Status Class(std::string* out) {
    ++at_;
    std::string body;
    const bool negated = At('^');
    if (negated) ++at_;
    bool first = true;
    while (!Ends() && (first || !At(']'))) {
      first = false;
      RUMBO_RETURN_IF_ERROR(ClassItem(&body));
    }
    if (Ends()) return Refuse("a class without end");
    ++at_;
    *out = (negated ? "[^" : "[") + body + "]";
    return absl::OkStatus();
  }

  absl::Status ClassItem(std::string* body) {
    if (At('[') && At(':', 1)) return Refuse("a POSIX class");
    if (At('\\') && at_ + 1 < characters_.size()) {
      const uint32_t letter = characters_[at_ + 1];
      if (const char* inner = ClassBody(letter)) {
        if (letter < 'a') return Refuse("a negated class inside a class");
        at_ += 2;
        *body += inner;
        return absl::OkStatus();
      }
    }
    RUMBO_ASSIGN_OR_RETURN(const uint32_t low, ClassCharacter());
    Put(body, low);
    if (!At('-') || At(']', 1) || at_ + 1 >= characters_.size()) return absl::OkStatus();
    ++at_;
    RUMBO_ASSIGN_OR_RETURN(const uint32_t high, ClassCharacter());
    if (high < low) return Refuse("a class range that runs backwards");
    *body += '-';
    Put(body, high);
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> ClassCharacter() {
    if (!At('\\')) return characters_[at_++];
    ++at_;
    if (At('b')) return Refuse("\\b");
    return EscapedCharacter();
  }

  absl::Status Quantifier(std::string* item) {
    if (Ends()) return absl::OkStatus();
    const uint32_t c = characters_[at_];
    if (c == '*' || c == '+' || c == '?') {
      ++at_;
      item->push_back(static_cast<char>(c));
    } else if (c == '{') {
      RUMBO_RETURN_IF_ERROR(Range(item));
    } else {
      return absl::OkStatus();
    }
    if (At('+')) return Refuse("a possessive quantifier");
    if (At('?')) ++at_;  // lazy: the same language
    if (At('*') || At('+') || At('?') || At('{')) return Refuse("two quantifiers in a row");
    return absl::OkStatus();
  }

  absl::StatusOr<int> Count() {
    int value = 0;
    const size_t begin = at_;
    for (; !Ends() && characters_[at_] >= '0' && characters_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<int>(characters_[at_] - '0');
      if (value > kMaxRepeat) return Refuse("a repetition above " + std::to_string(kMaxRepeat));
    }
    if (at_ == begin) return Refuse("a repetition without a number");
    return value;
  }

  absl::Status Range(std::string* item) {
    ++at_;
    RUMBO_ASSIGN_OR_RETURN(const int low, Count());
    std::string range = "{" + std::to_string(low);
    if (At(',')) {
      ++at_;
      range += ',';
      if (!At('}')) {
        RUMBO_ASSIGN_OR_RETURN(const int high, Count());
        if (high < low) return Refuse("a repetition that runs backwards");
        range += std::to_string(high);
      }
    }
    if (!At('}')) return Refuse("a repetition without end");
    ++at_;
    *item += range + "}";
    return absl::OkStatus();
  }

  std::vector<uint32_t> characters_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<std::string> RegexToGrammar(std::string_view regex) {
  if (regex.size() > kMaxRegexBytes) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kRequestTooLarge,
                 "sampling.regex is longer than " + std::to_string(kMaxRegexBytes) + " bytes");
  }
  if (!IsValidUtf8(regex)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kInvalidUtf8,
                 "sampling.regex is not valid UTF-8");
  }
  return Parser(regex).Run();
}

}  // namespace rumbo
