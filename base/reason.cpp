#include "base/reason.h"

#include <map>
#include <string>

namespace rumbo {
namespace {

std::string ToCode(std::string_view camel) {
  std::string out;
  for (size_t i = 0; i < camel.size(); ++i) {
    const char c = camel[i];
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && i > 0) out += '_';
    out += upper || c == '_' || (c >= '0' && c <= '9') ? c : static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

struct Names {
  std::string name;
  std::string code;
};

const std::map<int, Names>& Table() {
  static const std::map<int, Names>* table = new std::map<int, Names>{
#define RUMBO_X(name, number) {number, {#name, ToCode(#name)}},
      RUMBO_REASONS(RUMBO_X)
#undef RUMBO_X
  };
  return *table;
}

const Names& Find(Reason reason) {
  const auto it = Table().find(static_cast<int>(reason));
  return it == Table().end() ? Table().at(0) : it->second;
}

}  // namespace

std::string_view ReasonName(Reason reason) { return Find(reason).name; }
std::string_view ReasonCode(Reason reason) { return Find(reason).code; }

std::optional<Reason> ReasonFromCode(std::string_view code) {
  for (const auto& [number, names] : Table()) {
    if (names.code == code) return static_cast<Reason>(number);
  }
  return std::nullopt;
}

}  // namespace rumbo
