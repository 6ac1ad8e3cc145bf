#include "engines/llamacpp/llama/constraint.h"

#include <algorithm>

#include "base/status.h"
#include "base/utf8.h"
#include "engines/llamacpp/core/regex_grammar.h"
#include "engines/llamacpp/core/schema_check.h"
#include "json-schema-to-grammar.h"

namespace rumbo {
namespace {

constexpr size_t kMaxGrammarBytes = 512 * 1024;
constexpr int kMaxGrammarDepth = 64;
constexpr int kMaxGrammarRules = 20000;

std::string PatternGrammar(std::string_view pattern) {
  common_json schema = common_json::object();
  schema["type"] = "string";
  schema["pattern"] = std::string(pattern);
  return json_schema_to_grammar(schema, true);
}

// The conversion's only sign that it gave up on a pattern is a line on stderr; but then the grammar is the
// same for every such pattern: that of any string.
bool PatternSupported(std::string_view pattern) {
  try {
    static const std::string given_up = PatternGrammar("no anchors");
    return PatternGrammar(pattern) != given_up;
  } catch (const std::exception&) {
    return false;
  }
}

absl::StatusOr<std::string> FromSchema(const std::string& text) {
  RUMBO_RETURN_IF_ERROR(CheckSchemaConstraint(text));
  try {
    return json_schema_to_grammar(common_json::parse(text), true);
  } catch (const std::exception& e) {
    return InvalidArgument("sampling.json_schema: " + SanitizeUtf8(e.what()));
  }
}

}  // namespace

absl::Status CheckSchemaConstraint(const std::string& schema) {
  return CheckSchema(schema, PatternSupported);
}

absl::Status CheckGrammarShape(const std::string& grammar) {
  if (grammar.size() > kMaxGrammarBytes) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kRequestTooLarge,
                 "the grammar has " + std::to_string(grammar.size()) + " bytes, at most " +
                     std::to_string(kMaxGrammarBytes) + " are taken");
  }
  int depth = 0;
  int rules = 0;
  char inside = 0;  // '"' or '[' while in a literal or a class
  for (size_t i = 0; i < grammar.size(); ++i) {
    const char c = grammar[i];
    if (inside != 0) {
      if (c == '\\') {
        ++i;
      } else if (c == (inside == '[' ? ']' : '"')) {
        inside = 0;
      }
      continue;
    }
    if (c == '"' || c == '[') inside = c;
    if (c == '#') i = std::min(grammar.find('\n', i), grammar.size()) - 1;
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (depth > kMaxGrammarDepth) {
      return InvalidArgument("the grammar nests deeper than " + std::to_string(kMaxGrammarDepth) + " groups");
    }
    if (c == ':' && grammar.compare(i, 3, "::=") == 0 && ++rules > kMaxGrammarRules) {
      return InvalidArgument("the grammar has more than " + std::to_string(kMaxGrammarRules) + " rules");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ConstraintGrammar(const SamplingParams& sampling) {
  std::string grammar;
  if (!sampling.json_schema.empty()) {
    RUMBO_ASSIGN_OR_RETURN(grammar, FromSchema(sampling.json_schema));
  } else if (!sampling.regex.empty()) {
    RUMBO_ASSIGN_OR_RETURN(grammar, RegexToGrammar(sampling.regex));
  } else {
    grammar = sampling.grammar;
  }
  RUMBO_RETURN_IF_ERROR(CheckGrammarShape(grammar));
  return grammar;
}

}  // namespace rumbo
