#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rumbo {

// What the fake engine does and how it misbehaves. Each is a key of LoadRequest.settings.extra; those marked
// (p) may also stand in a prompt as <<key=value>> and then hold for that request alone.
struct FakeOptions {
  uint32_t load_ms = 0;        // time the load takes, with progress on the way
  bool load_hang = false;      // the load never ends and reports nothing
  std::string load_error;      // the load fails with this text (FAILED_PRECONDITION, MODEL_INVALID)
  int exit_code = -1;          // >= 0: the process ends with this code during the load
  std::string open_path;       // without the first slash; opened for reading at load, whatever comes of it
  std::string stderr_text;     // written to stderr at load, followed by a newline
  uint64_t weights_bytes = 0;  // reported as taken, not really taken
  uint64_t kv_bytes = 0;
  uint32_t token_us = 0;        // (p) pause before each token; 0: as fast as the stream takes them
  uint32_t prefill_us = 0;      // (p) pause per prompt token before the first token
  uint32_t crash_at_token = 0;  // (p) abort() instead of sending this token (1 is the first)
  uint32_t hang_at_token = 0;   // (p) no token from this one on; the call stays open and can be cancelled
  uint32_t error_at_token = 0;  // (p) the call fails with INTERNAL
  uint32_t stop_at_token = 0;   // (p) the "model" ends by itself after so many tokens, reason "stop"
  // (p) "wire": bytes that are no HTTP/2 on the socket; "utf8": a chunk of ill-formed text; "order": a second
  // `started` after the first chunk; "no_finish": ends OK without `finished`; "stream": well-formed HTTP/2
  // that answers a request nobody sent,
  // before each token; "stderr": 200,000 lines on stderr, then the answer as usual.
  std::string garbage;
};

// Reads all keys. kInvalidArgument for a key or value that is none of the above.
absl::StatusOr<FakeOptions> ParseFakeOptions(const std::map<std::string, std::string>& extra);

// `base` changed by the <<key=value>> of `prompt`. kInvalidArgument as above.
absl::StatusOr<FakeOptions> WithPromptFaults(const FakeOptions& base, std::string_view prompt);

}  // namespace rumbo
