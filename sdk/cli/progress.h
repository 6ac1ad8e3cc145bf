#pragma once

#include <chrono>
#include <string>

#include "rumbo/types.h"
#include "sdk/cli/screen.h"

namespace rumbo::cli {

// One line of progress, drawn anew on standard error; nothing at all where that is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(const Screen& screen) : screen_(screen) {}
  ~ProgressLine() { Clear(); }

  void Show(const Progress& progress);
  void Clear();

 private:
  const Screen screen_;
  bool drawn_ = false;
  std::string last_step_;
  std::chrono::steady_clock::time_point last_{};
};

// "load [####....] 40 %, 41.2 MiB of 98.2 MiB, 3 s left".
std::string RenderProgress(const Progress& progress, const Screen& screen);

}  // namespace rumbo::cli
