#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "devices/sys/root.h"

namespace rumbo {

// A synthetic /sys, /proc and /dev in a temporary folder, removed at the end of the test.
class FakeTree {
 public:
  FakeTree() {
    // In memory where possible: a tree is hundreds of small files.
    const std::filesystem::path shm = "/dev/shm";
    const bool in_memory = std::filesystem::is_directory(shm) && access(shm.c_str(), W_OK) == 0;
    std::string name = (in_memory ? shm : std::filesystem::temp_directory_path()) / "rumbo-tree-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make a temporary folder";
    dir_ = name;
  }
  ~FakeTree() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;

  // Writes ROOT/path, making its folders.
  FakeTree& File(std::string_view path, std::string_view text) {
    const std::filesystem::path full = dir_ + std::string(path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full, std::ios::binary) << text;
    return *this;
  }
  FakeTree& Link(std::string_view path, std::string_view target) {
    const std::filesystem::path full = dir_ + std::string(path);
    std::filesystem::create_directories(full.parent_path());
    std::filesystem::create_symlink(target, full);
    return *this;
  }
  FakeTree& Dir(std::string_view path) {
    std::filesystem::create_directories(dir_ + std::string(path));
    return *this;
  }
  FakeTree& Remove(std::string_view path) {
    std::filesystem::remove_all(dir_ + std::string(path));
    return *this;
  }

  Root root() const { return Root(dir_); }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

// The captured trees that stand beside the project on machines that have them; "" elsewhere.
inline std::string CaptureDir() {
  const std::string dir = std::string(RUMBO_SOURCE_DIR) + "/../shared/captures";
  return std::filesystem::is_directory(dir) ? dir : "";
}

}  // namespace rumbo
