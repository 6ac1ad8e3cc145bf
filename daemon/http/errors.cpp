#include "daemon/http/errors.h"

#include "absl/strings/cord.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/http/json_out.h"

namespace rumbo {
namespace {

constexpr char kFieldUrl[] = "rumbo/field";

// Errors that the same request meets again whenever it comes.
bool RetryMakesSense(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return true;
    case absl::StatusCode::kResourceExhausted:
      return ReasonOf(status) != Reason::kRequestTooLarge;
    default:
      return RetryAfterOf(status).has_value();
  }
}

const char* OpenAiType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_status >= 500 ? "server_error" : "invalid_request_error";
  }
}

const char* AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// "model_not_found"; where there is no reason, the kind of error: "not_found".
std::string LowerCode(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  std::string code(reason == Reason::kUnspecified ? absl::StatusCodeToString(status.code())
                                                  : std::string(ReasonCode(reason)));
  for (char& c : code) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return code;
}

}  // namespace

absl::Status FieldError(std::string_view field, std::string_view message) {
  const std::string shown = EscapeForLog(field, 200);
  absl::Status status = InvalidArgument(shown + ": " + std::string(message));
  status.SetPayload(kFieldUrl, absl::Cord(shown));
  return status;
}

std::string FieldOf(const absl::Status& status) {
  const auto field = status.GetPayload(kFieldUrl);
  return field ? std::string(*field) : std::string();
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return ReasonOf(status) == Reason::kRequestTooLarge ? 413 : 400;
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted: {
      const Reason reason = ReasonOf(status);
      return reason == Reason::kQueueFull || reason == Reason::kRateLimited ? 429 : 503;
    }
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorText(const absl::Status& status) {
  std::string text = MessageOf(status);
  const std::string next = NextStepOf(status);
  if (!next.empty()) {
    if (!text.empty() && text.back() != '.') text += '.';
    text += ' ';
    text += next;
  }
  return EscapeForLog(text, 4000);
}

void AppendOpenAiError(std::string& out, const absl::Status& status) {
  const int http_status = HttpStatusOf(status);
  const std::string field = FieldOf(status);
  JsonWriter w(out);
  w.Open('{').Key("error").Open('{').Key("message").String(ErrorText(status));
  w.Key("type").String(OpenAiType(http_status)).Key("param");
  field.empty() ? w.Null() : w.String(field);
  w.Key("code").String(LowerCode(status)).Close('}').Close('}');
}

void AppendAnthropicError(std::string& out, const absl::Status& status) {
  JsonWriter w(out);
  w.Open('{').Key("type").String("error").Key("error").Open('{');
  w.Key("type").String(AnthropicType(HttpStatusOf(status))).Key("message").String(ErrorText(status));
  w.Close('}').Close('}');
}

void AppendOllamaError(std::string& out, const absl::Status& status) {
  JsonWriter(out).Open('{').Key("error").String(ErrorText(status)).Close('}');
}

void AppendRumboError(std::string& out, const absl::Status& status) {
  JsonWriter w(out);
  w.Open('{').Key("error").Open('{').Key("code").String(absl::StatusCodeToString(status.code()));
  w.Key("reason").String(ReasonCode(ReasonOf(status)));
  w.Key("message").String(EscapeForLog(MessageOf(status), 4000));
  w.Key("next_step").String(EscapeForLog(NextStepOf(status), 4000));
  if (const std::string field = FieldOf(status); !field.empty()) w.Key("field").String(field);
  if (const auto after = RetryAfterOf(status)) w.Key("retry_after_ms").Int(after->count());
  w.Close('}').Close('}');
}

HttpReply ErrorReply(Dialect dialect, const absl::Status& status) {
  HttpReply reply;
  reply.status = HttpStatusOf(status);
  switch (dialect) {
    case Dialect::kOpenAi:
      AppendOpenAiError(reply.body, status);
      break;
    case Dialect::kAnthropic:
      AppendAnthropicError(reply.body, status);
      break;
    case Dialect::kOllama:
      AppendOllamaError(reply.body, status);
      break;
    case Dialect::kRumbo:
      AppendRumboError(reply.body, status);
      break;
  }
  if (const auto after = RetryAfterOf(status)) {
    const int64_t seconds = (after->count() + 999) / 1000;
    reply.headers.emplace_back("retry-after", std::to_string(seconds < 1 ? 1 : seconds));
  }
  if (reply.status >= 409) {
    reply.headers.emplace_back("x-should-retry", RetryMakesSense(status) ? "true" : "false");
  }
  return reply;
}

}  // namespace rumbo
