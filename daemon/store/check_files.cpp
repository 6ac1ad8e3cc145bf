#include "daemon/store/check_files.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>

#include "base/os/subprocess.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/names.h"

namespace rumbo {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr milliseconds kTemplateTime{5000};  // of a busy machine; the process itself has a second of CPU
constexpr milliseconds kFactsTime{10000};
constexpr size_t kMaxFacts = 64 << 20;

std::string TextOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string().c_str()) : "";
}

bool FlagOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

absl::StatusOr<json::value> RunInspect(const std::string& bin_dir, const std::string& path,
                                       const char* mode) {
  SpawnSpec spec;
  spec.argv = {bin_dir + "/rumbo-inspect", path, mode};
  spec.env = CleanEnvironment();
  RUMBO_ASSIGN_OR_RETURN(const HelperResult result, RunHelper(spec, kFactsTime, kMaxFacts));
  boost::system::error_code error;
  json::value value = json::parse(result.out, error);
  if (error || !value.is_object()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid,
                 "the file made its reader " +
                     (result.timed_out ? std::string("hang") : "end with " + result.exit.Describe()));
  }
  if (const json::value* failed = value.get_object().if_contains("error");
      failed != nullptr && failed->is_object()) {
    return Error(absl::StatusCode::kInvalidArgument,
                 ReasonFromCode(TextOf(failed->get_object(), "reason")).value_or(Reason::kModelInvalid),
                 SanitizeUtf8(TextOf(failed->get_object(), "message")),
                 SanitizeUtf8(TextOf(failed->get_object(), "next_step")));
  }
  return value;
}

}  // namespace

TemplateReport RenderTemplate(const std::string& bin_dir, const std::string& text) {
  TemplateReport report;
  const std::string program = bin_dir + "/rumbo-template";
  if (::access(program.c_str(), X_OK) != 0) return report;
  UniqueFd file(::memfd_create("template", MFD_CLOEXEC));
  if (!file.valid()) return report;
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(file.get(), text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return report;
    at += static_cast<size_t>(n);
  }
  ::lseek(file.get(), 0, SEEK_SET);
  SpawnSpec spec;
  spec.argv = {program};
  spec.env = CleanEnvironment();
  spec.fds = {{file.get(), 0}};
  const auto result = RunHelper(spec, kTemplateTime, 1 << 20);
  if (!result.ok()) return report;
  report.ran = true;
  boost::system::error_code error;
  const json::value value = json::parse(result->out, error);
  if (result->timed_out) {
    report.error = "it did not end within five seconds";
  } else if (error || !value.is_object()) {
    report.error = result->exit.exited ? "its renderer ended with " + result->exit.Describe()
                                       : "it takes more than a second of CPU, or more than 1 GiB";
  } else {
    const json::object& o = value.get_object();
    report.error = EscapeForLog(SanitizeUtf8(TextOf(o, "error")), 300);
    report.prompt = SanitizeUtf8(TextOf(o, "prompt"));
    report.supports_tools = FlagOf(o, "tools");
    report.supports_system = FlagOf(o, "system");
  }
  return report;
}

std::vector<CheckItem> CheckModelFiles(const std::string& bin_dir, CheckRequest request) {
  std::vector<CheckItem> out;
  std::string path = request.files.empty() ? request.name : request.files[0];
  if (request.files.empty()) {
    auto value = RunInspect(bin_dir, path, "--json");
    absl::StatusOr<ModelDescriptor> descriptor = value.ok() ? DescriptorFromJson(json::serialize(*value))
                                                            : absl::StatusOr<ModelDescriptor>(value.status());
    if (!descriptor.ok()) {
      CheckItem item;
      item.severity = "broken";
      item.code = "structure";
      item.text = MessageOf(descriptor.status());
      item.remedy = NextStepOf(descriptor.status());
      return {item};
    }
    request.descriptor = std::move(*descriptor);
    request.state = "complete";
  }
  TemplateReport report;
  if (request.descriptor.has_chat_template)
    report = RenderTemplate(bin_dir, request.descriptor.chat_template);
  out = CheckDescriptor(request, &report, BuiltInModelNames().problems);
  if (request.descriptor.format != "safetensors" || request.state != "complete") return out;
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) path = path.substr(0, path.rfind('/'));
  const auto facts = RunInspect(bin_dir, path, "--tensors");
  if (!facts.ok()) {
    CheckItem item;
    item.severity = "broken";
    item.code = "structure";
    item.text = MessageOf(facts.status());
    out.push_back(std::move(item));
    return out;
  }
  std::vector<TensorEntry> tensors;
  const json::value* list = facts->get_object().if_contains("tensors");
  if (list != nullptr && list->is_array()) {
    for (const json::value& entry : list->get_array()) {
      const json::array* pair = entry.if_array();
      if (pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string())
        tensors.push_back({(*pair)[0].get_string().c_str(), (*pair)[1].get_string().c_str()});
    }
  }
  for (CheckItem& item : CheckQuantization(TextOf(facts->get_object(), "config"), tensors)) {
    // What the descriptor said already is not said twice.
    const bool twice = item.code == "mtp.missing" &&
                       std::any_of(out.begin(), out.end(),
                                   [](const CheckItem& other) { return other.code == "mtp.missing"; });
    if (!twice) out.push_back(std::move(item));
  }
  return out;
}

}  // namespace rumbo
