#include "sdk/cli/progress.h"

#include <cstdio>

#include "base/bytes.h"

namespace rumbo::cli {

std::string RenderProgress(const Progress& p, const Screen& screen) {
  std::string step = Safe(p.step);
  if (step.size() < 9) step.resize(9, ' ');
  std::optional<double> share = p.fraction;
  if (!share && p.done_bytes && p.total_bytes && *p.total_bytes > 0) {
    share = static_cast<double>(*p.done_bytes) / static_cast<double>(*p.total_bytes);
  }
  std::string out = step;
  if (share)
    out += " " + Bar(screen, *share, 30) + " " + std::to_string(static_cast<int>(*share * 100)) + " %";
  if (p.done_bytes && p.total_bytes)
    out += ", " + FormatBytes(*p.done_bytes) + " of " + FormatBytes(*p.total_bytes);
  if (p.bytes_per_s) out += ", " + FormatBytes(static_cast<uint64_t>(*p.bytes_per_s)) + "/s";
  if (p.eta_s) out += ", " + Duration(*p.eta_s) + " left";
  return out;
}

void ProgressLine::Show(const Progress& progress) {
  if (!screen_.terminal) return;
  const auto now = std::chrono::steady_clock::now();
  if (progress.step == last_step_ && now - last_ < std::chrono::milliseconds(50)) return;
  last_step_ = progress.step;
  last_ = now;
  std::fprintf(stderr, "\r\x1b[K%s", RenderProgress(progress, screen_).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::Clear() {
  if (!drawn_) return;
  std::fprintf(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace rumbo::cli
