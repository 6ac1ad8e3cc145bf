// Answers of every dialect from events made of the input's bytes, ill-formed UTF-8 included: each server-sent
// event and each line must be valid JSON, whatever an engine sends.
#include <boost/json.hpp>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "daemon/http/anthropic_out.h"
#include "daemon/http/ollama_out.h"
#include "daemon/http/openai_out.h"
#include "daemon/http/responses_out.h"

namespace {

void MustBeJson(std::string_view text) {
  boost::json::error_code error;
  boost::json::parse({text.data(), text.size()}, error);
  if (error) std::abort();
}

void MustBeEvents(std::string_view out) {
  while (!out.empty()) {
    const size_t end = out.find("\n\n");
    if (end == std::string_view::npos) std::abort();
    std::string_view block = out.substr(0, end);
    out.remove_prefix(end + 2);
    if (block.substr(0, 7) == "event: ") block.remove_prefix(block.find('\n') + 1);
    if (block.substr(0, 6) != "data: " || block.find('\n') != std::string_view::npos) std::abort();
    block.remove_prefix(6);
    if (block != "[DONE]") MustBeJson(block);
  }
}

void MustBeLines(std::string_view out) {
  while (!out.empty()) {
    const size_t end = out.find('\n');
    if (end == std::string_view::npos) std::abort();
    MustBeJson(out.substr(0, end));
    out.remove_prefix(end + 1);
  }
}

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto b = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return b;
  }
  std::string Text() {
    const size_t n = std::min<size_t>(Byte() % 32, rest_.size());
    std::string out(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return out;
  }

 private:
  std::string_view rest_;
};

rumbo::ChunkEvent Chunk(Bytes& bytes) {
  rumbo::ChunkEvent chunk;
  const uint8_t kind = bytes.Byte();
  if (kind & 1) chunk.text = bytes.Text();
  if (kind & 2) chunk.reasoning = bytes.Text();
  if (kind & 4) chunk.logprobs.push_back({bytes.Byte(), bytes.Text(), -1.5f, {{1, bytes.Text(), -2}}});
  if (kind & 8) chunk.tool_calls.push_back({bytes.Byte() % 4u, bytes.Text(), bytes.Text(), bytes.Text()});
  return chunk;
}

std::string Play(rumbo::AnswerEncoder& encoder, Bytes bytes) {
  std::string out;
  rumbo::Placement placement;
  placement.request_id = bytes.Text();
  encoder.Placed(placement);
  encoder.Started({bytes.Byte(), bytes.Byte()}, out);
  const bool fails = (bytes.Byte() & 1) != 0;
  while (!bytes.empty()) {
    rumbo::ChunkEvent chunk = Chunk(bytes);
    encoder.Chunk(chunk, out);
  }
  if (fails && encoder.streaming()) {
    encoder.Failed(rumbo::Internal(placement.request_id), out);
    return out;
  }
  rumbo::FinishedEvent finished;
  finished.reason = "stop_string";
  finished.stop_string = placement.request_id;
  encoder.Finished(finished, out);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const std::string model = bytes.Text();
  for (const bool stream : {true, false}) {
    const auto check = [&](std::unique_ptr<rumbo::AnswerEncoder> encoder) {
      const std::string out = Play(*encoder, bytes);
      stream ? MustBeEvents(out) : MustBeJson(out);
    };
    for (const bool chat : {true, false}) {
      rumbo::OpenAiAnswerOptions options;
      options.chat = chat;
      options.stream = stream;
      options.include_usage = chat;
      options.model = model;
      check(rumbo::NewOpenAiEncoder(options));
      const std::string lines = Play(*rumbo::NewOllamaEncoder({chat, stream, model}), bytes);
      stream ? MustBeLines(lines) : MustBeJson(lines);
    }
    check(rumbo::NewAnthropicEncoder({stream, true, model}));
    check(rumbo::NewResponsesEncoder({stream, model, 0}));
  }
  return 0;
}
