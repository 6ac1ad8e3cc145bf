#pragma once

#include <string>
#include <string_view>
#include <vector>

// What the CLI knows of the place it writes to, and how text is laid out there. Pure, except OfStdout and
// OfStderr.
namespace rumbo::cli {

struct Screen {
  bool terminal = false;
  bool color = false;
  bool utf8 = false;
  int width = 100;  // columns

  static Screen OfStdout();
  static Screen OfStderr();
};

enum class Style { kPlain, kBold, kDim, kGood, kWarn, kBad };
std::string Paint(const Screen& screen, Style style, std::string_view text);

// Text of others (names, messages, paths) made safe to print: control characters and bidi overrides become
// visible escapes.
std::string Safe(std::string_view text);

// The same for text of several lines: each line is made safe and the later ones begin with `indent`.
std::string SafeLines(std::string_view text, std::string_view indent);

// An answer for a terminal: control characters other than newline and tab are left out.
std::string WithoutControls(std::string_view text);

// Columns that `text` takes, counted in code points; paint takes none.
int Columns(std::string_view text);

// `text` broken at spaces into lines of at most `width` columns, each after the first begun with `indent`.
std::string Wrap(std::string_view text, int width, std::string_view indent);

// `full` of `width` cells; `share` outside 0..1 is brought into it.
std::string Bar(const Screen& screen, double share, int width);

// Rows under bold heads, as wide as they need; the last column is never padded. Cells must be safe already.
class Table {
 public:
  explicit Table(std::vector<std::string> heads) : heads_(std::move(heads)) {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Columns whose cells stand at the right.
  void AlignRight(size_t column) { right_.push_back(column); }
  std::string Render(const Screen& screen) const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
};

// "12 s", "3 min", "2 h", "5 d".
std::string Duration(double seconds);

// Three significant digits: "0.412", "41.2", "412", "4120".
std::string Short(double number);

std::string Join(const std::vector<std::string>& parts, std::string_view between);

}  // namespace rumbo::cli
