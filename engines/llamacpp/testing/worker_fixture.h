#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engines/worker_kit/testing/worker_process.h"

namespace rumbo {

inline std::vector<std::string> WorkerPacks() {
  std::vector<std::string> packs;
  std::stringstream words(RUMBO_TEST_PACKS);
  for (std::string word; std::getline(words, word, ',');) packs.push_back(word);
  return packs;
}

// A worker of the pack that is the test's parameter, with models of the folder RUMBO_TEST_MODELS and tiny
// ones that are written for the test.
class WorkerFixture : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    tiny_dir_ = std::filesystem::temp_directory_path() / ("rumbo-tiny-" + std::to_string(getpid()));
    std::filesystem::create_directories(tiny_dir_);
    const std::string source = ModelFile("smollm2.gguf");
    const std::string command = RUMBO_BIN_DIR "/engines/llamacpp-" + WorkerPacks().front() +
                                "/rumbo-tiny-models " + tiny_dir_.string() +
                                (std::filesystem::exists(source) ? " " + source : "");
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(tiny_dir_); }

  static std::string Tiny(const std::string& name) { return (tiny_dir_ / name).string(); }
  static std::string ModelFile(const std::string& name) {
    const char* dir = std::getenv("RUMBO_TEST_MODELS");
    if (dir != nullptr) return std::string(dir) + "/" + name;
    const char* home = std::getenv("HOME");
    return (home == nullptr ? "" : std::string(home)) + "/.cache/rumbo-dev/models/" + name;
  }
  std::string Program(const char* name) const {
    return std::string(RUMBO_BIN_DIR "/engines/llamacpp-") + GetParam() + "/" + name;
  }

  static engine::v1::LoadRequest LoadOf(const std::string& file) {
    engine::v1::LoadRequest load;
    load.add_files(file);
    load.set_backend("cpu");
    load.mutable_settings()->set_threads(1);
    return load;
  }
  absl::StatusOr<engine::v1::LoadedInfo> Load(const engine::v1::LoadRequest& load) {
    auto worker = WorkerProcess::Start(Program("rumbo-llamacpp"));
    if (!worker.ok()) return worker.status();
    worker_ = *std::move(worker);
    return worker_->Load(load);
  }

  // Lines that the program prints when given these.
  static std::vector<std::string> Output(const std::string& command, const std::vector<std::string>& lines) {
    const std::filesystem::path in = tiny_dir_ / "lines";
    {
      std::ofstream file(in);
      for (const auto& line : lines) file << line << '\n';
    }
    std::vector<std::string> out(1);
    FILE* pipe = popen((command + " < " + in.string() + " 2>/dev/null").c_str(), "r");
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) {
      if (c == '\n') {
        out.emplace_back();
      } else {
        out.back().push_back(static_cast<char>(c));
      }
    }
    pclose(pipe);
    out.pop_back();
    return out;
  }

  std::unique_ptr<WorkerProcess> worker_;
  static inline std::filesystem::path tiny_dir_;
};

}  // namespace rumbo
