#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rumbo {

// JSON of a file that nobody vouches for: at most `max_bytes` and 32 levels deep. Errors: kModelInvalid,
// naming `name`.
absl::StatusOr<boost::json::value> ReadJson(int fd, const std::string& name, uint64_t max_bytes);

// Typed access to config.json; a nested "text_config" stands in for what the top lacks. The first value of a
// wrong type is kept in error().
class ConfigView {
 public:
  explicit ConfigView(const boost::json::object& root);

  const absl::Status& error() const { return error_; }
  void Fail(const std::string& message);

  bool Has(const char* key) const { return Find(key) != nullptr; }
  uint32_t Count(std::initializer_list<const char*> keys, uint32_t fallback = 0);  // the first that is there
  std::string Text(const char* key);
  bool Flag(const char* key, bool fallback);
  std::vector<std::string> Texts(const char* key);
  const boost::json::object* Object(const char* key) const;

 private:
  const boost::json::value* Find(const char* key) const;

  const boost::json::object& root_;
  const boost::json::object* text_ = nullptr;
  absl::Status error_;
};

}  // namespace rumbo
