#include "daemon/store/pull_record.h"

#include <boost/json.hpp>

#include "base/bytes.h"
#include "base/status.h"
#include "daemon/store/blob_files.h"
#include "daemon/store/reference.h"

namespace rumbo {
namespace {

namespace json = boost::json;

std::string Hash(const std::string& text) {
  Sha256 hash;
  hash.Update(text.data(), text.size());
  return hash.Finish();
}

bool IsKey(const std::string& key) {
  return key.size() > 4 && (key.compare(0, 2, "c-") == 0 || key.compare(0, 2, "u-") == 0) &&
         key.find_first_not_of("0123456789abcdef", 2) == std::string::npos;
}

}  // namespace

uint64_t PullRecord::total() const {
  uint64_t sum = 0;
  for (const File& file : files) {
    if (!file.bytes) return 0;
    sum = SaturatingAdd(sum, *file.bytes);
  }
  return sum;
}

std::string PullRecordToJson(const PullRecord& r) {
  json::array files;
  for (const PullRecord::File& file : r.files) {
    json::object out{{"name", file.name},
                     {"key", file.key},
                     {"sha256", file.sha256},
                     {"git_sha1", file.git_sha1},
                     {"url", file.url}};
    if (file.bytes) out["bytes"] = *file.bytes;
    files.push_back(std::move(out));
  }
  return json::serialize(json::object{{"model", r.model},
                                      {"reference", r.reference},
                                      {"licence", r.licence},
                                      {"variant", r.variant},
                                      {"format", r.format},
                                      {"replace", r.replace},
                                      {"complete", r.complete},
                                      {"descriptor", r.descriptor},
                                      {"files", std::move(files)}});
}

absl::StatusOr<PullRecord> PullRecordFromJson(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  const json::object* o = error ? nullptr : value.if_object();
  const auto bad = [] { return Internal("the record of a download is damaged"); };
  if (o == nullptr) return bad();
  const auto get = [](const json::object& from, const char* key) {
    const json::value* v = from.if_contains(key);
    return v != nullptr && v->is_string() ? std::string(v->get_string().c_str()) : std::string();
  };
  const auto flag = [&](const char* key) {
    const json::value* v = o->if_contains(key);
    return v != nullptr && v->is_bool() && v->get_bool();
  };
  PullRecord r;
  r.model = get(*o, "model");
  r.reference = get(*o, "reference");
  r.licence = get(*o, "licence");
  r.variant = get(*o, "variant");
  r.format = get(*o, "format");
  r.descriptor = get(*o, "descriptor");
  r.replace = flag("replace");
  r.complete = flag("complete");
  const json::value* files = o->if_contains("files");
  if (!CheckModelName(r.model).ok() || files == nullptr || !files->is_array() || files->get_array().empty())
    return bad();
  for (const json::value& entry : files->get_array()) {
    const json::object* f = entry.if_object();
    if (f == nullptr) return bad();
    PullRecord::File file{get(*f, "name"),     get(*f, "key"), get(*f, "sha256"),
                          get(*f, "git_sha1"), get(*f, "url"), {}};
    if (const json::value* bytes = f->if_contains("bytes"); bytes != nullptr && bytes->is_int64())
      file.bytes = static_cast<uint64_t>(bytes->get_int64());
    if (!IsKey(file.key) || (!file.sha256.empty() && !IsSha256(file.sha256))) return bad();
    if (!file.name.empty() && (!CheckRemotePath(file.name).ok() || file.name.find('/') != std::string::npos))
      return bad();
    r.files.push_back(std::move(file));
  }
  return r;
}

std::string PullIdFor(const std::string& model) { return Hash(model).substr(0, 16); }

std::string KeyFor(const RemoteFile& file) {
  if (!file.sha256.empty()) return "c-" + file.sha256;
  return "u-" + Hash(file.git_sha1.empty() ? file.url : file.git_sha1).substr(0, 40);
}

}  // namespace rumbo
