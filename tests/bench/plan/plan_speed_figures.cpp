// bench-plan-speed-figures: predicted speed against figures that others measured. Constants are fitted per
// engine, backend and build, never per model; each model is predicted with constants fitted without it.
// usage: bench-plan-speed-figures MEASURED.csv [PUBLISHED]   prints Markdown; exit 1 where the bar is missed.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/os/files.h"
#include "base/status.h"
#include "daemon/core/speed_model.h"
#include "devices/profiles/profile.h"
#include "engines/api/model_descriptor.h"
#include "tests/bench/plan/child.h"
#include "tests/bench/plan/gguf_shapes.h"

namespace rumbo::bench {
namespace {

// What the measured files are: a shape, the size of the file, and what is known of its quantisation.
struct ModelFact {
  const char* name;
  const char* shape;
  double gb;
  double draft_gb;  // of the file, a separate draft head
  bool dense_q8;    // "UD" files keep everything but the routed experts at 8 bits
  uint32_t drafts;  // drafted tokens per step: llama.cpp's default of 3 where the file has a head
  // Share of drafted tokens accepted, chat and code: an input, not a prediction. Found from all builds
  // together.
  double chat, code;
};
constexpr ModelFact kModels[] = {
    {"Gemma-4-26B-A4B-it-GGUF", "gemma4-26b-a4b", 18.1, 0, true, 0, 0, 0},
    {"Gemma-4-26B-A4B-it-MTP-GGUF", "gemma4-26b-a4b", 18.5, 0.4, true, 3, 0.90, 0.99},
    {"MiniCPM5-1B-GGUF", "minicpm-1b", 0.69, 0, false, 0, 0, 0},
    {"Qwen3-4B-GGUF", "qwen3-4b", 2.38, 0, false, 0, 0, 0},
    {"Qwen3-Coder-30B-A3B-Instruct-GGUF", "qwen3-30b-a3b", 18.6, 0, false, 0, 0, 0},
    {"Qwen3.6-27B-MTP-GGUF", "qwen3.8-27b", 18.8, 0, false, 3, 0.72, 0.74},
    {"Qwen3.8-27B-GGUF", "qwen3.8-27b", 18.8, 0, false, 3, 0.62, 0.64},
};

// Rows that are left out, each with its reason.
struct Excluded {
  const char *build, *model, *scenario, *reason;
};
constexpr Excluded kExcluded[] = {
    {"llamacpp-rocm-nightly", "MiniCPM5-1B-GGUF", "chat-short",
     "90.8 tokens/s beside 215.6 for the same model and build: 20 tokens of a small model are over before "
     "the clocks are up"},
    {"llamacpp-rocm-nightly", "Qwen3-4B-GGUF", "chat-short",
     "52.1 beside 64.8: the same, and every other build has both alike"},
};

struct Row {
  std::string build, model, backend, scenario;
  uint32_t input = 0, output = 0;
  double decode = 0, ttft = 0;
  const ModelFact* fact = nullptr;
};

const ModelFact* FactOf(const std::string& name) {
  for (const ModelFact& fact : kModels) {
    if (name == fact.name) return &fact;
  }
  return nullptr;
}

std::vector<Row> ReadRows(const std::string& path, int& excluded) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<Row> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::vector<std::string> cell;
    std::istringstream split(line);
    for (std::string c; std::getline(split, c, ',');) cell.push_back(c);
    if (cell.size() != 9) throw std::runtime_error("a row has " + std::to_string(cell.size()) + " cells");
    Row r{cell[0], cell[1], cell[2] == "rocm" ? "hip" : cell[2], cell[4]};
    r.input = static_cast<uint32_t>(std::stoul(cell[5]));
    r.output = static_cast<uint32_t>(std::stoul(cell[6]));
    r.decode = std::stod(cell[7]);
    r.ttft = std::stod(cell[8]);
    r.fact = FactOf(r.model);
    if (r.fact == nullptr) throw std::runtime_error("no fact about " + r.model);
    bool out = false;
    for (const Excluded& e : kExcluded)
      out = out || (r.build == e.build && r.model == e.model && r.scenario == e.scenario);
    if (out)
      ++excluded;
    else
      rows.push_back(r);
  }
  return rows;
}

Bytes Scale(Bytes bytes, double factor) { return static_cast<Bytes>(static_cast<double>(bytes) * factor); }

// The shape's descriptor with the bytes of the real file.
ModelDescriptor Describe(const ModelFact& fact, const std::string& folder) {
  const std::string path = folder + "/" + fact.shape + ".gguf";
  if (!std::filesystem::exists(path)) {
    const auto written = WriteShape(fact.shape, path);
    if (!written.ok()) throw std::runtime_error(MessageOf(written));
  }
  auto parsed = DescriptorFromJson(RunProgram({ExecutableDir() + "/rumbo-inspect", path}, ""));
  if (!parsed.ok()) throw std::runtime_error(MessageOf(parsed.status()));
  ModelDescriptor d = *std::move(parsed);
  double dense_factor = fact.gb * 1e9 / static_cast<double>(d.tensor_bytes), expert_factor = dense_factor;
  double table_factor = dense_factor;
  if (fact.dense_q8) {
    double dense = 0, experts = 0;
    for (const LayerDescriptor& l : d.layers)
      dense += static_cast<double>(l.attention_bytes + l.dense_ffn_bytes),
          experts += static_cast<double>(l.expert_bytes);
    dense_factor = 8.5 / 4.5;
    table_factor = 8.5 / 6.5625;
    const double rest = fact.gb * 1e9 - fact.draft_gb * 1e9 - dense * dense_factor -
                        static_cast<double>(d.token_embedding_bytes) * table_factor;
    expert_factor = rest / experts;
  }
  for (LayerDescriptor& l : d.layers) {
    l.attention_bytes = Scale(l.attention_bytes, dense_factor);
    l.dense_ffn_bytes = Scale(l.dense_ffn_bytes, dense_factor);
    l.expert_bytes = Scale(l.expert_bytes, expert_factor);
  }
  d.token_embedding_bytes = Scale(d.token_embedding_bytes, table_factor);
  d.output_bytes = Scale(d.output_bytes, table_factor);
  if (fact.draft_gb > 0) {
    LayerDescriptor draft;
    draft.mtp = true;
    draft.dense_ffn_bytes = static_cast<Bytes>(fact.draft_gb * 1e9);
    d.layers.push_back(draft);
  }
  return d;
}

constexpr double kPull = 0.02;

class Bench {
 public:
  Bench(std::vector<Row> rows, const std::string& folder)
      : rows_(std::move(rows)), catalog_(BuiltInCatalog()) {
    for (const ModelFact& fact : kModels) models_[fact.name] = Describe(fact, folder);
    auto machine = LoadProfile("ryzen-ai-max-395-gtt96");
    if (!machine.ok()) throw std::runtime_error(MessageOf(machine.status()));
    machine_ = *std::move(machine);
    for (const Device& device : machine_.devices) {
      if (device.kind == DeviceKind::kGpu) gpu_ = &device;
    }
    if (gpu_ == nullptr) throw std::runtime_error("the profile has no GPU");
  }

  Predicted Predict(const Row& row, const SpeedRow& constants) {
    catalog_.speed = {constants};
    SpeedInput in;
    in.model = &models_.at(row.model);
    in.catalog = &catalog_;
    in.engine = catalog_.Find("llamacpp");
    in.backend = row.backend;
    in.sides = {{gpu_, 1, false}};
    in.sessions = 1;
    in.prompt_tokens = row.input;
    in.answer_tokens = row.output;
    in.shape.draft_tokens = row.fact->drafts;
    in.draft_acceptance = row.scenario == "chat-short" ? row.fact->chat : row.fact->code;
    return EstimateSpeed(in).predicted;
  }

  double Loss(const std::vector<const Row*>& rows, const SpeedRow& constants, bool decode) {
    // A weak pull towards round values keeps a fit over few models from explaining one with another's quirks.
    const auto pull = [](double value, double towards, double scale) {
      return kPull * std::pow((value - towards) / scale, 2);
    };
    double sum =
        decode ? pull(constants.bandwidth_efficiency, 0.85, 0.1) + pull(constants.layer_overhead_us, 30, 30) +
                     pull(constants.expert_overhead_us, 30, 30)
               : pull(constants.prompt_bandwidth, 0.5, 0.2) + pull(constants.compute_efficiency, 0.2, 0.1) +
                     pull(constants.prompt_overhead_ms, 10, 10) + pull(constants.linear_prompt_ms, 5, 20);
    for (const Row* row : rows) {
      const Predicted p = Predict(*row, constants);
      const double ratio = decode ? *p.decode_tok_s / row->decode : *p.ttft_ms / row->ttft;
      sum += std::log(ratio) * std::log(ratio);
    }
    return sum;
  }

  // Coordinate descent over the few constants that one kind of figure depends on.
  void Fit(const std::vector<const Row*>& rows, SpeedRow& c, bool decode) {
    struct Knob {
      double* value;
      double low, high, step;
    };
    std::vector<Knob> knobs;
    if (decode) {
      knobs = {{&c.bandwidth_efficiency, 0.3, 1, 0.1},
               {&c.layer_overhead_us, 0, 300, 20},
               {&c.expert_overhead_us, 0, 500, 20}};
    } else {
      knobs = {{&c.prompt_bandwidth, 0.1, 1, 0.1},
               {&c.compute_efficiency, 0.01, 1, 0.05},
               {&c.prompt_overhead_ms, 0, 200, 5},
               {&c.linear_prompt_ms, 0, 100, 4}};
    }
    double best = Loss(rows, c, decode);
    for (int round = 0; round < 200; ++round) {
      bool better = false;
      for (Knob& k : knobs) {
        for (const double sign : {1.0, -1.0}) {
          const double old = *k.value;
          *k.value = std::clamp(old + sign * k.step, k.low, k.high);
          if (decode) c.kv_efficiency = c.bandwidth_efficiency;
          const double loss = Loss(rows, c, decode);
          if (loss < best - 1e-12)
            best = loss, better = true;
          else
            *k.value = old;
        }
      }
      if (better) continue;
      for (Knob& k : knobs) k.step /= 2;
      if (knobs[0].step < 1e-4) break;
    }
    if (decode) c.kv_efficiency = c.bandwidth_efficiency;
  }

  SpeedRow FitAll(const std::string& build, const std::string& without) {
    std::vector<const Row*> rows;
    for (const Row& row : rows_) {
      if (row.build == build && row.model != without) rows.push_back(&row);
    }
    SpeedRow c;
    c.engine = "llamacpp";
    c.backend = rows.front()->backend;
    c.bandwidth_efficiency = c.kv_efficiency = 0.75;
    c.prompt_bandwidth = 0.6;
    c.compute_efficiency = c.batch_efficiency = 0.2;
    c.layer_overhead_us = 20;
    c.expert_overhead_us = 30;
    c.step_overhead_us = 200;
    c.prompt_overhead_ms = 5;
    Fit(rows, c, true);
    Fit(rows, c, false);
    c.batch_efficiency = c.compute_efficiency;
    return c;
  }

  int Run(int excluded);

 private:
  // Per model and scenario: which backend the prediction would choose, which was faster, and what "always
  // Vulkan" gets.
  void Backends();

  std::vector<Row> rows_;
  EngineCatalog catalog_;
  std::map<std::string, ModelDescriptor> models_;
  Topology machine_;
  const Device* gpu_ = nullptr;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void Bench::Backends() {
  const std::string builds[] = {"llamacpp-upstream-vulkan", "llamacpp-rocm-stable"};
  std::printf(
      "\nChoice of backend by time for the whole answer (constants without the model), Vulkan upstream or "
      "ROCm stable; "
      "gaps under 5 %% are ties:\n\n| model | scenario | chosen | faster | measured gap %% | chosen is right "
      "| always Vulkan is right |\n"
      "|---|---|---|---|---|---|---|\n");
  int right = 0, rule = 0, all = 0;
  for (const Row& vulkan : rows_) {
    if (vulkan.build != builds[0]) continue;
    for (const Row& hip : rows_) {
      if (hip.build != builds[1] || hip.model != vulkan.model || hip.scenario != vulkan.scenario) continue;
      const auto total = [](double ttft_ms, double decode, uint32_t tokens) {
        return ttft_ms / 1e3 + tokens / decode;
      };
      double predicted[2], measured[2];
      const Row* pair[2] = {&vulkan, &hip};
      for (int i = 0; i < 2; ++i) {
        const Predicted p = Predict(*pair[i], FitAll(builds[i], vulkan.model));
        predicted[i] = total(*p.ttft_ms, *p.decode_tok_s, pair[i]->output);
        measured[i] = total(pair[i]->ttft, pair[i]->decode, pair[i]->output);
      }
      const int chosen = predicted[0] <= predicted[1] ? 0 : 1, best = measured[0] <= measured[1] ? 0 : 1;
      const double gap = std::max(measured[0], measured[1]) / std::min(measured[0], measured[1]) - 1;
      const bool tie = gap < 0.05;
      ++all;
      right += tie || chosen == best;
      rule += tie || best == 0;
      std::printf("| %s | %s | %s | %s | %.0f | %s | %s |\n", vulkan.model.c_str(), vulkan.scenario.c_str(),
                  chosen == 0 ? "vulkan" : "hip",
                  tie         ? "tie"
                  : best == 0 ? "vulkan"
                              : "hip",
                  100 * gap, tie || chosen == best ? "yes" : "no", tie || best == 0 ? "yes" : "no");
    }
  }
  std::printf("\nRight: chosen %d of %d, always Vulkan %d of %d\n", right, all, rule, all);
}

int Bench::Run(int excluded) {
  std::set<std::string> builds;
  for (const Row& row : rows_) builds.insert(row.build);
  std::vector<double> decode_errors, ttft_errors;
  std::map<std::string, std::vector<double>> by_model;
  std::printf("Excluded (%d of %zu rows):\n", excluded, rows_.size() + static_cast<size_t>(excluded));
  for (const Excluded& e : kExcluded)
    std::printf("- %s, %s, %s: %s\n", e.build, e.model, e.scenario, e.reason);
  std::printf("\nConstants per build, fitted over all its models (for engines/speed.yaml):\n");
  for (const std::string& build : builds) {
    const SpeedRow c = FitAll(build, "");
    std::printf(
        "- %s (%s): bandwidth_efficiency %.3f, prompt_bandwidth %.3f, compute_efficiency %.3f, "
        "layer_overhead_us %.1f, "
        "expert_overhead_us %.1f, prompt_overhead_ms %.1f, linear_prompt_ms %.2f\n",
        build.c_str(), c.backend.c_str(), c.bandwidth_efficiency, c.prompt_bandwidth, c.compute_efficiency,
        c.layer_overhead_us, c.expert_overhead_us, c.prompt_overhead_ms, c.linear_prompt_ms);
  }
  std::printf(
      "\nEach row predicted with constants fitted without its model:\n\n"
      "| build | model | scenario | tokens/s predicted | measured | off %% | TTFT ms predicted | measured | "
      "off %% |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string& build : builds) {
    std::map<std::string, SpeedRow> constants;
    for (const Row& row : rows_) {
      if (row.build != build) continue;
      if (constants.count(row.model) == 0) constants[row.model] = FitAll(build, row.model);
      const Predicted p = Predict(row, constants[row.model]);
      const double d = *p.decode_tok_s / row.decode - 1, t = *p.ttft_ms / row.ttft - 1;
      decode_errors.push_back(std::fabs(d));
      ttft_errors.push_back(std::fabs(t));
      by_model[row.model].push_back(std::fabs(d));
      std::printf("| %s | %s | %s | %.1f | %.1f | %+.0f | %.0f | %.0f | %+.0f |\n", build.c_str(),
                  row.model.c_str(), row.scenario.c_str(), *p.decode_tok_s, row.decode, 100 * d, *p.ttft_ms,
                  row.ttft, 100 * t);
    }
  }
  std::printf("\nMedian decode error per left-out model: ");
  bool good = true;
  for (const auto& [model, errors] : by_model) {
    std::printf("%s %.0f %%; ", model.c_str(), 100 * Median(errors));
    good = good && Median(errors) <= 0.20;
  }
  std::printf(
      "\nMedian decode error %.1f %%, median TTFT error %.1f %% over %zu rows; %s\n",
      100 * Median(decode_errors), 100 * Median(ttft_errors), decode_errors.size(),
      good ? "every left-out model within 20 %" : "MISSED: a left-out model is off by more than 20 %");
  Backends();
  const bool few = excluded * 10 <= static_cast<int>(rows_.size()) + excluded;
  return good && few ? 0 : 1;
}

}  // namespace
}  // namespace rumbo::bench

int main(int argc, char** argv) {
  using namespace rumbo::bench;
  if (argc < 2) {
    std::fputs("usage: bench-plan-speed-figures measured_strix_halo.csv\n", stderr);
    return 2;
  }
  char name[] = "/tmp/rumbo-shapes-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  int code = 2;
  try {
    int excluded = 0;
    std::vector<Row> rows = ReadRows(argv[1], excluded);
    code = Bench(std::move(rows), folder).Run(excluded);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench-plan-speed-figures: %s\n", e.what());
  }
  std::filesystem::remove_all(folder);
  return code;
}
