#include <cstdio>

#include "sdk/cli/commands.h"
#include "sdk/cli/options.h"
#include "sdk/cli/shell_help.h"

int main(int argc, char** argv) {
  using namespace rumbo::cli;
  const auto parsed = ParseCommandLine(argc, argv);
  if (const auto* refused = std::get_if<Refused>(&parsed)) {
    if (refused->exit_code == kExitOk) {
      Print(refused->text);
    } else {
      PrintError(refused->text, refused->next_step);
    }
    return refused->exit_code;
  }
  const auto& options = std::get<Options>(parsed);
  if (options.command == "manual") return Print(ManualPage(RUMBO_VERSION)), kExitOk;
  if (options.command == "completions") {
    const auto script = CompletionScript(options.subject);
    if (!script)
      return PrintError("no completions for " + options.subject, "It is bash, zsh or fish."), kExitUsage;
    return Print(*script), kExitOk;
  }
  const Session session{options};
  if (options.command == "run") return RunInference(session);
  if (options.command == "top") return RunTop(session);
  if (options.command == "launch") return RunLaunch(session);
  if (options.command == "load" || options.command == "import" || options.command == "pull" ||
      options.command == "tune" ||
      (options.command == "models" && (options.subject == "verify" || options.subject == "export"))) {
    return RunStreamingCommand(session);
  }
  if (options.command == "logs" || options.command == "lease" ||
      (options.command == "ps" && options.follow)) {
    return RunLiveCommand(session);
  }
  return RunSimpleCommand(session);
}
