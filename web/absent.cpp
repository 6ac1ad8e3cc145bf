// What stands in for the dashboard in a build without Node.js.
#include "daemon/http/assets.h"

namespace rumbo {
namespace {

constexpr std::string_view kPage =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Rumbo</title>"
    "<h1>Rumbo is running</h1><p>This build has no dashboard: Node.js and npm were not there when it was "
    "configured "
    "(<code>-DRUMBO_DASHBOARD=ON</code> says why). Everything else works; <code>rumbo --help</code> shows "
    "what."
    "</html>\n";
constexpr Asset kAssets[] = {{"index.html", "text/html; charset=utf-8", "\"absent\"", kPage, {}, false}};

}  // namespace

std::span<const Asset> DashboardAssets() { return kAssets; }

}  // namespace rumbo
