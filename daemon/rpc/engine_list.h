#pragma once

#include <vector>

#include "engines/api/catalog.h"
#include "engines/api/engine.h"
#include "rumbo/v1/admin.pb.h"

namespace rumbo {

// What the catalog says of `engine`, with its sources spelled out, and which of `installed` are builds of it.
void FillEngine(const CatalogEngine& engine, const EngineCatalog& catalog,
                const std::vector<InstalledEngine>& installed, v1::Engine* out);

}  // namespace rumbo
