#pragma once

#include <string>

#include "engines/api/catalog.h"

namespace rumbo {

// docs/engines.md: every engine of the catalog as Markdown, each statement with its maturity word and source.
std::string EnginesMarkdown(const EngineCatalog& catalog);

}  // namespace rumbo
