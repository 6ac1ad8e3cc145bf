// What is known about model families, chips and products is data. None of their names may stand in
// daemon/core, so that what nobody has seen yet is planned as well as what everybody knows.

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>

namespace rumbo {
namespace {

TEST(PlanNamesTest, NoFamilyChipOrProductIsNamedInTheCore) {
  const char* names[] = {
      "llama",  "qwen",    "gemma",    "mistral",  "deepseek", "phi-",      "granite",
      "mamba",  "glm",     "gpt-",     "lfm2",     "minicpm",  "kimi",      "nemotron",
      "falcon", "bert",    "whisper",  "kokoro",  // families
      "vllm",   "sglang",  "ollama",   "lemonade", "lmstudio", "lm studio", "fastflow",
      "onnx",   "pytorch", "openvino", "triton",   "gguf",     "ggml",  // products and formats
      "radeon", "ryzen",   "epyc",     "geforce",  "rtx",      "strix",     "instinct",
      "xeon",   "gfx1",    "gfx9",     "sm_",      "mi3",      "r9700",     "nvidia",
      " amd ",  " intel "};  // chips and makers
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(RUMBO_SOURCE_DIR) + "/daemon/core")) {
    const std::string name = entry.path().filename();
    const bool source = name.size() > 2 && (name.ends_with(".h") || name.ends_with(".cpp"));
    if (!source || name.ends_with("_test.cpp")) continue;
    ++files;
    std::ifstream in(entry.path());
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      for (char& c : line) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      for (const char* word : names)
        EXPECT_EQ(line.find(word), line.npos) << name << ":" << number << " names " << word;
    }
  }
  EXPECT_GT(files, 20);
}

}  // namespace
}  // namespace rumbo
