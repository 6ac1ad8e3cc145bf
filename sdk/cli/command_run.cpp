#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>

#include "base/os/interrupt.h"
#include "base/utf8.h"
#include "sdk/cli/commands.h"
#include "sdk/cli/progress.h"
#include "sdk/cli/render.h"
#include "sdk/cpp/json.h"

namespace rumbo::cli {
namespace {

void Note(const Screen& err, const std::string& text) {
  std::fprintf(stderr, "%s\n", Paint(err, Style::kDim, text).c_str());
}

// Ctrl-C as a stop token that can be made anew for the next answer.
class Interrupts {
 public:
  std::stop_token token() {
    std::lock_guard lock(mutex_);
    return stop_.get_token();
  }
  bool requested() { return token().stop_requested(); }
  void Renew() {
    if (!requested()) return;
    std::lock_guard lock(mutex_);
    stop_ = std::stop_source();
    watch_.Rearm();
  }

 private:
  void Request() {
    std::unique_lock lock(mutex_);
    std::stop_source stop = stop_;
    lock.unlock();
    stop.request_stop();
  }

  std::mutex mutex_;
  std::stop_source stop_;
  InterruptWatch watch_{[this] { Request(); }};
};

// One `rumbo run`: the connection, the conversation so far, and how answers are shown.
class Conversation {
 public:
  Conversation(const Session& session, const Client& client, Interrupts& interrupts, bool raw)
      : session_(session), options_(session.options), client_(client), interrupts_(interrupts), raw_(raw) {
    if (!options_.system_prompt.empty()) messages_.push_back(System(options_.system_prompt));
  }

  // Asks once and shows the answer.
  int Ask(const std::string& prompt) {
    if (!raw_) messages_.push_back(User(prompt));
    CallOptions call;
    call.cancel = interrupts_.token();
    TextStream stream =
        raw_ ? client_.Generate(RawRequest(prompt), call) : client_.Chat(ChatRequestNow(), call);
    Answer answer;
    const bool written = Show(stream, &answer);
    if (!written) stream.Cancel();
    auto finished = stream.Finish();
    if (stream.started() != nullptr) answer.started = *stream.started();
    if (!options_.json && !ended_with_newline_) Print("\n");
    if (!written) return kExitFailed;
    if (!finished) {
      if (!raw_) messages_.pop_back();
      return interrupts_.requested() ? kExitInterrupted : Fail(finished.error());
    }
    answer.finished = *finished;
    if (!raw_) messages_.push_back(Assistant(answer.text));
    if (options_.json) PrintJson(answer);
    Tell(answer);
    return kExitOk;
  }

  // Asks line by line until the input ends. Ctrl-C ends an answer; at the prompt it ends the program.
  int Talk() {
    Note(session_.err, "Ctrl-D ends, Ctrl-C stops an answer.");
    for (;;) {
      std::string line;
      {
        InterruptWatch::UsualEffect usual;
        std::fputs("> ", stderr);
        if (!std::getline(std::cin, line)) break;
      }
      if (line.empty()) continue;
      if (!IsValidUtf8(line)) {
        PrintError("this is not UTF-8 text", "Set the terminal to UTF-8.");
        continue;
      }
      interrupts_.Renew();
      const int code = Ask(line);
      if (code == kExitUnreachable) return code;
    }
    std::fputs("\n", stderr);
    return kExitOk;
  }

 private:
  // "NAME=SCALE" was checked when the command line was read.
  std::vector<std::pair<std::string, float>> Adapters() const {
    std::vector<std::pair<std::string, float>> adapters;
    for (const std::string& word : options_.adapters) {
      const size_t at = word.find('=');
      const float scale = at == std::string::npos ? 1 : std::strtof(word.c_str() + at + 1, nullptr);
      adapters.emplace_back(word.substr(0, at), scale);
    }
    return adapters;
  }

  GenerateRequest RawRequest(const std::string& prompt) const {
    GenerateRequest request;
    request.model = options_.subject;
    request.prompt = options_.system_prompt.empty() ? prompt : options_.system_prompt + "\n\n" + prompt;
    request.sampling = options_.sampling;
    request.options.adapters = Adapters();
    request.options.priority = "interactive";
    return request;
  }

  ChatRequest ChatRequestNow() const {
    ChatRequest request;
    request.model = options_.subject;
    request.messages = messages_;
    request.sampling = options_.sampling;
    request.options.adapters = Adapters();
    request.options.priority = "interactive";
    return request;
  }

  // False where nobody reads standard output.
  bool Show(TextStream& stream, Answer* answer) {
    ended_with_newline_ = true;
    while (const auto chunk = stream.Next()) {
      answer->text += chunk->text;
      answer->reasoning += chunk->reasoning;
      if (!chunk->reasoning.empty() && session_.err.terminal) {
        std::fputs(Paint(session_.err, Style::kDim, WithoutControls(chunk->reasoning)).c_str(), stderr);
      }
      if (options_.json || chunk->text.empty()) continue;
      ended_with_newline_ = chunk->text.back() == '\n';
      if (!Print(session_.out.terminal ? WithoutControls(chunk->text) : chunk->text)) return false;
    }
    return true;
  }

  void PrintJson(const Answer& answer) const {
    Print("{\n\"model\": " + QuoteJson(options_.subject) + ",\n\"text\": " + QuoteJson(answer.text) +
          ",\n\"reasoning\": " + QuoteJson(answer.reasoning) + ",\n\"started\": " +
          answer.started.wire.ToJson() + ",\n\"finished\": " + answer.finished.wire.ToJson() + "\n}\n");
  }

  void Tell(const Answer& answer) const {
    const Finished& f = answer.finished;
    if (f.reason == "length" && session_.err.terminal) Note(session_.err, "(cut at --max-tokens)");
    if (f.reason == "context") Note(session_.err, "(the context is full)");
    if (!options_.verbose) return;
    const Started& s = answer.started;
    Note(session_.err, "placed    " + Placement(s.engine, s.backend, s.devices) +
                           (s.instance_id.empty() ? "" : ", instance " + Safe(s.instance_id)) +
                           (s.placement_reason.empty() ? "" : ": " + Safe(s.placement_reason)));
    Note(session_.err, "tokens    " + std::to_string(f.usage.prompt_tokens) + " in the prompt (" +
                           std::to_string(f.usage.cached_tokens) + " cached), " +
                           std::to_string(f.usage.completion_tokens) + " answered, ended by " +
                           Safe(f.reason));
    Note(session_.err, "time      waited " + Short(f.timings.queue_ms) + " ms, first token after " +
                           Short(f.timings.ttft_ms) + " ms, " + Short(f.timings.total_ms) + " ms in all");
    Note(session_.err, "speed     " + Short(f.timings.decode_tok_s) + " tokens/s");
  }

  const Session& session_;
  const Options& options_;
  const Client& client_;
  Interrupts& interrupts_;
  const bool raw_;
  std::vector<Message> messages_;
  bool ended_with_newline_ = true;
};

// True where the store knows the model and knows it to have no chat template.
bool LacksTemplate(const Client& client, const std::string& name) {
  const auto details = client.GetModel(name);
  if (!details || details->model.variants.empty()) return false;
  for (const auto& variant : details->model.variants) {
    if (variant.has_chat_template) return false;
  }
  return true;
}

// Where nothing of the model is loaded yet, loads it with a progress line to look at; the answer would wait
// for the same load in silence.
std::optional<Error> LoadInSight(const Session& session, const Client& client, Interrupts& interrupts) {
  if (!session.err.terminal) return std::nullopt;
  const auto list = client.Instances();
  if (!list) return list.error();
  for (const auto& instance : list->instances) {
    if (instance.model == session.options.subject) return std::nullopt;
  }
  ProgressLine line(session.err);
  CallOptions call;
  call.cancel = interrupts.token();
  const auto loaded = client.Load(
      {.model = session.options.subject}, [&](const Progress& p) { line.Show(p); }, call);
  return loaded ? std::nullopt : std::optional(loaded.error());
}

// Where the store does not know the model and the daemon's list of short names does: pulls what fits.
std::optional<Error> PullWhereNamed(const Session& session, const Client& client, Interrupts& interrupts) {
  const std::string& name = session.options.subject;
  const auto known = client.GetModel(name);
  if (known || known.error().code != Code::kNotFound) return std::nullopt;
  const auto hits = client.Search(name);
  if (!hits) return std::nullopt;
  const bool listed = std::any_of(hits->hits.begin(), hits->hits.end(), [&](const SearchHit& hit) {
    return hit.origin == "list" && (hit.reference == name || hit.reference.rfind(name + ":", 0) == 0);
  });
  if (!listed) return std::nullopt;
  Note(session.err, Safe(name) + " is not here yet; pulling it (Ctrl-C pauses)");
  ProgressLine line(session.err);
  CallOptions call;
  call.cancel = interrupts.token();
  const auto model = client.Pull(
      {.reference = name, .name = name}, [&](const Progress& p) { line.Show(p); }, call,
      [&](const PullPlan& plan) {
        line.Clear();
        std::fputs(RenderPullChoice(plan, session.err).c_str(), stderr);
      });
  return model ? std::nullopt : std::optional(model.error());
}

}  // namespace

int RunInference(const Session& session) {
  const Options& options = session.options;
  if (options.raw && !options.system_prompt.empty()) {
    PrintError("--system needs the chat template, which --raw leaves out",
               "Write the instructions into the prompt.");
    return kExitUsage;
  }
  const bool interactive = options.words.empty() && ::isatty(STDIN_FILENO) != 0 && !options.json;
  std::string prompt = Join(options.words, " ");
  if (options.words.empty() && !interactive) {
    auto input = ReadInput();
    if (!input) return Fail(input.error());
    prompt = *input;
  }
  if (!IsValidUtf8(prompt)) {
    PrintError("the prompt is not UTF-8 text", "Set the terminal to UTF-8.");
    return kExitUsage;
  }
  Interrupts interrupts;
  const auto on_start = [&](const std::string& log) {
    Note(session.err, "starting the daemon, log in " + Safe(log));
  };
  auto client = Client::Connect({.start_daemon = true, .app = "rumbo", .on_start = on_start});
  if (!client) return Fail(client.error());

  if (const auto error = PullWhereNamed(session, *client, interrupts))
    return interrupts.requested() ? kExitInterrupted : Fail(*error);
  bool raw = options.raw;
  if (!raw && LacksTemplate(*client, options.subject)) {
    Note(session.err,
         Safe(options.subject) + " has no chat template: the text is continued as it is (--raw).");
    raw = true;
  }
  if (const auto error = LoadInSight(session, *client, interrupts)) {
    return interrupts.requested() ? kExitInterrupted : Fail(*error);
  }
  Conversation conversation(session, *client, interrupts, raw);
  return interactive ? conversation.Talk() : conversation.Ask(prompt);
}

}  // namespace rumbo::cli
