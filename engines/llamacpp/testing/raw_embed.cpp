// rumbo-llama-raw-embed: vectors by libllama's own pooling, one text at a time, as the yardstick of tests.
// Reads texts from stdin, one a line ("QUERY<tab>DOCUMENT" for rank); prints a line of values for each, as
// the model gives them.
//   usage: rumbo-llama-raw-embed MODEL mean|cls|last|rank
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

void LoadBackends() {
  if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != nullptr) return;
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&llama_backend_init), &info);
  const std::string path = info.dli_fname;
  ggml_backend_load_all_from_path(path.substr(0, path.rfind('/')).c_str());
}

std::vector<llama_token> Tokens(const llama_vocab* vocab, const std::string& text, bool special) {
  std::vector<llama_token> tokens(text.size() + 8);
  const int n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                               static_cast<int32_t>(tokens.size()), special, special);
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

// What BERT-like rerankers want.
std::vector<llama_token> Pair(const llama_vocab* vocab, const std::string& line) {
  const size_t tab = line.find('\t');
  std::vector<llama_token> tokens = {llama_vocab_bos(vocab)};
  for (const std::string& text : {line.substr(0, tab), line.substr(tab + 1)}) {
    const auto part = Tokens(vocab, text, false);
    tokens.insert(tokens.end(), part.begin(), part.end());
    tokens.push_back(llama_vocab_eos(vocab));
  }
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string pooling = argv[2];
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  LoadBackends();
  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  ggml_backend_dev_t none[] = {nullptr};
  model_params.devices = none;
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = 1;
  params.embeddings = true;
  params.pooling_type = pooling == "mean"   ? LLAMA_POOLING_TYPE_MEAN
                        : pooling == "cls"  ? LLAMA_POOLING_TYPE_CLS
                        : pooling == "last" ? LLAMA_POOLING_TYPE_LAST
                                            : LLAMA_POOLING_TYPE_RANK;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const bool rank = pooling == "rank";
  const int width = rank ? static_cast<int>(llama_model_n_cls_out(model)) : llama_model_n_embd_out(model);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<llama_token> tokens = rank ? Pair(vocab, line) : Tokens(vocab, line, true);
    if (llama_memory_t memory = llama_get_memory(context); memory != nullptr)
      llama_memory_clear(memory, false);
    const auto count = static_cast<int32_t>(tokens.size());
    if (llama_decode(context, llama_batch_get_one(tokens.data(), count)) != 0) return 1;
    const float* row = llama_get_embeddings_seq(context, 0);
    if (row == nullptr) return 1;
    for (int i = 0; i < width; ++i) std::printf("%.9g ", row[i]);
    std::puts("");
  }
  std::fflush(stdout);
  _exit(0);
}
