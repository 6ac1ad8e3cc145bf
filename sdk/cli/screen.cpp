#include "sdk/cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/utf8.h"

namespace rumbo::cli {
namespace {

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text(value);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

Screen Of(int fd) {
  Screen screen;
  screen.terminal = ::isatty(fd) != 0;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  screen.color = screen.terminal && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
                 std::string_view(term) != "dumb";
  screen.utf8 = LocaleIsUtf8();
  winsize size{};
  if (screen.terminal && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) screen.width = size.ws_col;
  return screen;
}

}  // namespace

Screen Screen::OfStdout() { return Of(STDOUT_FILENO); }
Screen Screen::OfStderr() { return Of(STDERR_FILENO); }

std::string Paint(const Screen& screen, Style style, std::string_view text) {
  static constexpr const char* kCodes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"};
  if (!screen.color || style == Style::kPlain) return std::string(text);
  return kCodes[static_cast<int>(style)] + std::string(text) + "\x1b[0m";
}

std::string Safe(std::string_view text) { return EscapeForLog(text, 4096); }

std::string SafeLines(std::string_view text, std::string_view indent) {
  std::string out;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    if (start > 0) out.append("\n").append(indent);
    out += Safe(text.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

std::string WithoutControls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto b = static_cast<unsigned char>(text[i]);
    if ((b < 0x20 && b != '\n' && b != '\t') || b == 0x7F) continue;
    // U+0080 to U+009F, which some terminals obey like ESC sequences.
    if (b == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      ++i;
      continue;
    }
    out += text[i];
  }
  return out;
}

int Columns(std::string_view text) {
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {  // Our own paint: up to its 'm'.
      i = std::min(text.find('m', i), text.size());
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++columns;
  }
  return columns;
}

std::string Wrap(std::string_view text, int width, std::string_view indent) {
  std::string out;
  int used = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    const int columns = Columns(word);
    if (used > 0 && used + 1 + columns > width) {
      out.append("\n").append(indent);
      used = 0;
    } else if (used > 0) {
      out += ' ';
      ++used;
    }
    out += word;
    used += columns;
    start = end + 1;
  }
  return out;
}

std::string Bar(const Screen& screen, double share, int width) {
  const double inside = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(std::lround(inside * width));
  std::string out = "[";
  for (int i = 0; i < width; ++i) {
    if (screen.utf8) {
      out += i < full ? "█" : "░";
    } else {
      out += i < full ? '#' : '.';
    }
  }
  return out + "]";
}

std::string Table::Render(const Screen& screen) const {
  std::vector<int> widths;
  for (const auto& head : heads_) widths.push_back(Columns(head));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], Columns(row[i]));
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& row, bool head) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(std::max(0, widths[i] - Columns(row[i])), ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      if (right) out += space;
      out += head ? Paint(screen, Style::kBold, row[i]) : row[i];
      if (i + 1 < row.size()) out += (right ? "" : space) + "  ";
    }
    out += '\n';
  };
  line(heads_, true);
  for (const auto& row : rows_) line(row, false);
  return out;
}

std::string Duration(double seconds) {
  const auto whole = [](double value, const char* unit) {
    return std::to_string(static_cast<int64_t>(std::max(0.0, value))) + unit;
  };
  if (seconds < 120) return whole(seconds, " s");
  if (seconds < 7200) return whole(seconds / 60, " min");
  if (seconds < 172800) return whole(seconds / 3600, " h");
  return whole(seconds / 86400, " d");
}

std::string Short(double number) {
  char buffer[32];
  const double size = std::fabs(number);
  const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, number);
  return buffer;
}

std::string Join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (const auto& part : parts) {
    if (!out.empty()) out += between;
    out += part;
  }
  return out;
}

}  // namespace rumbo::cli
