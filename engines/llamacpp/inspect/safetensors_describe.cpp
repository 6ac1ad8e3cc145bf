#include "engines/llamacpp/inspect/safetensors_describe.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

#include "base/bytes.h"
#include "base/utf8.h"
#include "engines/llamacpp/inspect/config_view.h"
#include "engines/llamacpp/inspect/errors.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxConfig = 4 * kMiB;
constexpr uint64_t kMaxHeader = 64 * kMiB;
constexpr uint32_t kMaxLayers = 4096;
constexpr size_t kMaxTensors = 1 << 18;

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && std::string_view(text).substr(text.size() - end.size()) == end;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

double DtypeBits(const std::string& dtype) {
  static const std::map<std::string, double> kBits = {
      {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
      {"U16", 16},    {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
      {"F32", 32},    {"F64", 64}, {"I64", 64},    {"U64", 64},    {"C64", 64}};
  const auto it = kBits.find(dtype);
  return it == kBits.end() ? 0 : it->second;
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// The number after ".layers." or ".h." or ".blocks."; nullopt outside the layers.
std::optional<size_t> LayerOf(std::string_view name) {
  for (const std::string_view mark : {"layers.", "blocks.", ".h."}) {
    const size_t at = name.find(mark);
    if (at == name.npos) continue;
    size_t i = at + mark.size(), n = 0, digits = 0;
    for (; i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) && digits < 6;
         ++i, ++digits) {
      n = n * 10 + static_cast<size_t>(name[i] - '0');
    }
    if (digits > 0) return n;
  }
  return std::nullopt;
}

class Folder {
 public:
  explicit Folder(const ModelFiles& files, json::array* entries = nullptr)
      : files_(files), entries_(entries) {}

  absl::StatusOr<ModelDescriptor> Run() {
    out_.format = "safetensors";
    out_.files = files_.names;
    const int config_fd = FdOf("config.json");
    if (config_fd < 0)
      return ModelInvalid("the folder has no config.json",
                          "Give a folder as it was downloaded, or a .gguf file.");
    RUMBO_ASSIGN_OR_RETURN(const json::value config, ReadJson(config_fd, "config.json", kMaxConfig));
    ConfigView view(config.get_object());
    RUMBO_RETURN_IF_ERROR(Shape(view));
    RUMBO_RETURN_IF_ERROR(Quantization(view));
    for (size_t i = 0; i < files_.names.size(); ++i) {
      if (EndsWith(files_.names[i], ".safetensors"))
        RUMBO_RETURN_IF_ERROR(Header(files_.fds[i].get(), BaseName(files_.names[i])));
    }
    RUMBO_RETURN_IF_ERROR(Complete());
    if (out_.parameters == 0)
      return ModelInvalid("the folder has no tensors", "Download the .safetensors files too.");
    Finish(view);
    RUMBO_RETURN_IF_ERROR(Template());
    return std::move(out_);
  }

 private:
  int FdOf(const std::string& name) const {
    for (size_t i = 0; i < files_.names.size(); ++i) {
      if (BaseName(files_.names[i]) == name) return files_.fds[i].get();
    }
    return -1;
  }

  absl::Status Shape(ConfigView& view) {
    out_.architecture = EscapeForLog(SanitizeUtf8(view.Text("model_type")), 64);
    if (out_.architecture.empty()) view.Fail("'model_type' is missing");
    out_.name = EscapeForLog(SanitizeUtf8(view.Text("_name_or_path")), 200);
    const uint32_t layers =
        view.Count({"num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"});
    out_.embedding_length = view.Count({"hidden_size", "d_model", "n_embd", "dim"});
    out_.feed_forward_length = view.Count({"intermediate_size", "ffn_dim", "n_inner"});
    out_.context_trained =
        view.Count({"max_position_embeddings", "n_positions", "max_sequence_length", "max_target_positions"});
    out_.vocabulary = view.Count({"vocab_size"});
    out_.experts = view.Count({"num_experts", "n_routed_experts", "num_local_experts"});
    out_.experts_used = view.Count({"num_experts_per_tok", "num_experts_per_token", "moe_topk"});
    out_.mtp_layers = view.Count({"num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers"});
    RUMBO_RETURN_IF_ERROR(view.error());
    if (layers > kMaxLayers || out_.mtp_layers > 64)
      view.Fail("'num_hidden_layers' is " + std::to_string(layers) + ", no model has so many");
    if (out_.experts_used > out_.experts) {
      view.Fail("uses " + std::to_string(out_.experts_used) + " of " + std::to_string(out_.experts) +
                " experts");
    }
    RUMBO_RETURN_IF_ERROR(view.error());
    main_layers_ = layers;
    out_.layers.resize(layers + (layers > 0 ? out_.mtp_layers : 0));
    for (size_t i = layers; i < out_.layers.size(); ++i) out_.layers[i].mtp = true;
    return Layers(view);
  }

  // How the weights are packed, where config.json says so: several of them in one integer.
  absl::Status Quantization(ConfigView& view) {
    if (view.Has("quantization_config") && view.Object("quantization_config") == nullptr)
      view.Fail("'quantization_config' is not an object");
    RUMBO_RETURN_IF_ERROR(view.error());
    const json::object* q = view.Object("quantization_config");
    if (q == nullptr) return absl::OkStatus();
    for (const char* key : {"bits", "w_bit", "num_bits"}) {
      const json::value* bits = q->if_contains(key);
      if (bits == nullptr || bits->is_null()) continue;
      const auto n = Whole(*bits);
      if (!n || *n == 0 || *n > 32)
        return ModelInvalid("config.json: '" + std::string(key) +
                            "' of 'quantization_config' is no width of a weight");
      packed_bits_ = static_cast<uint32_t>(*n);
    }
    const json::value* method = q->if_contains("quant_method");
    const bool packs = method != nullptr && method->is_string() &&
                       (method->get_string() == "awq" || method->get_string() == "gptq" ||
                        method->get_string() == "compressed-tensors");
    if (packed_bits_ == 0 && packs) packed_bits_ = 4;
    return absl::OkStatus();
  }

  // Weights in a tensor of `elements`: more than its elements where they are packed into integers.
  uint64_t WeightsOf(const std::string& tensor, const std::string& dtype, uint64_t elements) const {
    const bool packed = EndsWith(tensor, ".qweight") || EndsWith(tensor, ".weight_packed");
    if (!packed || packed_bits_ == 0 || (dtype != "I32" && dtype != "U8" && dtype != "I8" && dtype != "U32"))
      return elements;
    const auto all = CheckedMul(elements, static_cast<uint64_t>(DtypeBits(dtype)));
    return all ? *all / packed_bits_ : elements;
  }

  absl::Status Layers(ConfigView& view) {
    const uint32_t heads = view.Count({"num_attention_heads", "n_head", "encoder_attention_heads"});
    const uint32_t kv_heads = view.Count({"num_key_value_heads", "num_kv_heads"}, heads);
    const uint32_t head = view.Count({"head_dim"}, heads > 0 ? out_.embedding_length / heads : 0);
    const uint32_t latent = view.Count({"kv_lora_rank"}), rope = view.Count({"qk_rope_head_dim"});
    const uint32_t expert_ff =
        view.Count({"moe_intermediate_size", "expert_intermediate_size"}, out_.feed_forward_length);
    RUMBO_RETURN_IF_ERROR(view.error());
    if (heads > 0 && (kv_heads > heads || (kv_heads > 0 && heads % kv_heads != 0))) {
      view.Fail(std::to_string(heads) + " heads cannot share " + std::to_string(kv_heads) +
                " key-value heads");
    }
    if (heads > 0 && !view.Has("head_dim") && out_.embedding_length % heads != 0) {
      view.Fail("'hidden_size' is no multiple of the heads, and 'head_dim' is missing");
    }
    const std::vector<std::string> kinds = view.Texts("layer_types");
    if (!kinds.empty() && kinds.size() != main_layers_) {
      view.Fail("'layer_types' has " + std::to_string(kinds.size()) + " entries for " +
                std::to_string(main_layers_) + " layers");
    }
    const uint32_t window = view.Flag("use_sliding_window", true) ? view.Count({"sliding_window"}) : 0;
    const uint32_t pattern = view.Count({"sliding_window_pattern"});
    const Bytes state = LinearState(view);
    RUMBO_RETURN_IF_ERROR(view.error());
    out_.mla = latent > 0;
    for (size_t i = 0; i < out_.layers.size(); ++i) {
      LayerDescriptor& layer = out_.layers[i];
      const std::string kind = i < kinds.size() ? kinds[i] : "";
      layer.heads = heads;
      layer.kv_heads = out_.mla ? 1 : kv_heads;
      layer.key_length = out_.mla ? latent + rope : head;
      layer.value_length = out_.mla ? 0 : head;
      layer.attention_width = layer.query_width =
          static_cast<uint32_t>(std::min<uint64_t>(uint64_t{heads} * head, 1u << 30));
      layer.feed_forward = out_.feed_forward_length;
      layer.gated = true;
      layer.expert_feed_forward = out_.experts > 0 ? expert_ff : 0;
      if (kind == "sliding_attention" || kind == "chunked_attention") layer.window = window;
      if (kinds.empty() && window > 0 && pattern > 0 && (i + 1) % pattern != 0) layer.window = window;
      if (kinds.empty() && window > 0 && pattern == 0 && window < out_.context_trained) layer.window = window;
      if (kind == "linear_attention" || kind == "mamba" || kind == "conv") {
        layer.recurrent = true;
        layer.mixer = kind == "linear_attention" ? "linear" : kind == "mamba" ? "scan" : "conv";
        layer.recurrent_state_bytes = state;
        layer.kv_heads = 0;
      }
    }
    return view.error();
  }

  // Bytes of one linear layer's state per sequence, 16-bit convolution and 32-bit state.
  static Bytes LinearState(ConfigView& view) {
    const uint64_t value_heads = view.Count({"linear_num_value_heads"}),
                   key_heads = view.Count({"linear_num_key_heads"});
    const uint64_t key = view.Count({"linear_key_head_dim"}), value = view.Count({"linear_value_head_dim"});
    const uint64_t conv = view.Count({"linear_conv_kernel_dim", "conv_kernel"}, 4);
    const uint64_t channels =
        SaturatingAdd(SaturatingMul(2, SaturatingMul(key_heads, key)), SaturatingMul(value_heads, value));
    return SaturatingAdd(SaturatingMul(SaturatingMul(value_heads, SaturatingMul(key, value)), 4),
                         SaturatingMul(SaturatingMul(channels, conv > 0 ? conv - 1 : 0), 2));
  }

  absl::Status Header(int fd, const std::string& name) {
    struct stat info;
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return NotAModelFile();
    const auto size = static_cast<uint64_t>(info.st_size);
    out_.file_bytes = SaturatingAdd(out_.file_bytes, size);
    uint64_t length = 0;
    if (size < 8 || ::pread(fd, &length, 8, 0) != 8)
      return ModelInvalid(name + " is too short to be a safetensors file");
    if (length > size - 8 || length > kMaxHeader || length < 2) {
      return ModelInvalid("the header of " + name + " claims " + std::to_string(length) +
                          " bytes, the file has " + std::to_string(size));
    }
    std::string text(length, '\0');
    if (::pread(fd, text.data(), length, 8) != static_cast<ssize_t>(length))
      return ModelInvalid(name + " ends early");
    json::parse_options options;
    options.max_depth = 8;
    boost::system::error_code error;
    const json::value header = json::parse(text, error, {}, options);
    if (error || !header.is_object()) return ModelInvalid("the header of " + name + " is not a JSON object");
    const Bytes before = out_.tensor_bytes;
    for (const auto& item : header.get_object()) {
      const std::string tensor(item.key().data(), item.key().size());
      if (tensor == "__metadata__") continue;
      if (!names_.insert(tensor).second)
        return ModelInvalid("tensor '" + EscapeForLog(tensor, 80) + "' is there twice");
      if (names_.size() > kMaxTensors) return ModelInvalid("the model claims more than 262,144 tensors");
      RUMBO_RETURN_IF_ERROR(Tensor(tensor, item.value(), size - 8 - length, name));
      if (out_.tensor_bytes - before > size - 8 - length)
        return ModelInvalid("the tensors of " + name + " overlap: together they are larger than the file");
    }
    return absl::OkStatus();
  }

  absl::Status Tensor(const std::string& tensor, const json::value& value, uint64_t data,
                      const std::string& file) {
    const auto bad = [&](const char* what) {
      return ModelInvalid("tensor '" + EscapeForLog(tensor, 80) + "' of " + file + " " + what);
    };
    const json::object* o = value.if_object();
    const json::value* shape = o != nullptr ? o->if_contains("shape") : nullptr;
    const json::value* offsets = o != nullptr ? o->if_contains("data_offsets") : nullptr;
    const json::value* type = o != nullptr ? o->if_contains("dtype") : nullptr;
    if (shape == nullptr || !shape->is_array() || offsets == nullptr || !offsets->is_array() ||
        offsets->get_array().size() != 2 || type == nullptr || !type->is_string()) {
      return bad("lacks its type, shape or offsets");
    }
    const std::string dtype(type->get_string().data(), type->get_string().size());
    const double bits = DtypeBits(dtype);
    if (bits == 0) return bad("has a type that is not known");
    uint64_t elements = 1;
    for (const json::value& dim : shape->get_array()) {
      const auto n = Whole(dim);
      const auto product = n ? CheckedMul(elements, *n) : std::nullopt;
      if (!product) return bad("has an impossible shape");
      elements = *product;
    }
    const auto begin = Whole(offsets->get_array()[0]), end = Whole(offsets->get_array()[1]);
    if (!begin || !end || *begin > *end || *end > data)
      return bad("lies outside the file: it is truncated or damaged");
    if (elements > (1ull << 55) || *end - *begin != (elements * static_cast<uint64_t>(bits) + 7) / 8) {
      return bad("has another size than its shape");
    }
    if (entries_ != nullptr) {
      entries_->push_back(json::array{json::string(SanitizeUtf8(tensor)), json::string(dtype)});
    }
    return Sort(tensor, dtype, *end - *begin, elements);
  }

  static std::optional<uint64_t> Whole(const json::value& v) {
    if (v.is_uint64()) return v.get_uint64();
    if (v.is_int64() && v.get_int64() >= 0) return static_cast<uint64_t>(v.get_int64());
    return std::nullopt;
  }

  absl::Status Sort(const std::string& tensor, const std::string& dtype, Bytes bytes, uint64_t elements) {
    out_.tensor_bytes = SaturatingAdd(out_.tensor_bytes, bytes);
    elements = WeightsOf(tensor, dtype, elements);
    out_.parameters = SaturatingAdd(out_.parameters, elements);
    Bytes& by_type = out_.bytes_by_type[dtype];
    by_type = SaturatingAdd(by_type, bytes);
    const bool mtp = tensor.compare(0, 4, "mtp.") == 0;
    const auto index = out_.layers.empty() || Contains(tensor, "visual") || Contains(tensor, "vision")
                           ? std::nullopt
                           : LayerOf(tensor);
    if (mtp && out_.mtp_layers > 0) {
      LayerDescriptor& layer = out_.layers.back();
      layer.dense_ffn_bytes = SaturatingAdd(layer.dense_ffn_bytes, bytes);
      return absl::OkStatus();
    }
    if (!index || mtp) {
      Bytes& sum =
          Contains(tensor, "embed_tokens") || Contains(tensor, "wte") || Contains(tensor, "word_embeddings")
              ? out_.token_embedding_bytes
          : Contains(tensor, "lm_head") ? out_.output_bytes
                                        : out_.other_bytes;
      sum = SaturatingAdd(sum, bytes);
      return absl::OkStatus();
    }
    if (*index >= out_.layers.size()) {
      return ModelInvalid("tensor '" + EscapeForLog(tensor, 80) +
                          "' names a layer that config.json does not have");
    }
    LayerDescriptor& layer = out_.layers[*index];
    Bytes* sum = &layer.attention_bytes;
    if (Contains(tensor, ".experts.")) {
      sum = &layer.expert_bytes;
      expert_parameters_ = SaturatingAdd(expert_parameters_, elements);
    } else if (Contains(tensor, "mlp") || Contains(tensor, "feed_forward") || Contains(tensor, ".ffn")) {
      sum = &layer.dense_ffn_bytes;
    }
    *sum = SaturatingAdd(*sum, bytes);
    return absl::OkStatus();
  }

  // Every file that the index names is there.
  absl::Status Complete() {
    const int fd = FdOf("model.safetensors.index.json");
    if (fd < 0) return absl::OkStatus();
    RUMBO_ASSIGN_OR_RETURN(const json::value index, ReadJson(fd, "model.safetensors.index.json", kMaxHeader));
    const json::value* map = index.get_object().if_contains("weight_map");
    if (map == nullptr || !map->is_object())
      return ModelInvalid("model.safetensors.index.json has no weight_map");
    for (const auto& item : map->get_object()) {
      const std::string tensor(item.key().data(), item.key().size());
      if (names_.count(tensor) == 0) {
        return ModelInvalid("tensor '" + EscapeForLog(tensor, 80) + "' of the index is in none of the files",
                            "Download the missing .safetensors files.");
      }
    }
    return absl::OkStatus();
  }

  void Finish(ConfigView& view) {
    for (LayerDescriptor& layer : out_.layers) {
      if (layer.expert_bytes == 0) layer.expert_feed_forward = 0;
    }
    const double share = out_.experts > 0 ? static_cast<double>(out_.experts_used) / out_.experts : 0;
    out_.active_parameters = SaturatingSub(out_.parameters, expert_parameters_) +
                             static_cast<uint64_t>(static_cast<double>(expert_parameters_) * share);
    const json::object* quantization = view.Object("quantization_config");
    std::string method;
    if (quantization != nullptr) {
      const json::value* m = quantization->if_contains("quant_method");
      if (m != nullptr && m->is_string()) method.assign(m->get_string().data(), m->get_string().size());
    }
    Bytes most = 0;
    for (const auto& [type, bytes] : out_.bytes_by_type) {
      if (bytes > most) most = bytes, out_.quantization = type;
    }
    if (!method.empty()) out_.quantization = Upper(EscapeForLog(method, 32));
    Capabilities(view);
    out_.has_tokenizer =
        FdOf("tokenizer.json") >= 0 || FdOf("tokenizer.model") >= 0 || FdOf("vocab.txt") >= 0;
    out_.output_length =
        std::find(out_.capabilities.begin(), out_.capabilities.end(), "generate") != out_.capabilities.end()
            ? out_.vocabulary
            : 0;
    if (main_layers_ == 0) {
      out_.notes.push_back("config.json names no layers: planned from the sizes of the tensors alone");
      out_.unknown_architecture = true;
    }
  }

  void Capabilities(ConfigView& view) {
    static const std::set<std::string> kSpeak = {"vits", "bark", "speecht5",  "parler_tts", "kokoro",
                                                 "csm",  "dia",  "styletts2", "qwen3_tts"};
    static const std::set<std::string> kHear = {"whisper", "wav2vec2", "moonshine", "parakeet_ctc",
                                                "speech-encoder-decoder"};
    std::string classes;
    for (const std::string& name : view.Texts("architectures")) classes += name + " ";
    if (kSpeak.count(out_.architecture) > 0) {
      out_.capabilities = {"synthesize"};
    } else if (kHear.count(out_.architecture) > 0) {
      out_.capabilities = {"transcribe"};
    } else if (Contains(classes, "ForSequenceClassification")) {
      out_.capabilities = {"rerank"};
    } else if (Contains(classes, "ForCausalLM") || Contains(classes, "ForConditionalGeneration")) {
      out_.capabilities = {"generate"};
    } else {
      out_.capabilities = {"embed"};
    }
  }

  absl::Status Template() {
    std::string text;
    const int own = FdOf("chat_template.jinja");
    if (own >= 0) {
      struct stat info;
      if (::fstat(own, &info) == 0 && info.st_size > 0 && info.st_size <= 1 << 20) {
        text.resize(static_cast<size_t>(info.st_size));
        const ssize_t n = ::pread(own, text.data(), text.size(), 0);
        text.resize(n > 0 ? static_cast<size_t>(n) : 0);
      }
    } else if (const int fd = FdOf("tokenizer_config.json"); fd >= 0) {
      RUMBO_ASSIGN_OR_RETURN(const json::value config, ReadJson(fd, "tokenizer_config.json", kMaxHeader));
      const json::value* value = config.get_object().if_contains("chat_template");
      if (value != nullptr && value->is_string() && value->get_string().size() <= 1 << 20) {
        text.assign(value->get_string().data(), value->get_string().size());
      }
    }
    if (text.empty()) return absl::OkStatus();
    out_.has_chat_template = true;
    out_.chat_template = SanitizeUtf8(text);
    if (out_.capabilities == std::vector<std::string>{"generate"}) out_.capabilities.push_back("chat");
    return absl::OkStatus();
  }

  const ModelFiles& files_;
  json::array* const entries_;  // of ListSafetensors; may be nullptr
  ModelDescriptor out_;
  std::set<std::string> names_;
  size_t main_layers_ = 0;
  uint32_t packed_bits_ = 0;  // of a weight in a packed tensor; 0: nothing is packed
  uint64_t expert_parameters_ = 0;
};

}  // namespace

absl::StatusOr<ModelDescriptor> DescribeSafetensors(const ModelFiles& files) { return Folder(files).Run(); }

absl::StatusOr<std::string> ListSafetensors(const ModelFiles& files) {
  json::array tensors;
  RUMBO_RETURN_IF_ERROR(Folder(files, &tensors).Run().status());
  std::string config;
  for (size_t i = 0; i < files.names.size(); ++i) {
    if (BaseName(files.names[i]) != "config.json") continue;
    config.resize(kMaxConfig);
    const ssize_t n = ::pread(files.fds[i].get(), config.data(), config.size(), 0);
    config.resize(n > 0 ? static_cast<size_t>(n) : 0);
  }
  return json::serialize(json::object{{"config", SanitizeUtf8(config)}, {"tensors", std::move(tensors)}});
}

}  // namespace rumbo
