// Runs the real rumbo-inspect on files that are damaged, hostile or fine: each bad one is a typed error,
// fast, small.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engines/api/model_descriptor.h"
#include "engines/llamacpp/inspect/gguf_bytes.h"

namespace rumbo {
namespace {

using testing::GgufBytes;

struct Outcome {
  int code = -1;
  std::string out;
  double ms = 0;
  long max_rss_kib = 0;
  std::string reason, message, next_step;
};

Outcome Inspect(const std::string& path) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe_fds[1], STDOUT_FILENO);
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, STDERR_FILENO);
    const std::string program = std::string(RUMBO_BIN_DIR) + "/rumbo-inspect";
    ::execl(program.c_str(), program.c_str(), path.c_str(), "--json", nullptr);
    ::_exit(127);
  }
  ::close(pipe_fds[1]);
  Outcome o;
  char buffer[65536];
  for (ssize_t n; (n = ::read(pipe_fds[0], buffer, sizeof buffer)) > 0;)
    o.out.append(buffer, static_cast<size_t>(n));
  ::close(pipe_fds[0]);
  int state = 0;
  rusage usage{};
  ::wait4(child, &state, 0, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  o.ms = ms(usage.ru_utime) + ms(usage.ru_stime);
  o.max_rss_kib = usage.ru_maxrss;
  o.code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  if (o.code == 1) {
    const auto error = boost::json::parse(o.out).as_object().at("error").as_object();
    o.reason = error.at("reason").as_string().c_str();
    o.message = error.at("message").as_string().c_str();
    o.next_step = error.at("next_step").as_string().c_str();
  }
  return o;
}

class InspectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rumbo-inspect-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& bytes, const std::string& name = "m.gguf", uint64_t sparse = 0) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    if (sparse > 0) std::filesystem::resize_file(path, sparse);
    return path;
  }

  void ExpectInvalid(const std::string& bytes, const std::string& part, uint64_t sparse = 0) {
    const Outcome o = Inspect(Write(bytes, "m.gguf", sparse));
    EXPECT_EQ(o.code, 1) << o.out;
    EXPECT_EQ(o.reason, "MODEL_INVALID") << o.message;
    EXPECT_NE(o.message.find(part), std::string::npos) << o.message;
    EXPECT_FALSE(o.next_step.empty());
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(o.ms, 100) << part;                             // processor time: the machine may be busy
    EXPECT_LT(o.max_rss_kib, 32 * 1024 + 12 * 1024) << part;  // 12 MiB: the program with its libraries
#endif
  }

  std::string folder_;
};

// The smallest file that is a model: one layer, all tensors F32.
GgufBytes Fine(uint64_t extra_keys = 0, uint64_t extra_tensors = 0) {
  GgufBytes b;
  b.Header(3 + extra_tensors, 9 + extra_keys)
      .Key("general.architecture", "llama")
      .Key("general.name", "tiny");
  b.Key("llama.block_count", 1).Key("llama.context_length", 128).Key("llama.embedding_length", 32);
  b.Key("llama.feed_forward_length", 64).Key("llama.attention.head_count", 2).Key("llama.vocab_size", 8);
  b.Key("llama.attention.head_count_kv", 1);
  return b;
}

GgufBytes& FineTensors(GgufBytes& b) {
  return b.Tensor("token_embd.weight", {32, 8}, 0, 0)
      .Tensor("blk.0.attn_k.weight", {32, 16}, 0, 1024)
      .Tensor("blk.0.ffn_up.weight", {32, 64}, 0, 3072);
}
constexpr size_t kFineData = 1024 + 2048 + 8192;

TEST_F(InspectTest, DescribesAModel) {
  GgufBytes b = Fine();
  const Outcome o = Inspect(Write(FineTensors(b).Data(kFineData).data()));
  ASSERT_EQ(o.code, 0) << o.out;
  const auto d = DescriptorFromJson(o.out);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->architecture, "llama");
  EXPECT_EQ(d->layers.size(), 1u);
  EXPECT_EQ(d->layers[0].kv_heads, 1u);
  EXPECT_EQ(d->layers[0].key_length, 16u);
  EXPECT_EQ(d->tensor_bytes, kFineData);
  EXPECT_EQ(d->token_embedding_bytes, 1024u);
  EXPECT_EQ(d->layers[0].dense_ffn_bytes, 8192u);
}

TEST_F(InspectTest, HeaderLies) {
  ExpectInvalid("", "empty");
  ExpectInvalid("NOPE", "magic");
  ExpectInvalid("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS");
  ExpectInvalid("GGUF", "ends inside");
  ExpectInvalid(GgufBytes().Header(0, 0, 0).data(), "version 0");
  ExpectInvalid(GgufBytes().Header(0, 0, 1).data(), "version 1");
  ExpectInvalid(GgufBytes().Header(0, 0, 4).data(), "version 4");
  ExpectInvalid(GgufBytes().Header(0, 0, 0x03000000).data(), "byte order");
  ExpectInvalid(GgufBytes().Header(0, ~0ull).data(), "more than the file");
  ExpectInvalid(GgufBytes().Header(~0ull, 0).data(), "more than the file");
  ExpectInvalid(GgufBytes().Header(1ull << 40, 1ull << 40).data(), "more than the file");
  ExpectInvalid(GgufBytes().Header(0, 0).data(), "general.architecture");
}

TEST_F(InspectTest, KeysLie) {
  ExpectInvalid(GgufBytes().Header(0, 1).Raw<uint64_t>(0xFFFFFFFFFFFFull).data(), "more than the file");
  ExpectInvalid(GgufBytes().Header(0, 1).Raw<uint64_t>(~0ull).Raw<uint64_t>(0).data(),
                "longer than the file");
  ExpectInvalid(GgufBytes().Header(0, 1).Text("").Raw<int32_t>(4).Raw<uint32_t>(1).Raw<uint64_t>(0).data(),
                "no name");
  ExpectInvalid(GgufBytes().Header(0, 2).Key("a", 1u).Key("a", 2u).data(), "twice");
  ExpectInvalid(GgufBytes().Header(0, 1).Text("k").Raw<int32_t>(99).Raw<uint64_t>(0).data(), "unknown type");
  for (const int shift : {60, 61}) {
    ExpectInvalid(GgufBytes()
                      .Header(0, 1)
                      .Text("k")
                      .Raw<int32_t>(9)
                      .Raw<int32_t>(0)
                      .Raw<uint64_t>(1ull << shift)
                      .data(),
                  "longer than the file");
  }
  ExpectInvalid(
      GgufBytes().Header(0, 1).Text("k").Raw<int32_t>(9).Raw<int32_t>(5).Raw<uint64_t>(~0ull).data(),
      "longer than the file");
  ExpectInvalid(
      GgufBytes().Header(0, 1).Text("k").Raw<int32_t>(9).Raw<int32_t>(8).Raw<uint64_t>(1ull << 50).data(),
      "longer than the file");
  ExpectInvalid(GgufBytes().Header(0, 1).Text("k").Raw<int32_t>(8).Raw<uint64_t>(1ull << 40).data(),
                "longer than the file");
  GgufBytes nested;
  nested.Header(0, 1).Text("k");
  for (int i = 0; i < 10000; ++i) nested.Raw<int32_t>(9);
  ExpectInvalid(nested.data(), "array of arrays");
}

TEST_F(InspectTest, AlignmentLies) {
  for (const uint32_t bad : {0u, 13u, 1u << 30}) {
    ExpectInvalid(GgufBytes().Header(0, 1).Key("general.alignment", bad).data(), "general.alignment");
  }
  ExpectInvalid(GgufBytes().Header(0, 1).Key("general.alignment", "32").data(), "general.alignment");
}

TEST_F(InspectTest, TensorsLie) {
  const auto one = [](std::initializer_list<int64_t> dims, int32_t type, uint64_t offset) {
    GgufBytes b;
    b.Header(1, 1).Key("general.architecture", "llama").Tensor("t", dims, type, offset).Data(4096);
    return b.data();
  };
  ExpectInvalid(one({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
  ExpectInvalid(one({0}, 0, 0), "dimension 0");
  ExpectInvalid(one({-4}, 0, 0), "dimension -4");
  ExpectInvalid(one({1ll << 40, 1ll << 40}, 0, 0), "overflows");
  ExpectInvalid(one({1ll << 61}, 0, 0), "beyond the file");  // 4 bytes each wraps 64 bits
  ExpectInvalid(one({8}, 12345, 0), "type 12345");
  ExpectInvalid(one({8}, 4, 0), "type 4");  // retired
  ExpectInvalid(one({33}, 8, 0), "block size");
  ExpectInvalid(one({8}, 0, 1ull << 50), "beyond the file");
  ExpectInvalid(one({8}, 0, ~0ull - 31), "beyond the file");  // offset + size wraps
  ExpectInvalid(one({8}, 0, 7), "not aligned");
  ExpectInvalid(one({8}, 0, 64), "refuses");  // a hole: ggml's own rule
  GgufBytes twice;
  twice.Header(2, 1)
      .Key("general.architecture", "llama")
      .Tensor("t", {8}, 0, 0)
      .Tensor("t", {8}, 0, 32)
      .Data(64);
  ExpectInvalid(twice.data(), "twice");
  ExpectInvalid(GgufBytes()
                    .Header(1, 1)
                    .Key("general.architecture", "llama")
                    .Tensor(std::string(200, 'n'), {8}, 0, 0)
                    .Data(64)
                    .data(),
                "longer than 63");
}

TEST_F(InspectTest, SumOfSizesNeverWraps) {
  GgufBytes b;
  b.Header(3, 1).Key("general.architecture", "llama");
  for (int i = 0; i < 3; ++i)
    b.Tensor("t" + std::to_string(i), {1ll << 60}, 24, static_cast<uint64_t>(i) << 60);
  ExpectInvalid(b.Data(64).data(), "beyond the file");
}

TEST_F(InspectTest, TruncatedDataIsRefusedBeforeAnythingRuns) {
  GgufBytes b = Fine();
  std::string bytes = FineTensors(b).Data(kFineData).data();
  bytes.resize(bytes.size() - 1);
  ExpectInvalid(bytes, "truncated");
}

TEST_F(InspectTest, AByteTokenThatIsNoNumber) {
  GgufBytes b = Fine(2);
  b.Key("tokenizer.ggml.model", "llama").Text("tokenizer.ggml.tokens").Raw<int32_t>(9).Raw<int32_t>(8);
  b.Raw<uint64_t>(2).Text("<0x0A>").Text("<0x-1>");
  ExpectInvalid(FineTensors(b).Data(kFineData).data(), "hexadecimal");
}

TEST_F(InspectTest, ImpossibleHyperparameters) {
  const auto with = [](const std::string& key, auto value) {
    GgufBytes b;
    b.Header(1, 4).Key("general.architecture", "llama");
    b.Key("llama.embedding_length", 32).Key("llama.feed_forward_length", 64).Key("llama." + key, value);
    b.Tensor("token_embd.weight", {32, 8}, 0, 0).Data(1024);
    return b.data();
  };
  ExpectInvalid(with("block_count", 0u), "block_count");
  ExpectInvalid(with("block_count", 1u << 31), "block_count");
  ExpectInvalid(with("block_count", 5000u), "block_count");
  ExpectInvalid(with("block_count", "twelve"), "block_count");
  GgufBytes text = Fine(0);
  std::string bytes = FineTensors(text).Data(kFineData).data();
  const size_t at = bytes.find("llama.context_length") + 20;
  bytes[at] = 5;  // INT32: still a number
  EXPECT_EQ(Inspect(Write(bytes)).code, 0);
  GgufBytes wrong;
  wrong.Header(1, 4)
      .Key("general.architecture", "llama")
      .Key("llama.block_count", 1)
      .Key("llama.embedding_length", 32);
  wrong.Key("llama.context_length", "many").Tensor("token_embd.weight", {32, 8}, 0, 0).Data(1024);
  ExpectInvalid(wrong.data(), "context_length");
}

TEST_F(InspectTest, ANameThatIsNoUtf8) {
  GgufBytes b;
  b.Header(0, 2).Key("general.architecture", "llama").Key("general.name", "bad\xff\xfename");
  ExpectInvalid(b.data(), "UTF-8");
}

TEST_F(InspectTest, ATensorOfALayerThatIsNotThere) {
  GgufBytes b = Fine(0, 1);
  FineTensors(b).Tensor("blk.7.attn_q.weight", {8}, 0, kFineData);
  ExpectInvalid(b.Data(kFineData + 32).data(), "layer");
}

TEST_F(InspectTest, AHugeSparseFileIsNotScanned) {
  ExpectInvalid(GgufBytes().Header(1, 1ull << 30).data(), "more than the file", 1ull << 40);
  GgufBytes b;
  b.Header(0, 1).Text("k").Raw<int32_t>(9).Raw<int32_t>(0).Raw<uint64_t>(1ull << 39);
  ExpectInvalid(b.data(), "header is longer", 1ull << 40);
}

TEST_F(InspectTest, NotAFile) {
  EXPECT_EQ(Inspect(folder_).reason, "NOT_A_FILE");
  EXPECT_EQ(Inspect(folder_ + "/none").reason, "FILE_NOT_FOUND");
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(Inspect(fifo).reason, "NOT_A_FILE");
}

constexpr char kConfig[] =
    R"({"model_type":"m","architectures":["MForCausalLM"],"num_hidden_layers":1,"hidden_size":64,
  "intermediate_size":128,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":512,"vocab_size":8)";

std::string Safetensors(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\0');
}

TEST_F(InspectTest, DescribesAFolder) {
  Write(std::string(kConfig) + R"(,"quantization_config":{"quant_method":"fp8"}})", "config.json");
  Write(
      Safetensors(
          R"({"__metadata__":{"format":"pt"},"model.embed_tokens.weight":{"dtype":"BF16","shape":[8,64],"data_offsets":[0,1024]},
    "model.layers.0.mlp.up_proj.weight":{"dtype":"F8_E4M3","shape":[128,64],"data_offsets":[1024,9216]}})",
          9216),
      "model.safetensors");
  Write(R"({"chat_template":"{{ x }}"})", "tokenizer_config.json");
  const Outcome o = Inspect(folder_);
  ASSERT_EQ(o.code, 0) << o.out;
  const auto d = DescriptorFromJson(o.out);
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->format, "safetensors");
  EXPECT_EQ(d->quantization, "FP8");
  EXPECT_EQ(d->layers.size(), 1u);
  EXPECT_EQ(d->layers[0].kv_heads, 2u);
  EXPECT_EQ(d->layers[0].key_length, 16u);
  EXPECT_EQ(d->layers[0].dense_ffn_bytes, 8192u);
  EXPECT_EQ(d->token_embedding_bytes, 1024u);
  EXPECT_EQ(d->capabilities, (std::vector<std::string>{"generate", "chat"}));
}

TEST_F(InspectTest, FoldersLie) {
  const std::string good = R"({"model.layers.0.a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})";
  const auto expect = [&](const std::string& config, const std::string& tensors, const std::string& part) {
    Write(config, "config.json");
    Write(tensors, "model.safetensors");
    const Outcome o = Inspect(folder_);
    EXPECT_EQ(o.code, 1) << part;
    EXPECT_EQ(o.reason, "MODEL_INVALID") << part;
    EXPECT_NE(o.message.find(part), std::string::npos) << o.message;
  };
  const std::string config = std::string(kConfig) + "}";
  expect("", Safetensors(good, 8), "config.json");
  expect("[]", Safetensors(good, 8), "config.json");
  expect(std::string(100, '[') + std::string(100, ']'), Safetensors(good, 8), "config.json");
  expect(R"({"num_hidden_layers":1})", Safetensors(good, 8), "model_type");
  expect(R"({"model_type":"m","num_hidden_layers":1e300})", Safetensors(good, 8), "num_hidden_layers");
  expect(R"({"model_type":"m","num_hidden_layers":100000})", Safetensors(good, 8), "num_hidden_layers");
  expect(R"({"model_type":"m","num_hidden_layers":"two"})", Safetensors(good, 8), "num_hidden_layers");
  expect(
      R"({"model_type":"m","num_hidden_layers":1,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":3})",
      Safetensors(good, 8), "heads");
  expect(R"({"model_type":"m","num_hidden_layers":1,"hidden_size":65,"num_attention_heads":4})",
         Safetensors(good, 8), "hidden_size");
  expect(R"({"model_type":"m","num_experts":2,"num_experts_per_tok":3})", Safetensors(good, 8), "experts");
  expect(
      R"({"model_type":"m","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"layer_types":["full_attention"]})",
      Safetensors(good, 8), "layer_types");
  expect(config, "", "too short");
  expect(config, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}", "claims");
  expect(config, Safetensors("not json", 0), "JSON");
  expect(config, Safetensors(R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,9]}})", 8), "outside");
  expect(config, Safetensors(R"({"a":{"dtype":"BF16","shape":[5],"data_offsets":[0,8]}})", 8),
         "another size");
  expect(config, Safetensors(R"({"a":{"dtype":"BF16","shape":[-4],"data_offsets":[0,8]}})", 8), "shape");
  expect(config,
         Safetensors(R"({"a":{"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8),
         "shape");
  expect(config, Safetensors(R"({"a":{"dtype":"Q7","shape":[4],"data_offsets":[0,8]}})", 8), "type");
  expect(config, Safetensors(R"({"a":7})", 8), "lacks");
  expect(config, Safetensors(R"({"model.layers.9.a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})", 8),
         "layer");
  Write(R"({"weight_map":{"gone":"model-2.safetensors"}})", "model.safetensors.index.json");
  expect(config, Safetensors(good, 8), "index");
}

TEST_F(InspectTest, PackedWeightsAreCountedAsWeights) {
  const std::string tensors = Safetensors(
      R"({"model.layers.0.mlp.up_proj.qweight":{"dtype":"I32","shape":[64,16],"data_offsets":[0,4096]},
    "model.layers.0.mlp.up_proj.scales":{"dtype":"F16","shape":[1,128],"data_offsets":[4096,4352]}})",
      4352);
  Write(tensors, "model.safetensors");
  const auto parameters = [&](const std::string& quantization) {
    Write(std::string(kConfig) + R"(,"quantization_config":)" + quantization + "}", "config.json");
    const Outcome o = Inspect(folder_);
    EXPECT_EQ(o.code, 0) << o.out;
    return DescriptorFromJson(o.out)->parameters;
  };
  EXPECT_EQ(parameters(R"({"quant_method":"awq","bits":4})"), 64u * 128 + 128);
  EXPECT_EQ(parameters(R"({"quant_method":"gptq","bits":8})"), 64u * 64 + 128);
  EXPECT_EQ(parameters("null"), 64u * 16 + 128);
  for (const char* bad : {"7", R"({"bits":0})", R"({"bits":"four"})", R"({"bits":-4})"}) {
    Write(std::string(kConfig) + R"(,"quantization_config":)" + bad + "}", "config.json");
    EXPECT_EQ(Inspect(folder_).reason, "MODEL_INVALID") << bad;
  }
}

TEST_F(InspectTest, TensorsThatOverlapAreRefused) {
  Write(std::string(kConfig) + "}", "config.json");
  Write(Safetensors(R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},
    "b":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})",
                    8),
        "model.safetensors");
  const Outcome o = Inspect(folder_);
  EXPECT_EQ(o.reason, "MODEL_INVALID");
  EXPECT_NE(o.message.find("overlap"), std::string::npos) << o.message;
}

TEST_F(InspectTest, FlippedBitsOfAFolderNeverCrashIt) {
  const std::string config =
      std::string(kConfig) +
      R"(,"layer_types":["full_attention"],"quantization_config":{"quant_method":"awq","bits":4}})";
  const std::string tensors = Safetensors(
      R"({"model.layers.0.mlp.up_proj.qweight":{"dtype":"I32","shape":[64,16],"data_offsets":[0,4096]}})",
      4096);
  const std::string index = R"({"weight_map":{"model.layers.0.mlp.up_proj.qweight":"model.safetensors"}})";
  const std::vector<std::pair<std::string, std::string>> good = {
      {"config.json", config}, {"model.safetensors", tensors}, {"model.safetensors.index.json", index}};
  for (const auto& [name, text] : good) Write(text, name);
  ASSERT_EQ(Inspect(folder_).code, 0);
  for (const auto& [name, text] : good) {
    for (size_t i = 0; i < std::min<size_t>(text.size(), 300); i += 5) {
      std::string bad = text;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      Write(i % 2 == 0 ? bad : text.substr(0, i), name);
      const Outcome o = Inspect(folder_);
      EXPECT_TRUE(o.code == 0 || o.code == 1) << name << " byte " << i << " exit " << o.code;
    }
    Write(text, name);
  }
}

TEST_F(InspectTest, FlippedBitsNeverCrashIt) {
  GgufBytes b = Fine(2);
  b.Key("tokenizer.ggml.model", "llama").Text("tokenizer.ggml.tokens").Raw<int32_t>(9).Raw<int32_t>(8);
  b.Raw<uint64_t>(2).Text("<0x0A>").Text("a");
  const std::string good = FineTensors(b).Data(kFineData).data();
  ASSERT_EQ(Inspect(Write(good)).code, 0);
  const size_t header = good.size() - kFineData;
  for (size_t i = 0; i < header; i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    const Outcome o = Inspect(Write(bad));
    EXPECT_TRUE(o.code == 0 || o.code == 1) << "byte " << i << " exit " << o.code;
  }
}

TEST_F(InspectTest, AllPartsOfASplitModelAreRead) {
  GgufBytes first;
  first.Header(1, 5)
      .Key("general.architecture", "llama")
      .Key("llama.block_count", 1)
      .Key("llama.embedding_length", 32);
  first.Key("split.count", 2).Key("split.no", 0u).Tensor("token_embd.weight", {32, 8}, 0, 0).Data(1024);
  GgufBytes second;
  second.Header(1, 2)
      .Key("split.count", 2)
      .Key("split.no", 1)
      .Tensor("blk.0.ffn_up.weight", {32, 64}, 0, 0)
      .Data(8192);
  const std::string path = Write(first.data(), "m-00001-of-00002.gguf");
  EXPECT_EQ(Inspect(path).reason, "FILE_NOT_FOUND");
  Write(second.data(), "m-00002-of-00002.gguf");
  const Outcome o = Inspect(path);
  ASSERT_EQ(o.code, 0) << o.out;
  const auto d = DescriptorFromJson(o.out);
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->files.size(), 2u);
  EXPECT_EQ(d->tensor_bytes, 1024u + 8192u);
}

}  // namespace
}  // namespace rumbo
