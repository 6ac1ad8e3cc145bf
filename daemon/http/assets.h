#pragma once

#include <span>
#include <string_view>

namespace rumbo {

// One file of the dashboard, as it was built into this program.
struct Asset {
  std::string_view path;  // "index.html", "app-1a2b3c4d.js"
  std::string_view content_type;
  std::string_view etag;  // quoted
  std::string_view plain;
  std::string_view gzip;
  bool immutable;  // its name holds its hash
};

// Generated from web/ by the build (web/embed.mjs), or the page that says that it was not (web/absent.cpp).
std::span<const Asset> DashboardAssets();

}  // namespace rumbo
