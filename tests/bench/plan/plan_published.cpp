// bench-plan-published: figures that others published, beside what the planner predicts for the same model,
// machine and settings, with what explains the difference. One set of constants for all rows. Prints
// Markdown.

#include <stdlib.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/os/files.h"
#include "base/status.h"
#include "daemon/core/calibration.h"
#include "daemon/core/planner.h"
#include "devices/profiles/profile.h"
#include "engines/api/catalog.h"
#include "tests/bench/plan/child.h"
#include "tests/bench/plan/gguf_shapes.h"

namespace rumbo::bench {
namespace {

struct Published {
  const char* who;
  const char* shape;         // "" no public dimensions
  double gb;                 // of the weights
  const char* quantization;  // of the file
  const char* profile;
  const char* engine;
  const char* backend;
  uint32_t sessions;
  uint32_t drafts;  // as published; 0: none
  std::optional<double> decode, aggregate, ttft_ms;
  const char* explains;
};

// The TTFT of a server under load includes waiting for the others' prompts; ours is for one request alone.
const Published kRows[] = {
    {"AMD, August 2026, Windows, llama.cpp, MTP 4",
     "qwen3.8-27b",
     18.8,
     "Q4_K_XL",
     "ryzen-ai-max-395-vgm64",
     "llama-server",
     "vulkan",
     1,
     4,
     24.5,
     {},
     {},
     "Windows figure against constants from Linux; acceptance assumed 75 %"},
    {"AMD, August 2026, Windows, llama.cpp, MTP 2",
     "qwen3.8-27b",
     18.8,
     "Q4_K_XL",
     "r9700",
     "llama-server",
     "vulkan",
     1,
     2,
     51.8,
     {},
     {},
     "Windows figure against constants from another chip; acceptance assumed 75 %"},
    {"independent test, 2026, Windows",
     "qwen3.5-9b",
     9.5,
     "Q8_0",
     "r9700",
     "llama-server",
     "vulkan",
     1,
     0,
     56.5,
     {},
     {},
     "backend not named; Vulkan assumed"},
    {"the same test",
     "qwen3.5-9b",
     18,
     "BF16",
     "r9700",
     "llama-server",
     "vulkan",
     16,
     0,
     {},
     188,
     1399,
     "measured TTFT is under load of 16, the prediction for one request alone"},
    {"the same test, Linux",
     "qwen3.5-9b-bf16",
     18,
     "",
     "r9700",
     "vllm",
     "hip",
     16,
     0,
     {},
     301,
     430,
     "the measured rate includes the time to read 16 prompts"},
    {"the same test, Linux, FP8 weights and cache, MTP",
     "qwen3.5-9b-fp8",
     9.5,
     "",
     "r9700",
     "vllm",
     "hip",
     16,
     0,
     {},
     374,
     {},
     "measured with MTP, whose acceptance is not published; the folder's shape has no MTP layer"},
    {"a provider, 2026: GLM-5.2 MXFP4, SGLang 5/1/6",
     "",
     0,
     "MXFP4",
     "8x-mi355x",
     "sglang",
     "hip",
     0,
     0,
     {},
     2626,
     {},
     "no public dimensions of the model: not predicted"},
};

ModelDescriptor Describe(const Published& row, const std::string& folder) {
  std::string path = folder + "/" + row.shape + ".gguf";
  if (!WriteShape(row.shape, path).ok()) {
    path = folder + "/" + row.shape;
    if (!WriteFolderShape(row.shape, path).ok())
      throw std::runtime_error(std::string("no shape ") + row.shape);
  }
  auto d = DescriptorFromJson(RunProgram({ExecutableDir() + "/rumbo-inspect", path}, ""));
  if (!d.ok()) throw std::runtime_error(MessageOf(d.status()));
  if (row.quantization[0] == 0) return *d;
  const double factor = row.gb * 1e9 / static_cast<double>(d->tensor_bytes);
  const auto scale = [&](Bytes& bytes) { bytes = static_cast<Bytes>(static_cast<double>(bytes) * factor); };
  for (LayerDescriptor& l : d->layers) scale(l.attention_bytes), scale(l.dense_ffn_bytes);
  scale(d->token_embedding_bytes), scale(d->output_bytes), scale(d->tensor_bytes);
  d->quantization = row.quantization;
  return *d;
}

std::string Pair(std::optional<double> predicted, std::optional<double> measured) {
  if (!measured) return "|  |  |  ";
  char text[96];
  if (!predicted) {
    std::snprintf(text, sizeof text, "| unknown | %.0f | ", *measured);
  } else {
    std::snprintf(text, sizeof text, "| %.1f | %.1f | %+.0f ", *predicted, *measured,
                  100 * (*predicted / *measured - 1));
  }
  return text;
}

int Main() {
  char name[] = "/tmp/rumbo-shapes-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  std::printf(
      "| published by | model | machine | engine, sessions | tokens/s predicted | published | off %% | in "
      "all predicted | published | off %% "
      "| TTFT ms predicted | published | off %% | what explains it "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Published& row : kRows) {
    Predicted p;
    std::string note;
    if (row.shape[0] != 0) {
      const auto machine = LoadProfile(row.profile);
      if (!machine.ok()) throw std::runtime_error(MessageOf(machine.status()));
      PlanRequest r;
      r.model = row.shape;
      r.variants.push_back({"v", Describe(row, folder), ""});
      r.assume_installed = true;
      r.workload.sessions = row.sessions;
      r.overrides.engine = row.engine;
      r.overrides.device = row.backend;
      const auto plan = MakePlan(r, *machine, BuiltInCatalog(), Calibration{});
      if (!plan.ok()) throw std::runtime_error(MessageOf(plan.status()));
      if (plan->chosen) p = plan->chosen->predicted;
      if (plan->chosen && plan->chosen->settings.draft_tokens.value_or(0) != row.drafts) {
        note =
            "; planned with " + std::to_string(plan->chosen->settings.draft_tokens.value_or(0)) + " drafts";
      }
      if (plan->refusal) note = "; refused: " + plan->refusal->reason;
    }
    std::printf("| %s | %s %s | %s | %s/%s, %u %s%s%s| %s%s |\n", row.who, row.shape, row.quantization,
                row.profile, row.engine, row.backend, row.sessions, Pair(p.decode_tok_s, row.decode).c_str(),
                Pair(p.aggregate_tok_s, row.aggregate).c_str(), Pair(p.ttft_ms, row.ttft_ms).c_str(),
                row.explains, note.c_str());
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace rumbo::bench

int main() {
  try {
    return rumbo::bench::Main();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench-plan-published: %s\n", e.what());
    return 2;
  }
}
