// bench-plan-accuracy: predicted memory against libllama's own figures, per buffer class, for every shape,
// several contexts, sessions and cache types. Prints a Markdown table and exits with 1 where a row is off by
// more than 2 % and 16 MiB. usage: bench-plan-accuracy [--all] [--shape NAME] [MODEL.gguf ...]

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/os/files.h"
#include "base/status.h"
#include "daemon/core/memory_model.h"
#include "engines/api/model_descriptor.h"
#include "tests/bench/plan/child.h"
#include "tests/bench/plan/gguf_shapes.h"

namespace rumbo::bench {
namespace {

struct Case {
  CacheShape shape;
  bool mtp = false;
};

std::vector<Case> Cases(const ModelDescriptor& model) {
  std::vector<Case> list;
  const auto add = [&](uint32_t context, uint32_t sessions, const char* type, bool unified, bool flash,
                       uint32_t ubatch) {
    CacheShape s;
    s.context_total = context;
    s.sessions = sessions;
    s.type_k = s.type_v = type;
    s.unified = unified;
    s.flash_attention = flash;
    s.ubatch = ubatch;
    s.outputs = sessions;
    list.push_back({s, false});
  };
  const uint32_t most = model.context_trained > 0 ? model.context_trained : 4096;
  add(std::min(4096u, most), 1, "f16", false, true, 512);
  add(std::min(32768u, most), 1, "q8_0", false, true, 512);
  add(std::min(16384u, 4 * most), 4, "f16", false, true, 512);
  add(std::min(16384u, 4 * most), 4, "f16", true, true, 512);
  add(std::min(65536u, 16 * most), 16, "q8_0", false, true, 512);
  add(std::min(8192u, most), 1, "f16", false, true, 2048);
  add(std::min(8192u, most), 2, "f16", false, false, 512);
  if (model.capabilities.size() == 1 && model.capabilities[0] != "generate") {
    for (Case& c : list) c.shape.outputs = c.shape.ubatch;
  }
  return list;
}

std::string Question(const Case& c, bool pooled) {
  std::ostringstream q;
  const CacheShape& s = c.shape;
  q << "ctx=" << s.context_total << " seqs=" << s.sessions << " ubatch=" << s.ubatch
    << " outputs=" << s.outputs << " k=" << s.type_k << " v=" << s.type_v
    << " fa=" << (s.flash_attention ? "on" : "off") << " unified=" << s.unified
    << " swa_full=" << s.full_windows << " mtp=" << (s.draft_tokens > 0) << " embeddings=" << pooled << "\n";
  return q.str();
}

struct Row {
  const char* what;
  double predicted, actual;
  double error() const { return predicted - actual; }
  bool good() const {
    return std::fabs(error()) <= 16.0 * kMiB || std::fabs(error()) <= 0.02 * std::max(actual, 1.0);
  }
};

std::vector<Row> Compare(const ModelDescriptor& model, const Case& c, const boost::json::object& answer) {
  const LayeredBytes bytes = LayeredMemory(model, c.shape, {});
  const auto& host = answer.at("host").as_object();
  const auto get = [&](const char* key) { return host.at(key).to_number<double>(); };
  return {
      {"weights", static_cast<double>(bytes.host.weights), get("model")},
      {"cache", static_cast<double>(bytes.host.kv_cache) + static_cast<double>(bytes.host.recurrent_state),
       get("context")},
      {"compute", static_cast<double>(bytes.host.compute), get("compute")}};
}

int Main(int argc, char** argv) {
  bool all = false;
  std::string only;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--all")
      all = true;
    else if (arg == "--shape" && i + 1 < argc)
      only = argv[++i];
    else
      files.push_back(arg);
  }
  char name[] = "/tmp/rumbo-shapes-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  if (files.empty()) {
    for (const ShapeInfo& shape : Shapes()) {
      if (!only.empty() && shape.name != only) continue;
      const std::string path = folder + "/" + shape.name + ".gguf";
      const auto written = WriteShape(shape.name, path);
      if (!written.ok()) throw std::runtime_error(MessageOf(written));
      files.push_back(path);
    }
  }
  const std::string bin = ExecutableDir();
  int rows = 0, bad = 0;
  double worst_percent = 0;
  std::printf(
      "| model | case | class | predicted MiB | libllama MiB | off MiB | off %% "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const std::string& file : files) {
    const auto model = DescriptorFromJson(RunProgram({bin + "/rumbo-inspect", file}, ""));
    if (!model.ok() || model->layers.empty()) {
      std::printf("| %s | cannot be described |\n", file.c_str());
      ++bad;
      continue;
    }
    const bool pooled = model->capabilities.size() == 1 && model->capabilities[0] != "generate";
    std::string questions;
    const std::vector<Case> cases = Cases(*model);
    for (const Case& c : cases) questions += Question(c, pooled);
    std::istringstream answers(RunProgram({bin + "/rumbo-oracle", file, "-"}, questions));
    for (const Case& c : cases) {
      std::string line;
      std::getline(answers, line);
      const auto answer = boost::json::parse(line.empty() ? "{\"error\":1}" : line).as_object();
      if (answer.contains("error")) {
        std::printf("| %s | %s refused by libllama |\n", model->name.c_str(), Question(c, pooled).c_str());
        continue;
      }
      for (const Row& row : Compare(*model, c, answer)) {
        ++rows;
        if (!row.good()) ++bad;
        const double percent = row.actual > 0 ? 100 * row.error() / row.actual : 0;
        if (std::fabs(row.error()) > 16.0 * kMiB) worst_percent = std::max(worst_percent, std::fabs(percent));
        if (row.good() && !all) continue;
        const CacheShape& s = c.shape;
        std::printf("| %s | %u ctx, %u sess, %s%s%s, ub %u | %s | %.1f | %.1f | %+.1f | %+.1f |\n",
                    model->name.c_str(), s.context_total, s.sessions, s.type_k.c_str(),
                    s.unified ? ", unified" : "", s.flash_attention ? "" : ", no FA", s.ubatch, row.what,
                    row.predicted / kMiB, row.actual / kMiB, row.error() / kMiB, percent);
      }
    }
  }
  std::filesystem::remove_all(folder);
  std::printf("\n%d rows, %d off by more than 2 %% and 16 MiB; worst %.1f %%\n", rows, bad, worst_percent);
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rumbo::bench

int main(int argc, char** argv) {
  try {
    return rumbo::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench-plan-accuracy: %s\n", e.what());
    return 2;
  }
}
