#include "sdk/cli/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/utf8.h"

namespace rumbo::cli {

int ExitCodeFor(const Error& error) {
  switch (error.reason) {
    case Reason::kDaemonUnreachable:
      return kExitUnreachable;
    case Reason::kInvalidArgument:
    case Reason::kInvalidUtf8:
    case Reason::kRequestTooLarge:
      return kExitUsage;
    case Reason::kUnsupportedArchitecture:
    case Reason::kContextTooLarge:
    case Reason::kPromptTooLong:
    case Reason::kCapabilityMissing:
    case Reason::kDoesNotFit:
    case Reason::kContractUnsatisfiable:
    case Reason::kNeedsPack:
    case Reason::kDeviceNotUsable:
    case Reason::kBackendUnavailable:
    case Reason::kFormatUnsupported:
    case Reason::kSystemUnsupported:
    case Reason::kUnverified:
    case Reason::kNotAllowedByPolicy:
    case Reason::kPermissionDenied:
    case Reason::kUnauthenticated:
      return kExitRefused;
    case Reason::kEngineNotInstalled:  // by the catalog's name, or by a plan
      return error.code == Code::kNotFound ? kExitNotFound : kExitRefused;
    default:
      return error.code == Code::kNotFound ? kExitNotFound : kExitFailed;
  }
}

void PrintError(std::string_view message, std::string_view next_step) {
  const Screen screen = Screen::OfStderr();
  std::string text = Paint(screen, Style::kBad, "rumbo:") + " " + SafeLines(message, "  ") + "\n";
  if (!next_step.empty()) text += "  " + SafeLines(next_step, "  ") + "\n";
  std::fputs(text.c_str(), stderr);
}

int Fail(const Error& error) {
  std::string next = error.next_step;
  if (error.retry_after) {
    const auto seconds = (error.retry_after->count() + 999) / 1000;
    next += (next.empty() ? "" : " ") + ("Try again in " + std::to_string(seconds) + " s.");
  }
  PrintError(error.message, next);
  return ExitCodeFor(error);
}

bool Print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

Result<std::string> ReadInput() {
  constexpr size_t kLimit = 16 << 20;
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, n);
    if (text.size() > kLimit) {
      return Error{Code::kInvalidArgument, Reason::kRequestTooLarge,
                   "REQUEST_TOO_LARGE",    "standard input is longer than 16 MiB",
                   "Give less text.",      std::nullopt};
    }
  }
  if (!IsValidUtf8(text)) {
    return Error{Code::kInvalidArgument,
                 Reason::kInvalidUtf8,
                 "INVALID_UTF8",
                 "standard input is not UTF-8 text",
                 "Convert it first, for example with iconv.",
                 std::nullopt};
  }
  return text;
}

}  // namespace rumbo::cli
