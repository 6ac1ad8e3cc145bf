#include "engines/llamacpp/inspect/config_view.h"

#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "engines/llamacpp/inspect/errors.h"

namespace rumbo {

namespace json = boost::json;

absl::StatusOr<json::value> ReadJson(int fd, const std::string& name, uint64_t max_bytes) {
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return NotAModelFile();
  if (info.st_size <= 0 || static_cast<uint64_t>(info.st_size) > max_bytes) {
    return ModelInvalid(name + " is empty or longer than a configuration can be");
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n <= 0) return ModelInvalid(name + " ends early");
    done += static_cast<size_t>(n);
  }
  json::parse_options options;
  options.max_depth = 32;
  boost::system::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error) return ModelInvalid(name + " is not JSON: " + error.message());
  if (!value.is_object()) return ModelInvalid(name + " is not a JSON object");
  return value;
}

ConfigView::ConfigView(const json::object& root) : root_(root) { text_ = Object("text_config"); }

void ConfigView::Fail(const std::string& message) {
  if (error_.ok()) error_ = ModelInvalid("config.json: " + message);
}

const json::value* ConfigView::Find(const char* key) const {
  const json::value* value = root_.if_contains(key);
  if ((value == nullptr || value->is_null()) && text_ != nullptr) value = text_->if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

uint32_t ConfigView::Count(std::initializer_list<const char*> keys, uint32_t fallback) {
  for (const char* key : keys) {
    const json::value* value = Find(key);
    if (value == nullptr) continue;
    int64_t n = -1;
    if (value->is_int64()) n = value->get_int64();
    if (value->is_uint64())
      n = value->get_uint64() > 1u << 31 ? -1 : static_cast<int64_t>(value->get_uint64());
    if (value->is_double() && value->get_double() >= 0 && value->get_double() <= 2147483647.0)
      n = static_cast<int64_t>(value->get_double());
    if (n >= 0 && n <= std::numeric_limits<int32_t>::max()) return static_cast<uint32_t>(n);
    Fail("'" + std::string(key) + "' is not a count");
    return fallback;
  }
  return fallback;
}

std::string ConfigView::Text(const char* key) {
  const json::value* value = Find(key);
  if (value == nullptr) return "";
  if (!value->is_string()) {
    Fail("'" + std::string(key) + "' is not text");
    return "";
  }
  return std::string(value->get_string().data(), value->get_string().size());
}

bool ConfigView::Flag(const char* key, bool fallback) {
  const json::value* value = Find(key);
  return value != nullptr && value->is_bool() ? value->get_bool() : fallback;
}

std::vector<std::string> ConfigView::Texts(const char* key) {
  std::vector<std::string> out;
  const json::value* value = Find(key);
  if (value == nullptr || !value->is_array()) return out;
  for (const json::value& item : value->get_array()) {
    if (out.size() < 4096 && item.is_string())
      out.emplace_back(item.get_string().data(), item.get_string().size());
  }
  return out;
}

const json::object* ConfigView::Object(const char* key) const {
  const json::value* value = root_.if_contains(key);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

}  // namespace rumbo
