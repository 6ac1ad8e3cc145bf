#pragma once

#include <stop_token>
#include <string>
#include <string_view>

#include "rumbo/client.h"
#include "sdk/cli/options.h"
#include "sdk/cli/screen.h"

// The commands of `rumbo`. Each returns the exit code of the process.
namespace rumbo::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;
inline constexpr int kExitRefused = 4;
inline constexpr int kExitUnreachable = 5;
inline constexpr int kExitInterrupted = 130;

// The documented code for an error.
int ExitCodeFor(const Error& error);

// Writes "rumbo: message" and the next step to standard error.
void PrintError(std::string_view message, std::string_view next_step);

// The same for an error of a call; returns its exit code. Nothing is written for what the user interrupted.
int Fail(const Error& error);

// Writes all of `text` to standard output; false where nobody reads it.
bool Print(std::string_view text);

// Standard input to its end, at most 16 MiB of valid UTF-8.
Result<std::string> ReadInput();

// Where a command runs: its options and the screens.
struct Session {
  const Options& options;
  Screen out = Screen::OfStdout();
  Screen err = Screen::OfStderr();
};

int RunInference(const Session& session);         // run
int RunStreamingCommand(const Session& session);  // import, pull, load, tune
int RunTop(const Session& session);               // top
int RunLaunch(const Session& session);            // launch
int RunLiveCommand(const Session& session);       // ps --watch, logs, lease
int RunSimpleCommand(const Session& session);     // everything else

}  // namespace rumbo::cli
