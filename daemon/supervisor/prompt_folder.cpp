#include "daemon/supervisor/prompt_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {

absl::Status PreparePromptFolder(const std::string& folder, size_t most) {
  namespace fs = std::filesystem;
  RUMBO_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  std::error_code error;
  const fs::path mine(folder);
  fs::last_write_time(mine, fs::file_time_type::clock::now(), error);
  std::vector<std::pair<fs::file_time_type, fs::path>> others;
  for (fs::directory_iterator it(mine.parent_path(), error), end; !error && it != end; it.increment(error)) {
    if (it->path() == mine || it->is_symlink(error) || !it->is_directory(error)) continue;
    others.emplace_back(it->last_write_time(error), it->path());
  }
  if (others.size() <= most) return absl::OkStatus();
  std::sort(others.begin(), others.end());
  for (size_t i = 0; i < others.size() - most; ++i) fs::remove_all(others[i].second, error);
  return absl::OkStatus();
}

}  // namespace rumbo
