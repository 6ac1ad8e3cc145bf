// rumbo-oracle: asks libllama how much memory a model would take, without allocating it. For tests and for a
// last check before a load. Confined like rumbo-inspect, after the backends are loaded.
//
// usage: rumbo-oracle MODEL (- | key=value ...)
// Each line of standard input (with "-") or the arguments are one question:
//   ctx=8192 seqs=4 batch=2048 ubatch=512 outputs=4 k=f16 v=f16 fa=on|off unified=0|1 swa_full=0|1 ngl=0
//   embeddings=0|1 mtp=0|1 (load MTP layers) draft_ctx=0|1 (a context of the MTP layers) rs_seq=0
// One JSON object per answer: {"host":{"model":..,"context":..,"compute":..},"devices":[{...}],"layers":..}

#include <ggml-backend.h>
#include <llama.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/os/sandbox.h"
#include "base/status.h"
#include "common/fit.h"

namespace rumbo {
namespace {

namespace json = boost::json;

using Question = std::map<std::string, std::string>;

Question Parse(const std::vector<std::string>& words) {
  Question question;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at != std::string::npos) question[word.substr(0, at)] = word.substr(at + 1);
  }
  return question;
}

long Number(const Question& question, const char* key, long fallback) {
  const auto it = question.find(key);
  return it == question.end() ? fallback : std::strtol(it->second.c_str(), nullptr, 10);
}

ggml_type CacheType(const Question& question, const char* key) {
  const auto it = question.find(key);
  const std::string name = it == question.end() ? "f16" : it->second;
  for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
    if (name == ggml_type_name(static_cast<ggml_type>(type))) return static_cast<ggml_type>(type);
  }
  throw std::runtime_error("unknown cache type " + name);
}

llama_context_params ContextOf(const Question& q) {
  llama_context_params c = llama_context_default_params();
  c.n_ctx = static_cast<uint32_t>(Number(q, "ctx", 4096));
  c.n_seq_max = static_cast<uint32_t>(Number(q, "seqs", 1));
  c.n_batch = static_cast<uint32_t>(Number(q, "batch", 2048));
  c.n_ubatch = static_cast<uint32_t>(Number(q, "ubatch", 512));
  c.n_outputs_max = static_cast<uint32_t>(Number(q, "outputs", 0));
  c.n_rs_seq = static_cast<uint32_t>(Number(q, "rs_seq", 0));
  c.type_k = CacheType(q, "k");
  c.type_v = CacheType(q, "v");
  const auto fa = q.find("fa");
  c.flash_attn_type =
      fa != q.end() && fa->second == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
  c.kv_unified = Number(q, "unified", 0) != 0;
  c.swa_full = Number(q, "swa_full", 0) != 0;
  c.embeddings = Number(q, "embeddings", 0) != 0;
  if (Number(q, "draft_ctx", 0) != 0) c.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
  c.n_threads = c.n_threads_batch = 1;
  return c;
}

json::object Figures(const common_device_memory_data& data) {
  return {{"model", data.model}, {"context", data.context}, {"compute", data.compute}};
}

json::object Answer(const std::string& path, const Question& q) {
  llama_model_params m = llama_model_default_params();
  m.n_gpu_layers = static_cast<int32_t>(Number(q, "ngl", 0));
  // Repacked weights live in a buffer type that the summary leaves out; they take the same bytes.
  m.use_extra_bufts = false;
  m.load_mtp = Number(q, "mtp", 0) != 0;
  const llama_context_params c = ContextOf(q);
  std::vector<ggml_backend_dev_t> devices;
  uint32_t layers = 0, context_trained = 0, experts = 0;
  const auto data = common_get_device_memory_data(path.c_str(), &m, &c, devices, layers, context_trained,
                                                  experts, GGML_LOG_LEVEL_ERROR);
  json::object out;
  out["host"] = Figures(data.back());
  json::array list;
  for (size_t i = 0; i + 1 < data.size(); ++i) {
    json::object one = Figures(data[i]);
    one["name"] = i < devices.size() ? ggml_backend_dev_name(devices[i]) : "";
    list.push_back(std::move(one));
  }
  out["devices"] = std::move(list);
  out["layers"] = layers;
  return out;
}

bool Ask(const std::string& path, const std::vector<std::string>& words) {
  json::object out;
  bool ok = true;
  try {
    out = Answer(path, Parse(words));
  } catch (const std::exception& e) {
    ok = false;
    out["error"] = json::object{{"reason", "MODEL_INVALID"}, {"message", e.what()}, {"next_step", ""}};
  }
  std::cout << json::serialize(out) << std::endl;
  return ok;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: rumbo-oracle MODEL (- | key=value ...)\n", stderr);
    return 2;
  }
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_CONT) std::fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all();
  SandboxOptions options;
  options.read_only = {argv[1], "/proc/meminfo", "/proc/self", "/sys/devices/system/cpu", "/proc/cpuinfo"};
  options.devices = {"/dev/dri", "/dev/kfd"};
  options.max_file_bytes = 64 * kMiB;
  const auto report = EnterSandbox(options);
  if (!report.ok()) {
    std::fprintf(stderr, "rumbo-oracle: %s\n", MessageOf(report.status()).c_str());
    return 1;
  }
  if (argc != 3 || std::strcmp(argv[2], "-") != 0) {
    return Ask(argv[1], std::vector<std::string>(argv + 2, argv + argc)) ? 0 : 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::vector<std::string> list;
    for (std::string word; words >> word;) list.push_back(word);
    Ask(argv[1], list);
  }
  return 0;
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) { return rumbo::Main(argc, argv); }
