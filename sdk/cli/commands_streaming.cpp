#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/bytes.h"
#include "base/os/interrupt.h"
#include "base/os/paths.h"
#include "sdk/cli/commands.h"
#include "sdk/cli/progress.h"
#include "sdk/cli/render.h"

namespace rumbo::cli {
namespace {

// The model's name where none was given: the file's, without its ending.
std::string NameOf(const std::string& path) { return std::filesystem::path(path).stem().string(); }

int ShowModel(const Session& s, const Result<Model>& model) {
  if (!model) return Fail(model.error());
  uint64_t bytes = 0;
  for (const auto& variant : model->variants) bytes = SaturatingAdd(bytes, variant.size_bytes);
  Print(s.options.json ? model->wire.ToJson() + "\n"
                       : Safe(model->name) + " is in the store, " + FormatBytes(bytes) + ". `rumbo run " +
                             Safe(model->name) + "` asks it something.\n");
  return kExitOk;
}

int ShowLoaded(const Session& s, const Result<Loaded>& loaded) {
  if (!loaded) return Fail(loaded.error());
  if (s.options.json) return Print(loaded->wire.ToJson() + "\n") ? kExitOk : kExitFailed;
  std::string text = Safe(s.options.subject) + " is loaded as " + Safe(loaded->instance_id);
  if (loaded->plan && loaded->plan->chosen) {
    const Candidate& chosen = *loaded->plan->chosen;
    text += ": " + Placement(chosen.engine, chosen.engine_build, chosen.backend, chosen.devices);
  }
  if (loaded->measured && !loaded->measured->memory.empty()) {
    text += ", took " + FormatBytes(SumOf(loaded->measured->memory));
  }
  if (loaded->measured && loaded->measured->load_s) text += ", in " + Short(*loaded->measured->load_s) + " s";
  Print(text + "\n");
  return kExitOk;
}

std::string TrialText(const TuneTrial& t) {
  std::string text = Placement(t.engine, t.engine_build, t.backend, t.devices);
  if (!t.variant.empty() && t.variant != "default") text += ", variant " + Safe(t.variant);
  if (!t.knobs.empty()) text += ", " + Safe(t.knobs);
  return text + ", " + std::to_string(t.sessions) + (t.sessions == 1 ? " session" : " sessions");
}

std::string FiguresText(const TuneTrial& t) {
  if (!t.aggregate_tok_s || !t.ttft_ms) return Safe(t.failed.empty() ? "not measured" : t.failed);
  return Short(*t.aggregate_tok_s) + " tokens/s in all, first token after " + Short(*t.ttft_ms) + " ms" +
         (t.failed.empty() ? "" : " (" + Safe(t.failed) + ")");
}

int Tune(const Session& s, const Client& client, ProgressLine& line, const CallOptions& call) {
  const bool json = s.options.json;
  std::string trials;
  const auto result = client.Tune(
      {s.options.subject, s.options.tune_sessions, s.options.limit_s, s.options.overrides},
      [&](const TuneProgress& p) {
        Progress shown;
        shown.step = std::to_string(p.done + 1) + "/" + std::to_string(p.total) + " " + p.step;
        if (p.limit_s > 0) shown.fraction = std::min(1.0, p.elapsed_s / p.limit_s);
        line.Show(shown);
      },
      [&](const TuneTrial& t) {
        line.Clear();
        if (json) {
          trials += (trials.empty() ? "" : ", ") + t.wire.ToJson();
        } else {
          Print(TrialText(t) + ": " + FiguresText(t) + "\n");
        }
      },
      call);
  line.Clear();
  if (!result) return Fail(result.error());
  if (json) {
    return Print("{\n\"trials\": [" + trials + "],\n\"result\": " + result->wire.ToJson() + "\n}\n")
               ? kExitOk
               : kExitFailed;
  }
  std::string text = "\n";
  for (const TuneWinner& winner : result->winners)
    text += "best " + Safe(winner.objective) + ": " + TrialText(winner.trial) + ": " +
            FiguresText(winner.trial) + "\n";
  text += std::to_string(result->trials) + " trials in " + Short(result->elapsed_s) + " s" +
          (result->cut_short ? ", cut short: what was not tried is planned from formulas" : "") +
          ". Later plans take these figures, until the engine or a driver changes.\n";
  return Print(text) ? kExitOk : kExitFailed;
}

int ShowPlan(const Session& s, const Result<PullPlan>& plan) {
  if (!plan) return Fail(plan.error());
  if (!Print(s.options.json ? plan->wire.ToJson() + "\n" : RenderPullPlan(*plan, s.out))) return kExitFailed;
  for (const auto& candidate : plan->candidates) {
    if (candidate.chosen) return candidate.fit == "does not fit" ? kExitRefused : kExitOk;
  }
  return kExitRefused;
}

int ShowVerified(const Session& s, const Result<VerifiedModels>& result) {
  if (!result) return Fail(result.error());
  if (!Print(s.options.json ? result->wire.ToJson() + "\n" : RenderVerified(*result, s.out)))
    return kExitFailed;
  for (const auto& model : result->models) {
    if (model.state == "damaged" || model.state == "missing") return kExitFailed;
  }
  return kExitOk;
}

int Pull(const Session& s, const Client& client, const CallOptions& call, ProgressLine& line) {
  const auto show = [&line](const Progress& progress) { line.Show(progress); };
  const PullRequest request{s.options.subject, s.options.name, false, s.options.replace, s.options.force};
  if (s.options.pause) {
    const auto stopped = client.StopPull(s.options.subject);
    if (!stopped) return Fail(stopped.error());
    Print(s.options.json ? std::string("{\n  \"stopped\": ") + (*stopped ? "true" : "false") + "\n}\n"
          : *stopped     ? "paused; `rumbo pull` goes on\n"
                         : "nothing of that name is being pulled\n");
    return *stopped ? kExitOk : kExitNotFound;
  }
  if (s.options.plan) {
    const auto plan = client.PlanPull(request, show, call);
    line.Clear();
    return ShowPlan(s, plan);
  }
  const auto model = client.Pull(request, show, call, [&](const PullPlan& plan) {
    line.Clear();
    if (s.err.terminal) std::fputs(RenderPullChoice(plan, s.err).c_str(), stderr);
  });
  line.Clear();
  return ShowModel(s, model);
}

}  // namespace

int RunStreamingCommand(const Session& session) {
  std::stop_source stop;
  InterruptWatch watch([&stop] { stop.request_stop(); });
  auto client = Client::Connect({.app = "rumbo"});
  if (!client) return Fail(client.error());
  const Options& options = session.options;
  CallOptions call;
  call.cancel = stop.get_token();
  ProgressLine line(session.err);
  const auto show = [&line](const Progress& progress) { line.Show(progress); };

  int code = kExitOk;
  if (options.command == "load") {
    LoadRequest request;
    request.model = options.subject;
    request.workload = options.workload;
    request.overrides = options.overrides;
    const auto loaded = client->Load(request, show, call);
    line.Clear();
    code = ShowLoaded(session, loaded);
  } else if (options.command == "tune") {
    code = Tune(session, *client, line, call);
  } else if (options.command == "import") {
    const std::string path = AbsolutePath(options.subject);
    const std::string name = options.name.empty() ? NameOf(path) : options.name;
    const auto model =
        client->Import({path, name, options.sha256, options.replace, options.variant}, show, call);
    line.Clear();
    code = ShowModel(session, model);
  } else if (options.command == "models" && options.subject == "verify") {
    const auto result = client->Verify(options.words, show, call);
    line.Clear();
    code = ShowVerified(session, result);
  } else if (options.command == "models") {
    if (options.words.size() != 2) {
      PrintError("export needs a model and a folder", "`rumbo models export MODEL FOLDER`");
      return kExitUsage;
    }
    const auto files = client->Export(options.words[0], AbsolutePath(options.words[1]), show, call);
    line.Clear();
    if (!files) {
      code = Fail(files.error());
    } else {
      std::string text;
      for (const auto& path : files->paths) text += Safe(path) + "\n";
      Print(options.json ? files->wire.ToJson() + "\n" : text);
    }
  } else {
    code = Pull(session, *client, call, line);
  }
  return stop.stop_requested() && code != kExitOk ? kExitInterrupted : code;
}

}  // namespace rumbo::cli
