// rumbo-engine-bench: loads one engine worker over a socketpair, without the daemon, and measures sessions
// that stream at once. One JSON line per round, with the keys of the HTTP load tool, so that the two compare.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "base/status.h"
#include "engines/worker_kit/testing/worker_process.h"

namespace rumbo {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr const char* kWords[] = {"river",  "stone",   "lamp",   "copper", "window", "garden",
                                  "signal", "paper",   "engine", "winter", "market", "bridge",
                                  "letter", "cloud",   "harbor", "silver", "forest", "mirror",
                                  "planet", "thunder", "ocean",  "ladder", "castle", "violin"};

struct Options {
  std::string worker;
  std::string model;
  std::vector<std::string> settings;
  int sessions = 16;
  int prompt_words = 100;
  int shared_words = 0;
  int predict = 64;
  int rounds = 1;
  int seed = 1;
  int long_words = 0;  // one more session with a prompt of so many words, starting late
  double temperature = 0;
  bool copy = false;  // prompts say everything twice, for answers that say it again
};

std::string Text(std::mt19937* random, int words) {
  std::string text;
  for (int i = 0; i < words; ++i) {
    if (i > 0) text += ' ';
    text += kWords[(*random)() % std::size(kWords)];
  }
  return text;
}

struct Timing {
  SteadyClock::time_point begin;
  std::vector<SteadyClock::time_point> chunks;
  uint32_t tokens = 0;
  uint32_t cached = 0;
  std::string error;
};

Timing Ask(WorkerProcess::Stub& stub, const std::string& prompt, const Options& options, int predict) {
  Timing timing;
  engine::v1::GenerateRequest request;
  request.set_prompt(prompt);
  request.mutable_sampling()->set_temperature(static_cast<float>(options.temperature));
  request.mutable_sampling()->set_max_tokens(static_cast<uint32_t>(predict));
  request.mutable_sampling()->set_ignore_eos(true);
  grpc::ClientContext context;
  timing.begin = SteadyClock::now();
  auto reader = stub.Generate(&context, request);
  engine::v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_chunk()) {
      timing.chunks.push_back(SteadyClock::now());
      timing.tokens += response.chunk().tokens();
    }
    if (response.has_started()) timing.cached = response.started().cached_tokens();
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) timing.error = status.error_message();
  return timing;
}

double Quantile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(p * static_cast<double>(values.size())))];
}

double Millis(SteadyClock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

void Round(WorkerProcess::Stub& stub, const Options& options, std::mt19937* random) {
  std::mt19937 shared_random(7);
  const std::string shared = Text(&shared_random, options.shared_words);
  std::vector<std::string> prompts;
  for (int i = 0; i < options.sessions; ++i) {
    std::string own = Text(random, options.prompt_words);
    if (options.copy) own += "\n\n" + own + "\n\n" + own.substr(0, own.find(' '));
    prompts.push_back((shared.empty() ? "" : shared + " ") + own);
  }
  std::vector<Timing> timings(prompts.size());
  Timing late;
  const auto begin = SteadyClock::now();
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < prompts.size(); ++i) {
      threads.emplace_back([&, i] { timings[i] = Ask(stub, prompts[i], options, options.predict); });
    }
    if (options.long_words > 0) {
      const std::string prompt = Text(random, options.long_words);
      threads.emplace_back([&, prompt] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        late = Ask(stub, prompt, options, 8);
      });
    }
  }
  const double wall = Millis(SteadyClock::now() - begin) / 1000;
  std::vector<double> ttft, itl;
  double tokens = 0, cached = 0;
  int errors = 0;
  std::string error;
  for (const Timing& t : timings) {
    if (!t.error.empty()) {
      ++errors;
      error = t.error;
    }
    if (t.chunks.empty()) continue;
    ttft.push_back(Millis(t.chunks.front() - t.begin));
    for (size_t i = 1; i < t.chunks.size(); ++i) itl.push_back(Millis(t.chunks[i] - t.chunks[i - 1]));
    tokens += t.tokens;
    cached += t.cached;
  }
  std::printf(
      "{\"n\": %d, \"tokens\": %.0f, \"agg_tok_s\": %.1f, \"wall_s\": %.2f, \"ttft_p50\": %.1f, "
      "\"ttft_p95\": %.1f, "
      "\"ttft_max\": %.1f, \"itl_p50\": %.1f, \"itl_p95\": %.1f, \"itl_max\": %.1f, \"cached\": %.0f, "
      "\"errors\": %d",
      options.sessions, tokens, tokens / wall, wall, Quantile(ttft, 0.5), Quantile(ttft, 0.95),
      Quantile(ttft, 1), Quantile(itl, 0.5), Quantile(itl, 0.95), Quantile(itl, 1), cached, errors);
  if (!late.chunks.empty()) std::printf(", \"long_ttft\": %.1f", Millis(late.chunks.front() - late.begin));
  if (!error.empty()) std::printf(", \"error\": \"%s\"", error.c_str());
  std::printf("}\n");
  std::fflush(stdout);
}

// "sessions=16" sets the field; "extra.KEY=VALUE" an extra.
absl::Status SetSetting(v1::Settings* settings, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return InvalidArgument("--set wants NAME=VALUE");
  const std::string name = word.substr(0, equals);
  const std::string value = word.substr(equals + 1);
  if (name.starts_with("extra.")) {
    (*settings->mutable_extra())[name.substr(6)] = value;
    return absl::OkStatus();
  }
  const auto* field = settings->GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) return InvalidArgument("no setting " + name);
  const auto* reflection = settings->GetReflection();
  using Field = google::protobuf::FieldDescriptor;
  switch (field->cpp_type()) {
    case Field::CPPTYPE_UINT32:
      reflection->SetUInt32(settings, field, static_cast<uint32_t>(std::stoul(value)));
      return absl::OkStatus();
    case Field::CPPTYPE_UINT64:
      reflection->SetUInt64(settings, field, std::stoull(value));
      return absl::OkStatus();
    case Field::CPPTYPE_BOOL:
      reflection->SetBool(settings, field, value == "1" || value == "true");
      return absl::OkStatus();
    case Field::CPPTYPE_STRING:
      reflection->SetString(settings, field, value);
      return absl::OkStatus();
    default:
      return InvalidArgument("setting " + name + " cannot be given here");
  }
}

int Main(const Options& options) {
  auto worker = WorkerProcess::Start(options.worker);
  if (!worker.ok()) {
    std::fprintf(stderr, "%s\n", MessageOf(worker.status()).c_str());
    return 1;
  }
  engine::v1::LoadRequest load;
  load.add_files(options.model);
  load.set_backend("cpu");
  load.mutable_settings()->set_sessions(static_cast<uint32_t>(options.sessions + (options.long_words > 0)));
  for (const std::string& word : options.settings) {
    if (absl::Status status = SetSetting(load.mutable_settings(), word); !status.ok()) {
      std::fprintf(stderr, "%s\n", MessageOf(status).c_str());
      return 2;
    }
  }
  auto loaded = (*worker)->Load(load);
  if (!loaded.ok()) {
    std::fprintf(stderr, "load: %s\n", MessageOf(loaded.status()).c_str());
    return 1;
  }
  std::fprintf(stderr, "%s, %s, load %.0f ms\n", loaded->engine_version().c_str(),
               loaded->backend_variant().c_str(), loaded->load_ms());
  for (const auto& item : loaded->memory()) {
    std::fprintf(stderr, "  %s %s %.1f MiB\n", item.pool().c_str(), item.what().c_str(),
                 static_cast<double>(item.bytes()) / (1 << 20));
  }
  std::mt19937 random(static_cast<unsigned>(options.seed));
  for (int i = 0; i < options.rounds; ++i) Round((*worker)->stub(), options, &random);
  return 0;
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) {
  CLI::App app{"Measures an engine worker without the daemon"};
  rumbo::Options o;
  app.add_option("--worker", o.worker, "Program")->required();
  app.add_option("--model", o.model, "Model file");
  app.add_option("--set", o.settings, "Setting NAME=VALUE or extra.NAME=VALUE; repeatable");
  app.add_option("-n,--sessions", o.sessions);
  app.add_option("--prompt-words", o.prompt_words);
  app.add_option("--shared-words", o.shared_words);
  app.add_option("--predict", o.predict);
  app.add_option("--rounds", o.rounds);
  app.add_option("--seed", o.seed);
  app.add_option("--long-words", o.long_words, "One more session with so long a prompt, half a second later");
  app.add_option("--temperature", o.temperature);
  app.add_flag("--copy", o.copy, "Prompts that say everything twice, for answers that say it again");
  CLI11_PARSE(app, argc, argv);
  return rumbo::Main(o);
}
