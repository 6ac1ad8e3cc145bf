#include "daemon/store/reference.h"

#include <algorithm>
#include <array>

#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/url.h"

namespace rumbo {
namespace {

constexpr size_t kMaxReference = 2048;

bool IsAlphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool OnlyOf(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return IsAlphanumeric(c) || others.find(c) != std::string_view::npos; });
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// CON, NUL, COM1 ... with any ending: on Windows they are devices, never files.
bool IsDeviceName(std::string_view part) {
  const std::string stem = Lower(part.substr(0, part.find_first_of(".:")));
  static constexpr std::array<std::string_view, 6> kPlain = {"con", "prn", "aux", "nul", "conin$", "conout$"};
  if (std::find(kPlain.begin(), kPlain.end(), stem) != kPlain.end()) return true;
  return stem.size() == 4 && (stem.compare(0, 3, "com") == 0 || stem.compare(0, 3, "lpt") == 0) &&
         stem[3] >= '0' && stem[3] <= '9';
}

absl::Status Bad(std::string_view text, std::string_view what) {
  return InvalidArgument(
      "\"" + EscapeForLog(text, 80) + "\" is no reference to a model: " + std::string(what),
      "Write hf:org/repo[:file or quantisation][@revision], ollama:name[:tag], "
      "https://...[#sha256=HEX], file:/path, or a name that `rumbo models search` knows.");
}

// One part of a repository's or a registry's name.
bool IsNamePart(std::string_view part) {
  return !part.empty() && part.size() <= 96 && IsAlphanumeric(part.front()) && part.back() != '.' &&
         OnlyOf(part, "._-") && part.find("..") == part.npos && !IsDeviceName(part);
}

bool IsRevision(std::string_view text) {
  return !text.empty() && text.size() <= 128 && IsAlphanumeric(text.front()) && text.back() != '/' &&
         text.back() != '.' && OnlyOf(text, "._/-") && text.find("..") == text.npos &&
         text.find("//") == text.npos;
}

bool IsQuantization(std::string_view text) {
  return !text.empty() && text.size() <= 40 && IsAlphanumeric(text.front()) && OnlyOf(text, "_.-") &&
         text.find("..") == text.npos && text.back() != '.';
}

bool IsHostAndPort(std::string_view text) {
  const auto url = ParseUrl("https://" + std::string(text) + "/");
  return url.ok() && (url->authority() == text || url->host + ":443" == text);
}

bool LooksLikeFile(std::string_view selector) {
  if (selector.find('/') != selector.npos) return true;
  for (const std::string_view end : {".gguf", ".safetensors", ".onnx", ".json", ".q4nx"}) {
    if (selector.size() > end.size() && Lower(selector.substr(selector.size() - end.size())) == end)
      return true;
  }
  return false;
}

absl::StatusOr<ModelReference> ParseHub(std::string_view all, std::string_view text) {
  ModelReference out;
  out.kind = ModelReference::Kind::kHub;
  if (const size_t at = text.rfind('@'); at != text.npos) {
    out.revision = std::string(text.substr(at + 1));
    text = text.substr(0, at);
    if (!IsRevision(out.revision)) return Bad(all, "its revision");
  }
  if (const size_t colon = text.find(':'); colon != text.npos) {
    const std::string_view selector = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (LooksLikeFile(selector)) {
      if (!CheckRemotePath(selector).ok()) return Bad(all, "its file");
      out.file = std::string(selector);
    } else if (IsQuantization(selector)) {
      out.quantization = std::string(selector);
    } else {
      return Bad(all, "what follows the colon is neither a file nor a quantisation");
    }
  }
  const size_t slash = text.find('/');
  if (slash == text.npos || !IsNamePart(text.substr(0, slash)) || !IsNamePart(text.substr(slash + 1)))
    return Bad(all, "a repository is org/name");
  out.repository = std::string(text);
  return out;
}

absl::StatusOr<ModelReference> ParseRegistry(std::string_view all, std::string_view text) {
  ModelReference out;
  out.kind = ModelReference::Kind::kRegistry;
  std::array<std::string_view, 3> parts;
  size_t count = 0;
  for (size_t at = 0; at <= text.size();) {
    if (count == 3) return Bad(all, "too many slashes");
    const size_t slash = std::min(text.find('/', at), text.size());
    parts[count++] = text.substr(at, slash - at);
    at = slash + 1;
  }
  std::string_view& last = parts[count - 1];
  if (const size_t colon = last.find(':'); colon != last.npos) {
    out.tag = std::string(last.substr(colon + 1));
    last = last.substr(0, colon);
    if (!IsQuantization(out.tag)) return Bad(all, "its tag");
  }
  if (count == 3) {
    if (!IsHostAndPort(parts[0])) return Bad(all, "its host");
    out.host = std::string(parts[0]);
  }
  const std::string_view space = count == 1 ? std::string_view("library") : parts[count - 2];
  if (!IsNamePart(space) || !IsNamePart(last)) return Bad(all, "its name");
  out.repository = std::string(space) + "/" + std::string(last);
  return out;
}

absl::StatusOr<ModelReference> ParseUrlReference(std::string_view all) {
  ModelReference out;
  out.kind = ModelReference::Kind::kUrl;
  std::string_view text = all;
  if (const size_t hash = text.find('#'); hash != text.npos) {
    const std::string_view fragment = text.substr(hash + 1);
    text = text.substr(0, hash);
    if (fragment.substr(0, 7) != "sha256=") return Bad(all, "the only fragment is #sha256=HEX");
    out.sha256 = Lower(fragment.substr(7));
    if (!IsSha256(out.sha256)) return Bad(all, "a sha256 is 64 hex digits");
  }
  const auto url = ParseUrl(text);
  if (!url.ok()) return url.status();
  if (url->scheme == "http" && !url->names_loopback())
    return Bad(all, "http is for loopback addresses only; everything else needs https");
  out.url = url->text();
  return out;
}

}  // namespace

bool IsSha256(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

absl::Status CheckRemotePath(std::string_view path) {
  bool good = !path.empty() && path.size() <= 1024;
  for (size_t at = 0; good && at <= path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, slash - at);
    good = !part.empty() && part.size() <= 255 && part != "." && part != ".." && part.back() != '.' &&
           part.back() != ' ' && part.front() != ' ' && OnlyOf(part, "._-+@()[]{},=~ ") &&
           !IsDeviceName(part);
    at = slash + 1;
  }
  if (good) return absl::OkStatus();
  return InvalidArgument("\"" + EscapeForLog(path, 80) + "\" cannot be the path of a model's file");
}

absl::StatusOr<ModelReference> ParseReference(std::string_view text) {
  if (text.size() > kMaxReference) return Bad(text, "it has more than 2,048 bytes");
  for (const char c : text) {
    if (c <= ' ' || c >= 127 || c == '\\') return Bad(text, "it holds a character that none has");
  }
  if (text.substr(0, 3) == "hf:") return ParseHub(text, text.substr(3));
  if (text.substr(0, 7) == "ollama:") return ParseRegistry(text, text.substr(7));
  if (text.substr(0, 8) == "https://" || text.substr(0, 7) == "http://") return ParseUrlReference(text);
  if (text.substr(0, 5) == "file:") {
    ModelReference out;
    out.kind = ModelReference::Kind::kFile;
    out.file = std::string(text.substr(5));
    if (out.file.compare(0, 3, "///") == 0) out.file.erase(0, 2);
    if (out.file.empty() || out.file[0] != '/') return Bad(text, "file: needs an absolute path");
    if ((out.file + "/").find("/../") != std::string::npos) return Bad(text, "the path holds ..");
    return out;
  }
  ModelReference out;
  std::string_view name = text;
  if (const size_t colon = text.find(':'); colon != text.npos) {
    out.quantization = std::string(text.substr(colon + 1));
    name = text.substr(0, colon);
    if (!IsQuantization(out.quantization)) return Bad(text, "what follows the colon");
  }
  if (!IsNamePart(name))
    return Bad(text, "it is neither a short name nor begins with hf:, ollama:, https:, file:");
  out.name = std::string(name);
  return out;
}

std::string FormatReference(const ModelReference& r) {
  switch (r.kind) {
    case ModelReference::Kind::kHub: {
      std::string out = "hf:" + r.repository;
      if (!r.file.empty()) out += ":" + r.file;
      if (!r.quantization.empty()) out += ":" + r.quantization;
      return r.revision == "main" ? out : out + "@" + r.revision;
    }
    case ModelReference::Kind::kRegistry: {
      const std::string name = r.host.empty() && r.repository.compare(0, 8, "library/") == 0
                                   ? r.repository.substr(8)
                                   : r.repository;
      return "ollama:" + (r.host.empty() ? "" : r.host + "/") + name + ":" + r.tag;
    }
    case ModelReference::Kind::kUrl:
      return r.url + (r.sha256.empty() ? "" : "#sha256=" + r.sha256);
    case ModelReference::Kind::kFile:
      return "file:" + r.file;
    case ModelReference::Kind::kShortName:
      return r.name + (r.quantization.empty() ? "" : ":" + r.quantization);
  }
  return "";
}

std::string NameFor(const ModelReference& r) {
  std::string name;
  const auto stem = [](std::string path) {
    path = path.substr(0, path.find('?'));
    while (!path.empty() && path.back() == '/') path.pop_back();
    path = path.substr(path.rfind('/') + 1);
    const size_t dot = path.rfind('.');
    return dot == std::string::npos || dot == 0 ? path : path.substr(0, dot);
  };
  switch (r.kind) {
    case ModelReference::Kind::kHub:
      name = r.file.empty() ? r.repository.substr(r.repository.find('/') + 1) : stem(r.file);
      if (!r.quantization.empty()) name += ":" + Lower(r.quantization);
      break;
    case ModelReference::Kind::kRegistry:
      name = r.repository.compare(0, 8, "library/") == 0 ? r.repository.substr(8) : r.repository;
      if (r.tag != "latest") name += ":" + r.tag;
      break;
    case ModelReference::Kind::kUrl:
      name = stem(r.url);
      break;
    case ModelReference::Kind::kFile:
      name = stem(r.file);
      break;
    case ModelReference::Kind::kShortName:
      name = FormatReference(r);
      break;
  }
  for (char& c : name) {
    if (!IsAlphanumeric(c) && std::string_view("._:/@+-").find(c) == std::string_view::npos) c = '-';
  }
  for (size_t at; (at = name.find("..")) != std::string::npos;) name.replace(at, 2, ".");
  for (size_t at; (at = name.find("//")) != std::string::npos;) name.replace(at, 2, "/");
  while (!name.empty() && !IsAlphanumeric(name.front())) name.erase(0, 1);
  while (!name.empty() && !IsAlphanumeric(name.back())) name.pop_back();
  if (name.size() > 200) name.resize(200);
  while (!name.empty() && !IsAlphanumeric(name.back())) name.pop_back();
  return CheckModelName(name).ok() ? name : "model";
}

absl::Status CheckModelName(const std::string& name) {
  bool good = !name.empty() && name.size() <= 200 && IsAlphanumeric(name.front()) && name.back() != '/' &&
              name.find("..") == std::string::npos && name.find("//") == std::string::npos &&
              OnlyOf(name, "._:/@+-");
  for (size_t at = 0; good && at <= name.size();) {
    const size_t slash = std::min(name.find('/', at), name.size());
    good = !IsDeviceName(std::string_view(name).substr(at, slash - at));
    at = slash + 1;
  }
  if (good) return absl::OkStatus();
  return InvalidArgument(
      "\"" + EscapeForLog(name, 80) + "\" cannot be the name of a model",
      "Use up to 200 letters, digits and . _ : / @ + -, beginning with a letter or digit.");
}

}  // namespace rumbo
