// gguf-shapes: writes sparse GGUF files with the dimensions of real models.
// usage: gguf-shapes DIR [NAME ...]      gguf-shapes --list

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/bench/plan/gguf_shapes.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: gguf-shapes DIR [NAME ...] | --list\n", stderr);
    return 2;
  }
  const bool list = std::strcmp(argv[1], "--list") == 0;
  for (const auto& shape : rumbo::bench::Shapes()) {
    if (list) {
      std::printf("%-24s %s\n", shape.name.c_str(), shape.kind.c_str());
      continue;
    }
    bool wanted = argc == 2;
    for (int i = 2; i < argc; ++i) wanted = wanted || shape.name == argv[i];
    if (!wanted) continue;
    const auto status =
        rumbo::bench::WriteShape(shape.name, std::string(argv[1]) + "/" + shape.name + ".gguf");
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", rumbo::MessageOf(status).c_str());
      return 1;
    }
  }
  for (const auto& shape : rumbo::bench::FolderShapes()) {
    if (list) {
      std::printf("%-24s %s (folder)\n", shape.name.c_str(), shape.kind.c_str());
      continue;
    }
    bool wanted = argc == 2;
    for (int i = 2; i < argc; ++i) wanted = wanted || shape.name == argv[i];
    if (!wanted) continue;
    const auto status = rumbo::bench::WriteFolderShape(shape.name, std::string(argv[1]) + "/" + shape.name);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", rumbo::MessageOf(status).c_str());
      return 1;
    }
  }
  return 0;
}
