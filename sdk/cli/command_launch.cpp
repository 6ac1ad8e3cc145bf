// `rumbo launch`: starts a program of others, a coding agent or a chat front end, on a model of this daemon.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/nearest.h"
#include "sdk/cli/commands.h"
#include "sdk/cli/launch_tools.h"
#include "sdk/cli/render.h"
#include "sdk/cpp/json.h"

namespace rumbo::cli {
namespace {

int ListTools(const Session& s) {
  Table table({"TOOL", "WHAT", "NEEDS TOOLS", "CHECKED WITH IT"});
  std::string json;
  for (const LaunchTool& tool : LaunchTools()) {
    table.Add({tool.name, tool.title, tool.needs_tools ? "yes" : "no", tool.verified ? "yes" : "no"});
    json += std::string(json.empty() ? "" : ", ") + "{\"name\": " + QuoteJson(tool.name) +
            ", \"title\": " + QuoteJson(tool.title) +
            ", \"needs_tools\": " + (tool.needs_tools ? "true" : "false") +
            ", \"verified\": " + (tool.verified ? "true" : "false") + "}";
  }
  Print(s.options.json ? "{\n  \"tools\": [" + json + "]\n}\n"
                       : table.Render(s.out) + "`rumbo launch TOOL --model MODEL` starts one.\n");
  return kExitOk;
}

// The model that was named; else the only one loaded; else the only one there is.
Result<std::string> ChooseModel(const Client& client, const Options& options) {
  if (!options.name.empty()) {
    auto model = client.GetModel(options.name);
    if (!model) return model.error();
    return model->model.name;
  }
  auto instances = client.Instances();
  if (!instances) return instances.error();
  if (instances->instances.size() == 1) return instances->instances[0].model;
  auto models = client.Models();
  if (!models) return models.error();
  if (models->models.size() == 1) return models->models[0].name;
  return Error{Code::kInvalidArgument,
               Reason::kInvalidArgument,
               "INVALID_ARGUMENT",
               "which model? There are " + std::to_string(models->models.size()),
               "Name one with --model; `rumbo models` lists them.",
               std::nullopt};
}

// Whether the model can call tools, by asking it with one: only its template and its engine know. Loads it.
Result<Done> CheckTools(const Client& client, const std::string& model) {
  ChatRequest request;
  request.model = model;
  request.messages = {User("hi")};
  request.tools = {{"noop", "does nothing", R"({"type":"object","properties":{}})"}};
  request.tool_choice = "auto";
  request.sampling.max_tokens = 1;
  auto answer = client.Chat(request, [](const Chunk&) {});
  if (!answer) return answer.error();
  return Done{};
}

// 'text' for a POSIX shell.
std::string ShellQuote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

using Environment = std::vector<std::pair<std::string, std::string>>;

int PrintEnvironment(const Session& s, const LaunchTool& tool, const Environment& environment,
                     const std::vector<std::string>& command) {
  std::string text;
  std::string json;
  for (const auto& [name, value] : environment) {
    text += "export " + name + "=" + ShellQuote(s.out.terminal ? Safe(value) : value) + "\n";
    json += (json.empty() ? "" : ", ") + QuoteJson(name) + ": " + QuoteJson(value);
  }
  std::string words;
  std::string line;
  for (const std::string& word : command) {
    line += (line.empty() ? "" : " ") +
            (word.find_first_of(" \"'{}$\\") == std::string::npos ? word : ShellQuote(word));
    words += (words.empty() ? "" : ", ") + QuoteJson(word);
  }
  if (*tool.program != '\0') text += (s.out.terminal ? Safe(line) : line) + "\n";
  return Print(s.options.json ? "{\n  \"environment\": {" + json + "},\n  \"command\": [" + words + "]\n}\n"
                              : text)
             ? kExitOk
             : kExitFailed;
}

int Start(const LaunchTool& tool, const Environment& environment, std::vector<std::string> command) {
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  PrintError(std::string(tool.program) + " cannot be started: " + std::strerror(error),
             std::string("Install ") + tool.title + ", or use --print for the environment it needs.");
  return error == ENOENT ? kExitNotFound : kExitFailed;
}

}  // namespace

int RunLaunch(const Session& session) {
  const Options& options = session.options;
  if (options.subject.empty()) return ListTools(session);
  const LaunchTool* tool = FindLaunchTool(options.subject);
  if (tool == nullptr) {
    std::vector<std::string> names;
    for (const LaunchTool& known : LaunchTools()) names.emplace_back(known.name);
    const std::string near = Nearest(options.subject, names);
    PrintError("no tool is known as \"" + Safe(options.subject) + "\"",
               near.empty() ? "`rumbo launch` lists them; `rumbo launch env` prints what any client needs."
                            : "Did you mean `rumbo launch " + near + "`?");
    return kExitUsage;
  }
  auto client = Client::Connect({.start_daemon = true, .app = "rumbo"});
  if (!client) return Fail(client.error());
  const auto status = client->Status();
  if (!status) return Fail(status.error());
  if (status->http_address.empty()) {
    PrintError("this daemon serves no HTTP", "Start it without --http off.");
    return kExitRefused;
  }
  const auto model = ChooseModel(*client, options);
  if (!model) return Fail(model.error());
  if (tool->needs_tools && !options.off) {
    if (session.err.terminal)
      std::fprintf(stderr, "asking %s whether it can call tools\n", Safe(*model).c_str());
    if (const auto can = CheckTools(*client, *model); !can) {
      if (can.error().reason == Reason::kCapabilityMissing) {
        PrintError(std::string(tool->title) + " needs a model that can call tools; " + *model + " cannot",
                   "Choose another with --model, or insist with --no-check.");
        return kExitRefused;
      }
      return Fail(can.error());
    }
  }
  LaunchValues values{"http://" + status->http_address, *model, options.key.empty() ? "rumbo" : options.key};
  Environment environment;
  for (const auto& [name, value] : tool->environment) environment.emplace_back(name, FillIn(value, values));
  std::vector<std::string> command;
  if (*tool->program != '\0') command.emplace_back(tool->program);
  for (const char* argument : tool->arguments) command.push_back(FillIn(argument, values));
  command.insert(command.end(), options.words.begin(), options.words.end());
  if (options.print || *tool->program == '\0') return PrintEnvironment(session, *tool, environment, command);
  return Start(*tool, environment, std::move(command));
}

}  // namespace rumbo::cli
