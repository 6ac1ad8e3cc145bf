#include "engines/fake/fake_options.h"

#include <charconv>

#include "base/status.h"

namespace rumbo {
namespace {

template <typename T>
absl::Status SetNumber(T* field, std::string_view key, std::string_view value) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *field);
  if (error != std::errc() || end != value.data() + value.size()) {
    return InvalidArgument("extra." + std::string(key) + " is not a number in range: " + std::string(value));
  }
  return absl::OkStatus();
}

absl::Status SetPerRequest(FakeOptions* o, std::string_view key, std::string_view value, bool* known) {
  *known = true;
  if (key == "token_us") return SetNumber(&o->token_us, key, value);
  if (key == "prefill_us") return SetNumber(&o->prefill_us, key, value);
  if (key == "crash_at_token") return SetNumber(&o->crash_at_token, key, value);
  if (key == "hang_at_token") return SetNumber(&o->hang_at_token, key, value);
  if (key == "error_at_token") return SetNumber(&o->error_at_token, key, value);
  if (key == "stop_at_token") return SetNumber(&o->stop_at_token, key, value);
  if (key == "garbage") {
    if (value != "" && value != "wire" && value != "utf8" && value != "order" && value != "no_finish" &&
        value != "stream" && value != "stderr") {
      return InvalidArgument("extra.garbage must be wire, utf8, order, no_finish, stream or stderr");
    }
    o->garbage = value;
    return absl::OkStatus();
  }
  *known = false;
  return absl::OkStatus();
}

absl::Status SetAtLoad(FakeOptions* o, std::string_view key, std::string_view value) {
  if (key == "load_ms") return SetNumber(&o->load_ms, key, value);
  if (key == "exit_code") return SetNumber(&o->exit_code, key, value);
  if (key == "weights_bytes") return SetNumber(&o->weights_bytes, key, value);
  if (key == "kv_bytes") return SetNumber(&o->kv_bytes, key, value);
  if (key == "load_hang") {
    o->load_hang = value == "1" || value == "true";
    return absl::OkStatus();
  }
  if (key == "load_error") {
    o->load_error = value;
    return absl::OkStatus();
  }
  if (key == "open_path") {
    o->open_path = value;
    return absl::OkStatus();
  }
  if (key == "stderr") {
    o->stderr_text = value;
    return absl::OkStatus();
  }
  return InvalidArgument("the fake engine has no setting extra." + std::string(key),
                         "engines/fake/fake_options.h lists them.");
}

}  // namespace

absl::StatusOr<FakeOptions> ParseFakeOptions(const std::map<std::string, std::string>& extra) {
  FakeOptions options;
  for (const auto& [key, value] : extra) {
    bool known = false;
    RUMBO_RETURN_IF_ERROR(SetPerRequest(&options, key, value, &known));
    if (!known) RUMBO_RETURN_IF_ERROR(SetAtLoad(&options, key, value));
  }
  return options;
}

absl::StatusOr<FakeOptions> WithPromptFaults(const FakeOptions& base, std::string_view prompt) {
  FakeOptions options = base;
  for (size_t at = prompt.find("<<"); at != std::string_view::npos; at = prompt.find("<<", at)) {
    at += 2;
    const size_t end = prompt.find(">>", at);
    if (end == std::string_view::npos) break;
    const std::string_view word = prompt.substr(at, end - at);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    bool known = false;
    RUMBO_RETURN_IF_ERROR(SetPerRequest(&options, word.substr(0, equals), word.substr(equals + 1), &known));
    if (!known) return InvalidArgument("the fake engine knows no fault " + std::string(word));
  }
  return options;
}

}  // namespace rumbo
