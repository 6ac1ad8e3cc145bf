#include "sdk/cli/options.h"

#include <CLI/CLI.hpp>

#include "base/nearest.h"
#include "sdk/cli/screen.h"
#include "sdk/cli/shell_help.h"

namespace rumbo::cli {
namespace {

// "-5" is no unsigned number, though strtoull takes it.
std::string NotNegative(const std::string& text) {
  return !text.empty() && text[0] == '-' ? "must not be negative" : "";
}

// What std::from_chars takes for a number of tokens, threads, sessions or seconds, and no more than fits.
std::string WholeNumber(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (digits && text.size() <= 10 && std::stoull(text) >= 1 && std::stoull(text) <= UINT32_MAX) return "";
  return "it is a whole number from 1 on, not \"" + Safe(text) + "\"";
}

class CommandLine {
 public:
  CommandLine() : app_("Runs language models on this machine and says why where.", "rumbo") {
    app_.set_version_flag("--version", "rumbo " RUMBO_VERSION);
    app_.require_subcommand(0, 1);
    AddMachineCommands();
    AddModelCommands();
    AddPlanCommands();
    AddInferenceCommands();
  }

  std::variant<Options, Refused> Parse(int argc, const char* const* argv) {
    if (auto refused = RefuseUnknownCommand(argc, argv)) return *refused;
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      return Refused{0, app_.get_subcommands().empty() ? app_.help() : Chosen().help("rumbo"), ""};
    } catch (const CLI::CallForVersion& version) {
      return Refused{0, std::string(version.what()) + "\n", ""};
    } catch (const CLI::ExtrasError&) {
      return RefuseExtras();
    } catch (const CLI::ParseError& error) {
      return Refused{2, error.what(), Advice()};
    }
    if (app_.get_subcommands().empty()) return Refused{2, "a command is missing", "See `rumbo --help`."};
    options_.command = Chosen().get_name();
    return options_;
  }

  std::vector<CommandDescription> Describe() const {
    std::vector<CommandDescription> out;
    for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; })) {
      CommandDescription description{command->get_name(), command->get_description(), {}};
      for (const CLI::Option* option : command->get_options()) {
        const auto& names = option->get_lnames();
        if (!names.empty() && names[0] == "help") continue;
        description.options.push_back({names.empty() ? option->get_name() : "--" + names[0], names.empty(),
                                       option->get_items_expected_max() > 0, option->get_description()});
      }
      out.push_back(std::move(description));
    }
    return out;
  }

 private:
  CLI::App* Command(const char* name, const char* text) {
    CLI::App* command = app_.add_subcommand(name, text);
    command->add_flag("--json", options_.json, "Print one JSON document");
    return command;
  }

  void Subject(CLI::App* command, const char* name, const char* text) {
    command->add_option(name, options_.subject, text)->required();
  }

  void AddMachineCommands() {
    CLI::App* devices =
        Command("devices", "What the machine has: memory, CPUs, GPUs, NPUs, and what is usable");
    devices->add_option("--hardware", options_.hardware, "A hardware profile instead of this machine");
    devices->add_flag("--refresh", options_.refresh, "Probe again first");
    Command("doctor", "What is wrong with this machine and the daemon, worst first");
    Command("status", "The daemon: version, load, engines");
    CLI::App* ps = Command("ps", "Loaded models");
    ps->add_flag("--watch", options_.follow, "Each change as it comes, with its reason");
    CLI::App* logs = Command("logs", "The daemon's log");
    logs->add_option("WORD", options_.subject, "Only lines with it: an instance, a model, any word");
    logs->add_option("--lines", options_.lines, "How many of the past, 2000 at most");
    logs->add_flag("--follow", options_.follow, "Go on with new lines");
    CLI::App* drain = Command("drain", "Let what runs end, then stop the daemon");
    drain->add_option("--limit", options_.limit_s, "Seconds that running requests get")->check(NotNegative);
    Command("reload", "Read the daemon's configuration again");
    Command("engines", "What is known about engines, and which are installed")
        ->add_option("NAME", options_.subject, "One engine in full");
    Subject(Command("completions", "A completion script for a shell"), "SHELL", "bash, zsh or fish");
    Command("manual", "The manual page, in roff");
    CLI::App* top = Command("top", "What the daemon does, again and again; q ends");
    top->add_option("--interval", options_.interval_s, "Seconds between two looks")
        ->check(CLI::Range(0.1, 3600.0));
    top->add_flag("--once", options_.once, "Print one view");
  }

  void AddModelCommands() {
    CLI::App* models =
        Command("models",
                "Models in the store; also: search WORDS, verify [MODEL...], gc, export MODEL FOLDER, adopt");
    models->add_option("ACTION", options_.subject,
                       "search, verify, gc, export or adopt; without it, the list");
    models->add_option("WORDS", options_.words, "What the action is about");
    models->add_flag("--dry-run", options_.dry_run, "gc, adopt: only say what would be done");
    models->add_flag("--hub", options_.hub, "search: also ask the hub");
    CLI::App* import = Command("import", "Take a model file into the store");
    Subject(import, "PATH", "A model file");
    import->add_option("--name", options_.name, "Name for apps; by default the file's");
    import->add_option("--sha256", options_.sha256, "Refuse other content");
    import->add_option("--variant", options_.variant,
                       "Add the file beside the model's other variants, under this name");
    import->add_flag("--replace", options_.replace, "Replace another model of that name");
    CLI::App* pull = Command("pull", "Bring a model from a hub");
    Subject(pull, "REFERENCE", "What to bring");
    pull->add_option("--name", options_.name, "Name for apps");
    pull->add_flag("--plan", options_.plan,
                   "Only say which variants there are, which fit, and which it would take");
    pull->add_flag("--force", options_.force, "Take it even where it does not fit this machine");
    pull->add_flag("--replace", options_.replace, "Replace another model of that name");
    pull->add_flag("--pause", options_.pause, "Pause the download of a model for everybody; give its name");
    Subject(Command("show", "One model in full"), "MODEL", "Name of a model");
    Subject(Command("rm", "Delete a model"), "MODEL", "Name of a model");
    CLI::App* check = Command("check", "Look for what will go wrong with a model");
    Subject(check, "MODEL", "Name of a model, or path of a model file or folder");
    check->add_option("--engine", options_.engine, "Also what is known of this engine");
    check->add_option("--write", options_.write_to, "Folder for files that mend what was found");
    Subject(Command("unload", "End the instances of a model"), "MODEL",
            "Name of a model, or id of an instance");
    CLI::App* pin = Command("pin", "Keep a model loaded, also after a restart");
    Subject(pin, "MODEL", "Name of a model");
    pin->add_flag("--off", options_.off, "No longer");
  }

  void AddPlacement(CLI::App* command) {
    command->add_option("--context", options_.workload.context, "Tokens of context for all sessions together")
        ->check(WholeNumber);
    command->add_option("--sessions", options_.workload.sessions, "Sessions that stream at once")
        ->check(WholeNumber);
    command->add_option("--threads", options_.overrides.threads, "CPU threads")->check(WholeNumber);
    command->add_option("--kv", options_.overrides.kv_type, "KV cache type: f16, bf16, q8_0, ...");
    AddChoices(command);
    command->add_flag("--force", options_.overrides.force, "Accept a plan that does not fit");
  }

  void AddChoices(CLI::App* command) {
    command->add_option("--engine", options_.overrides.engine, "Engine instead of the planner's choice");
    command->add_option("--build", options_.overrides.build, "Build of the engine: native, prebuilt, ...");
    command->add_option("--variant", options_.overrides.variant, "Variant of the model");
    command->add_option("--device", options_.overrides.device,
                        "Device id or backend instead of the planner's choice");
    command->add_option("--pooling", options_.overrides.pooling,
                        "Load for embeddings, pooled so: mean, cls or last");
    command->add_option("--draft", options_.overrides.draft_tokens,
                        "Tokens guessed per step, by the model's own heads or --draft-model; 0 none");
    command->add_option("--draft-model", options_.overrides.draft_model,
                        "A smaller model of the same vocabulary that guesses ahead");
  }

  void AddObjective(CLI::App* command) {
    command->add_option("--objective", options_.workload.objective, "latency, throughput, energy or memory");
    command->add_option("--system", options_.plan_system, "Plan for linux, windows or macos");
  }

  void AddPlanCommands() {
    CLI::App* plan = Command("plan", "Where and how a model would run, and why");
    Subject(plan, "MODEL", "Name of a model, or path of a model file");
    plan->add_option("MORE", options_.words, "With --together: the other models");
    plan->add_flag("--together", options_.together, "Several models side by side on one machine");
    plan->add_flag("--all", options_.all,
                   "Everything that was rejected, also engines that are not installed");
    plan->add_option("--prompt", options_.workload.prompt_tokens, "Typical length of a prompt, tokens")
        ->check(WholeNumber);
    plan->add_option("--answer", options_.workload.answer_tokens, "Typical length of an answer, tokens")
        ->check(WholeNumber);
    AddPlacement(plan);
    AddObjective(plan);
    plan->add_option("--hardware", options_.hardware, "A hardware profile instead of this machine");
    CLI::App* load = Command("load", "Load a model");
    Subject(load, "MODEL", "Name of a model");
    AddPlacement(load);
    CLI::App* lease = Command("lease", "Keep a model loaded while this runs, and show what happens to it");
    Subject(lease, "MODEL", "Name of a model");
    lease->add_option("--priority", options_.priority, "interactive, normal or batch");
    lease->add_option("--context", options_.workload.context, "Tokens of context for all sessions together");
    lease->add_option("--sessions", options_.workload.sessions, "Sessions that stream at once");
    Subject(Command("explain", "Why something runs where it runs, and what was measured"), "ID",
            "Id of an instance or request, or name of a model");
    CLI::App* tune = Command("tune", "Measure a model with all that can run it here, and keep the winners");
    Subject(tune, "MODEL", "Name of a model");
    tune->add_option("--sessions", options_.tune_sessions, "Sessions at once to measure; by default 1 4 16")
        ->check(WholeNumber);
    tune->add_option("--limit", options_.limit_s, "Longest time, seconds; by default 300")
        ->check(WholeNumber);
    AddChoices(tune);
    CLI::App* advise = Command("advise", "Plan models over hardware profiles");
    advise->add_option("MODELS", options_.words, "Names of models")->required();
    advise->add_option("--context", options_.workload.context, "Tokens of context for all sessions together")
        ->check(WholeNumber);
    advise->add_option("--sessions", options_.workload.sessions, "Sessions that stream at once")
        ->check(WholeNumber);
    advise->add_flag("--csv", options_.csv, "Print comma-separated values");
    AddObjective(advise);
    advise->add_option("--budget", options_.budget, "Highest price");
    advise->add_option("--currency", options_.currency, "Of the prices, e.g. EUR");
  }

  void AddInferenceCommands() {
    CLI::App* run = Command("run", "Ask a model; starts the daemon where none runs");
    Subject(run, "MODEL", "Name of a model");
    run->add_option("PROMPT", options_.words, "The question; without it, standard input");
    run->add_option("--system", options_.system_prompt, "Instructions for the model");
    run->add_option("--max-tokens", options_.sampling.max_tokens, "Longest answer");
    run->add_option("--temperature", options_.sampling.temperature, "0 is greedy");
    run->add_option("--seed", options_.sampling.seed, "Same seed, same answer")->check(NotNegative);
    run->add_option("--adapter", options_.adapters, "NAME or NAME=SCALE of a LoRA adapter; may be repeated")
        ->allow_extra_args(false)
        ->check([](const std::string& word) -> std::string {
          const size_t at = word.find('=');
          if (at == std::string::npos) return "";
          char* end = nullptr;
          std::strtof(word.c_str() + at + 1, &end);
          const bool number = end != word.c_str() + at + 1 && *end == 0;
          return number && at > 0 ? "" : word + " is no NAME=SCALE";
        });
    run->add_flag("--raw", options_.raw, "Continue the text, without the chat template");
    run->add_flag("--verbose", options_.verbose, "Placement and speed, on standard error");
    CLI::App* launch = Command("launch", "Start a coding agent or chat front end on a model of this daemon");
    launch->add_option("TOOL", options_.subject, "Which; without it, the list. env: print for any client");
    launch->add_option("--model", options_.name, "The model; by default the only one loaded");
    launch->add_option("--token", options_.key, "An API token, where the daemon asks for one");
    launch->add_flag("--print", options_.print, "Print environment and command instead of starting it");
    launch->add_flag("--no-check", options_.off, "Do not ask first whether the model can call tools");
    launch->add_option("ARGS", options_.words, "For the tool, after --");
    CLI::App* embed = Command("embed", "Vectors of texts");
    Subject(embed, "MODEL", "Name of a model");
    embed->add_option("TEXT", options_.words, "Texts; without them, the lines of standard input");
    embed->add_option("--pooling", options_.overrides.pooling,
                      "mean, cls or last; by default the model's own");
    embed->add_option("--dimensions", options_.dimensions, "Keep so many values of each vector");
    CLI::App* tokenize = Command("tokenize", "Tokens of a text");
    Subject(tokenize, "MODEL", "Name of a model");
    tokenize->add_option("TEXT", options_.words, "The text; without it, standard input");
  }

  CLI::App& Chosen() {
    const auto chosen = app_.get_subcommands();
    return chosen.empty() ? app_ : *chosen[0];
  }

  std::string Advice() {
    const bool none = app_.get_subcommands().empty();
    return "See `rumbo " + (none ? "" : Chosen().get_name() + " ") + "--help`.";
  }

  std::optional<Refused> RefuseUnknownCommand(int argc, const char* const* argv) {
    if (argc < 2 || argv[1][0] == '-') return std::nullopt;
    std::vector<std::string> names;
    for (const CLI::App* command : app_.get_subcommands({})) names.push_back(command->get_name());
    const std::string word = argv[1];
    if (std::find(names.begin(), names.end(), word) != names.end()) return std::nullopt;
    const std::string near = Nearest(word, names);
    return Refused{2, "there is no command \"" + word + "\"",
                   near.empty() ? "See `rumbo --help`." : "Did you mean `rumbo " + near + "`?"};
  }

  Refused RefuseExtras() {
    const auto extras = app_.remaining(true);
    const std::string word = extras.empty() ? "" : extras.front();
    if (word.empty() || word[0] != '-') return {2, "one argument too many: \"" + word + "\"", Advice()};
    const std::string option = word.substr(0, word.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* known : Chosen().get_options()) {
      for (const auto& name : known->get_lnames()) names.push_back("--" + name);
    }
    const std::string near = Nearest(option, names);
    return {2, "there is no option \"" + option + "\"",
            near.empty() ? Advice() : "Did you mean " + near + "?"};
  }

  Options options_;
  CLI::App app_;
};

}  // namespace

std::variant<Options, Refused> ParseCommandLine(int argc, const char* const* argv) {
  return CommandLine().Parse(argc, argv);
}

std::vector<CommandDescription> DescribeCommands() { return CommandLine().Describe(); }

}  // namespace rumbo::cli
