// rumbo-llama-raw: the shortest honest loop over libllama, as the yardstick of tests and benchmarks. Reads
// prompts from stdin, one a line; for each prints a line of the greedy token ids, then to stderr the load
// time and decode speed.
//   usage: rumbo-llama-raw MODEL TOKENS THREADS CONTEXT [--ignore-eos]
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

using Steady = std::chrono::steady_clock;

double Millis(Steady::time_point from) {
  return std::chrono::duration<double, std::milli>(Steady::now() - from).count();
}

void LoadBackends() {
  if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != nullptr) return;
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&llama_backend_init), &info);
  const std::string path = info.dli_fname;
  ggml_backend_load_all_from_path(path.substr(0, path.rfind('/')).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: rumbo-llama-raw MODEL TOKENS THREADS CONTEXT [--ignore-eos]\n");
    return 2;
  }
  const int tokens = std::atoi(argv[2]);
  const bool ignore_eos = argc > 5 && std::strcmp(argv[5], "--ignore-eos") == 0;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const auto begin = Steady::now();
  LoadBackends();
  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  ggml_backend_dev_t none[] = {nullptr};
  model_params.devices = none;
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(std::atoi(argv[4]));
  params.n_threads = params.n_threads_batch = std::atoi(argv[3]);
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 1;
  std::fprintf(stderr, "{\"load_ms\": %.1f", Millis(begin));
  const llama_vocab* vocab = llama_model_get_vocab(model);
  llama_sampler* greedy = llama_sampler_init_greedy();
  std::vector<llama_token> ends;
  for (llama_token t = 0; t < llama_vocab_n_tokens(vocab); ++t) {
    if (llama_vocab_is_eog(vocab, t)) ends.push_back(t);
  }

  double decode_ms = 0;
  int decoded = 0;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<llama_token> prompt(line.size() + 8);
    const int n = llama_tokenize(vocab, line.data(), static_cast<int32_t>(line.size()), prompt.data(),
                                 static_cast<int32_t>(prompt.size()), true, true);
    prompt.resize(static_cast<size_t>(n));
    llama_memory_clear(llama_get_memory(context), false);
    llama_decode(context, llama_batch_get_one(prompt.data(), n));
    std::string out;
    Steady::time_point first{};
    for (int i = 0; i < tokens; ++i) {
      if (ignore_eos) {
        float* logits = llama_get_logits_ith(context, -1);
        for (const llama_token t : ends) logits[t] = -1e30f;
      }
      llama_token token = llama_sampler_sample(greedy, context, -1);
      if (i == 0) first = Steady::now();
      if (llama_vocab_is_eog(vocab, token)) break;
      out += std::to_string(token) + " ";
      if (i + 1 < tokens) llama_decode(context, llama_batch_get_one(&token, 1));
      ++decoded;
    }
    decode_ms += Millis(first);
    --decoded;
    std::puts(out.c_str());
  }
  std::fprintf(stderr, ", \"decode_tok_s\": %.2f}\n", decode_ms > 0 ? decoded * 1000.0 / decode_ms : 0.0);
  std::fflush(stdout);
  _exit(0);
}
