#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"

// What a model file says about itself, as one value: made by rumbo-inspect (the only program that reads model
// files), read by the planner, the store and the CLI. Nothing in it is trusted to be sane: consumers use the
// checked arithmetic of base/bytes.h.
namespace rumbo {

// Bytes of the tensors of one layer, by what they do: enough to place layers and experts without the table.
struct LayerDescriptor {
  Bytes attention_bytes = 0;  // Q, K, V, O, norms, SSM tensors
  Bytes dense_ffn_bytes = 0;  // feed-forward used for every token, shared experts included
  Bytes expert_bytes = 0;     // all routed experts together
  uint32_t heads = 0;         // 0: no attention in this layer
  uint32_t kv_heads = 0;
  uint32_t key_length = 0;  // per head
  uint32_t value_length = 0;
  uint32_t window = 0;              // tokens of sliding-window attention; 0: full attention
  bool recurrent = false;           // keeps a state of fixed size instead of a KV cache
  Bytes recurrent_state_bytes = 0;  // per sequence
  bool mtp = false;                 // a multi-token-prediction layer, outside the main stack
  uint32_t index_length = 0;        // values of a second, one-headed key cache for sparse attention; 0: none

  // Widths of intermediate results, in values per token; 0: the layer has no such part.
  uint32_t query_width = 0;      // what the query projection yields, gates included
  uint32_t attention_width = 0;  // what the output projection takes
  bool fused_qkv = false;
  uint32_t feed_forward = 0;         // the dense part, or the shared expert
  bool gated = false;                // two projections up, one down
  uint32_t expert_feed_forward = 0;  // of one routed expert
  std::string mixer;                 // of a recurrent layer: "linear", "scan", "conv", "wkv"
  uint32_t mixer_width = 0;          // inner width of the mixer
  uint32_t mixer_conv_width = 0;     // channels of its convolution
  Bytes conv_state_bytes = 0;        // of recurrent_state_bytes
};

struct ModelDescriptor {
  std::string format;              // "gguf", "safetensors", "onnx"
  std::string architecture;        // general.architecture: "llama", "gemma3", ...
  std::string name;                // general.name, sanitised; may be ""
  std::string quantization;        // "Q4_1", "Q4_K_M", "BF16", ...; "mixed" where no one word fits
  std::vector<std::string> files;  // as given; the first is what the engine opens
  Bytes file_bytes = 0;            // of all files
  Bytes tensor_bytes = 0;          // of all tensors
  uint64_t parameters = 0;
  uint64_t active_parameters = 0;  // per token; equals parameters for dense models

  uint32_t context_trained = 0;  // tokens; 0 unknown
  uint32_t embedding_length = 0;
  uint32_t feed_forward_length = 0;
  uint32_t vocabulary = 0;
  uint32_t output_length = 0;        // logits per token; 0: no output projection (encoders)
  uint32_t per_layer_embedding = 0;  // values per token and layer of a second embedding; 0: none
  bool tied_output_copied = false;   // without mapping, the engine keeps the tied output projection twice
  std::vector<LayerDescriptor> layers;
  Bytes token_embedding_bytes = 0;   // with every second embedding
  Bytes second_embedding_bytes = 0;  // of these, the one per layer
  Bytes output_bytes = 0;            // output projection; 0 where tied to the embedding
  Bytes other_bytes = 0;             // tensors in no layer and neither of the two

  uint32_t experts = 0;  // 0: dense
  uint32_t experts_used = 0;
  bool mla = false;  // multi-head latent attention: K holds the compressed pair
  uint32_t mtp_layers = 0;

  bool has_chat_template = false;
  std::string chat_template;  // at most 1 MiB
  bool has_tokenizer = false;
  std::string tokenizer_model;
  std::string pooling;                    // "", "none", "mean", "cls", "last", "rank"
  std::vector<std::string> capabilities;  // "generate", "chat", "embed", "rerank", ...

  // Bytes of tensors by type name ("Q4_K", "F32", ...).
  std::map<std::string, Bytes> bytes_by_type;
  // Selected metadata, sanitised, values cut to 1,024 bytes: licence, author, rope, tokenizer ids ...
  std::map<std::string, std::string> metadata;
  // What was unusual and how it was read ("no sliding_window_pattern: every 6th layer full, by
  // architecture").
  std::vector<std::string> notes;
  bool unknown_architecture = false;  // planned from tensor tables alone, with wide uncertainty

  // Bytes of the output projection where it is the embedding itself.
  Bytes tied_bytes() const {
    return output_bytes > 0 ? 0 : SaturatingSub(token_embedding_bytes, second_embedding_bytes);
  }
};

// The JSON that rumbo-inspect prints. Keys are the field names above.
std::string DescriptorToJson(const ModelDescriptor& descriptor);

// The inverse. kInvalidArgument where the text is not JSON, is over 8 MiB, nests deeper than 16, has more
// than 4,096 layers, or a field of a wrong type.
absl::StatusOr<ModelDescriptor> DescriptorFromJson(std::string_view json);

}  // namespace rumbo
