#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engines/api/request.h"

namespace rumbo {

// The grammar (GBNF) that keeps the request's constraint; "" where it has none. Never weaker than asked for:
// what cannot be enforced is kInvalidArgument naming the construct. Bounded: schemas and grammars that are
// too large, too deep or too repetitive are refused before libllama sees them. Any thread.
absl::StatusOr<std::string> ConstraintGrammar(const SamplingParams& sampling);

// Refuses GBNF that libllama's recursive parser should not be given. O(size).
absl::Status CheckGrammarShape(const std::string& grammar);

// The schema part alone, for callers that let the chat template build the grammar.
absl::Status CheckSchemaConstraint(const std::string& schema);

}  // namespace rumbo
